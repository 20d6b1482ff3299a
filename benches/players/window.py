"""Going back over DASH: each player plays the manifest of the whole window, seeks back to segments that only the disk has, and plays a past span.

window.py [--players TEXT] [--seconds N]: TEXT is a part of names, or several separated by commas.
"""

import argparse
import json
import time
import urllib.request

import browsers
import encrypted
import ladders
import pages
import stage

SETTINGS = ("app.dashMuxingEnabled=true", "app.dvr.window=600", "app.hlsListSize=5", "app.hlsTime=2")
NAMES = {"dash": "dash.js", "shaka": "Shaka"}
ADDRESS = "live/streams/cam/cam.mpd"


def play(player, url, seconds, back):
    """Plays at the beginning of the player's choice, and then `back` seconds earlier."""
    browser = browsers.Chromium()
    try:
        browser.go(pages.serve("window", "width=640", ladders.SCRIPTS, browsers.HERE))
        begun = browser.run(f"begin({json.dumps(player)}, {json.dumps(url)}, false)")
        first = browser.run(f"watch(0, {seconds})")
        reach = browser.run("window.stage.video.seekable.length ? window.stage.video.seekable.end(0) - window.stage.video.seekable.start(0) : null")
        found = {"frames": first["frames"], "seconds": first["seconds"], "reach": reach, "told": begun["told"] + first["told"]}
        if back:
            browser.run(f"window.stage.video.currentTime -= {back}")
            then = browser.run(f"watch(0, {seconds})")
            found |= {"back": {key: then[key] for key in ("frames", "seconds", "freeze")}, "told": found["told"] + then["told"]}
        return found
    finally:
        browser.close()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--players", default="")
    options.add_argument("--seconds", type=int, default=8)
    options = options.parse_args()
    server = stage.Server("app.hls.begin=stream", *SETTINGS)
    publisher = ladders.publish(server, encrypted.film(stage.folder()), "cam")
    url = f"http://{server.http}/{ADDRESS}"
    stage.wait_for(url, lambda: ladders.is_there(url))
    begun = int(time.time())
    time.sleep(60)
    meant = lambda name: not options.players or any(part.strip().lower() in name.lower() for part in options.players.split(","))
    forms = {"dvr=true": 40, f"start={begun + 10}&end={begun + 40}": 0}
    for query, back in forms.items():
        for player in (one for one in NAMES if meant(NAMES[one])):
            row = {"query": query, "player": NAMES[player]}
            try:
                row |= play(player, f"{url}?{query}", options.seconds, back)
            except Exception as error:  # A browser that hangs is a result too.
                row["told"] = [f"{type(error).__name__}: {error}"]
            print(json.dumps(row), flush=True)
    with urllib.request.urlopen(f"{url}?dvr=true", timeout=stage.PATIENCE) as answer:
        print(json.dumps({"bytes": len(answer.read())}))
    stage.end(publisher)


if __name__ == "__main__":
    main()
