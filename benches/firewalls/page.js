// A WHEP viewer and a WHIP publisher, like the page of an application; run by client.py.
//
// The answer names the STUN and TURN servers. They must be known before candidates are gathered, so the local description is set
// after the answer has arrived (RFC 9725 §4.6).
"use strict";

const PICTURES = 25;

// The ICE servers of `Link` fields: <turns:HOST:PORT?transport=tcp>; rel="ice-server"; username="..."; credential="..."
function iceServers(links) {
    const part = (text, name) => text.match(new RegExp(`${name}="([^"]*)"`))?.[1];
    return [...(links ?? "").matchAll(/<([^>]*)>([^<]*)/g)]
        .filter(([, , more]) => part(more, "rel") === "ice-server")
        .map(([, urls, more]) => ({ urls, username: part(more, "username"), credential: part(more, "credential") }));
}

async function meet(peer, url) {
    const offer = await peer.createOffer();
    const answer = await fetch(url, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: offer.sdp });
    const sdp = await answer.text();
    if (answer.status !== 201) throw new Error(`${answer.status}: ${sdp.slice(0, 200)}`);
    peer.setConfiguration({ iceServers: iceServers(answer.headers.get("Link")) });
    await peer.setLocalDescription(offer);
    await peer.setRemoteDescription({ type: "answer", sdp });
}

// The candidate pair of the media: the local candidate and its protocol, and the remote one.
async function way(peer) {
    const stats = await peer.getStats();
    const transport = [...stats.values()].find((one) => one.type === "transport" && one.selectedCandidatePairId);
    const pair = stats.get(transport.selectedCandidatePairId);
    const [local, remote] = [stats.get(pair.localCandidateId), stats.get(pair.remoteCandidateId)];
    const by = local.relayProtocol ? `TURN over ${local.relayProtocol.toUpperCase()}` : local.protocol.toUpperCase();
    return `${by}${local.relayProtocol ? ` (${local.url})` : ` to ${remote.port}`}`;
}

function within(ms, what, promise) {
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error(`no ${what} in ${ms} ms`)), ms));
    return Promise.race([promise, late]);
}

async function pictures(element, count) {
    for (let n = 0; n < count; n++) await new Promise((next) => element.requestVideoFrameCallback(next));
}

// Plays until several pictures have arrived. Returns times in ms: until the answer, and until the first picture.
async function view(url) {
    const peer = new RTCPeerConnection();
    const element = document.querySelector("video");
    try {
        for (const kind of ["video", "audio"]) peer.addTransceiver(kind, { direction: "recvonly" });
        element.srcObject = new MediaStream();
        peer.ontrack = ({ track }) => element.srcObject.addTrack(track);
        const began = performance.now();
        await meet(peer, url);
        const answered = performance.now();
        await within(15_000, "picture", pictures(element, 1));
        const first = performance.now();
        await within(10_000, `${PICTURES} pictures`, pictures(element, PICTURES));
        return { answer: answered - began, first: first - began, way: await way(peer) };
    } finally {
        peer.close();
    }
}

// Publishes Chromium's test picture until the server has acknowledged some of it.
async function publish(url) {
    const peer = new RTCPeerConnection();
    try {
        const media = await navigator.mediaDevices.getUserMedia({ video: true, audio: true });
        media.getTracks().forEach((track) => peer.addTransceiver(track, { direction: "sendonly", streams: [media] }));
        const began = performance.now();
        await meet(peer, url);
        await within(15_000, "report of the server", reported(peer));
        return { first: performance.now() - began, way: await way(peer) };
    } finally {
        peer.close();
    }
}

async function reported(peer) {
    for (;;) {
        const stats = [...(await peer.getStats()).values()];
        if (stats.some((one) => one.type === "remote-inbound-rtp" && one.kind === "video" && one.roundTripTime > 0)) return;
        await new Promise((next) => setTimeout(next, 50));
    }
}

// Runs a task and keeps its result, which client.py reads later.
let outcome = null;
function begin(task, url) {
    outcome = null;
    task(url).then((done) => (outcome = done), (error) => (outcome = { failed: String(error) }));
}
