// A publisher behind the relay, and the functions for a viewer that arrives before the stream; loaded after page.js, run by view.py.
//
// `publish(kind, options)` makes a picture with motion and noise, and a tone, and publishes them with the server's own signalling.
// Candidates are treated like those of a viewer.
"use strict";

const SIZE = { width: 640, height: 360 };
const TILE = 64;
const PUBLISHER = ["framesEncoded", "framesSent", "keyFramesEncoded", "bytesSent", "retransmittedBytesSent", "frameWidth", "frameHeight",
    "qualityLimitationReason", "nackCount", "pliCount", "firCount", "targetBitrate"];

// Tiles of noise that an encoder cannot predict from one another.
function noise(context, count) {
    return Array.from({ length: count }, () => {
        const tile = context.createImageData(TILE, TILE);
        for (let at = 0; at < tile.data.length; at += 4) tile.data.set([1, 2, 3].map(() => Math.random() * 256).concat(255), at);
        return tile;
    });
}

// Draws a grey picture with a strip of noise and a moving bar, for each frame.
function picture(fps) {
    const canvas = Object.assign(document.createElement("canvas"), SIZE);
    const context = canvas.getContext("2d");
    const tiles = noise(context, 24);
    let number = 0;
    const draw = () => {
        number += 1;
        context.fillStyle = "#777";
        context.fillRect(0, 0, SIZE.width, SIZE.height);
        for (let at = 0; at < 5; at += 1) context.putImageData(tiles[(number * 5 + at) % tiles.length], at * 2 * TILE, TILE * 2);
        context.fillStyle = "#fff";
        context.fillRect((number * 4) % SIZE.width, 0, 20, SIZE.height);
    };
    draw();
    setInterval(draw, 1000 / fps);
    return canvas.captureStream(fps).getVideoTracks()[0];
}

function tone() {
    const context = new AudioContext();
    const to = context.createMediaStreamDestination();
    const oscillator = context.createOscillator();
    oscillator.connect(to);
    oscillator.start();
    return to.stream.getAudioTracks()[0];
}

function preferred(transceiver) {
    const codecs = RTCRtpSender.getCapabilities("video").codecs;
    const isWanted = (codec) => codec.mimeType === "video/H264" && /packetization-mode=1/.test(codec.sdpFmtpLine) && /profile-level-id=42e0/.test(codec.sdpFmtpLine);
    // Retransmission (RTX) stays in the offer, as browsers make it. Without it, padding uses sequence numbers of the video, and lost
    // padding is never resent.
    transceiver.setCodecPreferences(codecs.filter((codec) => isWanted(codec) || codec.mimeType === "video/rtx"));
}

async function offering({ fps, bits }) {
    const peer = new Peer();
    const video = picture(fps);
    preferred(peer.addTransceiver(video, { direction: "sendonly", sendEncodings: [{ maxBitrate: bits, maxFramerate: fps }] }));
    peer.addTransceiver(tone(), { direction: "sendonly" });
    await peer.setLocalDescription(await peer.createOffer());
    return peer;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A session of Janus with a handle of the room plugin. `event` waits for the first event in which `look` finds something.
async function room({ url }) {
    const transaction = "room";
    const post = async (path, body) => (await fetch(`${url}${path}`, { method: "POST", body: JSON.stringify({ transaction, ...body }) })).json();
    const session = (await post("", { janus: "create" })).data.id;
    const handle = (await post(`/${session}`, { janus: "attach", plugin: "janus.plugin.videoroom" })).data.id;
    const send = (body, jsep) => post(`/${session}/${handle}`, { janus: "message", body, ...(jsep && { jsep }) });
    const event = async (look) => {
        for (;;) {
            const found = look(await (await fetch(`${url}/${session}`)).json());
            if (found) return found;
        }
    };
    // No candidates are sent: Janus learns the browser's address from its first connectivity check.
    const completed = () => post(`/${session}/${handle}`, { janus: "trickle", candidate: { completed: true } });
    return { send, event, completed };
}

const PUBLISHES = {
    async whip({ url, ...media }) {
        const peer = await offering(media);
        const body = bare(peer.localDescription.sdp);
        const answer = await fetch(url, { method: "POST", headers: { "Content-Type": "application/sdp" }, body });
        const sdp = await answer.text();
        if (answer.status !== 201) throw new Error(`${answer.status}: ${sdp.slice(0, 200)}`);
        await peer.setRemoteDescription({ type: "answer", sdp });
    },
    async janus({ id, ...media }) {
        const { send, event, completed } = await room(media);
        const peer = await offering(media);
        const offer = { type: "offer", sdp: bare(peer.localDescription.sdp) };
        await send({ request: "joinandconfigure", room: id, ptype: "publisher" }, offer);
        await completed();
        await peer.setRemoteDescription(await event((seen) => seen.jsep));
        await event(() => false);
    },
    async livekit({ url, token, fps, bits }) {
        const client = new LivekitClient.Room({ adaptiveStream: false, dynacast: false });
        await client.connect(url, token, { maxRetries: 0, peerConnectionTimeout: 30_000 });
        const videoEncoding = { maxBitrate: bits, maxFramerate: fps };
        await client.localParticipant.publishTrack(tone(), { source: "microphone" });
        await client.localParticipant.publishTrack(picture(fps), { source: "camera", simulcast: false, videoCodec: "h264", videoEncoding });
    },
};

Object.assign(WAYS, {
    // Repeats the request until the stream is live.
    async waiting({ url }) {
        const peer = new Peer();
        for (const kind of ["video", "audio"]) peer.addTransceiver(kind, { direction: "recvonly" });
        await peer.setLocalDescription(await peer.createOffer());
        const body = bare(peer.localDescription.sdp);
        for (;;) {
            const answer = await fetch(url, { method: "POST", headers: { "Content-Type": "application/sdp" }, body });
            const sdp = await answer.text();
            if (answer.status === 201) return peer.setRemoteDescription({ type: "answer", sdp });
            await sleep(100);
        }
    },
    async janus_room({ id, ...options }) {
        const { send, event, completed } = await room(options);
        let feed;
        while (!feed) {
            const seen = await send({ request: "listparticipants", room: id });
            feed = seen.plugindata.data.participants?.find((one) => one.publisher)?.id;
            if (!feed) await sleep(100);
        }
        await send({ request: "join", ptype: "subscriber", room: id, streams: [{ feed }] });
        const peer = new Peer();
        await peer.setRemoteDescription(await event((seen) => seen.jsep));
        await peer.setLocalDescription(await peer.createAnswer());
        await send({ request: "start" }, { type: "answer", sdp: bare(peer.localDescription.sdp) });
        await completed();
        await event(() => false);
    },
});

async function lookAtSending() {
    const seen = { at: Date.now() };
    for (const peer of peers) {
        for (const report of (await peer.getStats()).values()) {
            if (report.type === "outbound-rtp" && report.kind === "video") seen.video = Object.fromEntries(PUBLISHER.map((name) => [name, report[name] ?? null]));
            if (report.type === "candidate-pair" && report.nominated) seen.available = report.availableOutgoingBitrate ?? null;
        }
    }
    looks.push(seen);
}

function publish(kind, options) {
    PUBLISHES[kind](options).catch((error) => (state.failed = String(error)));
    setInterval(lookAtSending, LOOK_MS);
}
