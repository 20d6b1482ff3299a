"""Chromium as a WHIP publisher, and the effect of a browser that mutes its microphone.

    tests/.venv/bin/python benches/odd/lips_browser.py

Chromium publishes for 36 s and removes its microphone (`replaceTrack(null)`) from 12 s on, for 0 (never), 3 and 6 s. Another Chromium watches over
WHEP, and a reader over HTTP-FLV. Columns: how far the video's timestamps advance between 5 and 33 s of real time; pictures shown per second,
fewest and median; the longest time without a new picture; freezes by the browser's statistics; how far the picture plays ahead of the sound by
`estimatedPlayoutTimestamp`, median and worst, while audio arrives; corrections that the server logged."""
import http.server
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from websockets.sync.client import connect

from lips_send import FIRST_S
from lips_view import NUMBERS, PITCH, PITCH_STEP

MUTE_AT_S, PATIENCE_S = 12, 30
FLAGS = ("--headless=new --no-sandbox --disable-gpu --mute-audio --no-first-run --disable-dev-shm-usage --autoplay-policy=no-user-gesture-required "
         "--allow-loopback-in-peer-connection --disable-features=WebRtcHideLocalIpsWithMdns --disable-background-timer-throttling "
         "--disable-renderer-backgrounding --disable-background-networking --remote-debugging-port=0").split()


class Blank(http.server.BaseHTTPRequestHandler):
    """Serves an empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>lips</title><body>")

    def log_message(self, *_):
        pass


class Chromium:
    """A page, driven over the DevTools protocol."""

    def __init__(self):
        self.profile, self.number = pathlib.Path(tempfile.mkdtemp(prefix="lips-chromium-")), 0
        self.pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
        threading.Thread(target=self.pages.serve_forever, daemon=True).start()
        command = [shutil.which("chromium") or "chromium", *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = connect(self.address(), max_size=None)
        self.ask("Page.navigate", url=f"http://127.0.0.1:{self.pages.server_port}/")
        time.sleep(0.5)
        self.run(pathlib.Path(__file__).with_name("lips_page.js").read_text() + "\n;Object.assign(window, { publish, watch }); 0")

    def address(self):
        said, end = self.profile / "DevToolsActivePort", time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            lines = said.read_text().split() if said.exists() else []
            if lines:
                pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json"))
                found = [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"]
                if found:
                    return found[0]
            time.sleep(0.1)
        raise TimeoutError("Chromium did not start")

    def ask(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=120))
            if answer.get("id") == self.number:
                return answer["result"]

    def run(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.pages.shutdown()
        shutil.rmtree(self.profile, ignore_errors=True)


def send_whip(server, change, seconds, browser=None):
    """Publishes for `seconds`. `change` is `None`, (`mute`, length) or (`later`, start of the audio), in seconds."""
    own = browser or Chromium()
    kind, length = change or (None, 0)
    clip = {"first": FIRST_S, "pitch": PITCH, "step": PITCH_STEP, "numbers": NUMBERS}
    url = f"http://127.0.0.1:{server.port('http')}/live/whip/odd"
    try:
        own.run(f"publish({json.dumps({'url': url, 'clip': clip, 'seconds': seconds, 'change': kind, 'at': MUTE_AT_S, 'length': length})})")
    finally:
        if browser is None:
            own.close()


def row(reader, watched, length, corrections):
    """Prints a row of the table."""
    pictures = reader["pictures"]
    zero = pictures[0][1]
    middle = [(at, wall) for at, wall in pictures if 5 <= wall - zero <= 33]
    span, real = middle[-1][0] - middle[0][0], middle[-1][1] - middle[0][1]
    shown = [at for at in watched["shown"] if at - watched["shown"][0] >= 3]
    counts = [sum(at <= one < at + 1 for one in shown) for at in range(int(shown[0]) + 1, int(shown[-1]))]
    gap = max(later - former for former, later in zip(shown, shown[1:]))
    looks = watched["looks"]
    # Audio counts as arriving if its packet count grew in the last second.
    apart = [now[4] for before, now in zip(looks, looks[4:]) if now[5] - before[5] >= 40 and now[4] is not None and now[0] - looks[0][0] > 5]
    freezes, frozen = looks[-1][2], looks[-1][3]
    said = "; ".join(f"{kind}: {size}" for kind, size in corrections.items()) or "none"
    return (f"| {length} s | {span:.2f} s in {real:.2f} s | {min(counts)} of {statistics.median(counts):.0f} | {gap * 1000:.0f} ms | {freezes}, {frozen:.1f} s "
            f"| {statistics.median(apart):.0f} / {max(apart, key=abs):.0f} ms | {said} |")


def run_one(folder, length):
    """Publishes with a mute of the given length. Returns the figures of the reader and the viewing browser, and the server's corrections."""
    from inputs import Server
    from lips import View, corrected
    server = Server("millstream", folder)
    browsers = [Chromium(), Chromium()]
    try:
        base, result = f"http://127.0.0.1:{server.port('http')}/live", []
        watching = json.dumps({"url": f"{base}/whep/odd", "seconds": 33})
        change = ("mute", length) if length else None
        threads = [threading.Thread(target=send_whip, args=(server, change, 36, browsers[0])),
                   threading.Thread(target=lambda: result.append(browsers[1].run(f"watch({watching})")))]
        for thread in threads:
            thread.start()
        reader = View("flv", f"{base}/odd.flv")
        for thread in threads:
            thread.join()
        return reader.finish(3), result[0], corrected((folder / "stderr").read_text(errors="replace"))
    finally:
        for browser in browsers:
            browser.close()
        server.stop()


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lips-"))
    names = ("muted", "the video's timestamps", "fewest pictures in a second", "longest time without a picture", "freezes",
             "picture ahead of audio", "corrections")
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    try:
        for length in (0, 3, 6):
            reader, watched, corrections = run_one(folder / str(length), length)
            print(row(reader, watched, length, corrections), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
