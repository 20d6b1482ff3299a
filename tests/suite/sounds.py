"""Several sounds in a page of Chromium, by hls.js and by dash.js.

sounds.py URL ADDRESS: plays the address below the application's streams, chooses the second sound and the first one again, and says `ok`,
or what was seen instead. The sounds are tones.
"""

import os

import headless

# A player that is short of a processor skips parts, and begins a caption or a sound anew.
headless.PATIENCE = 75.0

PAGES = os.path.join(os.path.dirname(__file__), "../../src/protocol/http/pages/vendor")
FIRST, SECOND = 440, 1760
# A video with an ear that tells the louder of both tones; `tell` is what a player does not put up with.
STAGE = """(async () => {
    const video = document.createElement("video");
    document.body.append(video);
    const context = new AudioContext();
    await context.resume();
    const ear = new AnalyserNode(context, { fftSize: 8192, smoothingTimeConstant: 0 });
    context.createMediaElementSource(video).connect(ear);
    const level = (frequency) => {
        const bins = new Float32Array(ear.frequencyBinCount);
        ear.getFloatFrequencyData(bins);
        const at = Math.round(frequency * 8192 / context.sampleRate);
        return Math.max(-200, ...bins.slice(at - 2, at + 3));
    };
    const tone = () => {
        const [first, second] = [FIRST, SECOND].map(level);
        if (Math.max(first, second) < -60) return "silence";
        return first > second + 20 ? "first" : second > first + 20 ? "second" : "both";
    };
    globalThis.stage = { video, tone, told: [] };
})()""".replace("FIRST, SECOND", f"{FIRST}, {SECOND}")
HLS = """(() => {
    const player = new Hls({ lowLatencyMode: true });
    player.on(Hls.Events.ERROR, (_, error) => { if (error.fatal) stage.told.push(error.details); });
    player.loadSource("ADDRESS");
    player.attachMedia(stage.video);
    stage.video.play();
    stage.languages = () => player.audioTracks.map((track) => track.lang);
    stage.choose = (at) => { player.audioTrack = at; };
})()"""
DASH = """(() => {
    const player = dashjs.MediaPlayer().create();
    player.on("error", ({ error }) => stage.told.push(error.message ?? String(error)));
    player.initialize(stage.video, "ADDRESS", true);
    const tracks = () => player.isReady() ? player.getTracksFor("audio") : [];
    stage.languages = () => tracks().map((track) => track.lang);
    stage.choose = (at) => player.setCurrentTrack(tracks()[at]);
})()"""


def play(browser, url, address):
    browser.go(f"{url}live/play.html?id=nobody&mute=true")
    library, start = ("dash.js", DASH) if address.endswith("mpd") else ("hls.js", HLS)
    browser.run(open(os.path.join(PAGES, library)).read() + ";0")
    browser.run(STAGE)
    browser.run(start.replace("ADDRESS", f"{url}live/streams/{address}"))
    browser.wait("both languages", lambda: browser.run("stage.languages().map((one) => one.slice(0, 2)).join()") == "de,en")
    for choice, wanted in ((None, "first"), (1, "second"), (0, "first")):
        if choice is not None:
            browser.run(f"void stage.choose({choice})")
        browser.wait(f"the {wanted} sound", lambda: browser.run("stage.tone()") == wanted)
        before = browser.run("stage.video.currentTime")
        browser.wait("pictures to go on", lambda: browser.run("stage.video.currentTime") > before + 1)
        browser.wait(f"still the {wanted} sound", lambda: browser.run("stage.tone()") == wanted)
    told = browser.run("stage.told")
    assert not told, told


if __name__ == "__main__":
    headless.alone(play)
