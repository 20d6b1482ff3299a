// Common parts of the players over HTTP.

/**
 * @typedef {"offline" | "ended" | "refused" | "unplayable" | "failed"} Outcome
 */

/**
 * Events of a player.
 * @typedef {object} Events
 * @property {() => void} onMedia the video element has media to play
 * @property {() => void} onPlaying the first frame is available
 * @property {() => void} [onSilent] there is video, but no audio that the technology can carry
 * @property {(outcome: Outcome, text: string) => void} onOver the player has ended; no event follows
 */

/** Maximum time from the server's answer to the first frame. */
const FIRST_FRAME_MS = 20_000;

const libraries = new Map();

/**
 * Loads a library from the folder of this module when it is first needed; once per page.
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
 * Asks the server whether the URL can be played. The server answers once the first segment exists.
 * @param {string} url
 * @param {AbortSignal} signal
 * @returns {Promise<{ outcome: Outcome, text: string } | null>} the reason why not; `null` if it can be played
 */
export async function probe(url, signal) {
  try {
    const { status } = await fetch(url, { method: "HEAD", signal });
    return refusalOf(status);
  } catch {
    return { outcome: "failed", text: "The connection was lost." };
  }
}

/** @returns {{ outcome: Outcome, text: string } | null} the meaning of an HTTP status; `null` for success */
export function refusalOf(status) {
  if (status === 404) return { outcome: "offline", text: "Not Found" };
  if (status === 401 || status === 403) return { outcome: "refused", text: "" };
  if (status < 200 || status > 299) return { outcome: "failed", text: `The server answers ${status}.` };
  return null;
}

/** Base of the players: reports its end only once, and does nothing after it was stopped. */
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

  /** Aborted when the player stops; for requests and listeners that must end with it. */
  get signal() {
    return this.#listening.signal;
  }

  /** Listens to an event of the video element until the player stops. */
  on(name, act) {
    this.video.addEventListener(name, act, { signal: this.signal });
  }

  /** Ends the player if no frame arrives within `FIRST_FRAME_MS`. */
  expectFrames() {
    this.#timer = setTimeout(() => this.over("failed", "Nothing came."), FIRST_FRAME_MS);
  }

  /**
   * Ends the player if the server refused. Returns true if the player must not continue.
   * @param {{ outcome: Outcome, text: string } | null} refusal
   */
  refused(refusal) {
    if (refusal) this.over(refusal.outcome, refusal.text);
    return refusal !== null || this.signal.aborted;
  }

  /** Stops the player, and reports the outcome. */
  over(outcome, text) {
    if (this.signal.aborted) return;
    this.stop();
    this.events.onOver(outcome, text);
  }

  /** Stops the player; no event follows. */
  stop() {
    if (this.signal.aborted) return;
    this.#listening.abort();
    clearTimeout(this.#timer);
    this.release();
    this.video.removeAttribute("src");
    this.video.load();
  }

  /** Releases the resources of the technology. */
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

  /** Returns the figures that the technology knows better than the video element. */
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

/** Display names of codecs, by the first three letters of their RFC 6381 names. */
const CODECS = { avc: "H264", hvc: "H265", hev: "H265", av0: "AV1", vp0: "VP9", mp4: "AAC", mp3: "MP3", opu: "Opus", fla: "FLAC", "ac-": "AC-3" };

/** Returns the display names of codecs as a list. */
export const namesOf = (codecs) =>
  codecs.filter(Boolean).map((codec) => CODECS[codec.toLowerCase().slice(0, 3)] || codec).join(", ") || undefined;
