"""aiortc against the relay of the tests, over loopback.

    aiortc_peer.py publish URL CODEC     synthetic video and audio, until standard input ends
    aiortc_peer.py play URL FRAMES       until so many frames of each were decoded; prints how many of each
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


async def main():
    verb, url, what = sys.argv[1:]
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    await (publish(pc, url, what) if verb == "publish" else play(pc, url, int(what)))
    await pc.close()


asyncio.run(main())
