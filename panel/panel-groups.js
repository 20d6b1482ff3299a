// Settings in groups, with names for people.

import { strings } from "./panel-strings.js";

/** The first group whose pattern fits a key has it. */
const GROUPS = [
  ["s3", /^(s3|uploadExtensionsToS3)/],
  ["audio", /^(audio\.|aac)/],
  ["hls", /^(hls|deleteHLS)/i],
  ["dash", /^(dash|lldash)/i],
  ["recording", /^(mp4|webM|record|addDateTime|fileNameFormat|upload|vod|subFolder|recordingSubfolder)/],
  ["webhooks", /^(webhook|listenerHook|server\.statusWebHook)/],
  ["access", /(token|jwt|jwks|hash|secret|CIDR|ipFilter|subscriberAuth|acceptOnly|publishKey|cors|first_user|contentSecurity|secureAnalytic)/i],
  ["webrtc", /^(webRTC|webrtc|stun|turn|h264|h265|vp8|av1)/],
  ["srt", /(^srt|srt_port|IngestsSrt)/],
  ["rtsp", /^(rtsp|rtsps)/],
  ["rtmp", /^(rtmp|rtmps|httpFlv|gopCache)/],
  ["sources", /(StreamFetcher|endpointRepublish|outbound)/i],
  ["http", /^(http|https|server\.(trusted|proxy)|httpForwarding)/],
  ["limits", /^(limits\.|max(Fps|Resolution|Bitrate)|ingestingStreamLimit|server\.(cpu|memory)|.*ViewerLimit)/],
  ["delivery", /^(maxLatencyMs|coalesceMs|mergeWriteMs|publisherGraceMs)/],
  ["operation", /^(log|audit|metrics|store|write|server\.)/],
];
const OTHER = "other";

/** The groups of these settings that have any, in order: `[name, settings]`. */
export function grouped(list) {
  const of = (about) => GROUPS.find(([, pattern]) => pattern.test(about.key))?.[0] ?? OTHER;
  const groups = new Map();
  for (const about of list) groups.set(of(about), [...(groups.get(of(about)) ?? []), about]);
  return Object.keys(strings.groups).filter((name) => groups.has(name)).map((name) => [name, groups.get(name)]);
}

/** Words that are written in their own way. */
const WORDS = {
  hls: "HLS", dash: "DASH", mp4: "MP4", webm: "WebM", webrtc: "WebRTC", rtmp: "RTMP", rtmps: "RTMPS", rtsp: "RTSP", rtsps: "RTSPS", srt: "SRT", s3: "S3",
  jwt: "JWT", jwks: "key set", url: "URL", uri: "URL", cidr: "addresses", ip: "IP", api: "API", flv: "FLV", http: "HTTP", https: "HTTPS", tcp: "TCP", stun: "STUN", turn: "TURN",
  h264: "H.264", h265: "H.265", vp8: "VP8", av1: "AV1", aac: "AAC", id3: "ID3", gop: "GOP", fps: "frame rate", ssl: "TLS", cors: "CORS", cpu: "processor",
  ms: "(ms)", muxing: "output", datastore: "store", tls: "TLS", opus: "Opus", vod: "recording", db: "database", pbkeylen: "key length", ll: "low-latency",
};

/** A name for people: the words of the key, `hlsListSize` as “HLS list size”. */
export function labelOf({ key, name }) {
  const known = strings.settingNames[key] ?? strings.settingNames[name];
  if (known) return known;
  const spaced = key
    .replace(/^(server|limits|metrics|store|outbound)\./, "")
    .replace(/webRTC/gi, " webrtc ").replace(/webM/g, " webm ").replace(/(mp4|s3|h264|h265|vp8|av1|id3|m4s)/gi, " $1 ")
    .replace(/([A-Z]+)([A-Z][a-z])/g, " $1 $2").replace(/([a-z\d])([A-Z])/g, "$1 $2").replace(/[._]/g, " ");
  const words = spaced.trim().split(/\s+/).map((word) => WORDS[word.toLowerCase()] ?? word.toLowerCase()).filter((word) => word !== "enabled");
  const text = words.join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
