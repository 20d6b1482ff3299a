"""Captions in a page of Chromium, by hls.js.

captions.py URL ADDRESS: plays the address below the application's streams, and says `ok` when a caption was shown, or what was seen instead.
"""

import os
import sys

import headless

# A player that is short of a processor skips parts, and begins a caption or a sound anew.
headless.PATIENCE = 75.0

LIBRARY = os.path.join(os.path.dirname(__file__), "../../src/protocol/http/pages/vendor/hls.js")
STAGE = """(() => {
    const video = document.createElement("video");
    document.body.append(video);
    const player = new Hls({ lowLatencyMode: true });
    globalThis.stage = { told: [], player };
    player.on(Hls.Events.ERROR, (_, error) => { if (error.fatal) stage.told.push(error.details); });
    player.loadSource("ADDRESS");
    player.attachMedia(video);
    video.muted = true;
    video.play();
    stage.tracks = () => [...video.textTracks].map((track) => {
        track.mode = "showing";
        const cues = [...(track.cues ?? [])].map((cue) => cue.text.trim());
        return [track.kind, track.label, track.language, cues.join("|")];
    });
})()"""


def main():
    url, address = sys.argv[1:]
    browser = headless.Chromium()
    try:
        browser.go(f"{url}live/play.html?id=nobody&mute=true")
        browser.run(open(LIBRARY).read() + ";0")
        browser.run(STAGE.replace("ADDRESS", f"{url}live/streams/{address}"))
        time = lambda: browser.run("document.querySelector('body > video').currentTime")
        begun = browser.wait("pictures", time)
        browser.wait("pictures to go on", lambda: time() > begun + 1)
        tracks = lambda: browser.run("stage.tracks()")
        try:
            browser.wait("a caption", lambda: any("HELLO" in track[3] for track in tracks()))
        except AssertionError as error:
            raise AssertionError(f"{tracks()} {browser.run('stage.told')}") from error
        if "master" in address:
            assert any(track[:3] == ["captions", "en (CC1)", "en"] for track in tracks()), tracks()
    finally:
        browser.close()
    print("ok")


if __name__ == "__main__":
    main()
