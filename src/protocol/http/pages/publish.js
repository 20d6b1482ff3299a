// The publish page: /{app}/?id=…&token=…. Parameters: docs/http.md.

import { showFigures } from "./figures.js";
import { Publisher, videoCodecs } from "./publisher.js";
import { devicesOf, hasDevices, hasScreen, NONE, openSource, reasonOf } from "./sources.js";

const FIGURES_MS = 1000;
/** Parameters of the page that are sent to the server. The token is sent as `Authorization`. */
const TOLD = ["subscriberId", "subscriberCode", "streamName", "mainTrack", "metaData"];

const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const form = at("form");
const [idField, camera, microphone, codec, bits] = ["id", "camera", "microphone", "codec", "bits"].map(at);
const [startButton, stopButton, muteButton, preview] = ["start", "stop", "mute", "preview"].map(at);

/** @type {Publisher | null} */
let publisher = null;
/** @type {import("./sources.js").Source | null} */
let source = null;
let isMuted = false;
/** Number of starts and stops. Results that belong to an earlier start are dropped. */
let turn = 0;

function show(state, text) {
  at("state").dataset.state = state;
  at("state").textContent = text;
}

const sourceKind = () => form.elements.source.value;

function randomId() {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return "streamId_" + [...bytes].map((byte) => letters[byte % letters.length]).join("");
}

function endpointOf(id) {
  const url = new URL(`whip/${encodeURIComponent(id)}`, new URL(".", location.href));
  for (const name of TOLD) if (query.has(name)) url.searchParams.set(name, query.get(name));
  return url.href;
}

/** Shows the play link. It contains only the id, because the token must stay with the publisher. */
function showLink() {
  const url = new URL("play.html", new URL(".", location.href));
  url.searchParams.set("id", idField.value);
  at("link").value = url.href;
  at("open").href = url.href;
}

function showControls() {
  const isOn = publisher !== null || source !== null;
  startButton.disabled = isOn;
  stopButton.disabled = !isOn;
  muteButton.disabled = !source?.stream.getAudioTracks().length;
  muteButton.setAttribute("aria-pressed", String(isMuted));
  muteButton.textContent = isMuted ? "Unmute" : "Mute";
  idField.disabled = isOn;
  codec.disabled = isOn;
  for (const radio of form.elements.source) radio.disabled = isOn || !isPossible(radio.value);
  const kind = sourceKind();
  at("camera-choice").hidden = kind !== "camera";
  at("microphone-choice").hidden = kind === "pattern";
  camera.disabled = microphone.disabled = isOn && kind !== "camera";
}

const isPossible = (kind) => kind === "pattern" || (kind === "screen" ? hasScreen() : hasDevices());

async function fillDevices() {
  const fill = async (select, kind, none) => {
    const chosen = select.value;
    const devices = await devicesOf(kind).catch(() => []);
    const options = devices.map(({ id, label }) => new Option(label, id));
    select.replaceChildren(new Option("Default", ""), ...options, new Option(none, NONE));
    select.value = [...select.options].some(({ value }) => value === chosen) ? chosen : "";
  };
  await fill(camera, "videoinput", "No camera (audio only)");
  await fill(microphone, "audioinput", "No microphone");
}

/** Opens the chosen source. */
async function open() {
  const kind = sourceKind();
  const opened = await openSource(kind, { camera: camera.value, microphone: microphone.value, name: idField.value });
  for (const track of opened.stream.getTracks()) {
    track.addEventListener("ended", () => source === opened && stop("The browser has ended the source."));
  }
  for (const track of opened.stream.getAudioTracks()) track.enabled = !isMuted;
  return opened;
}

function use(opened) {
  source?.stop();
  source = opened;
  preview.srcObject = opened.stream;
  preview.play().catch(() => {});
}

async function start() {
  const mine = ++turn;
  const isOld = () => mine !== turn;
  startButton.disabled = true;
  stopButton.disabled = false;
  show("connecting", "Opening the source…");
  let opened;
  try {
    opened = await open();
  } catch (error) {
    if (isOld()) return;
    showControls();
    return show("failed", reasonOf(error));
  }
  if (isOld()) return opened.stop();
  use(opened);
  fillDevices();
  publisher = new Publisher({
    endpoint: endpointOf(idField.value),
    token: query.get("token"),
    stream: opened.stream,
    codec: codec.value,
    bitsMax: Number(bits.value),
    onState: (state, text) => {
      if (isOld()) return;
      show(state, text);
      if (state === "failed") release();
    },
  });
  showControls();
  stopButton.focus();
  publisher.start();
}

/** Stops publishing, then releases the source. */
function release() {
  turn += 1;
  publisher?.stop();
  source?.stop();
  publisher = source = null;
  preview.srcObject = null;
  showFigures(at("figures"), {});
  showControls();
}

function stop(text = "Stopped.") {
  release();
  show("idle", text);
}

/** Switches to another camera or microphone while publishing. */
async function changeDevice() {
  if (!publisher || sourceKind() !== "camera") return;
  const mine = turn;
  const opened = await open().catch((error) => show("live", reasonOf(error)));
  if (!opened) return;
  if (mine !== turn) return opened.stop();
  const publishing = publisher;
  use(opened);
  await publishing.replace(opened.stream);
  showControls();
}

async function copy() {
  const link = at("link");
  link.select();
  try {
    await navigator.clipboard.writeText(link.value);
  } catch {
    // Pages without TLS have no clipboard API, but can use the old command.
    if (!document.execCommand("copy")) return void (at("copied").textContent = "Copy the selected text.");
  }
  at("copied").textContent = "Copied.";
  setTimeout(() => { at("copied").textContent = ""; }, 3000);
}

async function readFigures() {
  const publishing = publisher;
  if (!publishing) return;
  const figures = await publishing.figures().catch(() => ({}));
  if (publishing === publisher) showFigures(at("figures"), figures);
}

function prepare() {
  idField.value = query.get("id") || query.get("name") || randomId();
  showLink();
  for (const name of videoCodecs()) codec.append(new Option(name, name));
  const first = hasDevices() ? "camera" : "pattern";
  form.querySelector(`input[value="${first}"]`).checked = true;
  at("insecure").hidden = hasDevices();
  fillDevices();
  showControls();
  if (!globalThis.RTCPeerConnection) {
    startButton.disabled = true;
    return show("failed", "This browser has no WebRTC.");
  }
  show("idle", "Ready.");
}

form.addEventListener("submit", (event) => { event.preventDefault(); if (!startButton.disabled) start(); });
form.addEventListener("change", ({ target }) => {
  if (target.name === "source") showControls();
  if (target === camera || target === microphone) changeDevice();
  if (target === bits && publisher) publisher.bitsMax = Number(bits.value);
});
idField.addEventListener("input", showLink);
stopButton.addEventListener("click", () => { stop(); startButton.focus(); });
muteButton.addEventListener("click", () => {
  isMuted = !isMuted;
  for (const track of source?.stream.getAudioTracks() || []) track.enabled = !isMuted;
  showControls();
});
at("copy").addEventListener("click", copy);
navigator.mediaDevices?.addEventListener?.("devicechange", fillDevices);
addEventListener("online", () => publisher?.hurry());
addEventListener("pagehide", () => { if (publisher) stop(); });
setInterval(readFigures, FIGURES_MS);
prepare();
