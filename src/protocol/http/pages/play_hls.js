// Plays a stream over HLS: with hls.js if the browser has Media Source Extensions, otherwise natively (iPhones).

import { MediaPlayer, library, namesOf, probe, refusalOf } from "./play_media.js";

const TYPE = "application/vnd.apple.mpegurl";
const hasMediaSource = () => Boolean(globalThis.MediaSource || globalThis.ManagedMediaSource);
const isNative = () => document.createElement("video").canPlayType(TYPE) !== "";

/** True if this browser can play HLS. */
export const isHlsSupported = () => hasMediaSource() || isNative();

/** A player of an HLS stream, with or without low latency. */
export class HlsPlayer extends MediaPlayer {
  #hls = null;
  #recovered = false;
  #bits = undefined;

  /**
   * @param {HTMLVideoElement} video
   * @param {{ url: string, latency?: number, goesBack?: boolean }} way `url`: absolute URL of the playlist; `latency`:
   *   distance from the newest segment in seconds; `goesBack`: true if the viewer may stay further behind
   * @param {import("./play_media.js").Events} events
   */
  constructor(video, { url, latency, goesBack }, events) {
    super(video, events);
    this.#start(url, latency, goesBack);
  }

  async #start(url, latency, goesBack) {
    if (this.refused(await probe(url, this.signal))) return;
    if (!hasMediaSource()) {
      this.on("error", () => this.over("unplayable", this.video.error?.message || "This browser cannot play the stream."));
      this.video.src = url;
      return this.expectFrames();
    }
    let Hls;
    try {
      Hls = await library("hls.js", "Hls");
    } catch (error) {
      return this.over("failed", error.message);
    }
    if (this.signal.aborted) return;
    const delay = latency ? { liveSyncDuration: latency, ...(goesBack ? {} : { liveMaxLatencyDuration: latency * 2 }) } : {};
    const hls = new Hls({ lowLatencyMode: true, backBufferLength: 30, ...delay });
    this.#hls = hls;
    hls.on(Hls.Events.ERROR, (_, data) => this.#failed(Hls, data));
    hls.on(Hls.Events.FRAG_LOADED, (_, { frag }) => {
      if (frag.type === "main" && frag.duration > 0) this.#bits = (frag.stats.loaded * 8) / frag.duration;
    });
    hls.loadSource(url);
    hls.attachMedia(this.video);
    this.expectFrames();
  }

  #failed(Hls, { fatal, type, details, response, error }) {
    if (!fatal) return;
    if (type === Hls.ErrorTypes.NETWORK_ERROR) {
      const refusal = refusalOf(response?.code || 0);
      return this.over(refusal?.outcome ?? "failed", refusal?.text || "The connection was lost.");
    }
    if (type === Hls.ErrorTypes.MEDIA_ERROR && !this.#recovered && details !== Hls.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR) {
      this.#recovered = true;
      return this.#hls.recoverMediaError();
    }
    this.over("unplayable", error?.message || details);
  }

  /** @returns {{ start: number, live: number } | null} the range of times to which the viewer can seek */
  reach() {
    const details = this.#hls?.levels[this.#hls.currentLevel]?.details;
    if (details) return { start: details.fragmentStart, live: this.#hls.liveSyncPosition ?? details.edge };
    const { seekable } = this.video;
    return seekable.length ? { start: seekable.start(0), live: seekable.end(seekable.length - 1) } : null;
  }

  release() {
    this.#hls?.destroy();
    this.#hls = null;
  }

  more() {
    const level = this.#hls?.levels[this.#hls.currentLevel];
    const latency = this.#hls?.latency;
    return {
      codec: level && namesOf([level.videoCodec, level.audioCodec]),
      bitsPerSecond: this.#bits,
      ...(latency ? { latencyMs: latency * 1000 } : {}),
    };
  }
}
