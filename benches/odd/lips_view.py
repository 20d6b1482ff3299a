"""A viewer that notes the stream time of each flash and beep; prints JSON.

    lips_view.py flv|hls|file|whep URL

Ends with the stream, or when standard input closes. `flashes` and `beeps` are lists of [number, stream time, time of day] in seconds,
`pictures` of [stream time, time of day]. Four blocks at the lower edge of a flash encode its number (0 to 15); the pitch of a beep is
its number. Over WHEP the stream time is the RTP timestamp mapped by the track's latest sender report, as browsers do."""
import array
import asyncio
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import av

NUMBERS = 16
PITCH, PITCH_STEP = 500, 150
PATIENCE_S = 12
QUIET_S, LISTEN_S, LOUD = 0.2, 0.06, 0.12


class Eye:
    """Finds the first picture of each flash."""

    def __init__(self):
        self.found, self.pictures, self.was = [], [], True

    def see(self, frame, at):
        now = time.time()
        self.pictures.append((at, now))
        plane, width, height = frame.planes[0], frame.width, frame.height
        data, line = bytes(plane), plane.line_size

        def light(x, y):
            rows = (data[row * line + x - 4: row * line + x + 4] for row in range(y - 4, y + 4))
            return sum(map(sum, rows)) > 64 * 128

        is_flash = light(width // 2, height // 4)
        if is_flash and not self.was:
            bits = [light(width * (2 * bit + 1) // 8, height * 5 // 6) for bit in range(4)]
            self.found.append((sum(one << bit for bit, one in enumerate(bits)), at, now))
        self.was = is_flash


class Ear:
    """Finds the first sample of each beep, and its pitch from the 60 ms behind it."""

    def __init__(self):
        self.found, self.quiet, self.begin, self.heard = [], 0.0, None, []

    def hear(self, frame, at):
        kind, scale = ("h", 32_768) if frame.format.name.startswith("s16") else ("f", 1.0)
        step = 1 if frame.format.is_planar else len(frame.layout.channels)
        samples = array.array(kind, bytes(frame.planes[0]))[: frame.samples * step : step]
        rate, loud = frame.sample_rate, LOUD * scale
        if self.begin is not None:
            self.listen(samples, rate)
        if max(samples) < loud and min(samples) > -loud:
            self.quiet += len(samples) / rate
            return
        first = next(index for index, one in enumerate(samples) if abs(one) >= loud)
        if self.begin is None and self.quiet + first / rate >= QUIET_S:
            self.begin, self.heard = at + first / rate, []
            self.listen(samples[first:], rate)
        self.quiet = 0.0

    def listen(self, samples, rate):
        self.heard.extend(samples)
        wanted = int(LISTEN_S * rate)
        if len(self.heard) < wanted:
            return
        heard = self.heard[:wanted]
        rises = [index for index, (a, b) in enumerate(zip(heard, heard[1:])) if a <= 0 < b]
        pitch = (len(rises) - 1) * rate / (rises[-1] - rises[0]) if len(rises) > 1 else 0
        number = round((pitch - PITCH) / PITCH_STEP)
        if 0 <= number < NUMBERS:
            self.found.append((number, self.begin, time.time()))
        self.begin = None


def open_when_there(request):
    """Repeats the request until the stream exists."""
    for _ in range(PATIENCE_S * 5):
        try:
            return urllib.request.urlopen(request, None, 20)
        except urllib.error.HTTPError:
            time.sleep(0.2)
    raise TimeoutError("the stream did not begin")


def read(url, eye, ear):
    """Demuxes and decodes with ffmpeg's libraries; stream time is the container's."""
    if url.startswith("http"):
        open_when_there(url).close()
    options = {"live_start_index": "0"} if ".m3u8" in url else {}
    with av.open(url, options=options, timeout=(20, 20)) as container:
        for packet in container.demux():
            try:
                frames = packet.decode()
            except av.FFmpegError:
                continue
            for frame in frames:
                if frame.pts is not None:
                    at = float(frame.pts * frame.time_base)
                    eye.see(frame, at) if isinstance(frame, av.VideoFrame) else ear.hear(frame, at)


class Reports:
    """The latest sender report of each track."""

    def __init__(self):
        self.newest = {}

    def take(self, kind, packet):
        self.newest[kind] = (packet.sender_info.rtp_timestamp, packet.sender_info.ntp_timestamp / 2**32)

    def due(self, kind, ticks, rate):
        stamp, wall = self.newest[kind]
        return wall + ((ticks - stamp + 2**31) % 2**32 - 2**31) / rate


def watch_rtp(reports):
    """Patches aiortc to keep RTP timestamps unchanged and to pass on sender reports."""
    from aiortc import rtcrtpreceiver
    from aiortc.rtp import RtcpSrPacket

    rtcrtpreceiver.TimestampMapper.map = lambda self, timestamp: timestamp
    handle = rtcrtpreceiver.RTCRtpReceiver._handle_rtcp_packet

    async def handle_and_keep(self, packet):
        if isinstance(packet, RtcpSrPacket):
            reports.take(self.track.kind, packet)
        await handle(self, packet)

    rtcrtpreceiver.RTCRtpReceiver._handle_rtcp_packet = handle_and_keep


async def play(url, eye, ear):
    import aioice.ice
    from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
    from aiortc.mediastreams import MediaStreamError

    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    reports = Reports()
    watch_rtp(reports)
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    tracks = []
    peer.on("track", tracks.append)
    for kind in ("audio", "video"):
        peer.addTransceiver(kind, direction="recvonly")
    await peer.setLocalDescription(await peer.createOffer())
    request = urllib.request.Request(url, peer.localDescription.sdp.encode(), {"Content-Type": "application/sdp"})
    answer = await asyncio.to_thread(lambda: open_when_there(request).read().decode())
    await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))

    async def pull(track):
        early = []
        while True:
            frame = await track.recv()
            if track.kind not in reports.newest:
                early = [*early[-500:], frame]
                continue
            for one in [*early, frame]:
                rate = 90_000 if track.kind == "video" else 48_000
                at = reports.due(track.kind, one.pts, rate)
                eye.see(one, at) if track.kind == "video" else ear.hear(one, at)
            early = []

    try:
        await asyncio.gather(*map(pull, tracks))
    except MediaStreamError:
        pass


def main():
    how, url = sys.argv[1:]
    eye, ear, error = Eye(), Ear(), []

    def run():
        try:
            asyncio.run(play(url, eye, ear)) if how == "whep" else read(url, eye, ear)
        except Exception as fault:
            error.append(repr(fault))

    reader = threading.Thread(target=run, daemon=True)
    reader.start()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while reader.is_alive() and not ended.wait(0.1):
        pass
    print(json.dumps({"flashes": eye.found, "beeps": ear.found, "pictures": eye.pictures, "error": error}), flush=True)
    # The reader may wait for a stream that never ends.
    os._exit(0)


ended = threading.Event()
if __name__ == "__main__":
    main()
