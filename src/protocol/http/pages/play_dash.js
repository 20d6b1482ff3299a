// Plays a stream over DASH with dash.js.

import { MediaPlayer, library, namesOf, probe } from "./play_media.js";

/** True if this browser can play DASH. */
export const isDashSupported = () => Boolean(globalThis.MediaSource || globalThis.ManagedMediaSource);

/** A player of a DASH stream. */
export class DashPlayer extends MediaPlayer {
  #dash = null;
  #url;

  /**
   * @param {HTMLVideoElement} video
   * @param {{ url: string, latency?: number }} way `url`: absolute URL of the manifest; `latency`: distance from the
   *   newest segment in seconds
   * @param {import("./play_media.js").Events} events
   */
  constructor(video, { url, latency }, events) {
    super(video, events);
    this.#url = url;
    this.#start(latency);
  }

  async #start(latency) {
    if (this.refused(await probe(this.#url, this.signal))) return;
    let dashjs;
    try {
      dashjs = await library("dash.js", "dashjs");
    } catch (error) {
      return this.over("failed", error.message);
    }
    if (this.signal.aborted) return;
    const dash = dashjs.MediaPlayer().create();
    this.#dash = dash;
    dash.updateSettings({ debug: { logLevel: 0 }, ...(latency ? { streaming: { delay: { liveDelay: latency } } } : {}) });
    dash.on(dashjs.MediaPlayer.events.ERROR, ({ error }) => this.#failed(error));
    dash.on(dashjs.MediaPlayer.events.PLAYBACK_ERROR, ({ error }) => this.over("unplayable", error?.message || "This browser cannot play the stream."));
    dash.initialize(this.video, this.#url, false);
    this.expectFrames();
  }

  /** Handles an error. The library retries by itself, so the server is asked whether the stream still exists. */
  async #failed(error) {
    const refusal = await probe(this.#url, this.signal);
    if (this.refused(refusal?.outcome === "offline" ? { outcome: "ended", text: "The stream has ended." } : refusal)) return;
    // Errors other than failed downloads do not end the playback.
    if (!/download|load/i.test(error?.message ?? "")) this.over("unplayable", error?.message || "This browser cannot play the stream.");
  }

  release() {
    this.#dash?.destroy();
    this.#dash = null;
  }

  more() {
    const dash = this.#dash;
    if (!dash?.isReady()) return {};
    const tracks = ["video", "audio"].map((kind) => dash.getCurrentRepresentationForType(kind)).filter(Boolean);
    const latency = dash.getCurrentLiveLatency();
    return {
      codec: namesOf(tracks.map((track) => track.codecs || "")),
      bitsPerSecond: tracks.reduce((sum, track) => sum + track.bandwidth, 0) || undefined,
      ...(latency > 0 ? { latencyMs: latency * 1000 } : {}),
    };
  }
}
