"""Encrypted streams in players. Each player gets the key, or fetches it by itself.

encrypted.py [--players TEXT] [--forms TEXT] [--seconds N]: TEXT is a part of names, or several separated by commas.
"""

import argparse
import json
import re
import subprocess
import time
import urllib.request

import browsers
import ladders
import pages
import stage

# Form, settings, address, low latency.
WHOLE = ("app.hls.encryption=aes-128", "app.hls.key_segments=3")
SAMPLES = ("app.hls.encryption=cbcs", "app.hlsSegmentType=fmp4", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true")
FORMS = {
    "AES-128, TS": (WHOLE, "cam.m3u8", False, ("hls", "shaka")),
    "AES-128, fMP4": ((*WHOLE, "app.hlsSegmentType=fmp4"), "cam.m3u8", False, ("hls", "shaka")),
    "cbcs, HLS": (SAMPLES, "cam.m3u8", False, ("hls", "shaka")),
    "cbcs, LL-HLS": (SAMPLES, "ll-hls/cam/cam__master.m3u8", True, ("hls", "shaka")),
    "cbcs, DASH": (SAMPLES, "cam/cam.mpd", False, ("shaka", "dash")),
}
NAMES = {"hls": "hls.js", "shaka": "Shaka", "dash": "dash.js"}


def film(place):
    path = f"{place}/encrypted.flv"
    source = ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30", "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    coding = ["-t", "60", "-pix_fmt", "yuv420p", "-g", "60", *stage.X264, "-ac", "2", *stage.AAC]
    subprocess.run([stage.ffmpeg9(), "-v", "error", "-nostdin", "-y", *source, *coding, path], check=True)
    return path


def keys_of(server):
    """The key of samples by its identifier, in the forms of a manifest and of a playlist."""
    def get(name):
        with urllib.request.urlopen(f"http://{server.http}/live/streams/{name}", timeout=stage.PATIENCE) as answer:
            return answer.read()

    ids = re.findall('default_KID="([^"]+)"', get("cam/cam.mpd").decode())
    key = re.search('METHOD=SAMPLE-AES,URI="([^"]+)"', get("ll-hls/cam/cam__video.m3u8").decode())[1]
    return {ids[0].replace("-", ""): get(f"ll-hls/cam/{key}").hex()}


def play(player, url, seconds, low, keys):
    browser = browsers.Chromium()
    try:
        # A page from localhost is a secure context, which encrypted media require.
        browser.go(pages.serve("encrypted", "width=640", ladders.SCRIPTS, browsers.HERE))
        begun = browser.run(f"begin({json.dumps(player)}, {json.dumps(url)}, {json.dumps(low)}, {json.dumps(keys)})")
        found = browser.run(f"watch(0, {seconds})")
        return {**found, "told": begun["told"] + found["told"]}
    finally:
        browser.close()


def main():
    options = argparse.ArgumentParser()
    for name in ("players", "forms"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seconds", type=int, default=8)
    options = options.parse_args()
    path = film(stage.folder())
    meant = lambda text, name: not text or any(part.strip().lower() in name.lower() for part in text.split(","))
    for form, (settings, address, low, players) in FORMS.items():
        if not meant(options.forms, form):
            continue
        server = stage.Server("app.hls.begin=stream", *settings)
        publisher = ladders.publish(server, path, "cam")
        url = f"http://{server.http}/live/streams/{address}"
        stage.wait_for(url, lambda: ladders.is_there(url))
        time.sleep(2)
        # A playlist contains the URL of the key; a manifest does not.
        keys = keys_of(server) if form.endswith("DASH") else {}
        for player in (one for one in players if meant(options.players, NAMES[one])):
            row = {"form": form, "player": NAMES[player]}
            try:
                row |= play(player, url, options.seconds, low, keys)
            except Exception as error:  # A browser that hangs is a result too.
                row["told"] = [f"{type(error).__name__}: {error}"]
            print(json.dumps(row), flush=True)
        stage.end(publisher)


if __name__ == "__main__":
    main()
