// Statistics of a peer connection (RTCPeerConnection.getStats). Rates are per second.

/**
 * @typedef {object} Figures a member is `undefined` if unknown
 * @property {string} [codec]
 * @property {string} [resolution]
 * @property {number} [fps]
 * @property {number} [bitsPerSecond] of media, sent or received
 * @property {number} [rttMs]
 * @property {number} [lossPercent] of the packets since the last reading
 * @property {number} [latencyMs] delay of playback: jitter buffer and half a round trip
 * @property {string} [limit] the reason why a publisher's video is reduced
 * @property {number} frames decoded or sent
 * @property {number} packets received or sent
 */

/** Texts for the values of `qualityLimitationReason`. */
const LIMITS = { none: "nothing", bandwidth: "network", cpu: "this machine", other: "the browser" };

/** Reads the figures of one peer connection. Rates are those since the last reading. */
export class Meter {
  #peer;
  #before = null;

  /** @param {RTCPeerConnection} peer */
  constructor(peer) {
    this.#peer = peer;
  }

  /** @returns {Promise<Figures>} */
  async read() {
    const now = totalsOf([...(await this.#peer.getStats()).values()]);
    const figures = figuresOf(now, this.#before);
    this.#before = now;
    return figures;
  }
}

/** Reduces a report to the totals and values from which figures are computed. */
function totalsOf(stats) {
  const byId = new Map(stats.map((stat) => [stat.id, stat]));
  const sum = (list, name) => list.reduce((total, stat) => total + (stat[name] || 0), 0);
  const inbound = stats.filter((stat) => stat.type === "inbound-rtp");
  const outbound = stats.filter((stat) => stat.type === "outbound-rtp");
  const remote = stats.filter((stat) => stat.type === "remote-inbound-rtp");
  const media = [...inbound, ...outbound];
  const video = media.find((stat) => stat.kind === "video" && (stat.bytesSent || stat.bytesReceived));
  const audio = media.find((stat) => stat.kind === "audio" && (stat.bytesSent || stat.bytesReceived));
  const codecs = [video, audio].map((stat) => stat && byId.get(stat.codecId)).filter(Boolean);
  const pair = pairOf(stats, byId);
  return {
    at: Math.max(0, ...media.map((stat) => stat.timestamp)),
    codec: codecs.map((codec) => codec.mimeType.split("/")[1].replace("opus", "Opus")).join(", "),
    video,
    rtt: (pair && pair.currentRoundTripTime) ?? remote.find((stat) => stat.roundTripTime)?.roundTripTime,
    bytes: sum(inbound, "bytesReceived") + sum(outbound, "bytesSent"),
    packets: sum(inbound, "packetsReceived") + sum(outbound, "packetsSent"),
    // Losses of sent packets are reported by the other side.
    lost: sum(inbound, "packetsLost") + sum(remote, "packetsLost"),
    buffer: bufferOf(video || audio),
    frames: sum(inbound, "framesDecoded") + sum(outbound, "framesSent"),
  };
}

/** Returns the candidate pair in use. */
function pairOf(stats, byId) {
  const transport = stats.find((stat) => stat.type === "transport" && stat.selectedCandidatePairId);
  if (transport) return byId.get(transport.selectedCandidatePairId);
  return stats.find((stat) => stat.type === "candidate-pair" && stat.nominated && stat.state === "succeeded");
}

const bufferOf = (stat) => ({ delay: stat?.jitterBufferDelay || 0, emitted: stat?.jitterBufferEmittedCount || 0 });

/** Computes figures from the current and the last totals. @returns {Figures} */
function figuresOf(now, before) {
  const since = (name) => now[name] - (before ? before[name] : 0);
  const seconds = before ? (now.at - before.at) / 1000 : 0;
  const lost = Math.max(0, since("lost"));
  const of = lost + Math.max(0, since("packets"));
  const emitted = now.buffer.emitted - (before ? before.buffer.emitted : 0);
  const buffered = emitted > 0 ? (now.buffer.delay - (before ? before.buffer.delay : 0)) / emitted : undefined;
  const { video } = now;
  return {
    codec: now.codec || undefined,
    resolution: video && video.frameWidth ? `${video.frameWidth} × ${video.frameHeight}` : undefined,
    fps: video && video.framesPerSecond,
    bitsPerSecond: seconds > 0 ? Math.max(0, since("bytes") * 8) / seconds : undefined,
    rttMs: now.rtt === undefined ? undefined : now.rtt * 1000,
    lossPercent: of > 0 ? (lost * 100) / of : undefined,
    latencyMs: buffered === undefined ? undefined : (buffered + (now.rtt || 0) / 2) * 1000,
    limit: LIMITS[video?.qualityLimitationReason],
    frames: now.frames,
    packets: now.packets,
  };
}

const known = (value, write) => (value === undefined || Number.isNaN(value) ? "–" : write(value));

/** @param {number | undefined} bits per second */
export const writeBits = (bits) =>
  known(bits, (bits) => (bits < 1e6 ? `${Math.round(bits / 1000)} kbit/s` : `${(bits / 1e6).toFixed(2)} Mbit/s`));

/** @param {number | undefined} ms */
export const writeMs = (ms) => known(ms, (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`));

/**
 * Shows figures in the elements inside `element` that have a `data-figure` attribute.
 * @param {Element} element
 * @param {Partial<Figures>} figures
 */
export function showFigures(element, figures) {
  const texts = {
    codec: known(figures.codec, String),
    resolution: known(figures.resolution, String),
    fps: known(figures.fps, (fps) => `${Math.round(fps)} fps`),
    bitRate: writeBits(figures.bitsPerSecond),
    rtt: writeMs(figures.rttMs),
    loss: known(figures.lossPercent, (percent) => `${percent.toFixed(1)} %`),
    latency: writeMs(figures.latencyMs),
    limit: known(figures.limit, String),
  };
  for (const cell of element.querySelectorAll("[data-figure]")) {
    const text = texts[cell.dataset.figure];
    if (text !== undefined && cell.textContent !== text) cell.textContent = text;
  }
}
