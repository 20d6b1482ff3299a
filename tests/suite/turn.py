"""TURN with clients of others: aiortc over UDP and TCP, Chromium over UDP, TCP and TLS.

turn.py aiortc-publish URL TURN SECRET   WHIP by way of a TURN server alone, until standard input ends
turn.py aiortc-play URL TURN SECRET      WHEP, until 30 frames of each kind were decoded
turn.py chromium URL TRANSPORT           the built-in pages of the application `live`, with nothing but relays of that kind
                                         ("udp", "tcp", "tls"): one publishes, one plays

Credentials are made here from the secret; the browser has those that the server told it. Says `ok`, or fails.
"""

import asyncio
import base64
import hashlib
import hmac
import sys
import time
import urllib.parse
import urllib.request

PATIENCE = 60


def credentials(secret):
    name = f"{int(time.time()) + 600}:tester"
    return name, base64.b64encode(hmac.new(secret.encode(), name.encode(), hashlib.sha1).digest()).decode()


# ---- aiortc


def relayed(uri, secret):
    import aioice.ice
    from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection

    # aioice leaves loopback out, and here it is the only network.
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    name, password = credentials(secret)
    return RTCPeerConnection(RTCConfiguration(iceServers=[RTCIceServer(uri, name, password)]))


async def exchange(pc, url):
    from aioice.ice import TransportPolicy
    from aiortc import RTCSessionDescription

    await pc.createOffer()
    for transceiver in pc.getTransceivers():
        transceiver.sender.transport.transport.iceGatherer._connection._transport_policy = TransportPolicy.RELAY
    await pc.setLocalDescription(await pc.createOffer())
    offer = pc.localDescription.sdp
    assert "typ relay" in offer and "typ host" not in offer, offer
    request = urllib.request.Request(url, offer.encode(), {"Content-Type": "application/sdp"})
    response = await asyncio.to_thread(urllib.request.urlopen, request, None, PATIENCE)
    answer = (await asyncio.to_thread(response.read)).decode()
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    return urllib.parse.urljoin(url, response.headers["Location"])


def check_pair(pc):
    """The pair in use is one of the relay."""
    for transceiver in pc.getTransceivers():
        connection = transceiver.sender.transport.transport._connection
        pair = connection._nominated[1]
        assert pair.local_candidate.type == "relay", pair
        return


async def task_publish(url, uri, secret):
    from aiortc import RTCRtpSender
    from aiortc.mediastreams import AudioStreamTrack, VideoStreamTrack

    pc = relayed(uri, secret)
    video = pc.addTransceiver(VideoStreamTrack(), direction="sendonly")
    pc.addTransceiver(AudioStreamTrack(), direction="sendonly")
    known = RTCRtpSender.getCapabilities("video").codecs
    video.setCodecPreferences([c for c in known if c.mimeType.lower() in ("video/h264", "video/rtx")])
    resource = await exchange(pc, url)
    await asyncio.to_thread(sys.stdin.read)
    check_pair(pc)
    await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(resource, method="DELETE"), None, PATIENCE)
    await pc.close()


async def task_play(url, uri, secret):
    pc = relayed(uri, secret)
    tasks = []

    async def pull(track):
        for _ in range(30):
            await track.recv()

    pc.on("track", lambda track: tasks.append(asyncio.ensure_future(pull(track))))
    pc.addTransceiver("video", direction="recvonly")
    pc.addTransceiver("audio", direction="recvonly")
    resource = await exchange(pc, url)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    check_pair(pc)
    await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(resource, method="DELETE"), None, PATIENCE)
    await pc.close()


# ---- Chromium

# Peer connections of the page relay alone, by servers of one kind, and can be looked at.
PAGE = """(() => {
    const Peer = RTCPeerConnection;
    globalThis.peers = [];
    const isWanted = (url) => TRANSPORT === "tls" ? url.startsWith("turns:") : url.startsWith("turn:") && url.endsWith("transport=" + TRANSPORT);
    globalThis.RTCPeerConnection = class extends Peer {
        constructor(configuration) {
            super({ ...configuration, iceTransportPolicy: "relay" });
            globalThis.peers.push(this);
        }
        setConfiguration(configuration) {
            globalThis.told = configuration.iceServers;
            const iceServers = configuration.iceServers.filter(({ urls }) => isWanted(urls));
            super.setConfiguration({ ...configuration, iceServers, iceTransportPolicy: "relay" });
        }
    };
    globalThis.pair = async () => {
        for (const peer of globalThis.peers) {
            const stats = [...(await peer.getStats()).values()];
            const transport = stats.find(({ type, selectedCandidatePairId }) => type === "transport" && selectedCandidatePairId);
            const chosen = transport && stats.find(({ id }) => id === transport.selectedCandidatePairId);
            const local = chosen && stats.find(({ id }) => id === chosen.localCandidateId);
            if (local) return { type: local.candidateType, by: local.relayProtocol, sent: chosen.bytesSent, received: chosen.bytesReceived };
        }
        return null;
    };
})()"""


def prepare(browser, transport):
    browser.send("Page.addScriptToEvaluateOnNewDocument", source=PAGE.replace("TRANSPORT", f'"{transport}"'))


def check_page(browser, transport):
    browser.wait("a pair", lambda: browser.run("pair()"))
    pair = browser.run("pair()")
    assert (pair["type"], pair["by"]) == ("relay", transport), f"{pair} of {browser.run('told')}"
    return pair


def chromium(url, transport):
    import headless

    publisher, player = headless.Chromium(), headless.Chromium()
    try:
        for browser in (publisher, player):
            prepare(browser, transport)
        publisher.go(f"{url}live/?id=cam")
        start_pattern(publisher)
        check_page(publisher, transport)
        player.go(f"{url}live/play.html?id=cam&mute=true&playOrder=webrtc")
        check_page(player, transport)
        frames = "document.getElementById('player').video.getVideoPlaybackQuality().totalVideoFrames"
        player.wait("pictures", lambda: player.run(frames) > 30)
        assert check_page(player, transport)["received"] > 10_000
        assert check_page(publisher, transport)["sent"] > 10_000
    finally:
        publisher.close()
        player.close()


def start_pattern(browser):
    """The publish page sends its test pattern."""
    browser.wait("the page", lambda: browser.run("document.getElementById('start')?.disabled === false"))
    browser.run("void (document.getElementById('form').elements.source.value = 'pattern', document.getElementById('start').click())")


def main():
    task, *more = sys.argv[1:]
    if task == "chromium":
        chromium(*more)
    else:
        asyncio.run({"aiortc-publish": task_publish, "aiortc-play": task_play}[task](*more))
    print("ok")


if __name__ == "__main__":
    main()
