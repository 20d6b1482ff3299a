// Plays ?id= over HTTP-FLV. The player library mpegts.js is not part of the server: put a copy into the
// application's folder (webapps/{app}/mpegts.js).
"use strict";
(() => {
  const note = document.getElementById("note");
  const say = (text) => { note.textContent = text; };
  const id = new URLSearchParams(location.search).get("id");
  if (!id) return say("Say which stream: play.html?id=…");
  const url = new URL(encodeURIComponent(id) + ".flv", location.href).href;
  if (typeof mpegts === "undefined") {
    return say("A browser needs mpegts.js to play FLV, and there is no copy of it beside this page. "
      + "ffplay or VLC play " + url);
  }
  if (!mpegts.isSupported()) return say("This browser cannot play FLV. ffplay or VLC play " + url);
  const player = mpegts.createPlayer({ type: "flv", isLive: true, url }, { enableWorker: false });
  player.on(mpegts.Events.ERROR, (kind, detail) => say("Playing failed: " + kind + ", " + detail));
  player.attachMediaElement(document.getElementById("video"));
  player.load();
  player.play().catch(() => say("Press play."));
})();
