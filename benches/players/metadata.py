"""Timed metadata in players. The API inserts a tag each second; the table has the tags that each player passes to its page.

metadata.py [--players TEXT] [--forms TEXT] [--seconds N]: TEXT is a part of names, or several separated by commas.
"""

import argparse
import json
import threading
import time
import urllib.request

import browsers
import encrypted
import ladders
import stage

CMAF = ("app.hlsSegmentType=fmp4", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true")
# Form, settings, address, low latency, players.
FORMS = {
    "TS": ((), "cam.m3u8", False, ("hls", "shaka")),
    "fMP4": (CMAF, "cam.m3u8", False, ("hls", "shaka")),
    "LL-HLS": (CMAF, "ll-hls/cam/cam__master.m3u8", True, ("hls", "shaka")),
    "DASH": (CMAF, "cam/cam.mpd", False, ("shaka", "dash")),
}


def tell(server, over):
    """Inserts a tag into the stream each second."""
    count = 0
    while not over.wait(1):
        count += 1
        url = f"http://{server.http}/live/rest/v2/broadcasts/cam/id3"
        request = urllib.request.Request(url, f"tag {count}".encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=stage.PATIENCE).close()


def main():
    options = argparse.ArgumentParser()
    for name in ("players", "forms"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seconds", type=int, default=8)
    options = options.parse_args()
    path = encrypted.film(stage.folder())
    meant = lambda text, name: not text or any(part.strip().lower() in name.lower() for part in text.split(","))
    for form, (settings, address, low, players) in FORMS.items():
        if not meant(options.forms, form):
            continue
        server = stage.Server("app.hls.begin=stream", "app.id3TagEnabled=true", *settings)
        publisher = ladders.publish(server, path, "cam")
        over = threading.Event()
        teller = threading.Thread(target=tell, args=(server, over))
        teller.start()
        url = f"http://{server.http}/live/streams/{address}"
        stage.wait_for(url, lambda: ladders.is_there(url))
        time.sleep(2)
        for player in (one for one in players if meant(options.players, encrypted.NAMES[one])):
            row = {"form": form, "player": encrypted.NAMES[player]}
            try:
                row |= encrypted.play(player, url, options.seconds, low, {})
            except Exception as error:  # A browser that hangs is a result too.
                row["told"] = [f"{type(error).__name__}: {error}"]
            tags = row.pop("tags", [])
            row["tags"] = sorted({one["text"] for one in tags}, key=lambda text: int(text.split()[1]))
            row["due in"] = [round(one["at"], 1) for one in tags]
            print(json.dumps(row), flush=True)
        over.set()
        teller.join()
        stage.end(publisher)


if __name__ == "__main__":
    main()
