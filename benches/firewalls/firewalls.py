"""Chromium behind different firewalls, one after the other: docs/firewalls.md.

firewalls.py [--only TEXT] [--joins N]: TEXT is a part of a row's name. PROGRAM names the server's binary. Needs root.

    client 192.168.77.2 ── 192.168.77.1 router 10.99.0.2 ── 10.99.0.1 server
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(f"{HERE}/../..")
sys.path.insert(0, f"{HERE}/../players")
import stage  # noqa: E402: background programs that end with this one

SERVER, ROUTER, INSIDE, CLIENT = "10.99.0.1", "10.99.0.2", "192.168.77.1", "192.168.77.2"
PROXY_PORT = 3128
STREAM, GOP_S = "stage", 4
SETTINGS = {"http.port": 80, "https.port": 443, "http.shared_ports": "true", "turn.enabled": "true", "server.workers": 2, "app.publisherGraceMs": 0,
            "app.remoteAllowedCIDR": "0.0.0.0/0"}

NAT = "masquerade"
RANDOM = "masquerade random,fully-random"
# Applies to packets from the client; answers to them pass.
DROP_UDP = "iifname to-client meta l4proto udp drop"
WEB_ALONE = "iifname to-client meta l4proto != tcp drop; iifname to-client tcp dport != { 80, 443 } drop"
NOTHING = "iifname to-client drop"


@dataclasses.dataclass(frozen=True)
class Row:
    """A firewall: its address translation, the traffic that it blocks, and whether there is a proxy."""

    name: str
    nat: str = NAT
    drop: str = ""
    proxy: bool = False


ROWS = (
    Row("no translator", nat=""),
    Row("port-restricted NAT"),
    Row("symmetric NAT", nat=RANDOM),
    Row("UDP blocked", drop=DROP_UDP),
    Row("only TCP 80 and 443", drop=WEB_ALONE),
    Row("only a proxy, CONNECT to 443", drop=NOTHING, proxy=True),
)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, **more)


class Network:
    """Three network namespaces in a line: client, router, server."""

    def __init__(self):
        self.names = {part: f"millstream-{part}-{os.getpid()}" for part in ("server", "router", "client")}

    def __enter__(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
        self.link("server", SERVER, "router", ROUTER)
        self.link("router", INSIDE, "client", CLIENT)
        self.inside(self.names["router"], "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.inside(self.names["client"], "ip", "route", "add", "default", "via", INSIDE)
        # The route back to the client, for the row without address translation.
        self.inside(self.names["server"], "ip", "route", "add", "192.168.77.0/24", "via", ROUTER)
        return self

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def inside(name, *words):
        run("ip", "netns", "exec", name, *words)

    def link(self, one, address, other, peer):
        names = (f"to-{other}", self.names[one]), (f"to-{one}", self.names[other])
        run("ip", "link", "add", names[0][0], "netns", names[0][1], "type", "veth", "peer", "name", names[1][0], "netns", names[1][1])
        for (link, name), own in zip(names, (address, peer)):
            self.inside(name, "ip", "address", "add", f"{own}/24", "dev", link)
            self.inside(name, "ip", "link", "set", link, "up")

    def rule(self, row):
        nat = f"chain out {{ type nat hook postrouting priority srcnat; oifname to-server {row.nat}; }}\n" if row.nat else ""
        drop = f"chain pass {{ type filter hook forward priority filter; {row.drop}; }}\n" if row.drop else ""
        rules = f"flush ruleset\ntable ip rules {{\n{nat}{drop}}}\n"
        run("ip", "netns", "exec", self.names["router"], "nft", "-f", "-", input=rules, text=True)

    def begin(self, part, *words, **more):
        return stage.begin(["ip", "netns", "exec", self.names[part], *map(str, words)], **more)


def serve(network, place):
    """The server with a stream that has few key frames."""
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    network.begin("server", stage.PROGRAM, "--home", f"{place}/home", *settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stage.wait_for("the server", lambda: answers(network, f"http://{SERVER}/live/rest/v2/version"))
    picture = "testsrc2=size=640x360:rate=25,format=yuv420p"
    coded = ["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "baseline", "-g", str(25 * GOP_S), "-sc_threshold", "0", "-b:v", "1M"]
    sources = ["-re", "-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    network.begin("server", stage.ffmpeg9(), "-v", "error", "-nostdin", *sources, *coded, "-c:a", "aac", "-f", "flv", f"rtmp://{SERVER}/live/{STREAM}")
    stage.wait_for("the stream", lambda: answers(network, f"http://{SERVER}/live/rest/v2/broadcasts/{STREAM}"))
    time.sleep(2 * GOP_S)


def answers(network, url):
    command = ["ip", "netns", "exec", network.names["server"], "curl", "-sf", "--max-time", "2", url]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def client(network, row, joins):
    proxy = [f"http://{INSIDE}:{PROXY_PORT}"] if row.proxy else []
    command = ["ip", "netns", "exec", network.names["client"], sys.executable, f"{HERE}/client.py", SERVER, STREAM, str(joins), *proxy]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"views": [{"failed": done.stderr.strip()[-300:]}], "publish": {"failed": "not tried"}}
    return json.loads(done.stdout)


def percentile(values, share):
    """The smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def told(row, seen):
    """A row of the table."""
    good = [one for one in seen["views"] if "first" in one]
    failed = [one["failed"] for one in (*seen["views"], seen["publish"]) if "failed" in one]
    ways = "; ".join(sorted({one["way"] for one in good}))
    times = ""
    if good:
        first = [one["first"] for one in good]
        times = f"{statistics.median(first):.0f}, {percentile(first, 0.95):.0f}"
    publish = seen["publish"].get("way", "no")
    return f"| {row.name} | {len(good)} of {len(seen['views'])} | {ways} | {times} | {publish} |" + "".join(f"\n  {why}" for why in set(failed))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--joins", type=int, default=10)
    options = options.parse_args()
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    place = stage.folder()
    print("| behind | views | by | first picture p50, p95 (ms) | publishes by |\n|---|---|---|---|---|", flush=True)
    with Network() as network:
        serve(network, place)
        network.begin("router", sys.executable, f"{HERE}/proxy.py", INSIDE, PROXY_PORT, stderr=subprocess.DEVNULL)
        for row in ROWS:
            if options.only.lower() in row.name.lower():
                network.rule(row)
                print(told(row, client(network, row, options.joins)), flush=True)


if __name__ == "__main__":
    main()
