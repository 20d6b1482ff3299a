"""The built-in player in a real browser, Chromium or Firefox.

player.py BROWSER TASK URL [MORE]: does a task with the play page of the application `live`, and says `ok`, or what was seen
instead. The tasks are the functions whose names begin with `task_`. The stream is `cam`.
"""

import http.server
import json
import os
import socketserver
import sys
import threading

import headless


class Firefox(headless.Firefox):
    """A browser that plays sound without being asked."""

    def start(self):
        with open(os.path.join(self.profile, "user.js"), "w") as settings:
            settings.write('user_pref("media.autoplay.default", 0);\nuser_pref("media.autoplay.blocking_policy", 0);\n')
            # A camera and a microphone that are made up.
            settings.write('user_pref("media.navigator.streams.fake", true);\nuser_pref("media.navigator.permission.disabled", true);\n')
        return super().start()


PLAYER = "document.getElementById('player')"
NAMES = {"webrtc": "WebRTC", "ll-hls": "low-latency HLS", "hls": "HLS", "dash": "DASH", "vod": "recording", "flv": "HTTP-FLV"}


def moves(browser, technology, player=PLAYER):
    """Frames of the technology are decoded and shown, and go on."""
    browser.wait(f"{technology}", lambda: browser.run(f"{player}?.technology ?? null") == technology)
    frames = f"{player}.video.getVideoPlaybackQuality().totalVideoFrames"
    time = f"{player}.video.currentTime"
    for reading in (frames, time):
        before = browser.run(reading)
        browser.wait(f"{reading} to grow", lambda: browser.run(reading) > before + 0.5)


def task_technology(browser, url, technology):
    """Pictures move over that technology alone, and the page says which it is."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&is360=true&playOrder={technology}")
    moves(browser, technology)
    browser.text("Live." if technology != "vod" else "Playing.")
    browser.text(NAMES[technology])
    browser.wait("the resolution", lambda: "640 × 360" in browser.run("document.getElementById('figures').innerText"))


def task_http2(browser, url):
    """HLS plays from a page by HTTPS, and all of it comes over HTTP/2."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&playOrder=hls")
    moves(browser, "hls")
    protocols = "performance.getEntriesByType('resource').map((entry) => [entry.name, entry.nextHopProtocol])"
    entries = browser.run(protocols)
    others = [entry for entry in entries if entry[1] != "h2"]
    assert len(entries) > 5 and not others, f"not over HTTP/2: {others} of {len(entries)}"


def task_dvr(browser, url, technology):
    """A viewer goes half a minute back by the bar, to what memory no longer has, plays on from there, and returns to the live edge."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&dvr=true&playOrder={technology}")
    moves(browser, technology)
    bar = f"{PLAYER}.shadowRoot.querySelector('.back')"
    seek, behind = f"{bar}.querySelector('input')", f"{bar}.querySelector('output').textContent"
    browser.wait("the bar", lambda: browser.run(f"!{bar}.hidden && Number({seek}.max) - Number({seek}.min) > 35"))
    assert browser.run(behind) == "live", browser.run(behind)
    time = f"{PLAYER}.video.currentTime"
    live = browser.run(time)
    browser.run(f"(() => {{ {seek}.value = {time} - 30; {seek}.dispatchEvent(new Event('input')); }})()")
    wanted = live - 30
    browser.wait("the earlier time", lambda: browser.run(time) > wanted + 1 and not browser.run(f"{PLAYER}.video.seeking"))
    assert browser.run(time) < wanted + 15, f"{browser.run(time)} and not {wanted}"
    moves(browser, technology)
    assert browser.run(behind).startswith("−0:"), browser.run(behind)
    browser.run(f"{bar}.querySelector('button').click()")
    browser.wait("the live edge", lambda: browser.run(behind) == "live" and browser.run(time) > live)
    moves(browser, technology)


def task_file(browser, url, path):
    """A file below `streams/` is played, to its end, and can be played again."""
    browser.go(f"{url}live/play.html?id={path}&mute=true&playOrder=webrtc,hls")
    moves(browser, "vod")
    browser.run(f"void ({PLAYER}.video.currentTime = {PLAYER}.video.duration - 0.2)")
    browser.text("The recording has ended.")
    browser.run(f"{PLAYER}.shadowRoot.querySelector('.start').click()")
    moves(browser, "vod")


def task_falls(browser, url):
    """A technology that is missing or unknown is passed over; the technology after it plays. The choice of the page is taken."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&playOrder=dash,vod,nonsense,hls")
    moves(browser, "hls")
    browser.run("""(() => {
        const field = document.getElementById("technology");
        field.value = "flv";
        field.dispatchEvent(new Event("change", { bubbles: true }));
    })()""")
    moves(browser, "flv")


def task_missing(browser, url):
    """A stream that is not live is waited for; a file that is not there is not."""
    browser.go(f"{url}live/play.html?id=nobody&mute=true")
    browser.text("“nobody” is not live. Waiting for it…")
    browser.go(f"{url}live/play.html?id=streams/none.mp4")
    browser.text("There is no “streams/none.mp4”.")


def task_returns(browser, url, gone, go_on):
    """A stream that ends is waited for, and plays when it is back, over each technology."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&playOrder=flv")
    moves(browser, "flv")
    open(gone, "w").close()
    browser.text("Waiting for it…")
    open(go_on, "w").close()
    moves(browser, "flv")


def task_stereo(browser, url, left, right):
    """Over WebRTC each channel has its own tone, and nothing of the other's."""
    browser.go(f"{url}live/play.html?id=cam&playOrder=webrtc")
    moves(browser, "webrtc")
    browser.run(f"""(async () => {{
        const context = new AudioContext();
        await context.resume();
        const split = context.createChannelSplitter(2);
        context.createMediaStreamSource({PLAYER}.video.srcObject).connect(split);
        const ears = [0, 1].map((channel) => {{
            const ear = new AnalyserNode(context, {{ fftSize: 8192, smoothingTimeConstant: 0 }});
            split.connect(ear, channel);
            return ear;
        }});
        globalThis.levels = (frequencies) => ears.map((ear) => {{
            const bins = new Float32Array(ear.frequencyBinCount);
            ear.getFloatFrequencyData(bins);
            const around = (frequency) => {{
                const at = Math.round(frequency * 8192 / context.sampleRate);
                return Math.max(-200, ...bins.slice(at - 2, at + 3));
            }};
            return frequencies.map(around);
        }});
        return true;
    }})()""")
    tones = json.dumps([float(left), float(right)])

    def apart():
        (left_own, left_other), (right_other, right_own) = browser.run(f"levels({tones})")
        return left_own > -60 and right_own > -60 and left_own - left_other > 25 and right_own - right_other > 25

    try:
        browser.wait("a tone in each ear", apart)
    except AssertionError as error:
        raise AssertionError(f"levels in dB, by ear and tone: {browser.run(f'levels({tones})')}") from error


# Peers of a page by WHIP and WHEP, each with a data channel, and the sizes and texts of the messages that came.
PEERS = """(() => {
    const came = { publisher: [], player: [] };
    const start = async (name, peer, label, path) => {
        const channel = peer.createDataChannel(label);
        channel.binaryType = "arraybuffer";
        channel.onmessage = ({ data }) => came[name].push(typeof data === "string" ? data : data.byteLength);
        await peer.setLocalDescription();
        const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: peer.localDescription.sdp });
        if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
        await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
        return { peer, channel, resource: new URL(answer.headers.get("Location"), answer.url) };
    };
    const video = document.createElement("video");
    Object.assign(globalThis, {
        came,
        publishes: async (path) => {
            const media = await navigator.mediaDevices.getUserMedia({ video: true, audio: true });
            const peer = new RTCPeerConnection();
            media.getTracks().forEach((track) => peer.addTransceiver(track, { direction: "sendonly", streams: [media] }));
            globalThis.publisher = await start("publisher", peer, "cam", path);
            return true;
        },
        plays: async (path) => {
            const peer = new RTCPeerConnection();
            const media = new MediaStream();
            peer.ontrack = ({ track }) => media.addTrack(track);
            ["video", "audio"].forEach((kind) => peer.addTransceiver(kind, { direction: "recvonly" }));
            Object.assign(video, { muted: true, autoplay: true, srcObject: media });
            document.body.append(video);
            globalThis.player = await start("player", peer, "mine", path);
            return true;
        },
        received: async (kind) => [...(await globalThis.player.peer.getStats()).values()].find((one) => one.type === "inbound-rtp" && one.kind === kind) ?? {},
        ends: async (name) => {
            const { peer, resource } = globalThis[name];
            const { status } = await fetch(resource, { method: "DELETE" });
            peer.close();
            return status;
        },
    });
})()"""


def task_peers(browser, url):
    """A page publishes by WHIP and plays itself by WHEP: pictures, sound and messages both ways, of one SCTP packet and of many."""
    browser.go(f"{url}live/play.html?id=nobody&autoplay=false")
    browser.run(f"void {PEERS}")
    browser.run("publishes('whip/mirror')")
    browser.wait("the publisher", lambda: browser.run("publisher.peer.connectionState") == "connected")
    browser.wait("the stream", lambda: browser.run("plays('whep/mirror').catch(() => false)"))
    browser.wait("pictures", lambda: browser.run("received('video').then(({ framesDecoded }) => framesDecoded ?? 0)") > 60)
    codecs = browser.run("player.peer.getStats().then((all) => [...all.values()].filter(({ type }) => type === 'codec').map(({ mimeType }) => mimeType))")
    assert {"video/VP8", "audio/opus"} <= set(codecs), codecs
    browser.wait("sound", lambda: browser.run("received('audio').then(({ audioLevel, totalAudioEnergy }) => totalAudioEnergy ?? audioLevel ?? 0)") > 0)
    lost = browser.run("received('video').then(({ packetsLost }) => packetsLost)")
    assert lost == 0, f"{lost} packets lost"
    for name in ("publisher", "player"):
        browser.wait(f"the channel of the {name}", lambda: browser.run(f"{name}.channel.readyState") == "open")
    sizes = [1, 65_536, 262_144]
    for sender, receiver in (("publisher", "player"), ("player", "publisher")):
        browser.run(f"void {sender}.channel.send('of the {sender}')")
        browser.run(f"void {sizes}.forEach((size) => {sender}.channel.send(new Uint8Array(size)))")
        wanted = [f"of the {sender}", *sizes]
        try:
            browser.wait(f"messages of the {sender}", lambda: browser.run(f"came.{receiver}") == wanted)
        except AssertionError as error:
            raise AssertionError(f"came: {browser.run('came')}") from error
    ended = [browser.run(f"ends('{name}')") for name in ("player", "publisher")]
    assert ended == [200, 200], ended


# A publisher of a picture in motion with spatial layers, beside the peers.
LAYERS = """(() => {
    const publishesLayers = async (path, mimeType, scalabilityMode, bits) => {
        const canvas = Object.assign(document.createElement("canvas"), { width: 960, height: 540 });
        const context = canvas.getContext("2d");
        let number = 0;
        setInterval(() => {
            number += 1;
            context.fillStyle = `hsl(${number % 360}, 60%, 50%)`;
            context.fillRect(0, 0, canvas.width, canvas.height);
            context.fillStyle = "#fff";
            context.fillRect((number * 16) % canvas.width, 0, 60, canvas.height);
        }, 100);
        const peer = new RTCPeerConnection();
        const [track] = canvas.captureStream(10).getVideoTracks();
        const transceiver = peer.addTransceiver(track, { direction: "sendonly", sendEncodings: [{ scalabilityMode, maxBitrate: bits }] });
        const { codecs } = RTCRtpSender.getCapabilities("video");
        transceiver.setCodecPreferences(codecs.filter((codec) => codec.mimeType === mimeType || codec.mimeType === "video/rtx"));
        await peer.setLocalDescription();
        const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: peer.localDescription.sdp });
        if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
        const described = await answer.text();
        await peer.setRemoteDescription({ type: "answer", sdp: described });
        globalThis.publisher = { peer };
        return { offered: peer.localDescription.sdp.includes("#dependency-descriptor"), answered: described.includes("#dependency-descriptor") };
    };
    const sent = async () => [...(await globalThis.publisher.peer.getStats()).values()].find((one) => one.type === "outbound-rtp") ?? {};
    Object.assign(globalThis, { publishesLayers, sent });
})()"""


def task_layers(browser, url, codec, mode, done):
    """A page publishes spatial layers by WHIP, and plays the top one by WHEP. It goes on publishing until a file is there."""
    browser.go(f"{url}live/play.html?id=nobody&autoplay=false")
    browser.run(f"void {PEERS}")
    browser.run(f"void {LAYERS}")
    negotiated = browser.run(f"publishesLayers('whip/mirror', 'video/{codec}', '{mode}', 1200000)")
    assert negotiated["offered"] == negotiated["answered"], negotiated
    browser.wait("the publisher", lambda: browser.run("publisher.peer.connectionState") == "connected")
    browser.wait("the layers", lambda: browser.run("sent().then(({ scalabilityMode }) => scalabilityMode)") == mode)
    browser.wait("the stream", lambda: browser.run("plays('whep/mirror').catch(() => false)"))
    try:
        browser.wait("the top layer", lambda: browser.run("received('video').then(({ frameWidth }) => frameWidth)") == 960)
        before = browser.run("received('video').then(({ framesDecoded }) => framesDecoded)")
        browser.wait("pictures", lambda: browser.run("received('video').then(({ framesDecoded }) => framesDecoded)") > before + 30)
    except AssertionError as error:
        sent, received = browser.run("sent()"), browser.run("received('video')")
        raise AssertionError(f"{error}: sent {sent}, received {received}") from error
    lost = browser.run("received('video').then(({ packetsLost }) => packetsLost)")
    assert lost == 0, f"{lost} packets lost"
    print(json.dumps(negotiated), file=sys.stderr)
    open(done + ".plays", "w").close()
    browser.wait("the end", lambda: os.path.exists(done))


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of another origin with a player: in a frame, or by the module."""
    url = ""

    def do_GET(self):
        framed = f'<iframe id="frame" width="640" height="360" allow="autoplay" src="{self.url}live/play.html?id=cam&mute=true"></iframe>'
        module = f'<script type="module" src="{self.url}live/millstream-player.js"></script><millstream-player id="player" stream="cam" order="hls" muted></millstream-player>'
        page = f"<!doctype html><title>elsewhere</title><body>{framed if self.path == '/frame' else module}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *args):
        pass


def task_embedded(browser, url):
    """The module plays in a page of another origin; in a frame the page is the player alone."""
    Elsewhere.url = url
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://localhost:{server.server_address[1]}"
        browser.go(f"{here}/module")
        moves(browser, "hls")
        # A frame of one's own origin can be looked into.
        browser.go(f"{url}live/play.html?id=nobody")
        browser.run(f"""(() => {{
            const frame = Object.assign(document.createElement("iframe"), {{ src: "{url}live/play.html?id=cam&mute=true&playOrder=flv", allow: "autoplay", width: 640, height: 360 }});
            document.body.replaceChildren(frame);
        }})()""")
        inner = "document.querySelector('iframe').contentDocument"
        moves(browser, "flv", f"{inner}?.getElementById('player')")
        assert browser.run(f"{inner}.body.innerText.trim()") == "", "there is more than the player"
        assert browser.run(f"{inner}.getElementById('player').getBoundingClientRect().height === {inner}.defaultView.innerHeight")
        server.shutdown()


def task_events(browser, url):
    """The actions of a viewer are reported to the server."""
    browser.go(f"{url}live/play.html?id=cam&mute=true&playOrder=hls&sendAnalytic=true")
    moves(browser, "hls")
    browser.run(f"{PLAYER}.video.pause()")
    page = lambda: browser.run("fetch('/metrics').then((answer) => answer.text())")
    for event in ("playStartedFirstTime", "playStarted", "playPaused"):
        line = f'millstream_player_events_total{{event="{event}",protocol="hls"}} 1'
        browser.wait(line, lambda: line in page())


def task_axe(browser, url):
    """The page and the player have nothing that axe calls serious, light and dark, wide and narrow; the keyboard reaches all of it."""
    import axe_core_python

    rules = open(os.path.join(os.path.dirname(axe_core_python.__file__), "axe.min.js")).read()
    found = []
    for size in ("desk", "phone"):
        for dark in (False, True):
            browser.size(size, dark)
            for place, wanted in (("cam&mute=true&playOrder=hls", "Live."), ("cam&autoplay=false", "Ready."), ("nobody", "Waiting for it…")):
                browser.go(f"{url}live/play.html?id={place}")
                browser.text(wanted)
                browser.run(rules)
                result = browser.run("axe.run(document, { resultTypes: ['violations'] })")
                found += [f"{place} {size}: {one['id']}: {node['html'][:200]}" for one in result["violations"] for node in one["nodes"][:3]]
                assert browser.run("document.documentElement.scrollWidth <= innerWidth"), f"{place} {size} is wider than the screen"
    assert not found, "\n".join(found)


def main():
    program, task, url, *more = sys.argv[1:]
    browser = {"chromium": headless.Chromium, "firefox": Firefox}[program]()
    try:
        globals()[f"task_{task}"](browser, url, *more)
        assert not browser.told, f"the page reports: {browser.told}"
    finally:
        browser.close()
    print("ok")


if __name__ == "__main__":
    main()
