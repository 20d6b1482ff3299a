// Rounds of attempts to play a stream.
//
// A round tries one technology after another, each with the stream and its backup, until one plays. If none
// does, the round is repeated after a pause, which grows; but not if another round would be refused for the same reason.

import { DashPlayer, isDashSupported } from "./play_dash.js";
import { FlvPlayer } from "./play_flv.js";
import { HlsPlayer, isHlsSupported } from "./play_hls.js";
import { VodPlayer } from "./play_vod.js";
import { WebRtcPlayer, isSupported } from "./play_webrtc.js";

/** Display names of the technologies, by the names that the option `order` uses. */
export const NAMES = { webrtc: "WebRTC", "ll-hls": "low-latency HLS", hls: "HLS", dash: "DASH", vod: "recording", flv: "HTTP-FLV" };
const DEFAULT_ORDER = ["webrtc", "flv", "hls"];
/** Technologies with which the viewer can go back. */
const REACHING = ["hls", "ll-hls"];
const TYPES = ["mp4", "webm"];
const CAN = { webrtc: isSupported, flv: isDashSupported, hls: isHlsSupported, "ll-hls": isHlsSupported, dash: isDashSupported, vod: () => true };
/** Pauses before consecutive rounds; the last one applies to all further rounds. */
const PAUSES_MS = [1000, 2000, 3000, 5000, 8000, 10_000];
/** Random variation of the pauses, so that players that lost their stream together do not reconnect together. */
const SPREAD = 0.3;
/** Prefix of an id that names a file on the server instead of a stream. */
const FILES = "streams/";

const partsOf = (path) => path.split("/").filter((part) => part !== "" && part !== "." && part !== "..");

/**
 * Options of a player.
 * @typedef {object} Options
 * @property {string} base absolute URL of the application's folder
 * @property {string} id of the stream, perhaps with a folder; or a file below `streams/`
 * @property {string} [backup] another stream, tried with each technology after the first stream
 * @property {string[]} [order] technologies
 * @property {string[]} [types] extensions of recordings
 * @property {string | null} [token]
 * @property {URLSearchParams} [query] sent with each request
 * @property {boolean} [dvr] the viewer can go back, over plain or low-latency HLS
 * @property {number} [latency] seconds behind the newest segment, over HLS and DASH
 */

/** Returns the technologies to try, in order. */
export function orderOf({ id, order, dvr }) {
  if (id.startsWith(FILES)) return ["vod"];
  const wanted = (order ?? []).map((name) => name.trim().toLowerCase());
  const known = wanted.filter((name, n) => Object.hasOwn(NAMES, name) && wanted.indexOf(name) === n);
  const backwards = known.filter((name) => REACHING.includes(name));
  if (dvr) return backwards.length ? backwards : REACHING.slice(0, 1);
  return known.length ? known : DEFAULT_ORDER;
}

/** Creates the player for an attempt. */
function playerFor(video, { technology, id }, options, events) {
  const parts = partsOf(id).map(encodeURIComponent);
  // Only files have folders; the last part of the path is the id of the stream.
  const [name, path] = [parts.at(-1) ?? "", parts.join("/")];
  const { base, token, latency, types, dvr } = options;
  const url = (path, withToken = true) => {
    const url = new URL(path, base);
    url.search = new URLSearchParams(options.query);
    if (withToken && token) url.searchParams.set("token", token);
    return url.href;
  };
  switch (technology) {
    case "flv":
      return new FlvPlayer(video, { url: url(`${name}.flv`) }, events);
    case "hls":
    case "ll-hls": {
      const all = new URL(url(technology === "hls" ? `streams/${path}.m3u8` : `streams/ll-hls/${name}/${name}__master.m3u8`));
      if (dvr) all.searchParams.set("dvr", "true");
      return new HlsPlayer(video, { url: all.href, latency, goesBack: dvr }, events);
    }
    case "dash":
      return new DashPlayer(video, { url: url(`streams/${name}/${name}.mpd`), latency }, events);
    case "vod": {
      const files = id.startsWith(FILES) ? [path] : (types?.length ? types : TYPES).map((type) => `streams/${path}.${encodeURIComponent(type)}`);
      return new VodPlayer(video, { urls: files.map((file) => url(file)) }, events);
    }
    default:
      return new WebRtcPlayer(video, { endpoint: url(`whep/${name}`, false), token }, events);
  }
}

/** Plays one stream in a video element until it is stopped. */
export class Rounds {
  #video;
  #options;
  #events;
  #player = null;
  #timer = 0;
  #attempts = [];
  #outcomes = [];
  #failures = 0;
  #isPlaying = false;
  /** The technology and stream that play now: `{ technology, id }`. */
  current = null;

  /**
   * @param {HTMLVideoElement} video
   * @param {Options} options
   * @param {{ onState: (state: string, text: string) => void, onMedia: () => void, onSilent: () => void }} events states are
   *   `connecting`, `playing`, `waiting`, `ended`, `failed`
   */
  constructor(video, options, events) {
    this.#video = video;
    this.#options = options;
    this.#events = events;
  }

  /** Starts the first round. */
  start() {
    this.#say("connecting", "Connecting…");
    this.#round();
  }

  #round() {
    this.stop();
    const { id, backup } = this.#options;
    const order = orderOf(this.#options);
    this.#outcomes = [];
    this.#attempts = order
      .filter((name) => CAN[name]())
      .flatMap((technology) => [id, backup].filter(Boolean).map((id) => ({ technology, id })));
    if (!this.#attempts.length) return this.#say("failed", `This browser has no ${order.map((name) => NAMES[name]).join(" and no ")}.`);
    this.#next();
  }

  /** Stops the player and all further attempts. */
  stop() {
    clearTimeout(this.#timer);
    this.#player?.stop();
    this.#release();
  }

  #release() {
    this.#player = null;
    this.#isPlaying = false;
    this.current = null;
  }

  /** The range of times to which the viewer can seek, `{ start, live }`; `null` if seeking is not possible. */
  get reach() {
    return this.#player?.reach?.() ?? null;
  }

  /** @returns {Promise<Partial<import("./figures.js").Figures>>} */
  async figures() {
    const player = this.#player;
    const figures = (await player?.figures().catch(() => ({}))) ?? {};
    return player === this.#player ? figures : {};
  }

  #say(state, text) {
    this.#events.onState(state, text);
  }

  #next() {
    const attempt = this.#attempts.shift();
    if (!attempt) return this.#conclude();
    const { technology, id } = attempt;
    const mine = playerFor(this.#video, attempt, this.#options, {
      onMedia: () => this.#events.onMedia(),
      onPlaying: () => {
        this.current = attempt;
        this.#isPlaying = true;
        this.#failures = 0;
        const live = technology === "vod" ? "Playing" : "Live";
        this.#say("playing", id === this.#options.id ? `${live}.` : `${live}, from “${id}”.`);
      },
      onSilent: () => this.#events.onSilent(),
      onOver: (outcome, text) => {
        if (this.#player === mine) this.#over(attempt, outcome, text);
      },
    });
    this.#player = mine;
  }

  /** Handles the end of an attempt. */
  #over({ technology, id }, outcome, text) {
    const hasPlayed = this.#isPlaying;
    this.#release();
    if (outcome === "ended" && technology === "vod") return this.#say("ended", "The recording has ended.");
    if (outcome === "ended") return this.#again(`“${id}” has ended. Waiting for it…`);
    // This technology has worked, so a new round begins instead of an attempt with the next technology.
    if (hasPlayed && outcome === "failed") return this.#again("The connection was lost. Trying again…");
    this.#outcomes.push({ outcome, text });
    // WebRTC reports reliably that a stream is not live; then only a recording is still tried. Other technologies also
    // report this if the application does not offer their format.
    if (outcome === "offline" && technology === "webrtc") {
      this.#attempts = this.#attempts.filter((left) => left.id !== id || left.technology === "vod");
    }
    this.#next();
  }

  /** Ends a round in which nothing has played. */
  #conclude() {
    const { id } = this.#options;
    const all = (...kinds) => this.#outcomes.every(({ outcome }) => kinds.includes(outcome));
    if (all("refused")) return this.#say("failed", `You are not allowed to play “${id}”${this.#detailOf("refused")}`);
    if (all("refused", "unplayable")) return this.#say("failed", `This browser cannot play “${id}”${this.#detailOf("unplayable")}`);
    const isOffline = this.#outcomes.some(({ outcome }) => outcome === "offline");
    if (isOffline && id.startsWith(FILES)) return this.#say("failed", `There is no “${id}”.`);
    this.#again(isOffline ? `“${id}” is not live. Waiting for it…` : "No connection to the stream. Trying again…");
  }

  #detailOf(kind) {
    const text = this.#outcomes.find(({ outcome, text }) => outcome === kind && text)?.text;
    return text ? `: ${text.replace(/\.?$/, ".")}` : ".";
  }

  /** Schedules the next round after a pause. */
  #again(text) {
    const pause = PAUSES_MS[Math.min(this.#failures, PAUSES_MS.length - 1)];
    this.#failures += 1;
    this.#say("waiting", text);
    this.#timer = setTimeout(() => this.#round(), pause * (1 + SPREAD * (Math.random() - 0.5)));
  }
}
