"""A viewer or publisher of one server behind one network. Returns the observations of the page and the counters of the relay."""

import contextlib
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
SCRIPTS = ("page.js", "publish.js", "node_modules/livekit-client/dist/livekit-client.umd.js")
LOOK_S = 0.5
# Seconds from the publisher to the viewer. Each seed adds a different fraction of the GOP.
JOIN_S, STEP = 5, 0.618
# Time limit until the server's address is known.
PATIENCE_S = 15
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run", "--disable-dev-shm-usage",
         "--autoplay-policy=no-user-gesture-required", "--allow-loopback-in-peer-connection", "--disable-web-security",
         "--disable-features=WebRtcHideLocalIpsWithMdns", "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-background-networking", "--remote-debugging-port=0"]


class Chromium(headless.Chromium):
    """Chromium that may connect to servers on loopback, without cross-origin checks."""

    def start(self):
        program = shutil.which("chromium") or "chromium"
        command = [program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def version(self):
        return self.send("Browser.getVersion")["product"].replace("/", " ")


class Relay:
    """A network in front of one address."""

    def __init__(self, cell, to, seed, way="back"):
        command = [RELAY, "--bench", *cell.relay(to, seed), "--narrow", way]
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
    """The address that the server has announced."""
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
    """Returns the observations of a viewer's page behind the network, and the relay's counters every half second."""
    with contextlib.ExitStack() as left:
        browser = page(left)
        join = server.begun + JOIN_S + seed * STEP % 1 * servers.GOP_S
        time.sleep(max(0, join - time.monotonic()))
        browser.run(f"watch({json.dumps(server.kind)}, {json.dumps(server.options)}); 0")
        relay = behind(left, browser, cell, seed, "back")
        return follow(cell, browser, relay, server.estimate)


# Calls of a viewer that arrives before the stream.
WAITING = {"whep": "waiting", "janus": "janus_room"}


def run_publisher(cell, server, seed):
    """Returns the same for a viewer without a network, whose publisher is behind it. Times begin with the publisher's answer."""
    with contextlib.ExitStack() as left:
        publisher, viewer = page(left), page(left)
        kind, options = server.way_in
        publisher.run(f"publish({json.dumps(kind)}, {json.dumps({**options, **servers.MEDIA})}); 0")
        relay = behind(left, publisher, cell, seed, "there")
        viewer.run(f"watch({json.dumps(WAITING.get(server.kind, server.kind))}, {json.dumps(server.options)}); 0")
        viewer.run(f"relayAt({wanted(viewer).rsplit(':', 1)[1]}); 0")
        seen = follow(cell, viewer, relay, lambda: None)
        sending = publisher.run("finish()")
        return {**seen, "began": sending["began"], "way": "there", "sending": sending["looks"]}


def page(left):
    """A browser with the page, until the context `left` is exited."""
    browser = Chromium()
    left.callback(browser.close)
    browser.go(pages.serve("networks", "autoplay width=640", SCRIPTS, HERE))
    return browser


def behind(left, browser, cell, seed, way):
    """Puts a network in front of the server that a page has requested."""
    relay = Relay(cell, wanted(browser), seed, way)
    left.callback(relay.close)
    browser.run(f"relayAt({relay.port}); 0")
    return relay


def follow(cell, browser, relay, estimate):
    begun, line, is_cut = time.monotonic(), [relay.stats()], False
    while time.monotonic() < begun + cell.seconds:
        past = time.monotonic() - begun
        if cell.cut and not is_cut and past >= cells.CUT_AT:
            relay.say("cut", cell.cut_bits, cell.cut)
            is_cut = True
        line.append({**relay.stats(), "estimate": estimate()})
        next_look = begun + (int(past / LOOK_S) + 1) * LOOK_S
        time.sleep(max(0, next_look - time.monotonic()))
    seen = browser.run("finish()")
    line.append(relay.stats())
    return {**seen, "line": line, "told": browser.told}
