"""aiortc against the relay of the tests, over loopback.

    aiortc_peer.py publish URL CODEC     synthetic video and audio, until standard input ends
    aiortc_peer.py play URL FRAMES       until so many frames of each were decoded; prints how many of each
    aiortc_peer.py data URL ROUNDS       messages by a data channel, which come back; prints how many of each length
"""

import asyncio
import sys
import urllib.request

import aioice.ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, VideoStreamTrack

# aioice leaves loopback out, and here it is the only network.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1", "::1"]
PATIENCE = 120


async def connect(pc, url):
    await pc.setLocalDescription(await pc.createOffer())
    offer = pc.localDescription.sdp.encode()
    request = urllib.request.Request(url, offer, {"Content-Type": "application/sdp"})
    response = await asyncio.to_thread(urllib.request.urlopen, request, None, PATIENCE)
    answer = (await asyncio.to_thread(response.read)).decode()
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    return url.rsplit("/", 1)[0] + response.headers["Location"]


async def delete(resource):
    request = urllib.request.Request(resource, method="DELETE")
    await asyncio.to_thread(urllib.request.urlopen, request, None, PATIENCE)


async def publish(pc, url, codec):
    video = pc.addTransceiver(VideoStreamTrack(), direction="sendonly")
    pc.addTransceiver(AudioStreamTrack(), direction="sendonly")
    known = RTCRtpSender.getCapabilities("video").codecs
    video.setCodecPreferences([c for c in known if c.mimeType in ("video/" + codec, "video/rtx")])
    resource = await connect(pc, url)
    await asyncio.to_thread(sys.stdin.read)
    await delete(resource)


async def play(pc, url, frames):
    tasks, counts = [], {}

    async def pull(track):
        while counts.get(track.kind, 0) < frames:
            await track.recv()
            counts[track.kind] = counts.get(track.kind, 0) + 1

    pc.on("track", lambda track: tasks.append(asyncio.ensure_future(pull(track))))
    pc.addTransceiver("video", direction="recvonly")
    pc.addTransceiver("audio", direction="recvonly")
    resource = await connect(pc, url)
    await asyncio.gather(*tasks)
    await delete(resource)
    print(counts["video"], counts["audio"])


async def data(pc, url, rounds):
    sent = ["text", "", "\u00e4" * 1000, b"", b"x", bytes(range(256)) * 256, bytes(range(256)) * 1024, "y" * 65536]
    came, greetings, opened, closed = asyncio.Queue(), asyncio.Queue(), asyncio.Event(), asyncio.Event()
    channel = pc.createDataChannel("echo")
    channel.on("open", opened.set)
    channel.on("close", closed.set)
    channel.on("message", came.put_nowait)
    pc.on("datachannel", lambda other: other.on("message", greetings.put_nowait))
    resource = await connect(pc, url)
    await asyncio.wait_for(opened.wait(), PATIENCE)
    counts = {}
    for _ in range(rounds):
        for message in sent:
            channel.send(message)
            back = await asyncio.wait_for(came.get(), PATIENCE)
            assert type(back) is type(message) and back == message, (len(back), len(message))
            counts[len(message)] = counts.get(len(message), 0) + 1
    # Many at once keep their order.
    for n in range(500):
        channel.send(str(n))
    for n in range(500):
        assert await asyncio.wait_for(came.get(), PATIENCE) == str(n)
    assert await asyncio.wait_for(greetings.get(), PATIENCE) == "hello"
    channel.close()
    await asyncio.wait_for(closed.wait(), PATIENCE)
    await delete(resource)
    print(sorted(counts.items()))


async def main():
    verb, url, what = sys.argv[1:]
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    verbs = {"publish": lambda: publish(pc, url, what), "play": lambda: play(pc, url, int(what))}
    verbs["data"] = lambda: data(pc, url, int(what))
    await verbs[verb]()
    await pc.close()


asyncio.run(main())
