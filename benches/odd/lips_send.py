"""The clip of flashes and beeps, and publishers over SRT and RTSP that get their timestamps from a function."""
import base64
import random
import socket
import struct
import subprocess
import threading
import time

from lips_view import NUMBERS, PITCH, PITCH_STEP

AUDIO, VIDEO = 8, 9
NTP_EPOCH = 2_208_988_800
FIRST_S = 0.52


def make_clip(folder, seconds):
    """Writes clip.flv and clip.ts: each second a white flash of 0.12 s that shows its number, and a beep of that number's pitch."""
    begins = [FIRST_S + number for number in range(seconds)]
    during = lambda numbers: "+".join(f"between(t,{begins[one] - 0.001:.3f},{begins[one] + 0.119:.3f})" for one in numbers) or "0"
    boxes = [f"drawbox=c=white:t=fill:enable='{during(range(seconds))}'"]
    for bit in range(4):
        dark = [one for one in range(seconds) if not one % NUMBERS >> bit & 1]
        boxes.append(f"drawbox=x={80 * bit}:y=120:w=80:h=60:c=black:t=fill:enable='{during(dark)}'")
    flash = f"color=black:s=320x180:r=25:d={seconds},{','.join(boxes)}"
    # Each beep begins at phase zero, so that its first sample is detected alike every time.
    inside = f"gte(mod(t,1),{FIRST_S})*lt(mod(t,1),{FIRST_S + 0.12})"
    pitch = f"({PITCH}+{PITCH_STEP}*mod(floor(t),{NUMBERS}))"
    beep = f"aevalsrc='0.7*{inside}*sin(2*PI*{pitch}*(mod(t,1)-{FIRST_S}))':s=48000:d={seconds}"
    video = "-c:v libx264 -preset ultrafast -tune zerolatency -profile:v baseline -g 25 -b:v 300k"
    make = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", flash, "-f", "lavfi", "-i", beep, *video.split(),
            "-c:a", "aac", "-b:a", "96k", "-ac", "1", str(folder / "clip.flv")]
    subprocess.run(make, check=True)
    wrap = "-c copy -muxdelay 0 -muxpreload 0 -pes_payload_size 0 -f mpegts"
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", str(folder / "clip.flv"), *wrap.split(), str(folder / "clip.ts")], check=True)


def pace(start, stamp):
    time.sleep(max(0, start + stamp / 1000 - time.monotonic()))


class Numbered:
    """Counts the units of each kind and applies the fault to their timestamps."""

    def __init__(self, fault):
        self.fault, self.numbers = fault, {AUDIO: 0, VIDEO: 0}

    def stamp(self, kind, stamp):
        self.numbers[kind] += 1
        return self.fault(kind, stamp, self.numbers[kind])


# ---- MPEG-TS over SRT

def pes_of(data):
    """(kind, timestamp in ms, packets) of each PES in order of time; the kind of tables is `None`."""
    kinds, open_units, done = {0x100: VIDEO, 0x101: AUDIO}, {}, []
    for at in range(0, len(data), 188):
        packet = data[at:at + 188]
        pid = (packet[1] & 0x1F) << 8 | packet[2]
        if pid not in kinds:
            done.append([None, None, [packet]])
            continue
        if packet[1] & 0x40:
            open_units[pid] = [kinds[pid], read_stamp(packet, times_at(packet)[-1]) / 90, []]
            done.append(open_units[pid])
        open_units[pid][2].append(packet)
    # Tables are sent with the unit that follows them.
    stamp = 0
    for unit in reversed(done):
        stamp = unit[1] = stamp if unit[1] is None else unit[1]
    return sorted(done, key=lambda unit: unit[1])


def times_at(packet):
    """Offsets of PTS and DTS in a packet that begins a PES (ISO 13818-1, 2.4.3.6)."""
    head = 4 + (1 + packet[4] if packet[3] & 0x20 else 0)
    return {2: [head + 9], 3: [head + 9, head + 14]}[packet[head + 7] >> 6]


def read_stamp(packet, at):
    a, b, c, d, e = packet[at:at + 5]
    return (a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1


def write_stamp(packet, at, ticks):
    ticks %= 1 << 33
    head = packet[at] & 0xF0
    packet[at:at + 5] = bytes([head | ticks >> 29 & 0xE | 1, ticks >> 22 & 0xFF, ticks >> 14 & 0xFE | 1, ticks >> 7 & 0xFF, ticks << 1 & 0xFE | 1])


def restamp(kind, stamp, packets, wanted, fault):
    """The packets of one unit with new timestamps; its PCR follows the video's clock."""
    by = round((wanted - stamp) * 90)
    out = []
    for packet in map(bytearray, packets):
        if packet[3] & 0x20 and packet[4] and packet[5] & 0x10:
            ticks = int.from_bytes(packet[6:10], "big") << 1 | packet[10] >> 7
            ticks = round(fault(VIDEO, ticks / 90, 0) * 90) % (1 << 33)
            packet[6:10], packet[10] = (ticks >> 1).to_bytes(4, "big"), (ticks & 1) << 7 | 0x7E
            packet[11] = 0
        if packet[1] & 0x40:
            for at in times_at(packet):
                write_stamp(packet, at, read_stamp(packet, at) + by)
        out.append(bytes(packet))
    return out


def send_srt(port, clip, fault):
    """Sends with ffmpeg, which passes its input on unread. Null packets fill up the last datagram of a unit, so that it leaves at once."""
    target = f"srt://127.0.0.1:{port}?streamid=live/odd&latency=120000&pkt_size=1316"
    command = ["ffmpeg", "-v", "error", "-raw_packet_size", "1316", "-f", "data", "-i", "pipe:0", "-map", "0", "-c", "copy", "-f", "data", target]
    tool = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    null = b"\x47\x1f\xff\x10" + b"\xff" * 184
    tool.stdin.write(null * 7)
    tool.stdin.flush()
    time.sleep(0.7)
    counted, start, counters = Numbered(fault), time.monotonic(), {}
    try:
        for kind, stamp, packets in pes_of((clip / "clip.ts").read_bytes()):
            pace(start, stamp)
            if kind is not None:
                wanted = counted.stamp(kind, stamp)
                if wanted is None:
                    continue
                packets = restamp(kind, stamp, packets, wanted, fault)
            out = []
            for packet in map(bytearray, packets):
                # New continuity counters: omitted units must not look like loss.
                pid = (packet[1] & 0x1F) << 8 | packet[2]
                packet[3] = packet[3] & 0xF0 | counters.get(pid, 0)
                counters[pid] = (counters.get(pid, 0) + 1) % 16
                out.append(bytes(packet))
            out += [null] * (-len(out) % 7)
            tool.stdin.write(b"".join(out))
            tool.stdin.flush()
        time.sleep(0.5)
    finally:
        tool.stdin.close()
        tool.wait(5)
    return start


# ---- RTP over RTSP, interleaved

class Rtp:
    """RTP packets and sender reports of one track; timestamps begin at a random value."""

    def __init__(self, channel, payload_type, rate):
        self.channel, self.payload_type, self.rate = channel, payload_type, rate
        self.ssrc, self.sequence, self.base = (random.getrandbits(bits) for bits in (32, 15, 32))
        self.packets = self.octets = 0

    def ticks(self, stamp):
        return (self.base + round(stamp * self.rate / 1000)) % 2**32

    def frame(self, channel, packet):
        return b"$" + struct.pack(">BH", channel, len(packet)) + packet

    def packet(self, stamp, payload, marker):
        head = struct.pack(">BBHII", 0x80, self.payload_type | marker << 7, self.sequence % 2**16, self.ticks(stamp), self.ssrc)
        self.sequence, self.packets, self.octets = self.sequence + 1, self.packets + 1, self.octets + len(payload)
        return self.frame(self.channel, head + payload)

    def report(self, stamp, wall):
        ntp = int((wall + NTP_EPOCH) * 2**32)
        sender = struct.pack(">BBHIQIII", 0x80, 200, 6, self.ssrc, ntp, self.ticks(stamp), self.packets, self.octets)
        return self.frame(self.channel + 1, sender)

    def video(self, stamp, units):
        """An access unit of NAL units with 4-byte lengths, as single packets or FU-A (RFC 6184, 5.8)."""
        out, at, parts = b"", 0, []
        while at < len(units):
            size = int.from_bytes(units[at:at + 4], "big")
            parts.append(units[at + 4:at + 4 + size])
            at += 4 + size
        for number, unit in enumerate(parts):
            is_last = number == len(parts) - 1
            if len(unit) <= 1200:
                out += self.packet(stamp, unit, is_last)
                continue
            cuts = range(1, len(unit), 1200)
            for cut in cuts:
                head = bytes([unit[0] & 0xE0 | 28, unit[0] & 0x1F | (cut == 1) << 7 | (cut == cuts[-1]) << 6])
                out += self.packet(stamp, head + unit[cut:cut + 1200], is_last and cut == cuts[-1])
        return out

    def audio(self, stamp, unit):
        return self.packet(stamp, struct.pack(">HH", 16, len(unit) << 3) + unit, True)


def description(media):
    header = lambda kind: next(body for one, _, body in media if one == kind and body[1] == 0)
    record, config = header(VIDEO)[5:], header(AUDIO)[2:]
    sps_size = int.from_bytes(record[6:8], "big")
    sps, pps = record[8:8 + sps_size], record[11 + sps_size:]
    sets = ",".join(base64.b64encode(one).decode() for one in (sps, pps[:int.from_bytes(record[9 + sps_size:11 + sps_size], "big")]))
    aac = "streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3"
    lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=odd", "c=IN IP4 127.0.0.1", "t=0 0",
             "m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000", f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={sets}", "a=control:streamid=0",
             "m=audio 0 RTP/AVP 97", "a=rtpmap:97 MPEG4-GENERIC/48000/1", f"a=fmtp:97 {aac};config={config.hex()}", "a=control:streamid=1"]
    return "".join(f"{line}\r\n" for line in lines)


class Rtsp:
    """An RTSP connection after RECORD."""

    def __init__(self, port, text):
        self.url, self.session, self.number = f"rtsp://127.0.0.1:{port}/live/odd", "", 0
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.ask("ANNOUNCE", self.url, {"Content-Type": "application/sdp"}, text)
        for track in (0, 1):
            transport = f"RTP/AVP/TCP;unicast;interleaved={2 * track}-{2 * track + 1};mode=record"
            self.ask("SETUP", f"{self.url}/streamid={track}", {"Transport": transport})
        self.ask("RECORD", self.url, {"Range": "npt=0.000-"})
        threading.Thread(target=self.drain, daemon=True).start()

    def ask(self, method, url, headers, body=""):
        self.number += 1
        headers = {"CSeq": self.number, **({"Session": self.session} if self.session else {}), **headers}
        if body:
            headers["Content-Length"] = len(body)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.socket.sendall(f"{method} {url} RTSP/1.0\r\n{lines}\r\n{body}".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = self.socket.recv(4096)
            if not more:
                raise ConnectionError(f"the server hung up on {method}")
            answer += more
        text = answer.decode()
        if " 200 " not in text.split("\r\n")[0]:
            raise ConnectionError(f"{method}: {text.splitlines()[0]}")
        for line in text.split("\r\n"):
            if line.lower().startswith("session:"):
                self.session = line.split(":", 1)[1].split(";")[0].strip()

    def drain(self):
        try:
            while self.socket.recv(65_536):
                pass
        except OSError:
            pass


def send_rtsp(port, media, fault, report):
    """`report(kind, true stamp, false stamp)` returns the timestamp (ms) and time of day (s since the start) of a sender report, or `None`."""
    rtsp = Rtsp(port, description(media))
    tracks = {VIDEO: Rtp(0, 96, 90_000), AUDIO: Rtp(2, 97, 48_000)}
    counted, due = Numbered(fault), {VIDEO: 0.0, AUDIO: 0.0}
    start, wall = time.monotonic(), time.time()
    begin = next(stamp for kind, stamp, body in media if kind == AUDIO and body[1])
    try:
        for kind, stamp, body in sorted(media, key=lambda message: message[1]):
            if kind not in tracks or body[1] == 0:
                continue
            pace(start, stamp)
            if kind == AUDIO:
                # FLV rounds to milliseconds; RTP counts samples.
                stamp = begin + counted.numbers[AUDIO] * 1024 / 48
            wanted = counted.stamp(kind, stamp)
            track = tracks[kind]
            if stamp >= due[kind]:
                due[kind] += 1_000
                said = report(kind, stamp, wanted)
                if said is not None:
                    rtsp.socket.sendall(track.report(said[0], wall + said[1]))
            if wanted is not None:
                rtsp.socket.sendall(track.video(wanted, body[5:]) if kind == VIDEO else track.audio(wanted, body[2:]))
        time.sleep(0.5)
    finally:
        rtsp.socket.close()
    return start
