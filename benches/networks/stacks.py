"""Viewers that are programs with a WebRTC stack of their own, pion's and str0m's: they show nothing, and count the pictures that could be decoded.

A program prints its offer, is given the answer, and reports at the end; the signalling (WHEP) is done here.
"""

import json
import os
import subprocess
import threading
import time
import tomllib
import urllib.error
import urllib.request

import servers
import stage

# Audio is played this long after its first packet.
PLAYOUT_MS, AUDIO_RATE, AUDIO_PACKET_MS = 200, 48_000, 20


def address(line):
    """The address of a candidate line, where it is one of UDP and IPv4."""
    words = line.split(" ")
    if not line.startswith("a=candidate:") or words[2].lower() != "udp" or ":" in words[4]:
        return None
    return f"{words[4]}:{words[5]}"


def wanted(sdp):
    """The address that an answer names first."""
    return next((found for found in map(address, sdp.splitlines()) if found), None)


def relayed(sdp, port):
    """The answer with the relay in place of that address, and without other candidates."""
    to, lines = wanted(sdp), []
    for line in sdp.splitlines():
        if line.startswith("a=candidate:"):
            if address(line) != to:
                continue
            words = line.split(" ")
            words[4:6] = ["127.0.0.1", str(port)]
            line = " ".join(words)
        lines.append(line)
    return "".join(f"{line}\r\n" for line in lines)


def bare(sdp):
    """An offer without candidates: the relay alone is to be answered."""
    return "".join(f"{line}\r\n" for line in sdp.splitlines() if not line.startswith(("a=candidate:", "a=end-of-candidates")))


def concealed(sound):
    """The statistics of audio that is played with a delay: of 200 ms at first, and after each late packet as long as it took.

    `sound` has the arrival and the media time of each packet. A packet that is missing is concealed, a late one too.
    """
    arrivals = {}
    for at, media in sound:
        arrivals.setdefault(round(media / AUDIO_PACKET_MS), at - media)
    if not arrivals:
        return None
    delay = next(iter(arrivals.values())) + PLAYOUT_MS
    missing, all_of = 0, range(min(arrivals), max(arrivals) + 1)
    for number in all_of:
        transit = arrivals.get(number)
        if transit is None or transit > delay:
            missing += 1
            delay = max(delay, transit or delay)
    samples = AUDIO_RATE * AUDIO_PACKET_MS // 1000
    return {"packetsReceived": len(arrivals), "concealedSamples": missing * samples, "totalSamplesReceived": len(all_of) * samples}


class Program:
    """A viewer by WHEP. `wants` is known at once, because the server's answer is awaited."""

    SERVERS, FILM, HOST = ("whep",), "H.264", None

    def __init__(self):
        self.process = stage.begin([self.path()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told, self.began, self.answer = [], None, None

    @classmethod
    def path(cls):
        return f"{servers.PEERS}/viewer-{cls.NAME}"

    @classmethod
    def missing(cls):
        return None if os.path.exists(cls.path()) else "not built: sh benches/networks/install.sh"

    def watch(self, _, options):
        offer = bare(self.read()["offer"])
        request = urllib.request.Request(options["url"], offer.encode(), {"Content-Type": "application/sdp"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.answer = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ConnectionError(f"{error.code}: {error.read(200).decode()}") from error

    def wants(self):
        found = wanted(self.answer)
        if not found:
            raise ConnectionError(f"the server has named no address: {self.answer}")
        return found

    def relay_at(self, port):
        self.began = time.time() * 1000
        self.say(json.dumps({"answer": relayed(self.answer, port)}))

    def finish(self):
        self.say("finish")
        seen = self.read()
        sound = concealed(seen.pop("sound"))
        if sound:
            seen["looks"][-1]["audio"] = sound
        return {"wants": wanted(self.answer), "began": self.began, **seen}

    def say(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def read(self):
        """A line of JSON. A program that is silent is ended, so that reading it ends, too."""
        limit = threading.Timer(stage.PATIENCE, self.process.kill)
        limit.start()
        try:
            line = self.process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise ConnectionError(f"{self.NAME} has ended")
        return json.loads(line)

    def close(self):
        stage.end(self.process)


class Pion(Program):
    NAME = "pion"

    @classmethod
    def version(cls):
        return servers.first_line(cls.path(), "--version")


class Str0m(Program):
    NAME = "str0m"

    @staticmethod
    def version():
        with open(f"{servers.HERE}/str0m/Cargo.toml", "rb") as file:
            return f"str0m {tomllib.load(file)['dependencies']['str0m']['version']}"
