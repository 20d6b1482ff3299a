// The play page: /{app}/play.html?id=…. Parameters: docs/http.md. In a frame, the page shows only the player.

import { showFigures } from "./figures.js";
import "./millstream-player.js";
import { NAMES } from "./play_rounds.js";

/**
 * Parameters of the page itself. All others, such as a subscriber or a selection of tracks, are sent with requests for
 * the stream.
 */
const OWN = [
  "id", "name", "token", "playOrder", "playType", "autoplay", "mute", "backupStreamId", "targetLatency", "poster", "sendAnalytic", "dvr", "theme", "is360",
  "player", "withCredentials", "restJwt", "isIPCamera", "ptzValueStep", "ptzMovement",
];
const THEMES = ["light", "dark"];

const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const technologyField = at("technology");
const id = query.get("id") || query.get("name") || "";
const isFramed = window.self !== window.top;

function show({ state, text }) {
  const element = at("state");
  element.dataset.state = state;
  if (element.textContent !== text) element.textContent = text;
}

/** Creates the player according to the parameters of the page. */
function player() {
  const element = document.createElement("millstream-player");
  const rest = new URLSearchParams(query);
  for (const name of OWN) rest.delete(name);
  const set = (name, value) => { if (value) element.setAttribute(name, value); };
  set("stream", id);
  set("token", query.get("token"));
  set("query", rest.toString());
  set("order", technologyField.value || query.get("playOrder"));
  set("types", query.get("playType"));
  set("backup", query.get("backupStreamId"));
  set("latency", query.get("targetLatency"));
  set("poster", query.get("poster"));
  if (query.get("autoplay") === "false") element.setAttribute("autoplay", "false");
  element.toggleAttribute("muted", query.get("mute") === "true");
  if (query.get("mute") === "false") element.setAttribute("sound", "always");
  element.toggleAttribute("analytics", query.get("sendAnalytic") === "true");
  element.toggleAttribute("dvr", query.get("dvr") === "true");
  element.id = "player";
  element.addEventListener("state", ({ detail }) => {
    show({ ...detail, text: detail.text || "Ready." });
    at("playing").textContent = NAMES[detail.technology] ?? "–";
  });
  element.addEventListener("figures", ({ detail }) => showFigures(at("figures"), detail));
  return element;
}

function prepare() {
  const theme = query.get("theme");
  if (THEMES.includes(theme)) document.documentElement.dataset.theme = theme;
  document.body.classList.toggle("framed", isFramed);
  at("id").value = id;
  if (!id) {
    show({ state: "idle", text: "Which stream? Enter its id below." });
    return at("id").focus();
  }
  at("title").textContent = id;
  document.title = `${id} · millstream`;
  at("main").append(player());
}

at("other").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = at("id").value.trim();
  if (wanted === id) return at("player").start();
  // Another stream opens another page, without the token and the subscriber, which are for this stream.
  const url = new URL(location.href);
  url.search = new URLSearchParams({ id: wanted, ...(technologyField.value && { playOrder: technologyField.value }) });
  location.assign(url);
});
technologyField.addEventListener("change", () => {
  if (!id) return;
  const order = technologyField.value || query.get("playOrder") || "";
  at("player").setAttribute("order", order);
});
addEventListener("pagehide", () => at("player")?.stop());
addEventListener("pageshow", ({ persisted }) => { if (persisted) at("player")?.start(); });
prepare();
