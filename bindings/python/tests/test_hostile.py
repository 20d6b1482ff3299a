"""Damaged and random bytes: only errors of the package are raised, and memory is bounded.

A panic would be a `PanicException`, which is no `millstream.Error`.
"""

import contextlib
import pathlib
import random
import subprocess
import sys
import threading
import time

import millstream
import pytest
from conftest import datagrams
from millstream import flv, mpegts, rtp, sdp

OBS_OFFER = pathlib.Path(__file__).parents[3] / "tests/fixtures/obs-offer.sdp"
ROUNDS = 400
FORMATS = ["H264/90000", "H265/90000", "VP8/90000", "VP9/90000", "AV1/90000", "opus/48000/2", "MPA/90000", "PCMU/8000"]
AAC = "streamtype=5;mode=AAC-hbr;sizeLength=13;indexLength=3;indexDeltaLength=3;config=1190"


def walk_flv(data):
    reader = flv.Reader()
    reader.push(data)
    for tag in reader:
        with contextlib.suppress(millstream.Error):
            repr(tag.packets())
        with contextlib.suppress(millstream.Error):
            repr(tag.data())


def walk_ts(data):
    for event in mpegts.parse(data):
        repr(event)
        if isinstance(event, mpegts.Pes):
            with contextlib.suppress(millstream.Error):
                repr(event.config())
    for read in (mpegts.PesHeader.read, lambda data: mpegts.Packet.read(data[:188])):
        with contextlib.suppress(millstream.Error):
            repr(read(data))


def walk_rtp(data):
    repr(rtp.read_rtcp(data, strict=False))
    packet = rtp.Packet.read(data)
    repr((packet, packet.extensions))
    ids = rtp.ExtensionMap({n + 1: uri for n, uri in enumerate(URIS)})
    repr(ids.read(packet))


def walk_sdp(data):
    description = sdp.Description.read(data)
    assert sdp.Description.read(description.write()).write() == description.write()
    repr(description)


URIS = [
    "urn:ietf:params:rtp-hdrext:sdes:mid",
    "urn:ietf:params:rtp-hdrext:ssrc-audio-level",
    "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay",
    "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
]


def damaged(random_, data):
    """A copy with bytes changed, cut out, repeated or cut off."""
    data = bytearray(data)
    for _ in range(random_.randrange(1, 8)):
        at = random_.randrange(len(data) or 1)
        match random_.randrange(5):
            case 0:
                data[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                del data[at : at + random_.randrange(1, 20)]
            case 2:
                data[at:at] = data[at : at + random_.randrange(1, 200)]
            case 3:
                data[at : at + 4] = random_.choice([b"\xff" * 4, bytes(4), b"\0\0\1\0", b"\x7f\xff\xff\xff"])
            case 4:
                data = data[: random_.randrange(len(data) or 1) + 1] if random_.random() < 0.2 else data
    return bytes(data)


def known(flv_file, ts_file, capture):
    return {
        walk_flv: [flv_file.read_bytes()[:60_000]],
        walk_ts: [ts_file.read_bytes()[: 188 * 200]],
        walk_rtp: datagrams(capture[0])[-40:],
        walk_sdp: [OBS_OFFER.read_bytes(), capture[1].read_bytes()],
    }


@pytest.mark.parametrize("seed", range(3))
def test_damaged_and_random_bytes_raise_errors_alone(flv_file, ts_file, capture, seed):
    random_ = random.Random(seed)
    refused = 0
    for walk, seeds in known(flv_file, ts_file, capture).items():
        for round_ in range(ROUNDS):
            data = (
                random_.randbytes(random_.randrange(2000))
                if round_ % 4 == 0
                else damaged(random_, random_.choice(seeds))
            )
            for whole in (data, seeds[0][:13] + data):
                try:
                    walk(whole)
                except millstream.Error:
                    refused += 1
    assert refused > ROUNDS, "hardly anything was damaged"


@pytest.mark.parametrize("rtpmap", [*FORMATS, "mpeg4-generic/48000/2"])
def test_depacketizers_of_random_payloads(capture, rtpmap):
    random_ = random.Random(rtpmap)
    depacketizer = rtp.Depacketizer(sdp.Format(rtpmap, AAC if "mpeg4" in rtpmap else ""))
    sent = [data for data in datagrams(capture[0]) if not rtp.is_rtcp(data)]
    taken = 0
    for number in range(3000):
        payload = (
            random_.randbytes(random_.randrange(1, 60)) if number % 2 else damaged(random_, random_.choice(sent)[12:])
        )
        marker = random_.choice([0, 0x80])
        head = (
            bytes([0x80, marker | 96])
            + (number & 0xFFFF).to_bytes(2, "big")
            + (number // 3).to_bytes(4, "big")
            + bytes(4)
        )
        with contextlib.suppress(rtp.Error):
            taken += len(depacketizer.push(rtp.Packet.read(head + payload)))
    stats = depacketizer.stats
    assert stats.frames + stats.dropped + stats.malformed > 100 and taken <= stats.frames


MEMORY = """
import random, resource, sys
from millstream import flv, mpegts, rtp, sdp

kind = sys.argv[1]
random_ = random.Random(1)
piece = random_.randbytes(1 << 20)
# Valid beginnings, behind which the garbage is a body that does not end.
tag = b"FLV\\x01\\x05\\0\\0\\0\\x09\\0\\0\\0\\0" + b"\\x09\\xff\\xff\\xff" + bytes(7)
reader, demuxer = flv.Reader(), mpegts.Demuxer()
depacketizer = rtp.Depacketizer(sdp.Format("H264/90000"))
before = None
for round_ in range(300):
    if kind == "flv":
        if round_ % 16 == 0:
            reader = flv.Reader()
            reader.push(tag)
        reader.push(piece)
        for _ in range(20):
            try:
                next(reader, None)
            except flv.Error:
                break
    elif kind == "ts":
        # A video that never ends its packet, and then nothing valid.
        body = bytearray(piece[: 188 * 5000])
        if round_ % 2:
            body[::188] = b"\\x47" * 5000
        demuxer.push(body)
    else:
        # Fragments of a picture without an end.
        for n in range(700):
            number = (round_ * 700 + n) & 0xffff
            head = bytes([0x80, 96]) + number.to_bytes(2, "big") + bytes(8)
            try:
                depacketizer.push(rtp.Packet.read(head + b"\\x7c\\x05" + piece[:1400]))
            except rtp.Error:
                pass
    if round_ == 100:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["flv", "ts", "rtp"])
def test_memory_is_bounded(kind):
    """Between 100 and 300 pieces of a megabyte, no more than a few are held."""
    grown = subprocess.run([sys.executable, "-c", MEMORY, kind], check=True, timeout=120, stdout=subprocess.PIPE).stdout
    assert int(grown) < 16 * 1024, f"{int(grown)} kB"


def test_whole_files_are_parsed_without_the_lock(flv_file, ts_file):
    """Another thread goes on meanwhile, although the interpreter would not interrupt a thread for an hour."""
    turns = [0]
    is_over = threading.Event()

    def turn():
        while not is_over.is_set():
            turns[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    other = threading.Thread(target=turn)
    file = flv_file.read_bytes()
    files = [(mpegts.parse, ts_file.read_bytes() * 200), (flv.parse, file[:13] + file[13:] * 200)]
    sys.setswitchinterval(3600)
    try:
        other.start()
        for parse, data in files:
            before = turns[0]
            parse(data)
            assert turns[0] > before, parse.__module__
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        other.join()
