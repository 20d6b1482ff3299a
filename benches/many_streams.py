"""Ten thousand streams begin and end within a minute, beside a stream with a hundred viewers: the effect on these viewers.

python3 benches/many_streams.py target/release/millstream [COUNT]        (needs taskset and two cores)
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

BINARY, COUNT = os.path.realpath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
BATCH, SECONDS = 1000, 60
NICE = int(os.environ.get("NICE", "0"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


HTTP, RTMP = free_port(), free_port()
API = f"http://127.0.0.1:{HTTP}/live/rest/v2"


def on_core(core, nice, *command):
    command = ["taskset", "-c", str(core), "nice", "-n", str(nice), BINARY, *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def bench(role, name, nice, *options):
    url = f"rtmp://127.0.0.1:{RTMP}/live/{name}"
    return on_core(1, nice, "bench", role, "--json", "--url", url, *map(str, options))


def result(process):
    return json.loads(process.communicate()[0])


def live():
    with urllib.request.urlopen(f"{API}/broadcasts/active-live-stream-count") as answer:
        return json.load(answer)["number"]


def status(server, field):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as lines:
        return next(line.split()[1] for line in lines if line.startswith(field))


def cpu(server):
    tasks = os.listdir(f"/proc/{server.pid}/task")
    ran = (open(f"/proc/{server.pid}/task/{task}/schedstat", encoding="ascii").read().split()[0] for task in tasks)
    return sum(map(int, ran)) / 1e9


def watch(seconds):
    """The hundred viewers."""
    return bench("play", "present", NICE, "--count", 100, "--duration", seconds)


def tell(what, viewers):
    video = viewers["latency_video_ms"]
    print(f"{what}: video p50 {video['p50']:.2f} p99 {video['p99']:.2f} ms, lost {viewers['units']['lost']}")


def main():
    with tempfile.TemporaryDirectory() as home:
        settings = [f"http.port={HTTP}", f"rtmp.port={RTMP}", "srt.enabled=false", "server.workers=1"]
        options = [part for setting in settings for part in ("--set", setting)]
        server = on_core(0, NICE, "--home", home, *options)
        assert server.stdout.readline(), "the server did not start"
        publisher = bench("publish", "present", NICE, "--bitrate", 2500, "--duration", 300)
        try:
            measure(server)
        finally:
            for process in (publisher, server):
                process.terminate()
                process.wait()


def measure(server):
    time.sleep(5)
    tell("alone", result(watch(10)))
    resident, used = int(status(server, "VmRSS")), cpu(server)
    present = watch(SECONDS)
    time.sleep(2)
    began, ready = time.time(), 0
    for first in range(0, COUNT, BATCH):
        # The publishers that come and go share a core with the measuring viewers, at a lower priority.
        batch = bench("publish", f"{first}-{{n}}", NICE + 15, "--count", BATCH, "--rate", BATCH / 2,
                      "--bitrate", 100, "--warm-up", 0, "--duration", 1)
        ready += result(batch)["connections"]["ready"]
    took = time.time() - began
    used = cpu(server) - used
    print(f"{ready} of {COUNT} streams came and went in {took:.1f} s; the server used {used:.1f} CPU-s")
    tell("meanwhile", result(present))
    time.sleep(10)
    print(f"{live()} live, resident {resident / 1e3:.0f} MB before, {int(status(server, 'VmRSS')) / 1e3:.0f} MB after")


main()
