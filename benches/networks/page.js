// A viewer of one stream behind a relay; run by view.py.
//
// 1. `watch(kind, options)` requests the stream with the server's own signalling.
// 2. The server's candidates do not reach the browser, nor the browser's the server. `state.wants` is the server's address; when view.py
//    has started a relay in front of it, it calls `relayAt`, and the relay is the only candidate.
// 3. Each decoded picture is recorded, and the statistics every half second.
// 4. `finish()` returns the observations.
"use strict";

const LOOK_MS = 500;
const COUNT_MS = 20;
const VIDEO = ["framesDecoded", "framesReceived", "framesDropped", "keyFramesDecoded", "freezeCount", "totalFreezesDuration", "packetsReceived",
    "packetsLost", "bytesReceived", "nackCount", "pliCount", "firCount", "retransmittedPacketsReceived", "jitterBufferDelay",
    "jitterBufferTargetDelay", "jitterBufferMinimumDelay", "jitterBufferEmittedCount", "estimatedPlayoutTimestamp"];
const AUDIO = ["packetsReceived", "packetsLost", "packetsDiscarded", "concealedSamples", "silentConcealedSamples", "totalSamplesReceived",
    "jitterBufferDelay", "jitterBufferEmittedCount", "estimatedPlayoutTimestamp"];

const state = { wants: null, began: null, connected: null, failed: null };
const peers = [];
const pictures = [];
const looks = [];
let giveRelay;
const relay = new Promise((resolve) => (giveRelay = resolve));

function relayAt(port, host) {
    state.began = Date.now();
    giveRelay([host, String(port)]);
}

// The candidate line with the relay's address, or null if the relay does not replace this candidate.
async function rewritten(line) {
    const words = line.split(" ");
    if (words[2].toLowerCase() !== "udp" || words[4].includes(":")) return null;
    state.wants ??= `${words[4]}:${words[5]}`;
    if (state.wants !== `${words[4]}:${words[5]}`) return null;
    words.splice(4, 2, ...(await relay));
    return words.join(" ");
}

async function through(sdp) {
    const lines = [];
    for (const line of sdp.split("\r\n")) {
        const kept = line.startsWith("a=candidate:") ? await rewritten(line) : line;
        if (kept !== null) lines.push(kept);
    }
    return lines.join("\r\n");
}

function bare(sdp) {
    return sdp.split("\r\n").filter((line) => !/^a=(candidate|end-of-candidates)/.test(line)).join("\r\n");
}

// Replaces the browser's class, so that every connection of the page uses the relay.
class Peer extends RTCPeerConnection {
    constructor(...configuration) {
        super(...configuration);
        peers.push(this);
        this.addEventListener("track", ({ track }) => show(this, track));
        this.addEventListener("connectionstatechange", () => {
            if (this.connectionState === "connected") state.connected ??= Date.now();
        });
    }
    // The browser's own candidates are not announced.
    set onicecandidate(_) {}
    get onicecandidate() {
        return null;
    }
    async setRemoteDescription({ type, sdp }) {
        return super.setRemoteDescription({ type, sdp: await through(sdp) });
    }
    async addIceCandidate(candidate) {
        if (!candidate?.candidate) return;
        const line = await rewritten(candidate.candidate);
        if (line !== null) await super.addIceCandidate({ ...(candidate.toJSON?.() ?? candidate), candidate: line });
    }
}
window.RTCPeerConnection = Peer;

function show(peer, track) {
    const element = document.querySelector("video");
    element.srcObject ??= new MediaStream();
    element.srcObject.addTrack(track);
    if (track.kind === "video") count(peer, track);
}

async function count(peer, track) {
    if (!globalThis.MediaStreamTrackProcessor) return countDecoded(peer, track);
    const reader = new MediaStreamTrackProcessor({ track, maxBufferSize: 30 }).readable.getReader();
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        pictures.push(Date.now());
        value.close();
    }
}

// Where a page cannot read the pictures of a track (Firefox): those that the statistics count. It shows fewer on a busy machine.
async function countDecoded(peer, track) {
    for (let before = 0; peer.connectionState !== "closed"; ) {
        const inbound = [...(await peer.getStats(track)).values()].find(({ type }) => type === "inbound-rtp");
        for (; before < (inbound?.framesDecoded ?? 0); before += 1) pictures.push(Date.now());
        await new Promise((resolve) => setTimeout(resolve, COUNT_MS));
    }
}

const WAYS = {
    async whep({ url }) {
        const peer = new Peer();
        for (const kind of ["video", "audio"]) peer.addTransceiver(kind, { direction: "recvonly" });
        await peer.setLocalDescription(await peer.createOffer());
        const body = bare(peer.localDescription.sdp);
        const answer = await fetch(url, { method: "POST", headers: { "Content-Type": "application/sdp" }, body });
        const sdp = await answer.text();
        if (answer.status !== 201) throw new Error(`${answer.status}: ${sdp.slice(0, 200)}`);
        await peer.setRemoteDescription({ type: "answer", sdp });
    },
    // The plugin makes the offer; see https://janus.conf.meetecho.com/docs/rest.html.
    async janus({ url, id }) {
        const transaction = "view";
        const post = async (path, body) => (await fetch(`${url}${path}`, { method: "POST", body: JSON.stringify({ transaction, ...body }) })).json();
        const session = (await post("", { janus: "create" })).data.id;
        const handle = (await post(`/${session}`, { janus: "attach", plugin: "janus.plugin.streaming" })).data.id;
        const peer = new Peer();
        await post(`/${session}/${handle}`, { janus: "message", body: { request: "watch", id } });
        let offer;
        while (!offer) {
            const event = await (await fetch(`${url}/${session}`)).json();
            if (event.plugindata?.data?.error) throw new Error(event.plugindata.data.error);
            offer = event.jsep;
        }
        await peer.setRemoteDescription(offer);
        await peer.setLocalDescription(await peer.createAnswer());
        const jsep = { type: "answer", sdp: bare(peer.localDescription.sdp) };
        await post(`/${session}/${handle}`, { janus: "message", body: { request: "start" }, jsep });
        await post(`/${session}/${handle}`, { janus: "trickle", candidate: { completed: true } });
        // A session of Janus lives as long as a client polls its events.
        for (;;) await (await fetch(`${url}/${session}`)).json();
    },
    async livekit({ url, token }) {
        const room = new LivekitClient.Room({ adaptiveStream: false, dynacast: false });
        await room.connect(url, token, { maxRetries: 0, peerConnectionTimeout: 30_000 });
    },
};

async function look() {
    const seen = { at: Date.now() };
    for (const peer of peers) {
        for (const report of (await peer.getStats()).values()) {
            if (report.type !== "inbound-rtp") continue;
            const names = report.kind === "video" ? VIDEO : AUDIO;
            seen[report.kind] = Object.fromEntries(names.map((name) => [name, report[name] ?? null]));
        }
    }
    looks.push(seen);
}

function watch(kind, options) {
    WAYS[kind](options).catch((error) => (state.failed = String(error)));
    setInterval(look, LOOK_MS);
}

async function finish() {
    await look();
    peers.forEach((peer) => peer.close());
    return { ...state, pictures, looks };
}
