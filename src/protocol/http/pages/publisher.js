// Publishes a MediaStream by WHIP, and again after every break until it is stopped.

import { Meter } from "./figures.js";
import { Refusal, Session } from "./whip.js";

/** The wait before each new attempt; the last one is kept to. */
const WAITS_S = [1, 2, 4, 8, 15, 30];
/** A connection that is interrupted may come back by itself. */
const INTERRUPTED_MS = 5000;
/** From the answer to the first media. */
const CONNECT_MS = 12000;
/** Requests that succeed no better when they are repeated: what is sent, or who sends it, must change. */
const FINAL = new Set([400, 401, 403, 404, 405, 406, 413, 415, 422]);
/** Formats that go with a codec and are none. */
const AUXILIARY = /\/(rtx|red|ulpfec|flexfec-03)$/i;

/** The names of the video codecs that this browser can send. */
export function videoCodecs() {
  const capabilities = globalThis.RTCRtpSender?.getCapabilities?.("video");
  const types = (capabilities?.codecs || []).map((codec) => codec.mimeType).filter((type) => !AUXILIARY.test(type));
  return [...new Set(types.map((type) => type.split("/")[1]))];
}

/**
 * @typedef {"connecting" | "live" | "waiting" | "failed" | "stopped"} State
 */

/** A stream that is to be live. */
export class Publisher {
  #endpoint;
  #token;
  #stream;
  #codec;
  #bitsMax;
  #onState;
  #peer = null;
  #session = null;
  #meter = null;
  #timer = 0;
  #failures = 0;
  #wasLive = false;
  #isStopped = false;

  /**
   * @param {object} options
   * @param {string} options.endpoint absolute URL of WHIP
   * @param {string | null} options.token
   * @param {MediaStream} options.stream
   * @param {string} options.codec of video; empty: what browser and server agree on
   * @param {number} options.bitsMax of video in a second; 0: no limit
   * @param {(state: State, text: string) => void} options.onState
   */
  constructor({ endpoint, token, stream, codec, bitsMax, onState }) {
    this.#endpoint = endpoint;
    this.#token = token;
    this.#stream = stream;
    this.#codec = codec;
    this.#bitsMax = bitsMax;
    this.#onState = onState;
  }

  /** Connects, now. */
  async start() {
    if (this.#isStopped) return;
    this.#drop();
    this.#onState("connecting", "Connecting…");
    const peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    this.#peer = peer;
    this.#meter = new Meter(peer);
    try {
      for (const track of this.#stream.getTracks()) this.#add(peer, track);
      peer.onconnectionstatechange = () => this.#changed(peer);
      const session = await Session.open(peer, this.#endpoint, this.#token);
      if (this.#peer !== peer) return session.end(peer);
      this.#session = session;
    } catch (error) {
      if (this.#peer === peer) this.#failed(error);
      return;
    }
    for (const sender of peer.getSenders()) {
      sender.transport?.addEventListener("statechange", () => this.#changed(peer));
    }
    this.#limit(peer);
    if (peer.connectionState !== "connected") {
      this.#after(CONNECT_MS, () => this.#broken("No media connection (UDP) to the server."));
    }
  }

  /** Ends it for good. */
  stop() {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#drop();
    this.#onState("stopped", "Stopped.");
  }

  /** Tries at once what is waited for, for example when the network is back. */
  hurry() {
    if (!this.#peer && !this.#isStopped && this.#timer) this.start();
  }

  /** @param {number} bits in a second; 0: no limit */
  set bitsMax(bits) {
    this.#bitsMax = bits;
    if (this.#peer) this.#limit(this.#peer);
  }

  /**
   * Sends other media: over the same connection if they are of the same kinds.
   * @param {MediaStream} stream
   */
  async replace(stream) {
    this.#stream = stream;
    if (!this.#peer) return;
    const senders = this.#peer.getSenders();
    const tracks = stream.getTracks();
    const senderOf = (track) => senders.find((sender) => sender.track?.kind === track.kind);
    if (senders.length !== tracks.length || !tracks.every(senderOf)) return this.start();
    await Promise.all(tracks.map((track) => senderOf(track).replaceTrack(track)));
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  async figures() {
    return this.#meter ? this.#meter.read() : {};
  }

  #add(peer, track) {
    const transceiver = peer.addTransceiver(track, { direction: "sendonly", streams: [this.#stream] });
    if (track.kind !== "video" || !this.#codec || !transceiver.setCodecPreferences) return;
    const chosen = `video/${this.#codec}`.toLowerCase();
    const all = RTCRtpSender.getCapabilities("video").codecs;
    const codecs = all.filter(({ mimeType }) => mimeType.toLowerCase() === chosen || AUXILIARY.test(mimeType));
    if (codecs.some(({ mimeType }) => mimeType.toLowerCase() === chosen)) transceiver.setCodecPreferences(codecs);
  }

  async #limit(peer) {
    const sender = peer.getSenders().find((sender) => sender.track?.kind === "video");
    const parameters = sender?.getParameters();
    if (!parameters?.encodings?.length) return;
    for (const encoding of parameters.encodings) {
      if (this.#bitsMax) encoding.maxBitrate = this.#bitsMax;
      else delete encoding.maxBitrate;
    }
    // A connection that is closed meanwhile has no parameters to set.
    await sender.setParameters(parameters).catch(() => {});
  }

  #changed(peer) {
    if (this.#peer !== peer) return;
    // The other side's end shows in DTLS first.
    const transports = peer.getSenders().map(({ transport }) => transport?.state);
    const isClosed = transports.includes("closed");
    if (isClosed && this.#session) this.#session.url = null;
    const state = isClosed || transports.includes("failed") ? "failed" : peer.connectionState;
    if (state === "connected") {
      this.#after(0, null);
      this.#failures = 0;
      this.#wasLive = true;
      this.#onState("live", "Live.");
    } else if (state === "disconnected") {
      this.#onState("connecting", "The connection is interrupted.");
      this.#after(INTERRUPTED_MS, () => this.#broken("The connection was lost."));
    } else if (state === "failed" || state === "closed") {
      this.#broken("The connection was lost.");
    }
  }

  #failed(error) {
    const status = error instanceof Refusal ? error.status : -1;
    // After a break the id may be held by what is left of the last connection.
    const isFinal = status === -1 || FINAL.has(status) || (status === 409 && !this.#wasLive);
    if (status === 0) return this.#broken("The server does not answer.");
    if (!isFinal) return this.#broken(`Refused: ${error.message}.`);
    this.#isStopped = true;
    this.#drop();
    this.#onState("failed", `Not published: ${error.message}.`);
  }

  #broken(why) {
    this.#drop();
    const wait = WAITS_S[Math.min(this.#failures, WAITS_S.length - 1)];
    this.#failures += 1;
    this.#onState("waiting", `${why} Next attempt in ${wait} s.`);
    this.#after(wait * 1000, () => this.start());
  }

  #after(ms, act) {
    clearTimeout(this.#timer);
    this.#timer = act ? setTimeout(act, ms) : 0;
  }

  #drop() {
    this.#after(0, null);
    if (this.#session) this.#session.end(this.#peer);
    else this.#peer?.close();
    this.#session = null;
    this.#peer = null;
    this.#meter = null;
  }
}
