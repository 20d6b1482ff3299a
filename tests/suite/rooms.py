"""Rooms in Chromium: pages that speak as the SDK's do publish into a main track and play it.

rooms.py TASK URL [FOLDER]: does a task in the application `live`, and says `ok`, or what was seen instead. Pictures go to the folder.
"""

import sys

import headless

# A page's side of the signalling. `peers` are its connections by stream id, `heard` what the server said, `tracks` what a main track
# brought: by the name of the track, its media track and the connection.
PAGE = """(() => {
    globalThis.heard = [];
    globalThis.peers = {};
    globalThis.tracks = {};
    const socket = new WebSocket(`ws://${location.host}/live/websocket?target=origin`);
    globalThis.say = (message) => socket.send(JSON.stringify(message));
    const media = () => {
        const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 240 });
        const paint = canvas.getContext("2d");
        let n = 0;
        setInterval(() => { paint.fillStyle = `hsl(${hue ?? n++ * 7 % 360} 80% 50%)`; paint.fillRect(0, 0, 320, 240); }, 40);
        const tone = new OscillatorNode(voice);
        const out = voice.createMediaStreamDestination();
        tone.connect(gain).connect(out);
        tone.start();
        return [...canvas.captureStream(25).getTracks(), ...out.stream.getTracks()];
    };
    globalThis.channels = {};
    globalThis.data = [];
    // The loudness of what it publishes, and its colour; by itself it changes all the time.
    globalThis.voice = new AudioContext();
    globalThis.gain = new GainNode(voice, { gain: 1 });
    globalThis.hue = null;
    const channel = (id, one) => {
        channels[id] = one;
        one.onmessage = ({ data: text }) => data.push(text);
    };
    const peer = (id) => {
        if (peers[id]) return peers[id];
        const connection = new RTCPeerConnection();
        connection.ondatachannel = (event) => channel(id, event.channel);
        connection.onicecandidate = ({ candidate }) => candidate && say({
            command: "takeCandidate", streamId: id, label: candidate.sdpMLineIndex, id: candidate.sdpMid, candidate: candidate.candidate,
        });
        return peers[id] = connection;
    };
    const describe = async (id, description) => {
        await peers[id].setLocalDescription(description);
        say({ command: "takeConfiguration", streamId: id, type: description.type, sdp: description.sdp });
    };
    globalThis.publish = (id, mainTrack) => say({ command: "publish", streamId: id, mainTrack, video: true, audio: true, metaData: JSON.stringify({ of: id }) });
    globalThis.join = (id) => say({ command: "join", streamId: id, multiPeer: false, mode: "both" });
    globalThis.play = (room, more) => say({ command: "play", streamId: room, room: "", trackList: [], ...more });
    globalThis.take = (name) => heard.find((message) => message.command === name || message.definition === name);
    socket.onmessage = async ({ data }) => {
        const message = JSON.parse(data);
        heard.push(message);
        const id = message.streamId;
        if (message.command === "start") {
            const connection = peer(id);
            media().forEach((track) => connection.addTrack(track, new MediaStream([track])));
            channel(id, connection.createDataChannel(id));
            connection.ontrack = ({ track, streams, transceiver }) => { tracks[track.kind] = { track, connection, streams }; };
            await describe(id, await connection.createOffer());
        }
        if (message.command === "takeConfiguration" && message.type === "offer") {
            const connection = peer(id);
            if (message.idMapping) {
                connection.ontrack = ({ track, streams, transceiver }) => {
                    const name = message.idMapping[transceiver.mid] ?? peers.names[transceiver.mid];
                    tracks[name] = { track, connection, stream: streams[0]?.id };
                    streams[0].addEventListener("removetrack", (event) => {
                        if (event.track === track) delete tracks[name];
                    });
                    track.onended = () => { delete tracks[name]; };
                    const shown = Object.assign(document.createElement(track.kind), { srcObject: new MediaStream([track]), muted: true, autoplay: true });
                    document.body.append(shown);
                    if (name.includes("videoTrack")) globalThis.seat = shown;
                };
                peers.names = { ...peers.names, ...message.idMapping };
            } else {
                media().forEach((track) => connection.addTrack(track, new MediaStream([track])));
                connection.ontrack = ({ track }) => { tracks[track.kind] = { track, connection }; };
            }
            await connection.setRemoteDescription({ type: "offer", sdp: message.sdp });
            await describe(id, await connection.createAnswer());
        }
        if (message.command === "takeConfiguration" && message.type === "answer") {
            await peer(id).setRemoteDescription({ type: "answer", sdp: message.sdp });
        }
        if (message.command === "takeCandidate") {
            await peer(id).addIceCandidate({ sdpMLineIndex: message.label, candidate: message.candidate });
        }
    };
    globalThis.frames = async (name) => {
        const { track, connection } = tracks[name] ?? {};
        if (!track) return -1;
        const stats = [...(await connection.getStats(track)).values()].find(({ type }) => type === "inbound-rtp");
        return stats?.framesDecoded ?? stats?.packetsReceived ?? 0;
    };
    // The colour of what the seat shows: red, green or blue.
    globalThis.shown = () => {
        const { videoWidth: width, videoHeight: height } = seat;
        const paint = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
        paint.drawImage(seat, 0, 0);
        const [red, green, blue] = paint.getImageData(width / 2, height / 2, 1, 1).data;
        return { [red]: "red", [green]: "green", [blue]: "blue" }[Math.max(red, green, blue)];
    };
    return new Promise((resolve) => { socket.onopen = () => resolve(true); });
})()"""


TABS = []


def page(browser, url):
    """A page of the server with a socket of its own."""
    tab = headless.Tab(browser)
    TABS.append(tab)
    tab.go(f"{url}live/play.html?id=nobody&autoplay=false")
    assert tab.run(PAGE)
    return tab


def names(tab):
    return sorted(tab.run("Object.keys(tracks)"))


def hears(tab, name):
    tab.wait(name, lambda: tab.run(f"Boolean(take({name!r}))"))
    return tab.run(f"take({name!r})")


def flows(tab, name):
    """More and more of a track comes."""
    tab.wait(f"{name} to be there", lambda: tab.run(f"frames({name!r})") >= 0)
    before = tab.run(f"frames({name!r})")
    tab.wait(f"{name} to grow beyond {before}", lambda: tab.run(f"frames({name!r})") > before + 5)


def sees(tab, *ids):
    wanted = sorted(f"ARDAMS{kind}{id}" for kind in "av" for id in ids)
    tab.wait(f"the tracks {wanted}", lambda: names(tab) == wanted or None)
    for name in wanted:
        flows(tab, name)


def task_late(browser, url):
    """A viewer of a stream stays with it when it becomes a room, and sees who comes; the stream leaves before the others."""
    host, viewer = page(browser, url), page(browser, url)
    host.run("publish('room', '')")
    hears(host, "publish_started")
    viewer.run("play('room')")
    sees(viewer, "room")
    viewer.run("void (globalThis.kept = ['v', 'a'].map((kind) => tracks[`ARDAMS${kind}room`].track))")
    guests = {id: page(browser, url) for id in ("ben", "cat")}
    guests["ben"].run("publish('ben', 'room')")
    sees(viewer, "room", "ben")
    guests["cat"].run("publish('cat', 'room')")
    sees(viewer, "room", "ben", "cat")
    assert viewer.run("kept[0] === tracks.ARDAMSvroom.track && kept[1] === tracks.ARDAMSaroom.track"), "its tracks go on"
    guests["ben"].run("say({ command: 'stop', streamId: 'ben' })")
    sees(viewer, "room", "cat")
    host.run("say({ command: 'stop', streamId: 'room' })")
    sees(viewer, "cat")
    guests["ben"].run("peers.ben.close(), delete peers.ben, publish('ben', 'room')")
    sees(viewer, "ben", "cat")
    for id, tab in guests.items():
        tab.run(f"say({{ command: 'stop', streamId: '{id}' }})")
    hears(viewer, "play_finished")


def task_late_seats(browser, url):
    """The same where a viewer has one seat: the speaker's."""
    host, viewer, guest = page(browser, url), page(browser, url), page(browser, url)
    host.run("publish('room', '')")
    hears(host, "publish_started")
    viewer.run("play('room')")
    sees(viewer, "room")
    guest.run("publish('ben', 'room')")
    wanted = ["ARDAMSaaudioTrack0", "ARDAMSvvideoTrack0"]
    viewer.wait("the seats", lambda: names(viewer) == wanted or None)
    for name in wanted:
        flows(viewer, name)


def task_conference(browser, url):
    """Three publish and play the room, without themselves; one leaves, one comes in its place; the last sees the room end."""
    tabs = {id: page(browser, url) for id in ("ann", "ben", "cat")}
    for id, tab in tabs.items():
        tab.run(f"publish({id!r}, 'room1')")
        hears(tab, "publish_started")
        tab.run(f"play('room1', {{ userPublishId: {id!r} }})")
    for id, tab in tabs.items():
        hears(tab, "play_started")
        sees(tab, *(other for other in tabs if other != id))
    tabs["ben"].run("say({ command: 'stop', streamId: 'ben' })")
    sees(tabs["ann"], "cat")
    sees(tabs["cat"], "ann")
    late = page(browser, url)
    late.run("publish('dan', 'room1')")
    hears(late, "publish_started")
    late.run("play('room1', { trackList: ['!dan'] })")
    sees(late, "ann", "cat")
    sees(tabs["ann"], "cat", "dan")
    # Unwanted tracks are not sent.
    tabs["ann"].run("say({ command: 'enableTrack', streamId: 'room1', trackId: 'dan', enabled: false })")

    def stands():
        before = tabs["ann"].run("frames('ARDAMSvdan')")
        flows(tabs["ann"], "ARDAMSvcat")
        return before == tabs["ann"].run("frames('ARDAMSvdan')")

    tabs["ann"].wait("a track that stands", stands)
    tabs["ann"].run("say({ command: 'enableTrack', streamId: 'room1', trackId: 'ARDAMSvdan', enabled: true })")
    flows(tabs["ann"], "ARDAMSvdan")
    # Questions of a page about its room.
    ann = tabs["ann"]
    ann.run("say({ command: 'getRoomInfo', room: 'room1', streamId: 'ann' })")
    assert sorted(hears(ann, "roomInformation")["streams"]) == ["ann", "cat", "dan"]
    ann.run("say({ command: 'getTrackList', streamId: 'room1' })")
    assert sorted(hears(ann, "trackList")["trackList"]) == ["ann", "cat", "dan"]
    ann.run("say({ command: 'getSubtracks', streamId: 'room1', offset: 0, size: 2 })")
    assert len(hears(ann, "subtrackList")["subtrackList"]) == 2
    assert ann.run("take('subtrackList').subtrackList.map((one) => JSON.parse(JSON.parse(one).metaData).of === JSON.parse(one).streamId)") == [True, True]
    ann.run("say({ command: 'getSubtracksCount', streamId: 'room1' })")
    assert hears(ann, "subtrackCount")["count"] == 3
    for id, tab in {**tabs, "dan": late}.items():
        tab.run(f"say({{ command: 'stop', streamId: {id!r} }})")
    assert hears(late, "play_finished")["streamId"] == "room1"


def task_empty(browser, url):
    """A participant alone in a room is connected all the same, and sees newcomers."""
    alone = page(browser, url)
    alone.run("play('room2')")
    assert hears(alone, "error")["definition"] == "no_stream_exist"
    alone.run("publish('ann', 'room2')")
    hears(alone, "publish_started")
    hears(alone, "streaming_started")
    alone.run("play('room2', { userPublishId: 'ann' })")
    hears(alone, "play_started")
    alone.wait("a connection", lambda: alone.run("peers.room2.connectionState") == "connected")
    other = page(browser, url)
    other.run("publish('ben', 'room2')")
    sees(alone, "ben")
    # A stream that moves to another room is seen there, and no more here.
    alone.run("heard.length = 0")
    other.run("say({ command: 'stop', streamId: 'ben' })")
    alone.wait("nobody", lambda: not names(alone))


def reads(tab, text):
    """A message by a data channel; how often it came."""
    tab.wait(text, lambda: tab.run(f"data.some((one) => one.includes({text!r}))"))
    return tab.run(f"data.filter((one) => one.includes({text!r})).length")


def opens(tab, id):
    tab.wait("a data channel", lambda: tab.run(f"channels[{id!r}]?.readyState === 'open'"))


def task_chat(browser, url):
    """Messages of a publisher reach all others of its room, those of a viewer each once; pages hear of streams and videos."""
    tabs = {id: page(browser, url) for id in ("ann", "ben")}
    for id, tab in tabs.items():
        tab.run(f"publish({id!r}, 'room3')")
        hears(tab, "publish_started")
        tab.run(f"play('room3', {{ userPublishId: {id!r} }})")
        hears(tab, "play_started")
    watcher = page(browser, url)
    watcher.run("play('room3')")
    sees(watcher, "ann", "ben")
    for tab, id in ((tabs["ann"], "ann"), (tabs["ann"], "room3"), (tabs["ben"], "room3"), (watcher, "room3")):
        opens(tab, id)
    tabs["ann"].run("channels.ann.send('hello of ann')")
    assert reads(tabs["ben"], "hello of ann") == 1
    assert reads(watcher, "hello of ann") == 1
    watcher.run("channels.room3.send('hello of nobody')")
    watcher.run("channels.room3.send('bye of nobody')")
    for tab in tabs.values():
        reads(tab, "bye of nobody")
        assert reads(tab, "hello of nobody") in (1, 2)
    # The page asks which videos it is sent, and turns the room over.
    watcher.run("data.length = 0")
    watcher.run("say({ command: 'getVideoTrackAssignmentsCommand', streamId: 'room3' })")
    reads(watcher, "VIDEO_TRACK_ASSIGNMENT_LIST")
    shown = "JSON.parse(data.filter((one) => one.includes('ASSIGNMENT_LIST')).at(-1)).payload.map(({ trackId }) => trackId).sort().join()"
    assert watcher.run(shown) == "ann,ben"
    watcher.run("say({ command: 'updateVideoTrackAssignmentsCommand', streamId: 'room3', offset: 1, size: 1 })")
    watcher.wait("one video", lambda: watcher.run(shown) in ("ann", "ben"))
    watcher.run("data.length = 0")
    tabs["ben"].run("say({ command: 'stop', streamId: 'ben' })")
    reads(watcher, "TRACK_LIST_UPDATED")


def speaks(tabs, *who):
    for id, tab in tabs.items():
        tab.run(f"gain.gain.value = {0.7 if id in who else 0}")


LAST = "JSON.parse(data.filter((one) => one.includes({!r})).at(-1) ?? 'null')"
VIDEO = LAST.format("VIDEO_TRACK_ASSIGNMENT_LIST") + "?.payload.map(({ videoLabel, trackId }) => `${videoLabel}=${trackId}`).join()"
AUDIO = LAST.format("AUDIO_TRACK_ASSIGNMENT") + "?.payload.map(({ audioLabel, trackId, audioLevel }) => `${audioLabel}=${trackId} ${audioLevel > 100}`).join()"


def task_seats(browser, url):
    """A video and a sound, of the speaker: no negotiation, the picture goes on, and what is pinned stays."""
    tabs = {id: page(browser, url) for id in ("ann", "ben", "cat")}
    speaks(tabs)
    for (id, tab), hue in zip(tabs.items(), (0, 120, 240)):
        tab.run(f"hue = {hue}; publish({id!r}, 'room4')")
        hears(tab, "publish_started")
    watcher = page(browser, url)
    watcher.run("play('room4')")
    hears(watcher, "play_started")
    flows(watcher, "ARDAMSvvideoTrack0")
    assert names(watcher) == ["ARDAMSaaudioTrack0", "ARDAMSvvideoTrack0"], names(watcher)
    opens(watcher, "room4")
    watcher.wait("the picture of room4", lambda: watcher.run("shown()") == "red")

    def shows(id, colour):
        watcher.wait(f"the video of {id}", lambda: watcher.run(VIDEO) == f"videoTrack0={id}")
        watcher.wait(f"its colour {colour}", lambda: watcher.run("shown()") == colour)
        flows(watcher, "ARDAMSvvideoTrack0")

    speaks(tabs, "cat")
    shows("cat", "blue")
    watcher.wait("its sound", lambda: watcher.run(AUDIO) == "audioTrack0=cat true")
    flows(watcher, "ARDAMSaaudioTrack0")
    speaks(tabs)
    watcher.wait("silence", lambda: watcher.run(AUDIO) == "audioTrack0=cat false")
    assert watcher.run(VIDEO) == "videoTrack0=cat"
    speaks(tabs, "ben")
    shows("ben", "green")
    # As pages of the reference pin: the stream, and the place that shows it.
    watcher.run("say({ command: 'assignVideoTrackCommand', streamId: 'ann', videoTrackId: 'videoTrack0', enabled: true })")
    shows("ann", "red")
    speaks(tabs, "cat")
    watcher.wait("the sound of cat", lambda: watcher.run(AUDIO) == "audioTrack0=cat true")
    shows("ann", "red")
    watcher.run("data.length = 0")
    tabs["ann"].run("say({ command: 'stop', streamId: 'ann' })")
    reads(watcher, "TRACK_LIST_UPDATED")
    watcher.wait("another video", lambda: watcher.run(VIDEO) in ("videoTrack0=cat", "videoTrack0=ben"))
    flows(watcher, "ARDAMSvvideoTrack0")
    assert watcher.run("heard.filter(({ command, type }) => command === 'takeConfiguration' && type === 'offer').length") == 1
    # Nothing was lost on the way from one stream to the other.
    stats = watcher.run("(async () => [...(await peers.room4.getStats()).values()].filter(({ type }) => type === 'inbound-rtp').map(({ packetsLost }) => packetsLost))()")
    assert max(stats) <= 20, stats


def task_levels(browser, url):
    """Viewers of a publisher, and of a room with places for all, hear how loud it is."""
    tabs = {id: page(browser, url) for id in ("ann", "ben")}
    speaks(tabs)
    for id, tab in tabs.items():
        tab.run(f"publish({id!r}, 'room5')")
        hears(tab, "publish_started")
    plain, room = page(browser, url), page(browser, url)
    plain.run("play('ann')")
    room.run("play('room5')")
    for tab, id in ((plain, "ann"), (room, "room5")):
        hears(tab, "play_started")
        opens(tab, id)
    speaks(tabs, "ann")
    level = LAST.format("UPDATE_AUDIO_LEVEL")
    plain.wait("a level", lambda: plain.run(f"{level}?.audioLevel < 40"))
    assert plain.run(f"{level}.streamId") == "ann"
    room.wait("the speaker", lambda: room.run(AUDIO) == "ann=ann true")
    speaks(tabs)
    plain.wait("silence", lambda: plain.run(f"{level}?.audioLevel") == 127)
    room.wait("silence", lambda: room.run(AUDIO) == "ann=ann false")


def enters(browser, url, name, more="source=pattern", size="desk", dark=False):
    """Somebody opens the conference page and joins."""
    tab = headless.Tab(browser)
    TABS.append(tab)
    tab.size(size, dark)
    tab.go(f"{url}live/conference.html?id=stage&name={name}&{more}")
    tab.wait("a picture of its own, or none", lambda: tab.run("document.getElementById('state').dataset.state === 'idle'"))
    tab.click("Join")
    return tab


TILES = """[...document.querySelectorAll(".tile")].map((tile) => {
    const video = tile.querySelector("video");
    const plays = tile.dataset.shown === "true" && video.videoWidth > 0 && !video.paused;
    return `${tile.querySelector("b").textContent} ${plays ? "plays" : "stands"}`;
}).sort().join(", ")"""


def shows_tiles(tab, *wanted):
    tab.wait(f"the tiles {wanted}", lambda: tab.run(TILES) == ", ".join(sorted(wanted)))


def task_page(browser, url):
    """The conference page: three take part and one watches, they see and hear each other, mute, write, pin, and leave."""
    ann = enters(browser, url, "Ann")
    ann.text("You are in the room.")
    ben = enters(browser, url, "Ben", dark=True)
    cat = enters(browser, url, "Cat%20<b>", size="phone")
    for tab, own, others in ((ann, "Ann", ("Ben", "Cat <b>")), (ben, "Ben", ("Ann", "Cat <b>")), (cat, "Cat <b>", ("Ann", "Ben"))):
        shows_tiles(tab, f"{own} (you) plays", *(f"{other} plays" for other in others))
        tab.wait("two sounds", lambda: tab.run("document.querySelectorAll('.tile').length") == 3)
    watcher = enters(browser, url, "Dan", "playOnly=true")
    shows_tiles(watcher, "Ann plays", "Ben plays", "Cat <b> plays")
    assert not watcher.run("document.getElementById('mic').checkVisibility()")
    for tab in (ann, ben, cat, watcher):
        high = tab.run("[document.documentElement.scrollHeight, document.getElementById('tiles').scrollHeight - document.getElementById('tiles').clientHeight, innerHeight]")
        assert high[0] <= high[2] and high[1] <= 0, high
    # Participants who join later also see who is muted and hidden.
    ben.click("Mute")
    ben.click("Hide")
    about = "document.querySelector('.tile[aria-label^=Ben]').getAttribute('aria-label')"
    for tab in (ann, cat, watcher):
        tab.wait("muted", lambda: tab.run(about) == "Ben, muted")
    shows_tiles(ann, "Ann (you) plays", "Ben stands", "Cat <b> plays")
    late = enters(browser, url, "Eve", "playOnly=true")
    shows_tiles(late, "Ann plays", "Ben stands", "Cat <b> plays")
    late.wait("muted", lambda: late.run(about) == "Ben, muted")
    late.click("Leave")
    late.text("Ready.") if late.run("document.querySelector('[value=pattern]').checked") else late.text("only watch")
    # The chat is text, once to each.
    for tab, text in ((ann, "hello <img src=x>"), (watcher, "a question")):
        tab.click("Chat")
        tab.run(f"document.getElementById('message').value = {text!r}")
        tab.click("Send")
        tab.text(text)
    count = "[...document.querySelectorAll('#messages li')].map((line) => line.lastChild.data).join('|')"
    for tab in (ann, ben, cat, watcher):
        tab.wait("both messages", lambda: tab.run(count) == "hello <img src=x>|a question")
    assert cat.run("document.getElementById('unread').textContent") == "2"
    # A tile that is pressed is large, and stays.
    ann.run("document.querySelector('.tile[aria-label^=Cat]').click()")
    ann.wait("the large tile", lambda: ann.run("document.querySelector('.tile.large b')?.textContent") == "Cat <b>")
    shows_tiles(ann, "Ann (you) plays", "Ben stands", "Cat <b> plays")
    if len(sys.argv) > 3:
        cat.send("Emulation.setDeviceMetricsOverride", width=390, height=780, deviceScaleFactor=1, mobile=True)
        late.picture(f"{sys.argv[3]}/lobby.png")
        for tab, name in ((ann, "speaker"), (ben, "grid"), (cat, "phone"), (watcher, "chat")):
            tab.picture(f"{sys.argv[3]}/{name}.png")
        cat.click("Chat")
        cat.picture(f"{sys.argv[3]}/phone-chat.png")
        cat.click("Chat")
        cat.click("Speaker")
        cat.picture(f"{sys.argv[3]}/phone-speaker.png")
    ben.click("Leave")
    shows_tiles(watcher, "Ann plays", "Cat <b> plays")
    for tab in (ann, ben, cat, watcher, late):
        assert tab.told == [], tab.told


def task_call(browser, url):
    """Two browsers talk to each other; the server hands over what they say."""
    ann, ben = page(browser, url), page(browser, url)
    ann.run("join('call1')")
    hears(ann, "joined")
    ben.run("join('call1')")
    hears(ben, "joined")
    for tab in (ann, ben):
        for kind in ("video", "audio"):
            flows(tab, kind)
    third = page(browser, url)
    third.run("join('call1')")
    assert hears(third, "error")["definition"] == "streamIdInUse"
    ben.run("say({ command: 'leave', streamId: 'call1' })")
    hears(ben, "leaved")
    hears(ann, "stop")
    third.run("heard.length = 0")
    third.run("join('call1')")
    hears(third, "joined")


def task_calls_end(browser, url):
    """A socket that closes leaves its calls."""
    ann, ben = page(browser, url), page(browser, url)
    ann.run("join('call2')")
    hears(ann, "joined")
    ben.run("join('call2')")
    flows(ann, "video")
    ben.go("about:blank")
    hears(ann, "stop")


def main():
    task, url = sys.argv[1:3]
    browser = headless.Chromium()
    try:
        globals()[f"task_{task}"](browser, url)
    except AssertionError:
        for tab in TABS:
            print(tab.run("JSON.stringify([Object.keys(globalThis.tracks ?? {}), (globalThis.heard ?? []).map(({ sdp, ...rest }) => rest)])"), tab.told)
        raise
    finally:
        browser.close()
    print("ok")


if __name__ == "__main__":
    main()
