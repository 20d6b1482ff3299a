// Plays ?id= over HTTP-FLV by mpegts.js, close to the live edge, and waits for a stream that is not there.
"use strict";
(() => {
  const RETRY_MS = 2000;
  const video = document.getElementById("video");
  const note = document.getElementById("note");
  const say = (text) => { note.textContent = text; };
  const query = new URLSearchParams(location.search);
  const id = query.get("id");
  if (!id) return say("Say which stream: play.html?id=…");
  query.delete("id");
  // A token, a subscriber or a selection of tracks goes with it.
  const rest = query.toString();
  const url = new URL(encodeURIComponent(id) + ".flv" + (rest && "?" + rest), location.href).href;
  const elsewhere = "ffplay or VLC play " + url;
  if (typeof mpegts === "undefined" || !mpegts.isSupported()) return say("This browser cannot play FLV. " + elsewhere);

  const settings = {
    // What is in the buffer is delay: played a little faster until half a second is left.
    liveSync: true,
    liveSyncMaxLatency: 0.9,
    liveSyncTargetLatency: 0.5,
    liveSyncPlaybackRate: 1.1,
    enableStashBuffer: false,
    lazyLoad: false,
    autoCleanupSourceBuffer: true,
  };
  let player = null;

  const again = (text) => {
    say(text);
    if (player) player.destroy();
    player = null;
    setTimeout(start, RETRY_MS);
  };

  const failed = (kind, detail, info) => {
    const status = info && info.code;
    if (status === 404) return again("“" + id + "” is not live. Waiting for it…");
    if (status === 401 || status === 403) return say("You are not allowed to play “" + id + "”.");
    if (kind === mpegts.ErrorTypes.MEDIA_ERROR) {
      return say("This browser cannot play what “" + id + "” is made of (" + detail + "). " + elsewhere);
    }
    again("The connection was lost. Trying again…");
  };

  function start() {
    player = mpegts.createPlayer({ type: "flv", isLive: true, url }, settings);
    player.on(mpegts.Events.ERROR, failed);
    player.on(mpegts.Events.LOADING_COMPLETE, () => again("“" + id + "” has ended. Waiting for it…"));
    player.on(mpegts.Events.MEDIA_INFO, () => say(""));
    player.attachMediaElement(video);
    player.load();
    const playing = player.play();
    if (playing) playing.catch((error) => { if (error.name === "NotAllowedError") say("Press play."); });
  }

  start();
})();
