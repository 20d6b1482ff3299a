"""One viewer of one server behind one network: what it saw, and what the line carried."""

import json
import os
import shutil
import subprocess
import sys
import time

import cells
import servers
import pages
import stage

sys.path.insert(0, f"{stage.ROOT}/tests/suite")
import headless  # noqa: E402: a page of a headless browser

HERE = servers.HERE
RELAY = os.environ.get("RELAY", "")
SCRIPTS = ("page.js", "node_modules/livekit-client/dist/livekit-client.umd.js")
LOOK_S = 0.5
# Viewers come so long after the publisher, and at another moment of the GOP with each seed.
JOIN_S, STEP = 5, 0.618
# The server's address is there, or the answer is none.
PATIENCE_S = 15
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run", "--disable-dev-shm-usage",
         "--autoplay-policy=no-user-gesture-required", "--allow-loopback-in-peer-connection", "--disable-web-security",
         "--disable-features=WebRtcHideLocalIpsWithMdns", "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-background-networking", "--remote-debugging-port=0"]


class Chromium(headless.Chromium):
    """Reaches servers on loopback, and asks no server whether a page may read its answers."""

    def start(self):
        program = shutil.which("chromium") or "chromium"
        command = [program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def version(self):
        return self.send("Browser.getVersion")["product"].replace("/", " ")


class Relay:
    """A network in front of one address."""

    def __init__(self, cell, to, seed):
        command = [RELAY, "--bench", *cell.relay(to, seed)]
        self.process = stage.begin(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def stats(self):
        self.say("stats")
        return {"at": time.time() * 1000, **json.loads(self.process.stdout.readline())}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def wanted(browser):
    """The address that the server has named."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        state = browser.run("state")
        if state["wants"]:
            return state["wants"]
        if state["failed"]:
            raise ConnectionError(state["failed"])
        time.sleep(0.02)
    raise ConnectionError("the server has named no address")


def run(cell, server, seed):
    """Returns the observations of the page, and those of the relay each half second."""
    browser = Chromium()
    relay = None
    try:
        browser.go(pages.serve("networks", "autoplay width=640", SCRIPTS, HERE))
        join = server.begun + JOIN_S + seed * STEP % 1 * servers.GOP_S
        time.sleep(max(0, join - time.monotonic()))
        browser.run(f"watch({json.dumps(server.kind)}, {json.dumps(server.options)}); 0")
        relay = Relay(cell, wanted(browser), seed)
        browser.run(f"relayAt({relay.port}); 0")
        return follow(cell, browser, relay, server)
    finally:
        browser.close()
        if relay:
            relay.close()


def follow(cell, browser, relay, server):
    begun, line, is_cut = time.monotonic(), [relay.stats()], False
    while time.monotonic() < begun + cell.seconds:
        past = time.monotonic() - begun
        if cell.cut and not is_cut and past >= cells.CUT_AT:
            relay.say("cut", cell.cut_bits, cell.cut)
            is_cut = True
        line.append({**relay.stats(), "estimate": server.estimate()})
        next_look = begun + (int(past / LOOK_S) + 1) * LOOK_S
        time.sleep(max(0, next_look - time.monotonic()))
    seen = browser.run("finish()")
    line.append(relay.stats())
    return {**seen, "line": line, "told": browser.told}
