"""Ladders in players. Each player plays, switches down and up, and continues while a rendition ends and returns.

ladders.py [--players TEXT] [--forms TEXT] [--ladders TEXT] [--seconds N]: TEXT is a part of names, or several separated by commas.
"""

import argparse
import json
import subprocess
import time
import urllib.error
import urllib.request

import browsers
import pages
import stage

SCRIPTS = (
    "node_modules/hls.js/dist/hls.min.js",
    "node_modules/dashjs/dist/modern/umd/dash.all.min.js",
    "node_modules/shaka-player/dist/shaka-player.compiled.js",
    "ladder.js",
)
FORMS = {
    "TS": "/live/streams/{id}_adaptive.m3u8",
    "LL-HLS": "/live/streams/ll-hls/{id}/{id}__master_adaptive.m3u8",
    "DASH": "/live/streams/{id}/{id}_adaptive.mpd",
}
PLAYERS = {"hls.js": ("hls", ("TS", "LL-HLS")), "dash.js": ("dash", ("DASH",)), "Shaka": ("shaka", ("TS", "LL-HLS", "DASH"))}
HEIGHTS = (180, 360)
KEY_SECONDS = 2


def film(place, heights):
    """Makes a file with a video of each height, a key frame every two seconds, and a tone."""
    path = f"{place}/{'-'.join(map(str, heights))}.mkv"
    command = [stage.ffmpeg9(), "-v", "error", "-nostdin", "-y"]
    for height in heights:
        command += ["-f", "lavfi", "-i", f"testsrc2=size={height * 16 // 9}x{height}:rate=30"]
    command += ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    for index in range(len(heights) + 1):
        command += ["-map", str(index)]
    command += ["-t", "60", "-pix_fmt", "yuv420p", "-g", str(30 * KEY_SECONDS), *stage.X264, "-ac", "2", *stage.AAC]
    subprocess.run([*command, path], check=True)
    return path


def publish(server, path, name):
    url = f"rtmp://{server.rtmp}/live/{name}"
    return stage.begin([stage.ffmpeg9(), "-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", path, "-map", "0", "-c", "copy", "-f", "flv", url])


def is_there(url):
    try:
        with urllib.request.urlopen(url, timeout=stage.PATIENCE) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


def play(player, form, url, seconds, disturb):
    """A row for each action of a viewer, and for each event."""
    browser = browsers.Chromium()
    try:
        browser.go(pages.serve("ladders", "width=640", SCRIPTS, browsers.HERE))
        begun = browser.run(f"begin({json.dumps(player)}, {json.dumps(url)}, {json.dumps(form == 'LL-HLS')})")
        yield "begins", {"heights": begun["heights"], **browser.run(f"watch(0, {seconds})")}
        for height in (HEIGHTS[0], HEIGHTS[1], HEIGHTS[0]):
            yield f"to {height}", browser.run(f"watch({height}, {seconds})")
        for name, act in disturb:
            act()
            yield name, browser.run(f"watch(0, {seconds * 2})")
    finally:
        browser.close()


def main():
    options = argparse.ArgumentParser()
    for name in ("players", "forms", "ladders"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seconds", type=int, default=8)
    options = options.parse_args()
    place = stage.folder()
    server = stage.Server(
        "app.hls.group=renditions", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true", "app.publisherGraceMs=0"
    )
    both, single = film(place, HEIGHTS), {height: film(place, (height,)) for height in HEIGHTS}
    publish(server, both, "one")
    members = {}

    def join(height):
        # Key frames are aligned to the time of day, as those of encoders for ladders.
        time.sleep(KEY_SECONDS - time.time() % KEY_SECONDS)
        members[height] = publish(server, single[height], f"group_{height}?mainTrack=group")

    def leave(height):
        stage.end(members.pop(height))

    # The lower rendition is the leading one.
    join(HEIGHTS[0])
    join(HEIGHTS[1])
    meant = lambda text, name: not text or any(part.strip().lower() in name.lower() for part in text.split(","))
    for form, path in FORMS.items():
        for ladder in ("one", "group"):
            url = f"http://{server.http}{path.format(id=ladder)}"
            for name, (player, forms) in PLAYERS.items():
                is_meant = meant(options.forms, form) and meant(options.players, name) and meant(options.ladders, ladder)
                if form not in forms or not is_meant:
                    continue
                stage.wait_for(url, lambda: is_there(url))
                disturb = []
                if ladder == "group":
                    disturb = [
                        ("another leaves", lambda: leave(HEIGHTS[1])),
                        ("it comes back", lambda: join(HEIGHTS[1])),
                        ("the first leaves", lambda: leave(HEIGHTS[0])),
                        ("it comes back", lambda: join(HEIGHTS[0])),
                    ]
                try:
                    for what, found in play(player, form, url, options.seconds, disturb):
                        print(json.dumps({"form": form, "ladder": ladder, "player": name, "what": what, **found}), flush=True)
                except Exception as error:  # A browser that hangs is a result too.
                    print(json.dumps({"form": form, "ladder": ladder, "player": name, "told": [f"{type(error).__name__}: {error}"]}), flush=True)
                for height in HEIGHTS:
                    if height not in members and ladder == "group":
                        join(height)


if __name__ == "__main__":
    main()
