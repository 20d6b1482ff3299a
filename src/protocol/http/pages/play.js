// The play page: /{app}/play.html?id=…. Parameters: docs/http.md.
//
// A round tries each technology in its order, with the stream and its backup. It ends with something that plays, or is
// repeated, unless it was refused for reasons that a repetition does not change.

import { showFigures } from "./figures.js";
import { FlvPlayer } from "./play_flv.js";
import { HlsPlayer, isHlsSupported } from "./play_hls.js";
import { isSupported, WebRtcPlayer } from "./play_webrtc.js";

const RETRY_MS = 2000;
const FIGURES_MS = 1000;
const IDLE = 3;
const NAMES = { webrtc: "WebRTC", flv: "HTTP-FLV", hls: "HLS" };
const ORDER = ["webrtc", "flv", "hls"];
const CAN = { webrtc: isSupported, flv: () => true, hls: isHlsSupported };
/** Parameters of the page itself. All others go with the request: a subscriber, a selection of tracks. */
const OWN = ["id", "name", "playOrder", "autoplay", "mute", "backupStreamId"];

const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const video = at("video");
const startButton = at("start");
const technologyField = at("technology");

/** Streams are known by the last part of `folder/id`. */
const idOf = (text) => (text || "").split("/").pop();
const id = idOf(query.get("id") || query.get("name"));
const backup = idOf(query.get("backupStreamId"));

/** @type {WebRtcPlayer | FlvPlayer | HlsPlayer | null} */
let player = null;
let timer = 0;
let isPlaying = false;
let liveText = "";
let isMutedByBrowser = false;
/** Readings of the figures in a row without any media. */
let idle = 0;
/** What is left of this round, and how its attempts ended. */
let attempts = [];
let outcomes = [];

function show(state, text) {
  const element = at("state");
  element.dataset.state = state;
  if (element.textContent !== text) element.textContent = text;
}

/** The technologies to try, in their order. */
function order() {
  if (technologyField.value) return [technologyField.value];
  const wanted = (query.get("playOrder") || "").toLowerCase().split(",").map((name) => name.trim());
  const known = wanted.filter((name, n) => ORDER.includes(name) && wanted.indexOf(name) === n);
  return known.length ? known : ORDER;
}

function parameters({ withToken }) {
  const rest = new URLSearchParams(query);
  for (const name of OWN) rest.delete(name);
  if (!withToken) rest.delete("token");
  const text = rest.toString();
  return text && `?${text}`;
}

function playerFor(attempt, events) {
  const name = encodeURIComponent(attempt.id);
  const url = (path) => new URL(path, new URL(".", location.href)).href;
  if (attempt.technology === "flv") {
    return new FlvPlayer(video, { url: url(`${name}.flv${parameters({ withToken: true })}`) }, events);
  }
  if (attempt.technology === "hls") {
    return new HlsPlayer(video, { url: url(`streams/${name}.m3u8${parameters({ withToken: true })}`) }, events);
  }
  const endpoint = url(`whep/${name}${parameters({ withToken: false })}`);
  return new WebRtcPlayer(video, { endpoint, token: query.get("token") }, events);
}

// ---- rounds

/** Begins a round. */
function start() {
  end();
  outcomes = [];
  attempts = order()
    .filter((name) => CAN[name]())
    .flatMap((name) => [id, backup].filter(Boolean).map((id) => ({ technology: name, id })));
  startButton.hidden = true;
  if (!attempts.length) return giveUp(`This browser has no ${order().map((name) => NAMES[name]).join(" and no ")}.`);
  next();
}

function end() {
  clearTimeout(timer);
  player?.stop();
  player = null;
  isPlaying = false;
  at("sound").hidden = true;
  at("playing").textContent = "–";
  showFigures(at("figures"), {});
}

function next() {
  const attempt = attempts.shift();
  if (!attempt) return conclude();
  if (at("state").dataset.state !== "waiting") show("connecting", `Connecting over ${NAMES[attempt.technology]}…`);
  const mine = playerFor(attempt, {
    onMedia: () => play(),
    onPlaying: () => {
      at("playing").textContent = NAMES[attempt.technology];
      liveText = attempt.id === id ? "Live." : `Live, from “${attempt.id}”.`;
      isPlaying = true;
      idle = 0;
      show("playing", liveText);
    },
    onSilent: () => offerSound(),
    onOver: (outcome, text) => {
      if (player !== mine) return;
      player = null;
      over(attempt, outcome, text);
    },
  });
  player = mine;
}

/** An attempt has ended. */
function over(attempt, outcome, text) {
  end();
  outcomes.push({ outcome, text, technology: attempt.technology });
  if (outcome === "ended") return again(`“${attempt.id}” has ended. Waiting for it…`);
  // A stream that is not live is so over everything.
  if (outcome === "offline") attempts = attempts.filter((left) => left.id !== attempt.id);
  next();
}

/** Nothing of a round has played. */
function conclude() {
  const all = (...kinds) => outcomes.every(({ outcome }) => kinds.includes(outcome));
  if (all("refused")) return giveUp(`You are not allowed to play “${id}”${detailOf("refused")}`);
  if (all("refused", "unplayable")) {
    const url = new URL(`${encodeURIComponent(id)}.flv`, new URL(".", location.href)).href;
    return giveUp(`This browser cannot play “${id}”${detailOf("unplayable")} ffplay or VLC play ${url}`);
  }
  const isOffline = outcomes.some(({ outcome }) => outcome === "offline");
  again(isOffline ? `“${id}” is not live. Waiting for it…` : "No connection to the stream. Trying again…");
}

function detailOf(kind) {
  const text = outcomes.find(({ outcome, text }) => outcome === kind && text)?.text;
  return text ? `: ${text.replace(/\.?$/, ".")}` : ".";
}

function again(text) {
  show("waiting", text);
  timer = setTimeout(start, RETRY_MS);
}

function giveUp(text) {
  show("failed", text);
  startButton.textContent = "Try again";
  startButton.hidden = false;
}

// ---- sound and the start of playing

/** Plays with sound if the browser lets it, else without. */
async function play() {
  try {
    await video.play();
  } catch (error) {
    if (error.name !== "NotAllowedError") return;
    if (query.get("mute") === "false") return void (startButton.hidden = false);
    video.muted = isMutedByBrowser = true;
    await video.play().catch(() => { startButton.hidden = false; });
  }
  if (!isMutedByBrowser || !video.muted) return;
  offer("The browser plays without sound until you ask for it.", "Sound on", () => {
    video.muted = false;
    at("sound").hidden = true;
  });
}

function offerSound() {
  offer("No sound over WebRTC. If the stream has sound, HTTP-FLV plays it.", "Play over HTTP-FLV", () => {
    video.muted = false;
    technologyField.value = "flv";
    start();
  });
}

function offer(text, label, act) {
  at("sound-text").textContent = text;
  at("sound-button").textContent = label;
  at("sound-button").onclick = act;
  at("sound").hidden = false;
}

// ---- the page

async function readFigures() {
  const playing = player;
  if (!playing) return;
  const figures = await playing.figures().catch(() => ({}));
  if (playing !== player) return;
  showFigures(at("figures"), figures);
  if (!isPlaying) return;
  idle = figures.bitsPerSecond === 0 ? idle + 1 : 0;
  // A publisher that has lost its connection is waited for with its viewers.
  if (idle >= IDLE) show("waiting", "Nothing comes at the moment. Waiting…");
  else show("playing", liveText);
}

function prepare() {
  at("id").value = id;
  if (!id) {
    show("idle", "Which stream? Enter its id below.");
    return at("id").focus();
  }
  at("title").textContent = id;
  document.title = `${id} · millstream`;
  video.muted = query.get("mute") === "true";
  video.disableRemotePlayback = true;
  if (query.get("autoplay") !== "false") return start();
  show("idle", "Ready.");
  startButton.hidden = false;
}

startButton.addEventListener("click", () => {
  startButton.textContent = "Play";
  startButton.hidden = true;
  if (player) video.play().catch(() => {});
  else start();
  video.focus();
});
at("other").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = idOf(at("id").value.trim());
  if (wanted === id) return start();
  // Another stream is a page of its own; a token or a subscriber is for this one.
  const url = new URL(location.href);
  url.search = new URLSearchParams({ id: wanted, ...(technologyField.value && { playOrder: technologyField.value }) });
  location.assign(url);
});
technologyField.addEventListener("change", () => { if (id) start(); });
addEventListener("pagehide", end);
addEventListener("pageshow", ({ persisted }) => { if (persisted && id) start(); });
setInterval(readFigures, FIGURES_MS);
prepare();
