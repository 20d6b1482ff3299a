// Plays a stream over HTTP-FLV with mpegts.js, close to the live edge.

import { library, namesOf } from "./play_media.js";

const SETTINGS = {
  // Buffered media adds delay, so the player speeds up until only half a second is buffered.
  liveSync: true,
  liveSyncMaxLatency: 0.9,
  liveSyncTargetLatency: 0.5,
  liveSyncPlaybackRate: 1.1,
  enableStashBuffer: false,
  lazyLoad: false,
  autoCleanupSourceBuffer: true,
};

/** Bits in a KiB, the unit of mpegts.js. */
const BITS_OF_KIB = 8 * 1024;

/** A player of an HTTP-FLV stream. */
export class FlvPlayer {
  #video;
  #events;
  #player = null;
  #media = {};
  #bits = undefined;
  #frames = null;
  #isOver = false;

  /**
   * @param {HTMLVideoElement} video
   * @param {{ url: string }} way absolute URL
   * @param {import("./play_media.js").Events} events
   */
  constructor(video, { url }, events) {
    this.#video = video;
    this.#events = events;
    library("mpegts.js", "mpegts").then(
      (mpegts) => this.#start(mpegts, url),
      (error) => this.#over("failed", error.message),
    );
  }

  #start(mpegts, url) {
    if (this.#isOver) return;
    if (!mpegts.isSupported()) return this.#over("unplayable", "This browser cannot play FLV.");
    const player = mpegts.createPlayer({ type: "flv", isLive: true, url }, SETTINGS);
    this.#player = player;
    // The library still works after it has emitted an event, so it must not be destroyed within the handler.
    const later = (act) => setTimeout(act, 0);
    player.on(mpegts.Events.ERROR, (...error) => later(() => this.#failed(mpegts, ...error)));
    player.on(mpegts.Events.LOADING_COMPLETE, () => later(() => this.#over("ended", "The stream has ended.")));
    player.on(mpegts.Events.MEDIA_INFO, (info) => {
      this.#media = info;
      this.#events.onPlaying();
    });
    player.on(mpegts.Events.STATISTICS_INFO, ({ speed }) => { this.#bits = speed * BITS_OF_KIB; });
    player.attachMediaElement(this.#video);
    player.load();
    this.#events.onMedia();
  }

  #failed(mpegts, kind, detail, info) {
    const status = info && info.code;
    if (status === 404) return this.#over("offline", "Not Found");
    if (status === 401 || status === 403) return this.#over("refused", info.msg || "");
    if (kind === mpegts.ErrorTypes.MEDIA_ERROR) return this.#over("unplayable", detail);
    this.#over("failed", "The connection was lost.");
  }

  #over(outcome, text) {
    if (this.#isOver) return;
    this.stop();
    this.#events.onOver(outcome, text);
  }

  /** Stops the player; no event follows. */
  stop() {
    this.#isOver = true;
    this.#player?.destroy();
    this.#player = null;
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  async figures() {
    const { videoCodec, audioCodec } = this.#media;
    const { videoWidth, videoHeight, buffered, currentTime } = this.#video;
    const end = buffered.length ? buffered.end(buffered.length - 1) : undefined;
    return {
      codec: namesOf([videoCodec, audioCodec]),
      resolution: videoWidth ? `${videoWidth} × ${videoHeight}` : undefined,
      fps: this.#fps(),
      bitsPerSecond: this.#bits,
      latencyMs: end === undefined ? undefined : Math.max(0, end - currentTime) * 1000,
    };
  }

  #fps() {
    const now = { count: this.#video.getVideoPlaybackQuality().totalVideoFrames, at: performance.now() };
    const before = this.#frames;
    this.#frames = now;
    if (!before || now.count < before.count) return undefined;
    return ((now.count - before.count) * 1000) / (now.at - before.at);
  }
}
