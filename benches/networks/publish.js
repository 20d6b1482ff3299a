// A publisher behind the relay, and what its viewer needs who comes before the stream is there: loaded behind page.js, run by view.py.
//
// `publish(kind, options)` makes a picture in motion and noise, and a tone, and sends them by the server's own signalling. Candidates are
// treated as those of a viewer.
"use strict";

const SIZE = { width: 640, height: 360 };
const TILE = 64;
const PUBLISHER = ["framesEncoded", "framesSent", "keyFramesEncoded", "bytesSent", "retransmittedBytesSent", "frameWidth", "frameHeight",
    "qualityLimitationReason", "nackCount", "pliCount", "firCount", "targetBitrate"];

// Tiles of noise, each of which an encoder cannot guess from the others.
function noise(context, count) {
    return Array.from({ length: count }, () => {
        const tile = context.createImageData(TILE, TILE);
        for (let at = 0; at < tile.data.length; at += 4) tile.data.set([1, 2, 3].map(() => Math.random() * 256).concat(255), at);
        return tile;
    });
}

// A bar that moves over a grey picture with a strip of noise, in each of the frames.
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
    // Retransmissions stay, as browsers offer them by themselves: without them padding takes numbers of the pictures, and a lost one is never repeated.
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

// A session of Janus with a handle of the plugin for rooms; `event` waits for one that a look finds something in.
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
    // No candidates come: the other side's address is seen with the first check.
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
    // Asks until the stream is there.
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
