"""A viewer or publisher of one server behind one network. Returns the observations of the page and the counters of the relay."""

import contextlib
import json
import os
import subprocess
import time

import cells
import in_browsers
import servers
import stage

RELAY = os.environ.get("RELAY", "")
LOOK_S = 0.5
# Seconds from the publisher to the viewer. Each seed adds a different fraction of the GOP.
JOIN_S, STEP = 5, 0.618


class Relay:
    """A network in front of one address."""

    def __init__(self, cell, to, seed, way="back", host=None):
        command = [RELAY, "--bench", *cell.relay(to, seed), "--narrow", way, *(["--listen", host] if host else [])]
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


def run(cell, server, seed, client):
    """Returns the observations of a viewer behind the network, and those of the relay each half second."""
    with contextlib.ExitStack() as left:
        viewer = until(left, client)
        join = server.begun + JOIN_S + seed * STEP % 1 * servers.GOP_S
        time.sleep(max(0, join - time.monotonic()))
        viewer.watch(server.kind, server.options)
        relay = behind(left, viewer, cell, seed, "back")
        return follow(cell, viewer, relay, server.estimate)


# Calls of a viewer that arrives before the stream.
WAITING = {"whep": "waiting", "janus": "janus_room"}


def run_publisher(cell, server, seed):
    """Returns the same for a viewer without a network, whose publisher is behind it. Times begin with the publisher's answer."""
    with contextlib.ExitStack() as left:
        publisher, viewer = until(left, in_browsers.Chromium), until(left, in_browsers.Chromium)
        kind, options = server.way_in
        publisher.call("publish", kind, {**options, **servers.MEDIA})
        relay = behind(left, publisher, cell, seed, "there")
        viewer.watch(WAITING.get(server.kind, server.kind), server.options)
        viewer.relay_at(int(viewer.wants().rsplit(":", 1)[1]))
        seen = follow(cell, viewer, relay, lambda: None)
        sending = publisher.finish()
        return {**seen, "began": sending["began"], "way": "there", "sending": sending["looks"]}


def until(left, client):
    """A client, until `left` is left."""
    viewer = client()
    left.callback(viewer.close)
    return viewer


def behind(left, viewer, cell, seed, way):
    """Puts a network in front of the server that a client has asked."""
    relay = Relay(cell, viewer.wants(), seed, way, viewer.HOST)
    left.callback(relay.close)
    viewer.relay_at(relay.port)
    return relay


def follow(cell, viewer, relay, estimate):
    begun, line, is_cut = time.monotonic(), [relay.stats()], False
    while time.monotonic() < begun + cell.seconds:
        past = time.monotonic() - begun
        if cell.cut and not is_cut and past >= cells.CUT_AT:
            relay.say("cut", cell.cut_bits, cell.cut)
            is_cut = True
        line.append({**relay.stats(), "estimate": estimate()})
        next_look = begun + (int(past / LOOK_S) + 1) * LOOK_S
        time.sleep(max(0, next_look - time.monotonic()))
    seen = viewer.finish()
    line.append(relay.stats())
    return {**seen, "line": line}
