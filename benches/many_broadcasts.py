"""A hundred thousand broadcasts: the time of a start, and of listing a page at different offsets.

python3 benches/many_broadcasts.py target/release/millstream [COUNT]
"""
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

BINARY, COUNT = os.path.realpath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
CLIENTS, PAGE = 16, 50


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(home, port):
    began = time.time()
    settings = [f"http.port={port}", f"rtmp.port={free_port()}", "srt.enabled=false"]
    options = [part for setting in settings for part in ("--set", setting)]
    server = subprocess.Popen([BINARY, "--home", home, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout.readline(), "the server did not start"
    return server, time.time() - began


def stop(server):
    server.terminate()
    server.wait()


def create(port, first):
    client = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(first, COUNT, CLIENTS):
        body = json.dumps({"streamId": f"stream{number:06}", "name": f"name of {number}"})
        client.request("POST", "/live/rest/v2/broadcasts/create", body, {"Content-Type": "application/json"})
        response = client.getresponse()
        response.read()
        assert response.status == 200, response.status


def main():
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        server, _ = start(home, port)
        began = time.time()
        clients = [threading.Thread(target=create, args=(port, first)) for first in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        print(f"{COUNT} created in {time.time() - began:.1f} s")
        stop(server)
        for _ in range(3):
            server, took = start(home, port)
            print(f"started in {took:.3f} s")
            stop(server)
        server, _ = start(home, port)
        client = http.client.HTTPConnection("127.0.0.1", port)
        for offset in (0, COUNT // 2, max(COUNT - PAGE, 0)):
            times = []
            for _ in range(200):
                began = time.perf_counter()
                client.request("GET", f"/live/rest/v2/broadcasts/list/{offset}/{PAGE}")
                page = client.getresponse().read()
                times.append(time.perf_counter() - began)
            print(f"page at {offset}: median {sorted(times)[100] * 1e6:.0f} us, {len(json.loads(page))} items")
        with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
            print(next(line.strip() for line in status if line.startswith("VmRSS")))
        stop(server)


main()
