"""Data channels with the stacks of others: run.py MILLSTREAM PION CLIENT_JS, and names of stacks for some of them.

Each stack publishes by WHIP and plays by WHEP, with an ordered and an unordered channel. It sends and receives a text,
one byte, 64 KiB, 256 KiB, and a thousand messages of 20 bytes. The other side is always aiortc
(tests/suite/webrtc_peer.py), behind the server. Each message has to come once, whole, as text or as bytes. Prints a table.
"""

import collections
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "../../tests/suite/webrtc_peer.py")
# Messages that each side sends to viewers.
LARGE = ["bytes 1", "bytes 65536", "bytes 262144"]
FLOOD = (1000, 20)
# The longest message that a stack takes (`a=max-message-size`), where it is not 256 KiB.
TAKES = {"werift": 65536}
PATIENCE = 60


class Process:
    """A client, and the lines that it prints."""

    def __init__(self, command):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.lines, self.seen, self.errors = queue.Queue(), collections.Counter(), []
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, wanted, count=1):
        """Waits until a line has been printed so often."""
        end = time.monotonic() + PATIENCE
        while self.seen[wanted] < count:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"{self.seen[wanted]} of {count} {wanted!r}; {dict(self.seen)} {self.errors[-3:]}")
            self.seen[line] += 1

    def end(self):
        self.process.kill()
        self.process.wait()


class Server:
    """A server with ports of the kernel."""

    def __init__(self, binary):
        self.home = tempfile.TemporaryDirectory()
        ports = ["http.port", "https.port", "rtmp.port", "rtmps.port", "rtsp.port", "rtsps.port", "server.srt_port"]
        ports += ["webrtc.port", "relay.port", "turn.port", "turn.tls_port"]
        command = [binary, "--home", self.home.name, "--set", "server.host=127.0.0.1"]
        for port in ports:
            command += ["--set", f"{port}=0"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.http = json.loads(self.process.stdout.readline())["http"]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.home.cleanup()


def text(length):
    return ("abcdefghij" * (length // 10 + 1))[:length]


def with_url(client, url):
    """The command line of a client: its URL stands before the order of its channel."""
    return [*client[:-1], url, client[-1]]


def as_publisher(_name, client, http):
    """The stack publishes messages alone; aiortc plays them over the SDK's socket."""
    publisher = Process(with_url(client, f"http://{http}/live/whip/d"))
    viewer = None
    try:
        publisher.wait("open")
        viewer = Process([sys.executable, PEER, "data-play", f"ws://{http}/live/websocket", "d"])
        viewer.wait("open d")
        publisher.say("text 11")
        viewer.wait(f"came d {text(11)}")
        for line in LARGE:
            publisher.say(line)
            viewer.wait(f"came d {line.split()[1]}")
        publisher.say(f"flood {FLOOD[0]} {FLOOD[1]}")
        viewer.wait(f"came d {FLOOD[1]}", FLOOD[0])
        viewer.say("text of_a_viewer")
        viewer.say("bytes 65536")
        publisher.wait("bytes 65536")
        return nothing_else(viewer, {f"came d {FLOOD[1]}": FLOOD[0]})
    finally:
        publisher.end()
        viewer and viewer.end()


def as_viewer(name, client, http):
    """The stack plays by WHEP; aiortc publishes by WHIP, with video and audio."""
    publisher = Process([sys.executable, PEER, "data-publish", f"http://{http}/live/whip/d", "d"])
    viewer = None
    try:
        publisher.wait("open d")
        viewer = Process(with_url(client, f"http://{http}/live/whep/d"))
        viewer.wait("open")
        publisher.say(f"text {text(11)}")
        viewer.wait("text 11")
        takes = TAKES.get(name, 262144)
        for line in [line for line in LARGE if int(line.split()[1]) <= takes]:
            publisher.say(line)
            viewer.wait(line)
        publisher.say(f"flood {FLOOD[0]} {FLOOD[1]}")
        viewer.wait(f"bytes {FLOOD[1]}", FLOOD[0])
        # A viewer may send 512 KiB at once.
        for line in ["text 11", *LARGE]:
            viewer.say(line)
            number = line.split()[1]
            publisher.wait(f"came d {text(11) if line == 'text 11' else number}")
        return nothing_else(viewer, {f"bytes {FLOOD[1]}": FLOOD[0]})
    finally:
        publisher.end()
        viewer and viewer.end()


def nothing_else(process, many):
    """Fails if a message came twice or damaged."""
    for line, count in process.seen.items():
        assert line != "damaged" and count == many.get(line, 1), (line, count)


def main(binary, pion, client_js, *names):
    client_py = [sys.executable, os.path.join(HERE, "client.py")]
    stacks = {
        "aiortc": client_py,
        "werift": ["node", client_js, "werift"],
        "libdatachannel": ["node", client_js, "libdatachannel"],
        "pion": [pion],
    }
    print("| stack | channel | publishes | plays |\n|---|---|---|---|")
    is_right = True
    for name, client in stacks.items():
        for order in ["ordered", "unordered"] if not names or name in names else []:
            cells = []
            for test in [as_publisher, as_viewer]:
                server = Server(binary)
                try:
                    test(name, [*client, order], server.http)
                    cells.append("ok")
                except AssertionError as error:
                    cells.append(str(error))
                    is_right = False
                finally:
                    server.end()
            print(f"| {name} | {order} | {' | '.join(cells)} |", flush=True)
    sys.exit(0 if is_right else 1)


main(*sys.argv[1:])
