// Publishes a MediaStream with WHIP, and reconnects after every interruption until it is stopped.

import { Meter } from "./figures.js";
import { Refusal, Session } from "./whip.js";

/** Waits before consecutive attempts; the last one applies to all further attempts. */
const WAITS_S = [1, 2, 4, 8, 15, 30];
/** Time in which an interrupted connection may recover by itself. */
const INTERRUPTED_MS = 5000;
/** Maximum time from the server's answer until media can be sent. */
const CONNECT_MS = 12000;
/** Statuses after which the same request would fail again. */
const FINAL = new Set([400, 401, 403, 404, 405, 406, 413, 415, 422]);
/** Formats that are not codecs but accompany them: retransmission and error correction. */
const AUXILIARY = /\/(rtx|red|ulpfec|flexfec-03)$/i;

/** Returns the names of the video codecs that this browser can send. */
export function videoCodecs() {
  const capabilities = globalThis.RTCRtpSender?.getCapabilities?.("video");
  const types = (capabilities?.codecs || []).map((codec) => codec.mimeType).filter((type) => !AUXILIARY.test(type));
  return [...new Set(types.map((type) => type.split("/")[1]))];
}

/**
 * @typedef {"connecting" | "live" | "waiting" | "failed" | "stopped"} State
 */

/** A publisher that keeps one stream live. */
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
   * @param {string} options.codec video codec; empty to let browser and server agree on one
   * @param {number} options.bitsMax maximum bit rate of video in bits per second; 0 for no limit
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

  /** Connects now. */
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

  /** Stops publishing for good. */
  stop() {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#drop();
    this.#onState("stopped", "Stopped.");
  }

  /** Makes the next attempt now instead of waiting, for example because the network is available again. */
  hurry() {
    if (!this.#peer && !this.#isStopped && this.#timer) this.start();
  }

  /** @param {number} bits maximum bit rate of video in bits per second; 0 for no limit */
  set bitsMax(bits) {
    this.#bitsMax = bits;
    if (this.#peer) this.#limit(this.#peer);
  }

  /**
   * Replaces the published media; over the same connection if the new media has the same kinds of tracks.
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
    // Fails harmlessly if the connection was closed meanwhile.
    await sender.setParameters(parameters).catch(() => {});
  }

  #changed(peer) {
    if (this.#peer !== peer) return;
    // If the server ends the session, the DTLS transport closes before the connection state changes.
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
    // After an interruption, 409 is not final: the server may not have released the id of the last connection yet.
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
