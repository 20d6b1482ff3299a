"""Subtitles in a page of Chromium, by hls.js and by dash.js.

subtitles.py URL ADDRESS: plays the address below the application's streams, sends cues to the stream, and says `ok` when one of them was shown
at its time, or what was seen instead.
"""

import json
import os
import time
import urllib.request

import headless

# A player that is short of a processor skips parts, and begins a caption or a sound anew.
headless.PATIENCE = 75.0

PAGES = os.path.join(os.path.dirname(__file__), "../../src/protocol/http/pages/vendor")
STAGE = """(() => {
    const video = document.createElement("video");
    document.body.append(video);
    video.muted = true;
    globalThis.stage = { video, told: [] };
    stage.shown = () => [...video.textTracks].flatMap((track) => [...(track.activeCues ?? [])].map((cue) => cue.text.trim()));
    stage.all = () => [...video.textTracks].map((track) =>
        [track.kind, track.label, track.language, track.mode, [...(track.cues ?? [])].map((cue) => [cue.startTime, cue.endTime, cue.text])]);
})()"""
HLS = """(() => {
    const player = new Hls({ lowLatencyMode: true, renderTextTracksNatively: true });
    player.on(Hls.Events.ERROR, (_, error) => { if (error.fatal) stage.told.push(error.details); });
    player.loadSource("ADDRESS");
    player.attachMedia(stage.video);
    stage.video.play();
    stage.languages = () => player.subtitleTracks.map((track) => track.lang);
    stage.choose = (at) => { player.subtitleDisplay = true; player.subtitleTrack = at; };
})()"""
DASH = """(() => {
    const player = dashjs.MediaPlayer().create();
    player.on("error", ({ error }) => stage.told.push(error.message ?? String(error)));
    player.updateSettings({ streaming: { text: { defaultEnabled: true } } });
    player.initialize(stage.video, "ADDRESS", true);
    stage.languages = () => player.isReady() ? player.getTracksFor("text").map((track) => track.lang) : [];
    stage.choose = (at) => player.setTextTrack(at);
})()"""


def say(url, count):
    body = json.dumps({"text": f"HELLO {count}", "language": "en", "duration": 3}).encode()
    request = urllib.request.Request(f"{url}live/rest/v2/broadcasts/cam/subtitles", body, {"Content-Type": "application/json"})
    assert json.load(urllib.request.urlopen(request))["success"]


def play(browser, url, address):
    browser.go(f"{url}live/play.html?id=nobody&mute=true")
    library, start = ("dash.js", DASH) if address.endswith("mpd") else ("hls.js", HLS)
    browser.run(open(os.path.join(PAGES, library)).read() + ";0")
    browser.run(STAGE)
    browser.run(start.replace("ADDRESS", f"{url}live/streams/{address}"))
    browser.wait("both languages", lambda: browser.run("stage.languages().join()") == "en,de")
    at = lambda: browser.run("stage.video.currentTime")
    begun = browser.wait("pictures", at)
    browser.wait("pictures to go on", lambda: at() > begun + 1)
    browser.run("void stage.choose(0)")
    count, due = 0, 0.0

    def shown():
        nonlocal count, due
        if time.monotonic() > due:
            count, due = count + 1, time.monotonic() + 1
            say(url, count)
        return any("HELLO" in text for text in browser.run("stage.shown()"))

    try:
        browser.wait("a cue at its time", shown)
    except AssertionError as error:
        raise AssertionError(f"{browser.run('stage.all()')} at {at()} {browser.run('stage.told')}") from error
    before = at()
    browser.wait("pictures to go on", lambda: at() > before + 1)
    told = browser.run("stage.told")
    assert not told, told


if __name__ == "__main__":
    headless.alone(play)
