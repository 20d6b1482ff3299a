"""Players by codec and format: which combinations play, judged by the decoded frames, and why the others do not.

players.py [--streams TEXT] [--forms TEXT] [--players TEXT] [--seconds N]: TEXT is a part of names, or several separated by commas.
"""

import argparse
import concurrent.futures
import functools
import json
import re
import subprocess
import time
import urllib.request

import browsers
import programs
import stage

# For each format: the server, and the address of a stream.
FORMS = {
    "HLS TS": ("ts", "/live/streams/{id}.m3u8"),
    "HLS fMP4": ("fmp4", "/live/streams/{id}.m3u8"),
    "LL-HLS": ("fmp4", "/live/streams/ll-hls/{id}/{id}__master.m3u8"),
    "DASH": ("fmp4", "/live/streams/{id}/{id}.mpd"),
}
SERVERS = {
    "ts": ["app.hlsSegmentType=mpegts"],
    "fmp4": ["app.hlsSegmentType=fmp4", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"],
}
CHROMIUM, FIREFOX = browsers.Tab("Chromium"), browsers.Tab("Firefox")
HLS, DASH = ("HLS TS", "HLS fMP4", "LL-HLS"), ("DASH",)
# For each player: its lane, how it is started, and its formats. Players of one lane play one after the other.
PLAYERS = {
    "hls.js, Chromium": ("chromium", CHROMIUM, "hls", HLS),
    "Chromium itself": ("chromium", CHROMIUM, "native", HLS),
    "dash.js, Chromium": ("chromium", CHROMIUM, "dash", DASH),
    "hls.js, Firefox": ("firefox", FIREFOX, "hls", HLS),
    "Firefox itself": ("firefox", FIREFOX, "native", HLS),
    "dash.js, Firefox": ("firefox", FIREFOX, "dash", DASH),
    "ffmpeg": ("programs", programs.ffmpeg, "", HLS + DASH),
    "GStreamer playbin": ("gstreamer", programs.gstreamer, "playbin", HLS + DASH),
    "GStreamer playbin3": ("gstreamer", programs.gstreamer, "playbin3", HLS + DASH),
    "VLC": ("programs", programs.vlc, "", HLS + DASH),
}
# Codecs that MPEG-TS cannot carry; the other tracks are played.
NOT_IN_TS = ("AV1", "VP9", "FLAC")


def is_meant(text, name):
    return not text or any(part.strip().lower() in name.lower() for part in text.split(","))


def parts(stream, form):
    """Returns whether video and audio are expected to play."""
    video, audio = stage.STREAMS[stream]
    carried = [part for part in stream.split(" + ") if form != "HLS TS" or part not in NOT_IN_TS]
    both = " + " in stream
    return bool(video) and (not both or stream.split(" + ")[0] in carried), bool(audio) and (not both or stream.split(" + ")[1] in carried)


def verdict(found, video, audio, seconds):
    """Returns a verdict and its reasons. A third of the time is enough, because players begin some segments late or wait for them."""
    wrong = []
    if video and found["frames"] < seconds * 30 / 3:
        wrong.append(f"{found['frames']} pictures")
    if found["audio"] is not None and audio and not found["audio"]:
        wrong.append("no sound")
    if found.get("first", 0) is None:
        wrong.append("never began")
    elif "first" in found and found["seconds"] < seconds / 3:
        wrong.append(f"{found['seconds']} s")
    return ", ".join(wrong) or "plays"


def url_of(servers, stream, form):
    server, path = FORMS[form]
    return f"http://{servers[server].http}{path.format(id=stage.stream_id(stream))}"


def play(servers, seconds, cell):
    stream, form, player = cell
    _, run, how, _ = PLAYERS[player]
    try:
        found = run(how, url_of(servers, stream, form), seconds, form == "LL-HLS")
    except Exception as error:  # A browser that hangs is a result too.
        found = {"frames": 0, "audio": 0, "seconds": 0, "told": [f"{type(error).__name__}: {error}"]}
    row = {"stream": stream, "form": form, "player": player, "is": verdict(found, *parts(stream, form), seconds), **found}
    print(json.dumps(row), flush=True)
    return row


def warm_up(servers, cells):
    """Requests the streams, because segments are made only from the first request on and players should not wait for them."""
    urls = {url_of(servers, stream, form) for stream, form, _ in cells}
    with concurrent.futures.ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(lambda url: urllib.request.urlopen(url, timeout=stage.PATIENCE).read(), urls))
    time.sleep(8)


def lane(servers, seconds, cells):
    return [play(servers, seconds, cell) for cell in cells]


def cells_of(options, name):
    return [
        (stream, form, player)
        for stream in stage.STREAMS
        for form in FORMS
        for player, (of, _, _, forms) in PLAYERS.items()
        if of == name and form in forms and is_meant(options.streams, stream) and is_meant(options.forms, form)
        and is_meant(options.players, player) and any(parts(stream, form))
    ]


def table(rows):
    """A table for each format with the number of pictures shown, and the messages of players that did not play."""
    notes = []
    for form in FORMS:
        of_form = [row for row in rows if row["form"] == form]
        players = list(dict.fromkeys(row["player"] for row in of_form))
        if not players:
            continue
        print(f"\n| {form} | {' | '.join(players)} |\n|---|{'---|' * len(players)}")
        for stream in dict.fromkeys(row["stream"] for row in of_form):
            by = {row["player"]: row for row in of_form if row["stream"] == stream}
            print(f"| {stream} | {' | '.join(cell_text(by.get(player), notes) for player in players)} |")
    print()
    for number, note in enumerate(notes, 1):
        print(f"{number}. {note}")
    latencies = [row for row in rows if row.get("latency") and row["form"] in ("LL-HLS", "DASH") and row["is"] == "plays"]
    if latencies:
        print("\n| form | player | stream | latency p50 | p95 | began after |\n|---|---|---|---|---|---|")
    for row in latencies:
        print(f"| {row['form']} | {row['player']} | {row['stream']} | {row['latency'][0]} ms | {row['latency'][1]} ms | {row['first']} ms |")


def cell_text(row, notes):
    if row is None:
        return ""
    if row["is"] == "plays":
        return f"plays, {row['frames']}" if row["frames"] else "plays"
    note = f"{row['is']}: {'; '.join(row['told']) or 'says nothing'}"
    if note not in notes:
        notes.append(note)
    return f"no ({notes.index(note) + 1})"


def versions():
    first = lambda *command: subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()[0]
    with open(f"{browsers.HERE}/package.json") as file:
        pinned = json.load(file)["dependencies"]
    print(f"hls.js {pinned['hls.js']}, dash.js {pinned['dashjs']}, {browsers.version('Chromium')}, {browsers.version('Firefox')},",
          re.search(r"ffmpeg version [\d.]+", first("ffmpeg", "-version"))[0] + ",",
          first("gst-inspect-1.0", "--version").replace("gst-inspect-1.0 version", "GStreamer") + ",",
          " ".join(first(*programs.as_somebody(), "vlc", "--version").split(" ")[:3]))


def main():
    options = argparse.ArgumentParser()
    for name in ("streams", "forms", "players"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seconds", type=int, default=12)
    options = options.parse_args()
    versions()
    place = stage.folder()
    servers = {name: stage.Server("app.publisherGraceMs=0", *settings) for name, settings in SERVERS.items()}
    for name in stage.STREAMS:
        if is_meant(options.streams, name):
            film = stage.film(name, place, 20)
            for server in servers.values():
                server.publish(name, film, loop=True)
    lanes = [cells_of(options, name) for name in dict.fromkeys(of for of, *_ in PLAYERS.values())]
    warm_up(servers, [cell for cells in lanes for cell in cells])
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        rows = [row for of in pool.map(functools.partial(lane, servers, options.seconds), lanes) for row in of]
    table(rows)


if __name__ == "__main__":
    main()
