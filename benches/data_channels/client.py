"""A client with one data channel, in aiortc: client.py URL ordered|unordered. Its lines are those of client.mjs."""

import asyncio
import sys
import urllib.request

import aioice.ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

# aioice leaves loopback out, and here it is the only network.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


def pattern(length):
    return (bytes(n * 7 % 251 for n in range(251)) * (length // 251 + 1))[:length]


def letters(length):
    return ("abcdefghij" * (length // 10 + 1))[:length]


def hear(message):
    is_text = isinstance(message, str)
    is_right = message == (letters if is_text else pattern)(len(message))
    print(f"{'text' if is_text else 'bytes'} {len(message)}" if is_right else "damaged", flush=True)


async def main(url, order):
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    channel = pc.createDataChannel("mine", ordered=order == "ordered")
    channel.on("message", hear)
    channel.on("open", lambda: print("open", flush=True))
    await pc.setLocalDescription(await pc.createOffer())
    fields = {"Content-Type": "application/sdp"}
    request = urllib.request.Request(url, pc.localDescription.sdp.encode(), fields)
    response = await asyncio.to_thread(urllib.request.urlopen, request)
    await pc.setRemoteDescription(RTCSessionDescription(response.read().decode(), "answer"))
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        kind, *numbers = line
        count, length = map(int, numbers) if len(numbers) == 2 else (1, int(numbers[0]))
        for _ in range(count):
            channel.send(letters(length) if kind == "text" else pattern(length))
    await pc.close()


asyncio.run(main(*sys.argv[1:]))
