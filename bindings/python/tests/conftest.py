"""Files and captures that ffmpeg makes once for all tests."""

import json
import socket
import subprocess

import dpkt
import pytest

SECONDS = 60
QUIET = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y"]
VIDEO = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25"]
AUDIO = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
CODING = [
    "-c:v",
    "libx264",
    "-g",
    "25",
    "-bf",
    "2",
    "-pix_fmt",
    "yuv420p",
    "-c:a",
    "aac",
    "-metadata:s:a:0",
    "language=deu",
]


def run(command):
    return subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.PIPE).stdout


def make(path, *arguments):
    run([*QUIET, *VIDEO, *AUDIO, "-t", "2", *CODING, *arguments, path])
    return path


def packets(path, stream):
    """What ffmpeg reads in a stream of a file: times and hashes of its packets."""
    shown = ["-show_packets", "-show_data_hash", "md5", "-of", "json"]
    told = run(["ffprobe", "-loglevel", "error", "-select_streams", stream, *shown, path])
    return json.loads(told)["packets"]


def payload(path, stream):
    """The packets of a stream of a file, one behind the other."""
    return run([*QUIET, "-i", path, "-map", f"0:{stream}", "-c", "copy", "-f", "data", "-"])


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="session")
def flv_file(folder):
    return make(folder / "stream.flv")


@pytest.fixture(scope="session")
def ts_file(folder):
    return make(folder / "stream.ts")


@pytest.fixture(scope="session")
def capture(folder):
    """A capture of the RTP and RTCP that ffmpeg sends, the description of it, and the video that was sent."""
    video = folder / "sent.h264"
    run([*QUIET, *VIDEO, "-t", "1", "-c:v", "libx264", "-g", "12", "-bf", "0", "-pix_fmt", "yuv420p", video])
    media, control = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    for one in (media, control):
        one.bind(("127.0.0.1", 0))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        one.setblocking(False)
    description, path = folder / "stream.sdp", folder / "stream.pcap"
    address = f"rtp://127.0.0.1:{media.getsockname()[1]}?rtcpport={control.getsockname()[1]}&pkt_size=400"
    run([*QUIET, "-re", "-r", "25", "-i", video, "-c", "copy", "-f", "rtp", "-sdp_file", description, address])
    with open(path, "wb") as file:
        writer = dpkt.pcap.Writer(file)
        for source in (media, control):
            while datagram := receive(source):
                writer.writepkt(frame(datagram, source.getsockname()[1]), ts=0)
    return path, description, video


def receive(source):
    try:
        return source.recv(65536)
    except BlockingIOError:
        return None


def frame(datagram, port):
    """An Ethernet frame with a datagram."""
    udp = dpkt.udp.UDP(sport=1, dport=port, data=datagram)
    udp.ulen = len(udp)
    ip = dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\1", p=dpkt.ip.IP_PROTO_UDP, data=udp)
    ip.len = len(ip)
    return bytes(dpkt.ethernet.Ethernet(data=ip))


def datagrams(path):
    with open(path, "rb") as file:
        return [dpkt.ethernet.Ethernet(data).ip.udp.data for _, data in dpkt.pcap.Reader(file)]
