// Plays a stream over WebRTC, with WHEP.

import { Meter } from "./figures.js";
import { Refusal, Session } from "./whip.js";

/** Maximum time from the server's answer to the first frame. */
const FIRST_FRAME_MS = 4000;
const LOOK_MS = 200;
/** Time in which an interrupted connection may recover by itself. */
const INTERRUPTED_MS = 5000;

export const isSupported = () => Boolean(globalThis.RTCPeerConnection);

/** A player of a WebRTC stream. */
export class WebRtcPlayer {
  #video;
  #events;
  #peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
  #meter = new Meter(this.#peer);
  #session = null;
  #timer = 0;
  #isOver = false;

  /**
   * @param {HTMLVideoElement} video
   * @param {{ endpoint: string, token: string | null }} way
   * @param {import("./play_media.js").Events} events
   */
  constructor(video, { endpoint, token }, events) {
    this.#video = video;
    this.#events = events;
    this.#start(endpoint, token);
  }

  async #start(endpoint, token) {
    const peer = this.#peer;
    const media = new MediaStream();
    const [audio, video] = ["audio", "video"].map((kind) => peer.addTransceiver(kind, { direction: "recvonly" }));
    peer.ontrack = ({ track }) => media.addTrack(track);
    peer.onconnectionstatechange = () => this.#changed();
    try {
      const session = await Session.open(peer, endpoint, token);
      if (this.#isOver) return session.end(peer);
      this.#session = session;
    } catch (error) {
      return this.#refused(error);
    }
    for (const { transport } of peer.getReceivers()) transport?.addEventListener("statechange", () => this.#changed());
    const isSent = (transceiver) => transceiver.currentDirection === "recvonly";
    if (!isSent(video)) media.getVideoTracks().forEach((track) => media.removeTrack(track));
    if (!isSent(audio)) media.getAudioTracks().forEach((track) => media.removeTrack(track));
    this.#video.srcObject = media;
    this.#events.onMedia();
    this.#awaitFirst(isSent(video), isSent(audio), performance.now() + FIRST_FRAME_MS);
  }

  async #awaitFirst(hasVideo, hasAudio, until) {
    const { frames, packets } = await this.#meter.read().catch(() => ({ frames: 0, packets: 0 }));
    if (this.#isOver) return;
    if (hasVideo ? frames > 0 : packets > 0) {
      this.#events.onPlaying();
      if (hasVideo && !hasAudio) this.#events.onSilent?.();
    } else if (performance.now() > until) {
      this.#over("failed", "Nothing came over WebRTC.");
    } else {
      this.#timer = setTimeout(() => this.#awaitFirst(hasVideo, hasAudio, until), LOOK_MS);
    }
  }

  #changed() {
    if (this.#isOver) return;
    const transports = this.#peer.getReceivers().map(({ transport }) => transport?.state);
    // If the server ends the session, the DTLS transport closes before the connection state changes.
    if (transports.includes("closed")) {
      if (this.#session) this.#session.url = null;
      return this.#over("ended", "The stream has ended.");
    }
    const state = transports.includes("failed") ? "failed" : this.#peer.connectionState;
    if (state === "failed" || state === "closed") this.#over("failed", "The connection was lost.");
    if (state === "disconnected") {
      setTimeout(() => {
        if (!this.#isOver && this.#peer.connectionState === "disconnected") this.#over("failed", "The connection was lost.");
      }, INTERRUPTED_MS);
    }
  }

  #refused(error) {
    const status = error instanceof Refusal ? error.status : -1;
    if (status === 404 || status === 409) return this.#over("offline", error.message);
    if (status === 401 || status === 403) return this.#over("refused", error.message);
    if (status === 406 || status === -1) return this.#over("unplayable", error.message);
    this.#over("failed", error.message);
  }

  #over(outcome, text) {
    if (this.#isOver) return;
    this.stop();
    this.#events.onOver(outcome, text);
  }

  /** Stops the player; no event follows. */
  stop() {
    this.#isOver = true;
    clearTimeout(this.#timer);
    if (this.#session) this.#session.end(this.#peer);
    else this.#peer.close();
    this.#session = null;
    this.#video.srcObject = null;
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  figures() {
    return this.#meter.read();
  }
}
