"""GStreamer's webrtcbin as a WHIP client, which `whipsink` wraps in newer versions.

gstreamer_whip.py ENDPOINT: publishes a test picture in H.264 and a tone in Opus until standard input ends, then deletes the session.
Prints what it was told as JSON. Run by Debian's Python, which has the bindings.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import Gst, GstSdp, GstWebRTC  # noqa: E402

PIPELINE = """
    webrtcbin name=peer bundle-policy=max-bundle
    videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=30/1 ! openh264enc gop-size=30 ! h264parse
        ! rtph264pay config-interval=-1 ! application/x-rtp,media=video,encoding-name=H264,payload=96 ! peer.
    audiotestsrc is-live=true ! audio/x-raw,rate=48000,channels=2 ! opusenc
        ! rtpopuspay ! application/x-rtp,media=audio,encoding-name=OPUS,payload=97 ! peer.
"""
PATIENCE_S = 20


def request(method, url, body=None):
    fields = {"Content-Type": "application/sdp"} if body else {}
    ask = urllib.request.Request(url, body, fields, method=method)
    try:
        answer = urllib.request.urlopen(ask, timeout=PATIENCE_S)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.headers, answer.read().decode()


def after(peer, signal, *arguments):
    """Waits for a promise, which is returned: its reply ends with it."""
    promise = Gst.Promise.new()
    peer.emit(signal, *arguments, promise)
    assert promise.wait() == Gst.PromiseResult.REPLIED, signal
    return promise


def offered(pipeline, peer):
    """The offer, with all candidates: a request is all that is sent."""
    gathering = []
    peer.connect("notify::ice-gathering-state", lambda *_: gathering.append(peer.get_property("ice-gathering-state")))
    pipeline.set_state(Gst.State.PLAYING)
    assert pipeline.get_state(PATIENCE_S * Gst.SECOND)[0] != Gst.StateChangeReturn.FAILURE
    promise = after(peer, "create-offer", None)
    # The bindings free what nothing names.
    reply = promise.get_reply()
    offer = reply.get_value("offer")
    after(peer, "set-local-description", offer)
    bus = pipeline.get_bus()
    for _ in range(PATIENCE_S * 20):
        if GstWebRTC.WebRTCICEGatheringState.COMPLETE in gathering:
            break
        message = bus.timed_pop_filtered(50 * Gst.MSECOND, Gst.MessageType.ERROR)
        assert message is None, message.parse_error()
    return peer.get_property("local-description").sdp.as_text()


def main(endpoint):
    Gst.init(None)
    pipeline = Gst.parse_launch(PIPELINE)
    peer = pipeline.get_by_name("peer")
    for at in range(2):
        transceiver = peer.emit("get-transceiver", at)
        transceiver.set_property("direction", GstWebRTC.WebRTCRTPTransceiverDirection.SENDONLY)
    status, fields, text = request("POST", endpoint, offered(pipeline, peer).encode())
    told = {"status": status, "location": fields["Location"], "answer": text}
    if status == 201:
        _, answer = GstSdp.SDPMessage.new_from_text(text)
        answer = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, answer)
        after(peer, "set-remote-description", answer)
        sys.stdin.read()
        told["state"] = peer.get_property("connection-state").value_nick
        told["deleted"] = request("DELETE", urllib.parse.urljoin(endpoint, fields["Location"]))[0]
    pipeline.set_state(Gst.State.NULL)
    print(json.dumps(told))


main(sys.argv[1])
