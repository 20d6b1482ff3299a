// The conference page: /{app}/conference.html?id=ROOM&name=…. Parameters: docs/http.md.

import { Room } from "./conference_room.js";
import { hasDevices, hasScreen, openSource, reasonOf } from "./sources.js";

/** Maximum number of videos requested: more do not fit on a screen, and phones cannot decode more. */
const VIDEOS_MAX = 16;
const VIDEOS_MAX_OF_PHONES = 6;
const RATIO = 16 / 9;
const GAP = 8;

const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const [lobby, stage, tiles, preview, roomField, nameField] = ["lobby", "stage", "tiles", "preview", "room", "name"].map(at);

/** @type {Room | null} */
let room = null;
/** @type {import("./sources.js").Source | null} */
let source = null;
/** @type {import("./sources.js").Source | null} */
let screen = null;
let pinned = null;
let unread = 0;
/** Number of times that a source was opened. A source that opens after a later one was requested is dropped. */
let turn = 0;
const sounds = new Map();

const isPhone = () => matchMedia("(max-width: 44rem)").matches;
const sourceKind = () => lobby.elements.source.value;

function show(state, text) {
  at("state").dataset.state = state;
  at("state").textContent = text;
}

function randomId() {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return "participant-" + [...bytes].map((byte) => letters[byte % letters.length]).join("");
}

// ---- the lobby

async function open() {
  const mine = ++turn;
  source?.stop();
  source = null;
  preview.srcObject = null;
  preview.dataset.source = sourceKind();
  if (sourceKind() === "none") return show("idle", "You will only watch.");
  show("connecting", "Opening your camera…");
  let opened;
  try {
    opened = await openSource(sourceKind(), { camera: "", microphone: "", name: nameField.value || "Guest" });
  } catch (error) {
    if (mine === turn) show("failed", reasonOf(error));
    return;
  }
  if (mine !== turn) return opened.stop();
  source = opened;
  preview.srcObject = opened.stream;
  preview.play().catch(() => {});
  show("idle", "Ready.");
}

function join() {
  const name = nameField.value.trim() || "Guest";
  at("title").textContent = roomField.value;
  document.title = `${roomField.value} · millstream`;
  enter(true);
  room = new Room(
    {
      room: roomField.value,
      id: query.get("streamId") || randomId(),
      name,
      stream: source?.stream ?? null,
      token: query.get("token") ?? "",
      publishToken: query.get("publishToken") ?? query.get("token") ?? "",
      role: query.get("role") ?? "",
      videos: isPhone() ? VIDEOS_MAX_OF_PHONES : VIDEOS_MAX,
    },
    { onState: stated, onChange: draw, onMessage: chatted },
  );
  for (const id of ["mic", "cam", "share"]) at(id).hidden = !source;
  at("share").hidden = !source || !hasScreen();
  draw();
}

function enter(isIn) {
  lobby.hidden = isIn;
  stage.hidden = !isIn;
  document.body.classList.toggle("joined", isIn);
}

function stated(state, text) {
  show(state, text);
  if (state === "failed") leave(text);
}

function leave(text = "You have left.") {
  room?.leave();
  room = null;
  stopSharing();
  source?.stop();
  source = null;
  for (const sound of sounds.values()) sound.srcObject = null;
  sounds.clear();
  tiles.replaceChildren();
  pinned = null;
  enter(false);
  preview.srcObject = null;
  for (const id of ["mic", "cam"]) at(id).setAttribute("aria-pressed", "false");
  show(text === "You have left." ? "idle" : "failed", text);
}

// ---- tiles

const initials = (name) => name.trim().split(/\s+/).slice(0, 2).map((word) => [...word][0] ?? "").join("").toUpperCase() || "?";

function newTile(id) {
  const tile = document.createElement("button");
  tile.type = "button";
  tile.className = "tile";
  tile.dataset.id = id;
  const video = Object.assign(document.createElement("video"), { muted: true, playsInline: true, autoplay: true });
  const letters = Object.assign(document.createElement("span"), { className: "initials" });
  const caption = Object.assign(document.createElement("span"), { className: "caption" });
  caption.append(at("marks").content.cloneNode(true), document.createElement("b"));
  tile.append(video, letters, caption);
  tile.addEventListener("click", () => pin(id));
  return tile;
}

function fill(tile, { name, isMuted, isHidden, shares }, track, isOwn) {
  const video = tile.querySelector("video");
  const isShown = Boolean(track) && !isHidden;
  if (track && video.srcObject?.getVideoTracks()[0] !== track) {
    video.srcObject = new MediaStream([track]);
    video.play().catch(() => {});
  }
  if (!track) video.srcObject = null;
  const isPinned = pinned === tile.dataset.id;
  Object.assign(tile.dataset, { shown: isShown, shares: Boolean(shares), own: isOwn, speaks: room.speakers.has(tile.dataset.id) });
  tile.dataset.plain = isOwn && (shares || sourceKind() === "pattern");
  tile.querySelector(".initials").textContent = initials(name);
  tile.querySelector(".caption b").textContent = isOwn ? `${name} (you)` : name;
  Object.assign(tile.dataset, { muted: Boolean(isMuted), pinned: isPinned });
  const about = [name, isOwn && "you", isMuted && "muted", isPinned && "pinned"].filter(Boolean).join(", ");
  tile.setAttribute("aria-label", about);
  tile.setAttribute("aria-pressed", String(isPinned));
}

/** Returns the participants in display order: those with video first, the user of this page last. */
function order() {
  const others = [...room.people].map(([id, about]) => ({ id, about, track: room.videoOf(id), isOwn: false }));
  others.sort((a, b) => Number(Boolean(b.track)) - Number(Boolean(a.track)));
  if (!room.publishes) return others;
  const track = (screen ?? source)?.stream.getVideoTracks()[0] ?? null;
  return [...others, { id: room.id, about: room.about, track, isOwn: true }];
}

/** Returns the participant with the large tile: the pinned one, else one who shares a screen, else the last speaker. */
function largeOf(all) {
  const is = (id) => all.find((one) => one.id === id);
  const shared = all.find(({ about, isOwn }) => about.shares && !isOwn);
  return is(pinned) ?? shared ?? is(room.lastSpeaker) ?? all[0];
}

let isDue = false;
/** Redraws the page once, for all changes made in this turn of the event loop. */
function draw() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => { isDue = false; if (room) drawNow(); });
}

function drawNow() {
  const all = order();
  const known = new Map([...tiles.querySelectorAll(".tile")].map((tile) => [tile.dataset.id, tile]));
  const isSpeaker = stage.dataset.view === "speaker";
  const large = isSpeaker ? largeOf(all) : null;
  const made = all.map((one) => {
    const tile = known.get(one.id) ?? newTile(one.id);
    fill(tile, one.about, one.track, one.isOwn);
    tile.classList.toggle("large", one === large);
    return tile;
  });
  const strip = tiles.querySelector(".strip") ?? Object.assign(document.createElement("div"), { className: "strip" });
  const isLarge = (tile) => tile.classList.contains("large");
  if (isSpeaker) {
    place(strip, made.filter((tile) => !isLarge(tile)));
    place(tiles, [...made.filter(isLarge), strip]);
  } else {
    place(tiles, made);
    fit(made.length);
  }
  drawSounds();
}

/** Sets an element's children. If they are the same already, nothing is done, because a video that is moved stops. */
function place(parent, children) {
  if (parent.children.length === children.length && children.every((child, n) => parent.children[n] === child)) return;
  parent.replaceChildren(...children);
  for (const video of parent.querySelectorAll("video")) video.play().catch(() => {});
}

/** Chooses the number of columns that makes the tiles largest. */
function fit(count) {
  const { clientWidth: width, clientHeight: height } = tiles;
  let best = { columns: 1, width: 0 };
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const wide = (width - GAP * (columns - 1)) / columns;
    const high = ((height - GAP * (rows - 1)) / rows) * RATIO;
    // On a phone, two columns that scroll are better than tiny tiles.
    const fits = Math.max(Math.min(wide, high), Math.min(wide, 150));
    if (fits > best.width) best = { columns, width: fits };
  }
  tiles.style.setProperty("--columns", best.columns);
  tiles.style.setProperty("--width", `${Math.floor(best.width)}px`);
}

function drawSounds() {
  const tracks = room.sounds();
  for (const [track, sound] of sounds) {
    if (tracks.includes(track)) continue;
    sound.srcObject = null;
    sounds.delete(track);
  }
  for (const track of tracks) {
    if (sounds.has(track)) continue;
    const sound = Object.assign(new Audio(), { autoplay: true, srcObject: new MediaStream([track]) });
    sounds.set(track, sound);
    sound.play().catch(() => show("live", "Press anywhere to hear the others."));
  }
}

function pin(id) {
  const former = pinned;
  pinned = former === id ? null : id;
  for (const one of [former, pinned]) if (one && one !== room.id) room.pin(one, one === pinned);
  if (pinned) setView("speaker");
  draw();
}

function setView(view) {
  stage.dataset.view = view;
  at("view").setAttribute("aria-pressed", String(view === "speaker"));
  if (view === "grid" && pinned) pin(pinned);
  draw();
}

// ---- what this participant does

function toggle(button, kind, change) {
  const isOff = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(isOff));
  for (const track of source?.stream.getTracks() ?? []) if (track.kind === kind) track.enabled = !isOff;
  room.tell({ [change]: isOff });
  draw();
}

async function share() {
  if (screen) return stopSharing();
  let opened;
  try {
    const stream = await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 15 } } });
    opened = { stream, stop: () => stream.getTracks().forEach((track) => track.stop()) };
  } catch (error) {
    return show("live", reasonOf(error));
  }
  if (!room) return opened.stop();
  screen = opened;
  const [track] = opened.stream.getVideoTracks();
  track.contentHint = "detail";
  track.addEventListener("ended", () => { if (screen === opened) stopSharing(); });
  await room.replaceVideo(track);
  at("share").setAttribute("aria-pressed", "true");
  room.tell({ shares: true });
  draw();
}

async function stopSharing() {
  if (!screen) return;
  screen.stop();
  screen = null;
  at("share").setAttribute("aria-pressed", "false");
  if (!room) return;
  await room.replaceVideo(source?.stream.getVideoTracks()[0] ?? null);
  room.tell({ shares: false });
  draw();
}

// ---- the chat

function setChat(isOpen) {
  stage.dataset.chat = isOpen ? "open" : "closed";
  at("open-chat").setAttribute("aria-pressed", String(isOpen));
  if (isOpen) {
    unread = 0;
    at("unread").hidden = true;
    at("message").focus();
    at("messages").scrollTop = at("messages").scrollHeight;
  }
  draw();
}

function chatted({ name, text, isOwn }) {
  const line = document.createElement("li");
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  line.append(Object.assign(document.createElement("small"), { textContent: `${isOwn ? "You" : name} · ${time}` }), text);
  line.classList.toggle("own", isOwn);
  const list = at("messages");
  list.append(line);
  list.scrollTop = list.scrollHeight;
  if (stage.dataset.chat === "open" || isOwn) return;
  unread += 1;
  at("unread").hidden = false;
  at("unread").textContent = String(unread);
}

function prepare() {
  roomField.value = query.get("id") || query.get("room") || "room1";
  nameField.value = query.get("name") || "";
  at("insecure").hidden = hasDevices();
  lobby.querySelector('input[value="camera"]').disabled = !hasDevices();
  const wanted = query.get("playOnly") === "true" ? "none" : query.get("source");
  const first = ["camera", "pattern", "none"].includes(wanted) ? wanted : hasDevices() ? "camera" : "pattern";
  lobby.querySelector(`input[value="${first}"]`).checked = true;
  if (!globalThis.RTCPeerConnection) {
    at("join").disabled = true;
    return show("failed", "This browser has no WebRTC.");
  }
  open();
}

lobby.addEventListener("submit", (event) => {
  event.preventDefault();
  if (sourceKind() === "none" || source) join();
});
lobby.addEventListener("change", ({ target }) => { if (target.name === "source") open(); });
at("mic").addEventListener("click", () => toggle(at("mic"), "audio", "isMuted"));
at("cam").addEventListener("click", () => toggle(at("cam"), "video", "isHidden"));
at("share").addEventListener("click", share);
at("view").addEventListener("click", () => setView(stage.dataset.view === "speaker" ? "grid" : "speaker"));
at("open-chat").addEventListener("click", () => setChat(stage.dataset.chat !== "open"));
at("close-chat").addEventListener("click", () => setChat(false));
at("leave").addEventListener("click", () => { leave(); open(); });
at("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = at("message");
  const text = field.value.trim();
  if (text && room?.chat(text)) field.value = "";
});
addEventListener("resize", draw);
addEventListener("click", () => { for (const sound of sounds.values()) if (sound.paused) sound.play().catch(() => {}); });
addEventListener("pagehide", () => room?.leave());
prepare();
