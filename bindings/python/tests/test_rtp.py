"""RTP, RTCP and SDP, compared with dpkt, ffmpeg and the examples of their RFCs."""

import pathlib
import struct

import dpkt
import millstream
import pytest
from conftest import datagrams
from millstream import rtp, sdp

OBS_OFFER = pathlib.Path(__file__).parents[3] / "tests/fixtures/obs-offer.sdp"
AUDIO_LEVEL = "urn:ietf:params:rtp-hdrext:ssrc-audio-level"
MID = "urn:ietf:params:rtp-hdrext:sdes:mid"


def media_of(path):
    return [data for data in datagrams(path) if not rtp.is_rtcp(data)]


def test_headers_are_those_that_dpkt_reads(capture):
    sent = media_of(capture[0])
    assert len(sent) > 50
    for data in sent:
        ours, theirs = rtp.Packet.read(data), dpkt.rtp.RTP(data)
        assert (ours.marker, ours.payload_type, ours.sequence_number) == (bool(theirs.m), theirs.pt, theirs.seq)
        assert (ours.timestamp, ours.ssrc, ours.payload) == (theirs.ts, theirs.ssrc, theirs.data)


def test_frames_are_those_that_were_sent(capture):
    path, description, video = capture
    [media] = sdp.Description.read(description.read_text()).media
    depacketizer = rtp.Depacketizer(media.formats[0])
    frames = [frame for data in media_of(path) for frame in depacketizer.push(rtp.Packet.read(data))]
    assert (len(frames), depacketizer.stats.frames, depacketizer.stats.dropped) == (25, 25, 0)
    assert [frame.key_frame for frame in frames] == [at % 12 == 0 for at in range(25)]
    assert {after.timestamp - before.timestamp for before, after in zip(frames, frames[1:])} == {3600}
    came = [nal for frame in frames for nal in millstream.nal_units(frame.payload, length_size=4)]
    assert came == millstream.nal_units(video.read_bytes())


def test_a_lost_packet_drops_its_frame_and_late_ones_are_ignored(capture):
    path, description, _ = capture
    depacketizer = rtp.Depacketizer(sdp.Description.read(description.read_bytes()).media[0].formats[0])
    packets = [rtp.Packet.read(data) for data in media_of(path)]
    lost = next(at for at, packet in enumerate(packets) if at > 20 and not packet.marker)
    frames = []
    for packet in packets[:lost] + packets[lost + 1 :] + [packets[lost]]:
        frames += depacketizer.push(packet)
    stats = depacketizer.stats
    assert (len(frames), stats.dropped, stats.ignored, stats.malformed) == (24, 1, 1, 0)


def test_reports_of_ffmpeg(capture):
    compounds = [data for data in datagrams(capture[0]) if rtp.is_rtcp(data)]
    [report, *_] = rtp.read_rtcp(compounds[0])
    first = rtp.Packet.read(media_of(capture[0])[0])
    assert (type(report), report.ssrc, report.blocks) == (rtp.SenderReport, first.ssrc, [])


def test_header_extensions_by_id_and_by_name():
    # RFC 8285 §4.2: elements of one byte of head; the last one is padding.
    data = (
        struct.pack(">BBHIIHH", 0x90, 96, 7, 1000, 9, 0xBEDE, 2)
        + bytes([0x10, 0x8A, 0x21])
        + b"v1"
        + bytes(3)
        + b"payload"
    )
    packet = rtp.Packet.read(data)
    assert (packet.extension_profile, packet.extensions, packet.payload) == (0xBEDE, {1: b"\x8a", 2: b"v1"}, b"payload")
    values = rtp.ExtensionMap({1: AUDIO_LEVEL, 2: MID, 3: "urn:unknown"}).read(packet)
    assert (values.audio_level, values.mid, values.transport_sequence) == ((True, 10), "v1", None)
    with pytest.raises(rtp.Error, match="^0 is no id of an extension$"):
        rtp.ExtensionMap({0: MID})
    # Those of a section.
    section = sdp.Description.read(f"v=0\r\nm=audio 9 RTP/AVP 0\r\na=extmap:2 {MID}\r\n").media[0]
    assert section.extensions == {2: MID} and rtp.ExtensionMap.of(section).read(packet).mid == "v1"


def part(kind, count, body):
    return struct.pack(">BBH", 0x80 | count, kind, len(body) // 4) + body


@pytest.mark.parametrize(
    ("data", "name", "values"),
    [
        (part(206, 1, struct.pack(">II", 1, 2)), "Pli", {"sender": 1, "media": 2}),
        (part(206, 4, struct.pack(">IIIB3x", 1, 0, 2, 7)), "Fir", {"sender": 1, "entries": [(2, 7)]}),
        # RFC 4585 §6.2.1: a number, and a mask of the 16 after it.
        (part(205, 1, struct.pack(">IIHH", 1, 2, 65535, 0x8001)), "Nack", {"numbers": [65535, 0, 15]}),
        (
            part(206, 15, struct.pack(">II4sII", 1, 0, b"REMB", 1 << 24 | 2 << 18 | 250_000, 9)),
            "Remb",
            {"bitrate": 1_000_000, "ssrcs": [9]},
        ),
        (
            part(205, 15, struct.pack(">IIHHIHBB", 1, 2, 10, 2, 1 << 8 | 5, 0xD000, 4, 0)),
            "TransportFeedback",
            {"feedback_count": 5, "arrivals": [(10, 65_000), (11, None)]},
        ),
        (part(202, 1, struct.pack(">IBB4sxx", 9, 1, 4, b"name")), "SourceDescription", {"items": [(9, 1, b"name")]}),
        (part(203, 1, struct.pack(">IB3s", 9, 3, b"bye")), "Bye", {"ssrcs": [9], "reason": b"bye"}),
        (
            part(201, 1, struct.pack(">IIIIIII", 1, 2, 64 << 24 | 0xFFFFFF, 70_000, 5, 6, 7)),
            "ReceiverReport",
            {"ssrc": 1},
        ),
        (
            part(207, 0, struct.pack(">IBBHQBBHIII", 1, 4, 0, 2, 99, 5, 0, 3, 2, 3, 4)),
            "ExtendedReport",
            {"reference_time": 99, "delays": [(2, 3, 4)]},
        ),
        (part(204, 3, struct.pack(">I4s", 1, b"name")), "OtherRtcp", {"packet_type": 204, "count": 3}),
    ],
)
def test_parts_of_rtcp(data, name, values):
    [read] = rtp.read_rtcp(data)
    assert type(read).__name__ == name
    assert {field: getattr(read, field) for field in values} == values
    assert repr(read).startswith(name + "(")


def test_a_report_block_has_its_values():
    [report] = rtp.read_rtcp(part(201, 1, struct.pack(">IIIIIII", 1, 2, 64 << 24 | 0xFFFFFF, 70_000, 5, 6, 7)))
    [block] = report.blocks
    assert (block.ssrc, block.fraction_lost, block.cumulative_lost, block.highest_sequence) == (2, 64, -1, 70_000)
    assert (block.jitter, block.last_sender_report, block.delay_since_report) == (5, 6, 7)


def test_a_malformed_part_is_an_error_or_stands_in_the_list():
    good = part(206, 1, struct.pack(">II", 1, 2))
    with pytest.raises(rtp.Error, match="^truncated at byte 4: 4 more bytes needed$"):
        rtp.read_rtcp(part(206, 1, bytes(4)) + good)
    wrong, pli = rtp.read_rtcp(part(206, 1, bytes(4)) + good, strict=False)
    assert isinstance(wrong, rtp.Error) and isinstance(pli, rtp.Pli)
    with pytest.raises(rtp.Error, match="^RTP version 0$"):
        rtp.Packet.read(bytes(12))


def test_an_offer_of_obs():
    offer = sdp.Description.read(OBS_OFFER.read_bytes())
    audio, video = offer.media
    assert (offer.origin, offer.bundle, offer.ice_lite) == (("rtc", 2194907553, 0, "127.0.0.1"), ["0", "1"], False)
    assert (audio.kind, audio.mid, audio.direction, audio.setup, audio.ice_ufrag) == (
        "audio",
        "0",
        "sendonly",
        "actpass",
        "3eVy",
    )
    assert (audio.formats[0].encoding, audio.formats[0].channels, audio.formats[0].codec) == ("opus", 2, "Opus")
    assert audio.formats[0].parameters["useinbandfec"] == "1"
    assert video.formats[0].feedback == ["nack", "nack pli", "goog-remb"]
    [candidate] = audio.candidates
    assert (candidate.kind, candidate.address, candidate.port, candidate.transport) == (
        "host",
        "192.0.2.2",
        45076,
        "udp",
    )
    [(name, value)] = audio.fingerprints
    assert (name, value[:2], len(value)) == ("sha-256", b"\x01\xc7", 32)
    assert (1000, "cname", "cname") in audio.ssrcs and ("rtcp-mux", None) in audio.attributes
    assert sdp.Description.read(offer.write()) == offer and str(offer) == offer.write()


def test_candidates_and_formats_alone():
    line = "a=candidate:1 1 TCP 1518280447 fd00::1 9 typ srflx raddr 192.0.2.1 rport 5000 tcptype active generation 0"
    candidate = sdp.Candidate.read(line)
    assert (candidate.address, candidate.kind, candidate.tcp_kind) == ("fd00::1", "srflx", "active")
    assert (candidate.related, candidate.extensions) == (("192.0.2.1", 5000), [("generation", "0")])
    with pytest.raises(sdp.Error, match="^malformed candidate$"):
        sdp.Candidate.read("nothing")
    with pytest.raises(sdp.Error, match="line 2"):
        sdp.Description.read("v=0\r\nnothing\r\n")
    opus = rtp.Depacketizer(sdp.Format("opus/48000/2", payload_type=111))
    packet = rtp.Packet.read(struct.pack(">BBHII", 0x80, 111, 1, 960, 7) + b"\xfc\xff")
    assert [(frame.timestamp, frame.payload) for frame in opus.push(packet)] == [(960, b"\xfc\xff")]
    with pytest.raises(rtp.Error, match="^telephone-event is not supported$"):
        rtp.Depacketizer(sdp.Format("telephone-event/8000"))
    with pytest.raises(sdp.Error, match="^malformed rtpmap$"):
        sdp.Format("nothing")
