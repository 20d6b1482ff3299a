"""Checks that the memory of a server stays constant while publishers and viewers of all protocols come and go, with recordings and API calls.

python3 benches/soak.py target/release/millstream [MINUTES] (`make soak`)

Prints the resident memory over time, and its slope in the second half. The first half warms up caches.
"""
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

BINARY, MINUTES = os.path.realpath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 180
PORTS = ["http.port", "https.port", "rtmp.port", "rtmps.port", "rtsp.port", "rtsps.port", "server.srt_port", "webrtc.port"]
PUBLISHERS, VIEWERS = ["rtmp", "rtsp", "srt", "whip"], ["rtmp", "flv", "ws-flv", "hls", "rtsp", "srt", "whep"]
RECORDINGS_KEPT, SAMPLE_SECONDS = 30, 10
counts, over = {}, threading.Event()


def count(name):
    counts[name] = counts.get(name, 0) + 1


class Server:
    def __init__(self, home):
        settings = [f"{port}=0" for port in PORTS] + ["server.host=127.0.0.1", "app.mp4MuxingEnabled=true", "server.workers=2"]
        options = [part for setting in settings for part in ("--set", setting)]
        self.process = subprocess.Popen(
            [BINARY, "--home", home, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.ready = json.loads(self.process.stdout.readline())

    def address(self, name):
        return self.ready[name]

    def memory_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def call(self, method, path, body=None):
        host, port = self.address("http").rsplit(":", 1)
        client = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            client.request(method, f"/live/rest/v2{path}", text, {"Content-Type": "application/json"} if text else {})
            answer = client.getresponse().read()
            count("calls")
            return json.loads(answer) if answer else None
        except (OSError, ValueError):
            count("calls that failed")
            return None
        finally:
            client.close()

    def url(self, verb, protocol, stream):
        web = self.address("http")
        mode = "request" if verb == "play" else "publish"
        forms = {
            "rtmp": ("rtmp", f"rtmp://{self.address('rtmp')}/live/{stream}"),
            "rtsp": ("rtsp", f"rtsp://{self.address('rtsp')}/live/{stream}"),
            "srt": ("srt", f"srt://{self.address('srt')}?streamid=%23!::r=live/{stream},m={mode}"),
            "whip": ("whip", f"http://{web}/live/whip/{stream}"),
            "whep": ("whep", f"http://{web}/live/whep/{stream}"),
            "flv": ("flv", f"http://{web}/live/{stream}.flv"),
            "ws-flv": ("ws-flv", f"ws://{web}/live/{stream}.flv"),
            "hls": ("hls", f"http://{web}/live/streams/{stream}.m3u8"),
        }
        return forms[protocol]


def bench(server, verb, protocol, stream, seconds, clients=1):
    name, url = server.url(verb, protocol, stream)
    command = [BINARY, "bench", verb, "--protocol", name, "--url", url, "--duration", str(seconds), "--count", str(clients), "--json"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    count(f"{verb} {protocol}" + ("" if done.returncode == 0 else " with losses"))


def publish(server, protocol, seed):
    draw = random.Random(seed)
    while not over.is_set():
        bench(server, "publish", protocol, f"{protocol}{draw.randrange(1000)}", draw.randrange(4, 20))
        over.wait(draw.random())


def steady(server):
    while not over.is_set():
        bench(server, "publish", "rtmp", "steady", 600)


def view(server, protocol, seed):
    draw = random.Random(seed)
    while not over.is_set():
        bench(server, "play", protocol, "steady", draw.randrange(3, 15), draw.randrange(1, 4))
        over.wait(draw.random())


def manage(server):
    draw, number = random.Random(1), 0
    while not over.is_set():
        number += 1
        stream = f"made{number}"
        server.call("POST", "/broadcasts/create", {"streamId": stream, "name": "x" * draw.randrange(200)})
        server.call("PUT", f"/broadcasts/{stream}", {"description": "y" * draw.randrange(500)})
        expires = int(time.time()) + 60
        server.call("GET", f"/broadcasts/{stream}/token?expireDate={expires}&type=play")
        server.call("POST", f"/broadcasts/{stream}/subscribers", {"subscriberId": f"viewer{number}", "type": "play"})
        server.call("GET", "/broadcasts/list/0/50")
        server.call("DELETE", f"/broadcasts/{stream}/tokens")
        server.call("DELETE", f"/broadcasts/{stream}/subscribers")
        server.call("DELETE", f"/broadcasts/{stream}")
        recordings = server.call("GET", "/vods/list/0/250?sort_by=date&order_by=asc") or []
        for recording in recordings[: max(0, len(recordings) - RECORDINGS_KEPT)]:
            server.call("DELETE", f"/vods/{recording['vodId']}")
            count("recordings deleted")
        over.wait(0.2)


def slope(samples):
    """The slope in megabytes per hour, by least squares."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    above = sum((x - mean_x) * (y - mean_y) for x, y in samples)
    below = sum((x - mean_x) ** 2 for x, _ in samples)
    return 3600 * above / below


def main():
    with tempfile.TemporaryDirectory() as home:
        server = Server(home)
        work = [(steady, (server,)), (manage, (server,))]
        work += [(publish, (server, protocol, n)) for n, protocol in enumerate(PUBLISHERS)]
        work += [(view, (server, protocol, n)) for n, protocol in enumerate(VIEWERS)]
        threads = [threading.Thread(target=what, args=args, daemon=True) for what, args in work]
        for thread in threads:
            thread.start()
        began, samples = time.time(), []
        while time.time() - began < 60 * MINUTES and server.process.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            samples.append((time.time() - began, server.memory_mb()))
            if len(samples) % 30 == 0:
                print(f"{samples[-1][0] / 60:6.1f} min {samples[-1][1]:7.1f} MB {sum(counts.values())} actions", flush=True)
        over.set()
        half = samples[len(samples) // 2 :]
        print(", ".join(f"{what}: {times}" for what, times in sorted(counts.items())))
        print(f"{half[0][1]:.1f} MB at half, {half[-1][1]:.1f} MB at the end, slope {slope(half):.2f} MB an hour in the second half")
        server.process.terminate()
        server.process.wait()


main()
