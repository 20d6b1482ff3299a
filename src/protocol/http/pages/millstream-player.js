// <millstream-player>: a player of one stream, for pages anywhere. docs/embedding.md has its attributes.

import { PlayEvents } from "./play_events.js";
import { NAMES, Rounds } from "./play_rounds.js";

const LOOK_MS = 1000;
/**
 * Numbers of consecutive readings without progress: after `IDLE` the viewer is notified, after `STUCK` the player
 * restarts.
 */
const IDLE = 3;
const STUCK = 30;
/** Maximum distance from the live edge, in seconds, that counts as live. */
const LIVE_S = 5;
/** Minimum length in seconds of the past media for which the seek bar is shown. */
const REACH_S = 10;

const STYLE = `
:host { display: block; position: relative; overflow: hidden; background: #000; aspect-ratio: 16 / 9;
  --own-accent: var(--millstream-accent, #0b62c4); --own-on-accent: var(--millstream-on-accent, #fff);
  --own-veil: var(--millstream-veil, rgb(0 0 0 / 78%)); --own-text: var(--millstream-text, #fff); font: 1rem/1.4 var(--millstream-font, system-ui, sans-serif); }
:host([hidden]) { display: none; }
[hidden] { display: none !important; }
video { display: block; width: 100%; height: 100%; background: #000; object-fit: contain; }
button { font: inherit; font-weight: 600; min-height: 2.75rem; padding: .4rem 1.1rem; border-radius: .5rem; border: 1px solid transparent; cursor: pointer; color: var(--own-on-accent); background: var(--own-accent); }
button:hover { filter: brightness(1.1); }
:focus-visible { outline: 3px solid #fff; outline-offset: 2px; box-shadow: 0 0 0 6px #000; }
.start { position: absolute; inset: 0; margin: auto; width: max-content; height: 3.5rem; font-size: 1.15rem; padding: 0 1.6rem; }
.top { position: absolute; inset: .6rem .6rem auto; display: flex; flex-wrap: wrap; gap: .6rem; align-items: center; justify-content: space-between; pointer-events: none; }
.top > * { pointer-events: auto; }
.message { margin: 0; padding: .45rem .8rem; border-radius: .5rem; background: var(--own-veil); color: var(--own-text); font-size: .9rem; overflow-wrap: anywhere; max-width: 100%; }
.back { position: absolute; inset: auto .6rem 4rem; display: flex; gap: .6rem; align-items: center; padding: .3rem .8rem; border-radius: .5rem; background: var(--own-veil); color: var(--own-text); font-size: .9rem; }
.back input { flex: 1; min-width: 4rem; height: 1.5rem; accent-color: var(--own-accent); }
.back output { min-width: 4.5rem; text-align: right; font-variant-numeric: tabular-nums; }
.back button { min-height: 2rem; padding: .1rem .8rem; }
.sound { min-height: 2.5rem; font-size: .9rem; margin-left: auto; }
`;

let sheet = null;
function style() {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  return sheet;
}

function make(name, props, ...children) {
  const element = Object.assign(document.createElement(name), props);
  element.append(...children);
  return element;
}

/** Formats seconds as a time: 1:05, 2:00:07. */
function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (number) => String(number).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** URL of this module's folder, which is the folder of its application. */
const HERE = new URL(".", import.meta.url).href;

export class MillstreamPlayer extends HTMLElement {
  static observedAttributes = ["stream", "base", "order"];

  #video = make("video", { playsInline: true, part: "video" });
  #start = make("button", { type: "button", className: "start", part: "start", hidden: true, textContent: "Play" });
  #message = make("p", { className: "message", part: "message", hidden: true });
  #sound = make("button", { type: "button", className: "sound", part: "sound", hidden: true });
  #seek = make("input", { type: "range", step: "any", part: "seek" });
  #behind = make("output", { part: "behind" });
  #live = make("button", { type: "button", part: "live", textContent: "Live" });
  #back = make("div", { className: "back", part: "back", hidden: true }, this.#seek, this.#behind, this.#live);
  #rounds = null;
  #events = null;
  #timer = 0;
  #state = { state: "idle", text: "" };
  #isMutedByBrowser = false;
  #idle = 0;
  #lastTime = 0;
  #lastTechnology = "unknown";
  #playingText = "";
  #figures = {};

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [style()];
    this.#message.setAttribute("role", "status");
    this.#video.setAttribute("aria-label", "Live stream");
    this.#seek.setAttribute("aria-label", "Time in the stream");
    root.append(this.#video, this.#start, make("div", { className: "top" }, this.#message, this.#sound), this.#back);
    this.#seek.addEventListener("input", () => this.#goTo(Number(this.#seek.value)));
    this.#live.addEventListener("click", () => this.#goTo(this.#rounds?.reach?.live));
    this.#start.addEventListener("click", () => this.#begin());
    this.#video.addEventListener("play", () => { this.#start.hidden = true; });
    this.#video.addEventListener("volumechange", () => { if (!this.#video.muted && this.#isMutedByBrowser) this.#sound.hidden = true; });
  }

  connectedCallback() {
    this.#video.muted = this.hasAttribute("muted");
    this.#video.disableRemotePlayback = true;
    this.#poster();
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    if (!this.stream) return this.#say("idle", "Which stream?");
    if (this.getAttribute("autoplay") === "false") {
      this.#say("idle", "");
      this.#start.hidden = false;
      return;
    }
    this.start();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    this.stop();
  }

  attributeChangedCallback(_, before, now) {
    if (this.isConnected && this.#rounds && before !== now) this.start();
  }

  /** The stream's id. */
  get stream() {
    return this.getAttribute("stream") || "";
  }

  /** The element that plays. */
  get video() {
    return this.#video;
  }

  /**
   * `{ state, text }`: the state (`idle`, `connecting`, `playing`, `waiting`, `ended` or `failed`) and a sentence that
   * describes it.
   */
  get state() {
    return this.#state;
  }

  /** The technology in use, for example `webrtc`; `null` while nothing plays. */
  get technology() {
    return this.#rounds?.current?.technology ?? null;
  }

  /** Figures of the connection, at most a second old. */
  get figures() {
    return this.#figures;
  }

  /** Starts playing, or restarts. */
  start() {
    this.stop();
    this.#start.hidden = true;
    this.#rounds = new Rounds(this.#video, this.#options(), {
      onState: (state, text) => this.#say(state, text),
      onMedia: () => this.#play(),
      onSilent: () => this.#offerSound(),
    });
    if (this.hasAttribute("analytics")) this.#events = new PlayEvents(this.#video, this.#base, () => this.#facts());
    this.#rounds.start();
  }

  /** Stops playing. */
  stop() {
    this.#events?.close();
    this.#events = null;
    this.#rounds?.stop();
    this.#rounds = null;
    this.#sound.hidden = true;
    this.#back.hidden = true;
    this.#video.controls = false;
    this.#figures = {};
  }

  get #base() {
    return new URL(this.getAttribute("base") || HERE, location.href).href;
  }

  #list(name) {
    return (this.getAttribute(name) || "").split(",").map((part) => part.trim()).filter(Boolean);
  }

  #options() {
    const latency = Number(this.getAttribute("latency"));
    return {
      base: this.#base,
      id: this.stream,
      backup: this.getAttribute("backup") || undefined,
      order: this.#list("order"),
      types: this.#list("types"),
      token: this.getAttribute("token"),
      query: new URLSearchParams(this.getAttribute("query") || ""),
      latency: latency > 0 ? latency : undefined,
      dvr: this.hasAttribute("dvr"),
    };
  }

  /** Returns the members that all analytics events have. */
  #facts() {
    const query = new URLSearchParams(this.getAttribute("query") || "");
    const token = this.getAttribute("token");
    const subscriberId = query.get("subscriberId");
    return {
      streamId: this.#rounds?.current?.id ?? this.stream,
      protocol: this.#lastTechnology,
      ...(subscriberId ? { subscriberId } : {}),
      ...(token ? { token } : {}),
    };
  }

  /**
   * Sets the poster, shown before the first frame: the picture of the attribute, or else the stream's preview, if it
   * exists.
   */
  #poster() {
    const name = this.stream.split("/").pop().replace(/\.\w+$/, "");
    const named = this.getAttribute("poster");
    if (!named && !name) return;
    const picture = new Image();
    picture.onload = () => { this.#video.poster = picture.src; };
    picture.src = new URL(named || `previews/${encodeURIComponent(name)}.png`, this.#base).href;
  }

  #say(state, text) {
    this.#state = { state, text };
    this.#idle = 0;
    this.#lastTechnology = this.technology ?? this.#lastTechnology;
    if (state === "playing") this.#playingText = text;
    this.dataset.state = state;
    const isOver = state === "failed" || state === "ended";
    this.#message.hidden = state === "playing" || text === "";
    if (this.#message.textContent !== text) this.#message.textContent = text;
    this.#start.textContent = { failed: "Try again", ended: "Play again" }[state] ?? "Play";
    if (isOver) this.#start.hidden = false;
    this.dispatchEvent(new CustomEvent("state", { detail: { ...this.#state, technology: this.technology } }));
  }

  #begin() {
    this.#start.hidden = true;
    // Media may already be loaded, if the browser only waited for this click.
    if (this.technology && this.#state.state !== "ended") this.#video.play().catch(() => {});
    else this.start();
    this.#video.focus();
  }

  /** Plays with sound if the browser allows it, otherwise muted. */
  async #play() {
    const video = this.#video;
    // Controls are shown only now, because they do nothing before there is media.
    video.controls = this.getAttribute("controls") !== "false";
    try {
      await video.play();
    } catch (error) {
      if (error.name !== "NotAllowedError") return;
      if (this.getAttribute("sound") === "always") return void (this.#start.hidden = false);
      video.muted = this.#isMutedByBrowser = true;
      await video.play().catch(() => { this.#start.hidden = false; });
    }
    if (!this.#isMutedByBrowser || !video.muted) return;
    this.#offer("Sound on", () => { video.muted = false; });
  }

  #offerSound() {
    this.#offer(`No sound over WebRTC. Play over ${NAMES.flv}`, () => {
      this.#video.muted = false;
      this.setAttribute("order", "flv,hls");
    });
  }

  #offer(label, act) {
    this.#sound.textContent = label;
    this.#sound.onclick = () => {
      this.#sound.hidden = true;
      act();
    };
    this.#sound.hidden = false;
  }

  /** Seeks to a time of the video element, and plays from there. */
  #goTo(time) {
    if (!Number.isFinite(time)) return;
    this.#video.currentTime = time;
    this.#video.play().catch(() => {});
    this.#showReach();
  }

  /** Updates the seek bar: how far the viewer can go back, and the current position. */
  #showReach() {
    const reach = this.hasAttribute("dvr") && this.technology ? this.#rounds?.reach : null;
    this.#back.hidden = !reach || reach.live - reach.start < REACH_S;
    if (this.#back.hidden) return;
    const behind = Math.max(0, reach.live - this.#video.currentTime);
    const isLive = behind < LIVE_S;
    Object.assign(this.#seek, { min: reach.start, max: reach.live, value: this.#video.currentTime });
    this.#behind.textContent = isLive ? "live" : `−${clock(behind)}`;
    this.#seek.setAttribute("aria-valuetext", isLive ? "live" : `${clock(behind)} behind live`);
    this.#live.disabled = isLive;
  }

  /** Reads the figures, and detects that no media arrives. */
  async #look() {
    const rounds = this.#rounds;
    if (!rounds) return;
    const figures = await rounds.figures();
    if (rounds !== this.#rounds) return;
    this.#figures = figures;
    this.dispatchEvent(new CustomEvent("figures", { detail: figures }));
    this.#showReach();
    if (!this.technology || this.#video.paused) return;
    const isMoving = this.technology === "webrtc" ? figures.bitsPerSecond !== 0 : this.#video.currentTime !== this.#lastTime;
    this.#lastTime = this.#video.currentTime;
    if (isMoving && this.#state.state === "waiting") this.#say("playing", this.#playingText);
    if (isMoving) return void (this.#idle = 0);
    const idle = this.#idle + 1;
    // The publisher may have lost its connection. The server keeps the stream for a while, so the player waits, too.
    if (idle === IDLE) this.#say("waiting", "Nothing comes at the moment. Waiting…");
    // A player over HTTP may be stuck, so it is restarted; a peer connection reports its end by itself.
    if (idle >= STUCK && this.technology !== "webrtc") return this.start();
    this.#idle = idle;
  }
}

// A page may load this module from several applications; the first one defines the element.
if (!customElements.get("millstream-player")) customElements.define("millstream-player", MillstreamPlayer);
