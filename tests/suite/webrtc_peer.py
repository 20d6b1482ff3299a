"""aiortc against the server, over loopback.

    webrtc_peer.py publish URL CODEC     WHIP: synthetic video and audio, until standard input ends
    webrtc_peer.py play URL FRAMES       WHEP: until so many frames of each kind that is sent were decoded
    webrtc_peer.py sdk-publish URL ID    the messages of Ant Media's SDK, until standard input ends
    webrtc_peer.py sdk-play URL ID       the same, for 60 frames of each kind
    webrtc_peer.py data-publish URL ID   publishes with a data channel; see `Talk`
    webrtc_peer.py channel-publish URL ID
                                         publishes with a data channel and nothing else
    webrtc_peer.py data-play URL ID      plays with one: of its own by WHEP, of the server's by the SDK's socket

Prints one line of JSON: what was decoded, and what the server said.
"""

import array
import asyncio
import json
import sys
import time
import urllib.parse
import urllib.request

import aioice.ice
import websockets
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, VideoStreamTrack

# aioice leaves loopback out, and here it is the only network.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
PATIENCE = 60


async def exchange(pc, url):
    await pc.setLocalDescription(await pc.createOffer())
    offer = pc.localDescription.sdp.encode()
    request = urllib.request.Request(url, offer, {"Content-Type": "application/sdp"})
    response = await asyncio.to_thread(urllib.request.urlopen, request, None, PATIENCE)
    answer = (await asyncio.to_thread(response.read)).decode()
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    return urllib.parse.urljoin(url, response.headers["Location"])


async def delete(resource):
    request = urllib.request.Request(resource, method="DELETE")
    response = await asyncio.to_thread(urllib.request.urlopen, request, None, PATIENCE)
    return response.status


def send_media(pc, codec):
    video = pc.addTransceiver(VideoStreamTrack(), direction="sendonly")
    pc.addTransceiver(AudioStreamTrack(), direction="sendonly")
    known = RTCRtpSender.getCapabilities("video").codecs
    wanted = [c for c in known if c.mimeType.lower() == "video/" + codec.lower() or c.mimeType == "video/rtx"]
    video.setCodecPreferences(wanted)


class Player:
    """Decodes what comes, and counts it."""

    def __init__(self, pc, frames):
        self.frames, self.counts, self.times, self.tasks = frames, {}, {}, []
        self.sound, self.rate = array.array("h"), 48_000
        pc.on("track", self.take)

    def take(self, track):
        self.tasks.append((track.kind, asyncio.ensure_future(self.pull(track))))

    async def pull(self, track):
        times = self.times.setdefault(track.kind, [])
        while self.counts.get(track.kind, 0) < self.frames:
            frame = await track.recv()
            times.append(float(frame.pts * frame.time_base))
            if track.kind == "audio":
                self.hear(frame)
            self.counts[track.kind] = self.counts.get(track.kind, 0) + 1

    def hear(self, frame):
        """Keeps the left channel of the last second."""
        channels = len(frame.layout.channels)
        samples = array.array("h", bytes(frame.planes[0]))[: frame.samples * channels : channels]
        self.rate = frame.sample_rate
        self.sound = (self.sound + samples)[-self.rate :]

    def hertz(self):
        rises = sum(a <= 0 < b for a, b in zip(self.sound, self.sound[1:]))
        return rises * self.rate / max(1, len(self.sound))

    async def wait(self, kinds):
        wanted = [task for kind, task in self.tasks if kind in kinds]
        await asyncio.wait_for(asyncio.gather(*wanted), PATIENCE)

    def facts(self):
        falls = {kind: sum(b <= a for a, b in zip(times, times[1:])) for kind, times in self.times.items()}
        return {"frames": self.counts, "falls": falls, "hertz": self.hertz()}


async def publish(pc, url, codec):
    send_media(pc, codec)
    resource = await exchange(pc, url)
    await asyncio.to_thread(sys.stdin.read)
    rejected = [m for m in pc.remoteDescription.sdp.split("m=")[1:] if m.split(" ")[1] == "0"]
    return {"delete": await delete(resource), "rejected": rejected}


async def play(pc, url, what):
    """`what`: so many frames of each kind that is answered, or of the kinds that it names."""
    frames, *named = what.split()
    player = Player(pc, int(frames))
    pc.addTransceiver("video", direction="recvonly")
    pc.addTransceiver("audio", direction="recvonly")
    began = time.monotonic()
    resource = await exchange(pc, url)
    kinds = [m.split(" ")[0] for m in pc.remoteDescription.sdp.split("m=")[1:] if "a=inactive" not in m]
    await player.wait(named or kinds)
    facts = {**player.facts(), "kinds": kinds, "seconds": time.monotonic() - began}
    return {**facts, "delete": await delete(resource)}


class Socket:
    """The SDK's side of a signalling socket."""

    def __init__(self, socket, name):
        self.socket, self.name, self.heard = socket, name, []

    async def say(self, **members):
        await self.socket.send(json.dumps({**members, "streamId": self.name}))

    async def hear(self, **wanted):
        while True:
            message = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
            self.heard.append(message.get("definition") or message["command"])
            if all(message.get(key) == value for key, value in wanted.items()):
                return message


async def sdk_publish(pc, url, name):
    send_media(pc, "H264")
    # As every page of the SDK.
    pc.createDataChannel("data")
    async with websockets.connect(url) as raw:
        socket = Socket(raw, name)
        await raw.send('{"command":"getIceServerConfig"}')
        ice = await socket.hear(command="iceServerConfig")
        await socket.say(command="publish", token="", video=True, audio=True)
        await socket.hear(command="start", streamId=name)
        await pc.setLocalDescription(await pc.createOffer())
        await socket.say(command="takeConfiguration", type="offer", sdp=pc.localDescription.sdp)
        answer = await socket.hear(command="takeConfiguration", type="answer", streamId=name)
        await pc.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
        await socket.hear(definition="publish_started", streamId=name)
        await asyncio.to_thread(sys.stdin.read)
        await socket.say(command="stop")
        await socket.hear(definition="publish_finished", streamId=name)
        return {"heard": socket.heard, "stun": ice["stunServerUri"]}


async def sdk_play(pc, url, name):
    player = Player(pc, 60)
    async with websockets.connect(url) as raw:
        socket = Socket(raw, name)
        await socket.say(command="play", token="", room="", trackList=[])
        message = await socket.hear()
        if message["command"] == "error":
            # The page waits until it hears that the stream has begun.
            await socket.hear(definition="streaming_started", streamId=name)
            await socket.say(command="play", token="", room="", trackList=[])
            message = await socket.hear(command="takeConfiguration")
        await pc.setRemoteDescription(RTCSessionDescription(message["sdp"], message["type"]))
        await pc.setLocalDescription(await pc.createAnswer())
        await socket.say(command="takeConfiguration", type="answer", sdp=pc.localDescription.sdp)
        await socket.hear(definition="play_started", streamId=name)
        await player.wait(["video", "audio"])
        await socket.say(command="getStreamInfo")
        info = await socket.hear(command="streamInformation", streamId=name)
        await socket.say(command="getBroadcastObject")
        record = await socket.hear(definition="broadcastObject", streamId=name)
        await socket.say(command="stop")
        await socket.hear(definition="play_finished", streamId=name)
        facts = {"names": message["idMapping"], "info": info["streamInfo"], "heard": socket.heard}
        return {**player.facts(), **facts, "record": json.loads(record["broadcast"])}


class Talk:
    """The messages of a data channel. Lines of standard input are sent: `text TEXT`, `bytes LENGTH`, `flood COUNT LENGTH`.
    Each message that comes is a line of standard output: its label, and the text or the length."""

    def __init__(self, pc, label=None):
        self.channel = None
        pc.on("datachannel", self.take)
        if label:
            self.take(pc.createDataChannel(label))

    def take(self, channel):
        # A channel of our own is the one to send by.
        self.channel = self.channel or channel
        channel.on("message", lambda message: self.hear(channel.label, message))
        channel.on("open", lambda: print("open", channel.label, flush=True))
        if channel.readyState == "open":
            print("open", channel.label, flush=True)

    def hear(self, label, message):
        if isinstance(message, bytes):
            assert message == pattern(len(message)), len(message)
        print("came", label, message if isinstance(message, str) else len(message), flush=True)

    async def run(self):
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            kind, what = line.split(" ", 1)
            if kind == "text":
                self.channel.send(what)
            elif kind == "bytes":
                self.channel.send(pattern(int(what)))
            else:
                count, length = map(int, what.split())
                for _ in range(count):
                    self.channel.send(pattern(length))


def pattern(length):
    return bytes(n * 7 % 251 for n in range(251)) * (length // 251) + bytes(n * 7 % 251 for n in range(length % 251))


async def channel_publish(pc, url, name):
    """Publishes a data channel alone, as `datachannel.html` of the reference does."""
    await data_publish(pc, url, name, has_media=False)


async def data_publish(pc, url, name, has_media=True):
    if has_media:
        send_media(pc, "H264")
    talk = Talk(pc, name)
    if url.startswith("http"):
        await exchange(pc, url)
        return await talk.run()
    async with websockets.connect(url) as raw:
        socket = Socket(raw, name)
        await socket.say(command="publish", token="", video=True, audio=True)
        await socket.hear(command="start", streamId=name)
        await pc.setLocalDescription(await pc.createOffer())
        await socket.say(command="takeConfiguration", type="offer", sdp=pc.localDescription.sdp)
        answer = await socket.hear(command="takeConfiguration", type="answer", streamId=name)
        await pc.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
        await socket.hear(definition="publish_started", streamId=name)
        await talk.run()


async def data_play(pc, url, name):
    if url.startswith("http"):
        talk = Talk(pc, "mine")
        pc.addTransceiver("video", direction="recvonly")
        pc.addTransceiver("audio", direction="recvonly")
        await exchange(pc, url)
        return await talk.run()
    talk = Talk(pc)
    async with websockets.connect(url) as raw:
        socket = Socket(raw, name)
        await socket.say(command="play", token="", room="", trackList=[])
        message = await socket.hear(command="takeConfiguration")
        await pc.setRemoteDescription(RTCSessionDescription(message["sdp"], message["type"]))
        await pc.setLocalDescription(await pc.createAnswer())
        await socket.say(command="takeConfiguration", type="answer", sdp=pc.localDescription.sdp)
        await socket.hear(definition="play_started", streamId=name)
        await talk.run()


VERBS = {"publish": publish, "play": play, "sdk-publish": sdk_publish, "sdk-play": sdk_play}
VERBS |= {"data-publish": data_publish, "data-play": data_play, "channel-publish": channel_publish}


async def main():
    verb, url, what = sys.argv[1:]
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    facts = await VERBS[verb](pc, url, what)
    await pc.close()
    print(json.dumps(facts))


asyncio.run(main())
