// Plays a stream in a page: with keys if it is encrypted, switches down and up on a ladder, and collects timed metadata. Run by
// ladders.py, encrypted.py, metadata.py and window.py.
"use strict";

// Tags that the player has passed to the page: the text, and the seconds until the tag is due.
const tags = [];
const hear = (bytes, at) => {
    const text = /tag \d+/.exec(new TextDecoder().decode(bytes))?.[0];
    if (text) tags.push({ text, at });
};

const PLAYERS = {
    hls(video, url, told, low) {
        const player = new Hls({ lowLatencyMode: low, backBufferLength: 10 });
        player.on(Hls.Events.ERROR, (_, error) => told.push(error.details + (error.fatal ? " (fatal)" : "")));
        player.on(Hls.Events.FRAG_PARSING_METADATA, (_, { samples }) => samples.forEach((one) => hear(one.data, one.pts - video.currentTime)));
        player.loadSource(url);
        player.attachMedia(video);
        video.play().catch((error) => told.push(error.message));
        const sorted = () => player.levels.map((level, index) => [level.height, index]).sort((a, b) => a[0] - b[0]);
        return {
            heights: () => sorted().map(([height]) => height),
            choose: (height) => (player.nextLevel = sorted().find(([own]) => own === height)[1]),
        };
    },
    dash(video, url, told, low, keys) {
        const player = dashjs.MediaPlayer().create();
        player.on("error", ({ error }) => told.push(error.message ?? String(error)));
        player.updateSettings({ streaming: { abr: { autoSwitchBitrate: { video: false } } } });
        const base64 = (hex) => btoa(String.fromCharCode(...hex.match(/../g).map((two) => parseInt(two, 16)))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
        const clearkeys = Object.fromEntries(Object.entries(keys).map((pair) => pair.map(base64)));
        if (Object.keys(keys).length) player.setProtectionData({ "org.w3.clearkey": { clearkeys } });
        player.on("https://aomedia.org/emsg/ID3", ({ event }) => hear(event.messageData, event.calculatedPresentationTime - video.currentTime));
        // The player starts by itself. If the element was already playing, it never updates the manifest.
        player.initialize(video, url, true);
        const all = () => player.getRepresentationsByType("video");
        return {
            heights: () => all().map((one) => one.height).sort((a, b) => a - b),
            choose: (height) => player.setRepresentationForTypeById("video", all().find((one) => one.height === height).id, true),
        };
    },
    shaka(video, url, told, low, keys) {
        shaka.polyfill.installAll();
        const player = new shaka.Player();
        player.addEventListener("error", ({ detail }) => told.push(`shaka ${detail.code} severity ${detail.severity} ${String(detail.data?.[0] ?? "").split("/").pop()}`));
        player.addEventListener("metadata", ({ payload, startTime }) => hear(new TextEncoder().encode(String(payload.data)), startTime - video.currentTime));
        player.configure({ streaming: { lowLatencyMode: low }, abr: { enabled: false }, drm: { clearKeys: keys } });
        player.attach(video).then(() => player.load(url)).then(() => video.play()).catch((error) => told.push(error.code ? `shaka ${error.code}: ${error.data}` : error.message));
        const all = () => player.getVariantTracks();
        return {
            heights: () => [...new Set(all().map((one) => one.height))].sort((a, b) => a - b),
            choose: (height) => player.selectVariantTrack(all().find((one) => one.height === height), true),
            // With the automatic choice off, the player never leaves a rendition, not even an ended one. `switchInterval`: the minimum time
            // between two choices, in seconds.
            release: () => player.configure({ abr: { enabled: true, switchInterval: 1000 } }),
        };
    },
};

const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

async function begin(kind, url, low, keys = {}) {
    const video = document.querySelector("video");
    const told = [];
    video.muted = true;
    let waits = 0;
    video.addEventListener("waiting", () => (waits += 1));
    video.addEventListener("error", () => told.push(video.error.message || `error ${video.error.code} of the element`));
    const player = PLAYERS[kind](video, url, told, low, keys);
    for (let left = 150; left > 0 && video.currentTime === 0; left -= 1) await pause(100);
    window.stage = { video, told, player, waits: () => waits };
    return { heights: player.heights(), told };
}

// Plays for this time after choosing a rendition, and returns the result.
async function watch(height, seconds) {
    const { video, told, player } = window.stage;
    const before = { time: video.currentTime, frames: video.getVideoPlaybackQuality().totalVideoFrames, waits: window.stage.waits() };
    if (height) player.choose(height);
    else player.release?.();
    const at = performance.now();
    let reached = null;
    let longest = 0;
    let moved = { time: video.currentTime, at };
    while (performance.now() - at < seconds * 1000) {
        await pause(50);
        if (height && reached === null && video.videoHeight === height) reached = Math.round(performance.now() - at);
        if (video.currentTime !== moved.time) moved = { time: video.currentTime, at: performance.now() };
        longest = Math.max(longest, performance.now() - moved.at);
    }
    return {
        height: video.videoHeight,
        reached,
        seconds: Math.round((video.currentTime - before.time) * 10) / 10,
        frames: video.getVideoPlaybackQuality().totalVideoFrames - before.frames,
        sound: video.webkitAudioDecodedByteCount,
        freeze: Math.round(longest),
        waits: window.stage.waits() - before.waits,
        tags: tags.splice(0),
        told: told.splice(0),
    };
}
