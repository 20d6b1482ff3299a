"""Measures the cost of a copy of a stream at its origin and at its edge, and its additional delay, beside local viewers in the same run.

python3 benches/nodes.py target/release/millstream [STREAMS] [KBPS] [SECONDS]

Two nodes with one worker each on this machine. Each round plays STREAMS streams, one viewer each, over HTTP-FLV:
at the origin in the clear, at the origin over TLS (which the relay uses too), and at the edge.
"""
import json
import os
import subprocess
import sys
import tempfile

BINARY = os.path.realpath(sys.argv[1])
STREAMS, KBPS, SECONDS = (int(value) for value in (sys.argv[2:] + ["30", "1000", "15"][len(sys.argv) - 2:]))
ROUNDS = 3
NONE = ("rtmps", "rtsp", "rtsps", "server.srt", "webrtc")


def node(home, name, *settings):
    """A running server, and its addresses."""
    command = [BINARY, "--home", f"{home}/{name}"]
    ports = [f"{listener}{'_' if listener == 'server.srt' else '.'}port=0" for listener in NONE]
    for setting in ("server.host=127.0.0.1", "server.workers=1", "http.port=0", "https.port=0", "rtmp.port=0",
                    "relay.port=0", "relay.secret=a secret of two nodes", *ports, *settings):
        command += ["--set", setting]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, json.loads(server.stdout.readline())


def cpu(server):
    tasks = os.listdir(f"/proc/{server.pid}/task")
    ran = (open(f"/proc/{server.pid}/task/{task}/schedstat", encoding="ascii").read().split()[0] for task in tasks)
    return sum(map(int, ran)) / 1e9


def bench(role, url, seconds, *options):
    command = [BINARY, "bench", role, "--json", "--insecure", "--url", url, "--count", str(STREAMS), "--duration",
               str(seconds), *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def play(servers, url):
    """CPU seconds of each server, and the report of the viewers."""
    viewers = bench("play", url, SECONDS, "--streams", STREAMS)
    before = [cpu(server) for server in servers]
    report = json.loads(viewers.communicate()[0])
    spent = [cpu(server) - was for server, was in zip(servers, before)]
    return spent, report


def main():
    with tempfile.TemporaryDirectory() as home:
        origin, at = node(home, "origin")
        edge, edge_at = node(home, "edge", f"edge.origins=relay://{at['relay']}/{{app}}/{{id}}", "edge.linger=1")
        total = ROUNDS * 4 * (SECONDS + 8)
        publisher = bench("publish", f"rtmp://{at['rtmp']}/live/s{{n}}", total, "--bitrate", KBPS)
        ways = {"nobody": None, "origin, clear": f"http://{at['http']}", "origin, TLS": f"https://{at['https']}",
                "edge": f"http://{edge_at['http']}"}
        rows = {way: [] for way in ways}
        try:
            for _ in range(ROUNDS):
                for way, base in ways.items():
                    if base is None:
                        before = [cpu(origin), cpu(edge)]
                        subprocess.run(["sleep", str(SECONDS + 1)], check=True)
                        rows[way].append(([cpu(origin) - before[0], cpu(edge) - before[1]], None))
                    else:
                        rows[way].append(play([origin, edge], base + "/live/s{n}.flv"))
        finally:
            for process in (publisher, edge, origin):
                process.terminate()
                process.wait()
        median = lambda values: sorted(values)[len(values) // 2]
        print(f"{STREAMS} streams of {KBPS} kb/s, {SECONDS} s, medians of {ROUNDS} rounds; processor seconds, delay of video")
        for way, rounds in rows.items():
            spent = [median([spent[which] for spent, _ in rounds]) for which in (0, 1)]
            print(f"{way:15} origin {spent[0]:6.2f} s  edge {spent[1]:6.2f} s", end="")
            if rounds[0][1]:
                for name in ("p50", "p99"):
                    print(f"  {name} {median([delay(report, name) for _, report in rounds]):8.3f} ms", end="")
            print()


def delay(report, name):
    return report["latency_video_ms"][name]


main()
