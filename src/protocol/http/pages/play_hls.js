// Plays a stream over HLS, where the browser does that by itself: Safari, phones, and newer Chromium.

const TYPE = "application/vnd.apple.mpegurl";

/** Whether this browser knows HLS. */
export const isHlsSupported = () => document.createElement("video").canPlayType(TYPE) !== "";

/** A viewer. */
export class HlsPlayer {
  #video;
  #events;
  #listening = new AbortController();
  #frames = null;

  /**
   * @param {HTMLVideoElement} video
   * @param {{ url: string }} way absolute URL of the playlist
   * @param {import("./play_webrtc.js").Events} events
   */
  constructor(video, { url }, events) {
    this.#video = video;
    this.#events = events;
    this.#start(url);
  }

  async #start(url) {
    const { signal } = this.#listening;
    try {
      // The element does not say why it fails, and the server waits with its answer for the first segment.
      const { status } = await fetch(url, { method: "HEAD", signal });
      if (status === 404) return this.#over("offline", "Not Found");
      if (status === 401 || status === 403) return this.#over("refused", "");
      if (status !== 200) return this.#over("failed", `The server answers ${status}.`);
    } catch {
      return this.#over("failed", "The connection was lost.");
    }
    if (signal.aborted) return;
    const on = (name, act) => this.#video.addEventListener(name, act, { signal });
    on("loadedmetadata", () => this.#events.onMedia());
    on("playing", () => this.#events.onPlaying());
    on("ended", () => this.#over("ended", "The stream has ended."));
    on("error", () => this.#over("unplayable", this.#video.error?.message || "This browser cannot play the stream."));
    this.#video.src = url;
  }

  #over(outcome, text) {
    if (this.#listening.signal.aborted) return;
    this.stop();
    this.#events.onOver(outcome, text);
  }

  /** Ends it; no event follows. */
  stop() {
    if (this.#listening.signal.aborted) return;
    this.#listening.abort();
    this.#video.removeAttribute("src");
    this.#video.load();
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  async figures() {
    const { videoWidth, videoHeight, seekable, currentTime } = this.#video;
    const end = seekable.length ? seekable.end(seekable.length - 1) : undefined;
    return {
      resolution: videoWidth ? `${videoWidth} × ${videoHeight}` : undefined,
      fps: this.#fps(),
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
