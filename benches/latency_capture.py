#!/usr/bin/env python3
"""Compares the forwarding-latency histogram of /metrics with a capture taken outside of the server.

One publisher and one viewer of `millstream bench`, and tcpdump on the loopback interface. In the capture, a video unit
is identified by the stamp that it contains. It arrives with the end of its packet to the server, and leaves with the
end of its packet to the viewer. Needs root (tcpdump), Linux, and units below 64 KB, one packet each.

    cargo build --release && benches/latency_capture.py [rtmp|flv|ws]
"""
import json, re, signal, struct, subprocess, sys, tempfile, time, urllib.request

BIN = "target/release/millstream"
UUID = b"6d696c6c73744d65a16d2d62656e6368"
UUID = bytes.fromhex(UUID.decode())
SECONDS = 12


def packets(path):
    """Time in ns, source port, destination port, payload of each TCP packet of a capture of `lo`."""
    data = open(path, "rb").read()
    assert struct.unpack("<I", data[:4])[0] == 0xA1B23C4D, "a capture with nanoseconds"
    at = 24
    while at + 16 <= len(data):
        sec, nsec, size, _ = struct.unpack("<IIII", data[at:at + 16])
        frame = data[at + 16:at + 16 + size]
        at += 16 + size
        ip = frame[14:]
        tcp = ip[(ip[0] & 15) * 4:]
        source, target = struct.unpack(">HH", tcp[:4])
        yield sec * 10**9 + nsec, source, target, tcp[(tcp[12] >> 4) * 4:]


def histogram(page, egress):
    value = lambda name: float(re.search(
        r'millstream_forwarding_seconds_%s\{ingest="rtmp",egress="%s",kind="video"\} (\S+)' % (name, egress), page).group(1))
    return value("sum"), value("count")


def main():
    egress = sys.argv[1] if len(sys.argv) > 1 else "rtmp"
    home = tempfile.mkdtemp()
    server = subprocess.Popen(
        [BIN, "--home", home, "--set", "server.host=127.0.0.1", "--set", "server.workers=1", "--set", "http.port=0",
         "--set", "https.port=0", "--set", "rtmp.port=0", "--set", "rtmps.port=0", "--set", "server.srt_port=0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    children = [server]
    try:
        ready = json.loads(server.stdout.readline())
        rtmp, http = ready["rtmp"], ready["http"]
        ports = {int(rtmp.rsplit(":", 1)[1]), int(http.rsplit(":", 1)[1])}
        url = {"rtmp": f"rtmp://{rtmp}/live/s", "flv": f"http://{http}/live/s.flv", "ws": f"ws://{http}/live/s.flv"}[egress]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children.append(subprocess.Popen([BIN, "bench", "publish", "--url", f"rtmp://{rtmp}/live/s", "--duration", "60"], **quiet))
        time.sleep(2)
        children.append(subprocess.Popen([BIN, "bench", "play", "--url", url, "--duration", "60"], **quiet))
        time.sleep(3)
        capture = tempfile.mktemp(".pcap")
        dump = subprocess.Popen(["tcpdump", "-i", "lo", "-s", "0", "-B", "16384", "--nano", "-w", capture, "tcp"], stderr=subprocess.PIPE)
        children.append(dump)
        dump.stderr.readline()
        time.sleep(0.5)
        scrape = lambda: urllib.request.urlopen(f"http://{http}/metrics").read().decode()
        name = {"rtmp": "rtmp", "flv": "flv", "ws": "ws-flv"}[egress]
        before, began = histogram(scrape(), name), time.time_ns()
        time.sleep(SECONDS)
        after, ended = histogram(scrape(), name), time.time_ns()
        time.sleep(0.3)
        dump.send_signal(signal.SIGINT)
        dump.wait()
    finally:
        for child in reversed(children):
            child.kill()
            child.wait()
    came, went = {}, {}
    for stamp, source, target, payload in packets(capture):
        # Video frames only: the SEI message of 48 bytes precedes the UUID (H.264 D.1.7). Audio may share the packet.
        for found in re.finditer(re.escape(b"\x05\x30" + UUID), payload):
            sequence = payload[found.end():found.end() + 16]
            if target in ports:
                came.setdefault(sequence, stamp)
            elif source in ports:
                went.setdefault(sequence, stamp)
    took = sorted(went[s] - came[s] for s in came if s in went and began <= came[s] <= ended)
    mean = sum(took) / len(took) / 1000
    shown = (after[0] - before[0]) / (after[1] - before[1]) * 1e6
    print(json.dumps({"egress": egress, "units_captured": len(took), "units_counted": after[1] - before[1],
                      "capture_mean_us": round(mean, 1), "capture_p50_us": took[len(took) // 2] / 1000,
                      "histogram_mean_us": round(shown, 1), "difference_us": round(shown - mean, 1)}))


main()
