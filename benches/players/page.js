// Plays a URL in a page for some seconds, and returns the observations; run by browsers.py.
"use strict";

const STARTS = {
    // The browser's own media element.
    native(video, url, told) {
        video.src = url;
        begin(video, told);
        return () => null;
    },
    hls(video, url, told, low) {
        const player = new Hls({ lowLatencyMode: low, backBufferLength: 10 });
        player.on(Hls.Events.ERROR, (_, error) => told.push(error.details + (error.fatal ? " (fatal)" : "")));
        player.loadSource(url);
        player.attachMedia(video);
        begin(video, told);
        // Latency by the times in the playlist: from the arrival of a frame at the server to its display.
        return () => player.playingDate && Date.now() - player.playingDate.getTime();
    },
    dash(video, url, told) {
        const player = dashjs.MediaPlayer().create();
        player.on("error", ({ error }) => told.push(error.message ?? String(error)));
        // The player starts by itself. If the element was already playing, it never updates the manifest.
        player.initialize(video, url, true);
        // Latency by the times in the manifest, not by the player's guess of the server's clock.
        let zero = null;
        fetch(url).then((answer) => answer.text()).then((text) => {
            zero = Date.parse(/availabilityStartTime="([^"]*)"/.exec(text)[1]);
        });
        return () => zero && player.isReady() && Date.now() - zero - video.currentTime * 1000;
    },
};

function begin(video, told) {
    video.play().catch((error) => told.push(error.message));
}

async function play(player, url, seconds, low) {
    const video = document.querySelector("video");
    const told = [];
    const begun = performance.now();
    let first = null;
    video.muted = true;
    video.addEventListener("playing", () => (first ??= Math.round(performance.now() - begun)));
    video.addEventListener("error", () => told.push(video.error.message || `error ${video.error.code} of the element`));
    const latency = STARTS[player](video, url, told, low);
    const latencies = [];
    let from = null;
    for (let left = seconds * 5; left > 0; left -= 1) {
        await new Promise((resume) => setTimeout(resume, 200));
        if (first !== null) from ??= video.currentTime;
        // After playback has settled.
        const now = latency();
        if (now && performance.now() - begun > seconds * 400) latencies.push(Math.round(now));
    }
    latencies.sort((a, b) => a - b);
    const quality = video.getVideoPlaybackQuality();
    return {
        first,
        frames: quality.totalVideoFrames,
        dropped: quality.droppedVideoFrames,
        seconds: from === null ? 0 : Math.round((video.currentTime - from) * 10) / 10,
        audio: video.webkitAudioDecodedByteCount ?? null,
        size: video.videoWidth,
        latency: latencies.length > 5 ? [latencies[latencies.length >> 1], latencies[Math.floor(latencies.length * 0.95)]] : null,
        told: [...new Set(told)].slice(0, 4),
    };
}
