// OBS Studio as a WHIP client: libdatachannel, which OBS is built with, driven as its plugin drives it (obs-webrtc, whip-output.cpp).
//
// obs.mjs [ENDPOINT TOKEN FILE]: publishes an H.264 file with access unit delimiters, over and over, with silence as Opus, until standard
// input ends, and prints what it was told as JSON. Without arguments it prints its offer. NODE_MODULES is the folder above node_modules.

import fs from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.NODE_MODULES + "/");
const rtc = require("node-datachannel");
const [endpoint, token, file] = process.argv.slice(2);

const FRAME_MS = 1000 / 30;
const SOUND_MS = 20;
/** A packet of Opus with 20 ms of silence. */
const SILENCE = Buffer.from([0xf8, 0xff, 0xfe]);
const FIELDS = { "User-Agent": "Mozilla/5.0 (OBS-Studio/30.2.0; Linux x86_64; en-US)", ...(token && { Authorization: `Bearer ${token}` }) };

/** The access units of the file: each begins with a delimiter. */
function units(bytes) {
    const starts = [];
    for (let at = bytes.indexOf("0000000109", 0, "hex"); at >= 0; at = bytes.indexOf("0000000109", at + 5, "hex")) starts.push(at);
    return starts.map((from, n) => bytes.subarray(from, starts[n + 1]));
}

function track(peer, media, packetizer) {
    const track = peer.addTrack(media);
    const reporter = new rtc.RtcpSrReporter(packetizer.rtpConfig);
    packetizer.addToChain(reporter);
    packetizer.addToChain(new rtc.RtcpNackResponder());
    track.setMediaHandler(packetizer);
    return { track, config: packetizer.rtpConfig };
}

function send({ track, config }, bytes, ms, clock) {
    if (!track.isOpen()) return;
    config.timestamp = (config.timestamp + Math.round((ms * clock) / 1000)) >>> 0;
    track.sendMessageBinary(bytes);
}

/** The session's URL as OBS makes it: a text that does not begin with `http` is a path of the endpoint's server. */
function sessionUrl(location) {
    if (location.startsWith("http")) return location;
    const url = new URL(endpoint);
    url.pathname = location;
    url.search = "";
    return url.href;
}

const peer = new rtc.PeerConnection("obs", { iceServers: [] });
const states = [];
peer.onStateChange((state) => states.push(state));
const audio = new rtc.Audio("0", "SendOnly");
audio.addOpusCodec(111);
audio.addSSRC(1000, "cname", "stream", "stream-audio");
const sound = track(peer, audio, new rtc.RtpPacketizer(new rtc.RtpPacketizationConfig(1000, "cname", 111, 48000)));
const video = new rtc.Video("1", "SendOnly");
video.addH264Codec(96);
video.addSSRC(1001, "cname", "stream", "stream-video");
const config = new rtc.RtpPacketizationConfig(1001, "cname", 96, 90000);
const picture = track(peer, video, new rtc.H264RtpPacketizer("StartSequence", config, 1200));
peer.setLocalDescription();
const offer = peer.localDescription().sdp;
if (!file) {
    process.stdout.write(offer);
    process.exit(0);
}

const answer = await fetch(endpoint, { method: "POST", headers: { "Content-Type": "application/sdp", ...FIELDS }, body: offer });
const told = { status: answer.status, location: answer.headers.get("location"), answer: await answer.text() };
if (answer.status === 201) {
    peer.setRemoteDescription(told.answer, "answer");
    const all = units(fs.readFileSync(file));
    const began = performance.now();
    let [pictures, sounds] = [0, 0];
    const timer = setInterval(() => {
        const now = performance.now() - began;
        for (; pictures * FRAME_MS < now; pictures += 1) send(picture, all[pictures % all.length], FRAME_MS, 90000);
        for (; sounds * SOUND_MS < now; sounds += 1) send(sound, SILENCE, SOUND_MS, 48000);
    }, 5);
    await new Promise((done) => process.stdin.on("end", done).resume());
    clearInterval(timer);
    told.states = [...states];
    // The peer first, and then the session.
    peer.close();
    told.session = sessionUrl(told.location);
    told.deleted = (await fetch(told.session, { method: "DELETE", headers: FIELDS })).status;
}
console.log(JSON.stringify(told));
rtc.cleanup();
process.exit(0);
