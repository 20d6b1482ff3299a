// Common parts of the players that feed a video element over HTTP.

/**
 * @typedef {"offline" | "ended" | "refused" | "unplayable" | "failed"} Outcome
 */

/**
 * Events of a player.
 * @typedef {object} Events
 * @property {() => void} onMedia the element has something to play
 * @property {() => void} onPlaying the first frame is there
 * @property {() => void} [onSilent] there is video, but no audio that the technology can carry
 * @property {(outcome: Outcome, text: string) => void} onOver the last event
 */

/** From the answer of the server to the first frame. */
const FIRST_FRAME_MS = 20_000;

const libraries = new Map();

/**
 * Loads a library from the folder of this module, once per page, when it is needed.
 * @param {string} file
 * @param {string} name of the global variable that the library sets
 */
export function library(file, name) {
  if (!libraries.has(file)) {
    libraries.set(file, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(file, import.meta.url).href;
      script.crossOrigin = "anonymous";
      script.onload = () => resolve(globalThis[name]);
      script.onerror = () => {
        libraries.delete(file);
        script.remove();
        reject(new Error(`${file} cannot be loaded`));
      };
      document.head.append(script);
    }));
  }
  return libraries.get(file);
}

/**
 * Asks whether something is there to play. The server waits with its answer for the first segment.
 * @param {string} url
 * @param {AbortSignal} signal
 * @returns {Promise<{ outcome: Outcome, text: string } | null>} why not
 */
export async function probe(url, signal) {
  try {
    const { status } = await fetch(url, { method: "HEAD", signal });
    return refusalOf(status);
  } catch {
    return { outcome: "failed", text: "The connection was lost." };
  }
}

/** @returns {{ outcome: Outcome, text: string } | null} the meaning of a status of HTTP */
export function refusalOf(status) {
  if (status === 404) return { outcome: "offline", text: "Not Found" };
  if (status === 401 || status === 403) return { outcome: "refused", text: "" };
  if (status < 200 || status > 299) return { outcome: "failed", text: `The server answers ${status}.` };
  return null;
}

/** A player that is over once, and does nothing after it was stopped. */
export class MediaPlayer {
  #listening = new AbortController();
  #frames = null;
  #timer = 0;
  /** @type {HTMLVideoElement} */
  video;
  /** @type {Events} */
  events;

  /**
   * @param {HTMLVideoElement} video
   * @param {Events} events
   */
  constructor(video, events) {
    this.video = video;
    this.events = events;
    this.on("loadedmetadata", () => events.onMedia());
    this.on("loadeddata", () => {
      clearTimeout(this.#timer);
      events.onPlaying();
    });
    this.on("ended", () => this.over("ended", "The stream has ended."));
  }

  /** Ends with what the player ends with. */
  get signal() {
    return this.#listening.signal;
  }

  /** Hears an event of the element until the end. */
  on(name, act) {
    this.video.addEventListener(name, act, { signal: this.signal });
  }

  /** Gives up when no frame comes. */
  expectFrames() {
    this.#timer = setTimeout(() => this.over("failed", "Nothing came."), FIRST_FRAME_MS);
  }

  /** @param {{ outcome: Outcome, text: string } | null} refusal */
  refused(refusal) {
    if (refusal) this.over(refusal.outcome, refusal.text);
    return refusal !== null || this.signal.aborted;
  }

  /** The end, which is told. */
  over(outcome, text) {
    if (this.signal.aborted) return;
    this.stop();
    this.events.onOver(outcome, text);
  }

  /** Ends it; no event follows. */
  stop() {
    if (this.signal.aborted) return;
    this.#listening.abort();
    clearTimeout(this.#timer);
    this.release();
    this.video.removeAttribute("src");
    this.video.load();
  }

  /** Lets go what the technology has. */
  release() {}

  /** @returns {Partial<import("./figures.js").Figures>} */
  get #element() {
    const { videoWidth, videoHeight, seekable, currentTime, duration } = this.video;
    const end = seekable.length && !Number.isFinite(duration) ? seekable.end(seekable.length - 1) : undefined;
    return {
      resolution: videoWidth ? `${videoWidth} × ${videoHeight}` : undefined,
      fps: this.#fps(),
      latencyMs: end === undefined ? undefined : Math.max(0, end - currentTime) * 1000,
    };
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  async figures() {
    return { ...this.#element, ...this.more() };
  }

  /** Figures that the technology knows better. */
  more() {
    return {};
  }

  #fps() {
    const now = { count: this.video.getVideoPlaybackQuality().totalVideoFrames, at: performance.now() };
    const before = this.#frames;
    this.#frames = now;
    if (!before || now.count < before.count) return undefined;
    return ((now.count - before.count) * 1000) / (now.at - before.at);
  }
}

/** Names of codecs by the first letters of their RFC 6381 names. */
const CODECS = { avc: "H264", hvc: "H265", hev: "H265", av0: "AV1", vp0: "VP9", mp4: "AAC", mp3: "MP3", opu: "Opus", fla: "FLAC", "ac-": "AC-3" };

/** The names of codecs, as people know them. */
export const namesOf = (codecs) =>
  codecs.filter(Boolean).map((codec) => CODECS[codec.toLowerCase().slice(0, 3)] || codec).join(", ") || undefined;
