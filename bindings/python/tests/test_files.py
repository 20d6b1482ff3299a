"""FLV and MPEG-TS, compared with ffmpeg."""

import hashlib
import io
import struct

import millstream
import pytest
from conftest import packets, payload
from millstream import flv, mpegts

CLOCK_MASK = (1 << 33) - 1


def md5(data):
    return "MD5:" + hashlib.md5(data).hexdigest()


def flv_packets(tags, kind):
    return [(tag, packet) for tag in tags if tag.kind == kind for packet in tag.packets()]


@pytest.mark.parametrize(("kind", "stream"), [("video", "v"), ("audio", "a")])
def test_tags_are_the_packets_that_ffmpeg_reads(flv_file, kind, stream):
    tags = flv.parse(flv_file.read_bytes())
    ours = [
        (
            tag.timestamp,
            tag.timestamp + packet.composition_time_ms,
            packet.frame_type in (None, "key"),
            md5(packet.payload),
        )
        for tag, packet in flv_packets(tags, kind)
        if packet.packet == "frame"
    ]
    theirs = [
        (one["dts"], one["pts"], one["flags"].startswith("K"), one["data_hash"]) for one in packets(flv_file, stream)
    ]
    assert len(ours) > 40 and ours == theirs


def test_configurations_and_metadata_of_a_file(flv_file):
    tags = flv.parse(flv_file.read_bytes())
    [video] = [packet.config for _, packet in flv_packets(tags, "video") if packet.packet == "sequence_header"]
    assert (video.codec, video.size, video.rfc6381[:5]) == ("H264", (320, 180), "avc1.")
    [audio] = [packet.config for _, packet in flv_packets(tags, "audio") if packet.packet == "sequence_header"]
    assert (audio.codec, audio.sample_rate, audio.channels, audio.rfc6381) == ("AAC", 48_000, 1, "mp4a.40.2")
    name, [metadata] = tags[0].data()
    assert (name, metadata["width"], metadata["stereo"]) == ("onMetaData", 320.0, False)
    assert tags[1].packets()[0].frame_type == "key" and tags[0].packets() == []


def test_bodies_of_enhanced_rtmp():
    opus = b"OpusHead\x01\x02" + struct.pack("<HIhB", 312, 48_000, 0, 0)
    bodies = [
        (8, b"\x90Opus" + opus),
        (9, b"\x91vp09frame"),
        # Two tracks of one codec: number, length and body of each.
        (9, b"\xa6\x11av01" + b"\x00\0\0\x01a" + b"\x02\0\0\x02bc"),
    ]
    data = b"FLV\x01\x05\0\0\0\x09\0\0\0\0"
    for kind, body in bodies:
        data += struct.pack(">BBHI", kind, 0, len(body), 0) + bytes(3) + body + bytes(4)
    sound, video, tracks = [tag.packets() for tag in flv.parse(data)]
    assert (sound[0].packet, sound[0].config.codec, sound[0].config.channels) == ("sequence_header", "Opus", 2)
    assert [(one.codec, one.frame_type, one.payload) for one in video] == [("VP9", "key", b"frame")]
    told = [(one.track, one.codec, one.frame_type, one.payload) for one in tracks]
    assert told == [(0, "AV1", "inter", b"a"), (2, "AV1", "inter", b"bc")]


def test_a_file_in_pieces_has_the_same_tags(flv_file):
    data = flv_file.read_bytes()
    tags = flv.parse(data)
    for piece in (1, 7, 1000):
        assert list(flv.read(io.BytesIO(data), piece)) == tags
    reader = flv.Reader()
    assert reader.header is None
    reader.push(bytearray(data))
    assert list(reader) == tags and (reader.header.audio, reader.header.video) == (True, True)
    # A file that was cut off has the tags before the cut.
    assert flv.parse(data[:-20]) == tags[:-1]


def test_a_reader_that_has_failed_stays_so(flv_file):
    tag = struct.pack(">BBHI", 9, 0xFF, 0xFFFF, 0) + bytes(3)
    reader = flv.Reader(tag_bytes_max=1000)
    reader.push(flv_file.read_bytes()[:13] + tag)
    for _ in range(2):
        with pytest.raises(flv.Error, match="^tag of 16777215 bytes at byte 13$"):
            next(reader)
        with pytest.raises(flv.Error, match="^tag of 16777215 bytes at byte 13$"):
            reader.push(b"more")
    with pytest.raises(flv.Error, match="^not an FLV file$"):
        flv.parse(b"GET / HTTP/1.1")
    assert issubclass(flv.Error, millstream.Error) and issubclass(flv.Error, ValueError)


def test_values_of_amf0_become_objects():
    date = b"\x0b" + struct.pack(">dh", 1000.0, -60)
    pair = b"\x00\x01a\x0a\0\0\0\2\x05\x01\x01"
    assert flv.amf0(b"\x02\x00\x02hi\x03" + pair + b"\0\0\x09" + date) == [
        "hi",
        {"a": [None, True]},
        flv.amf0(date)[0],
    ]
    assert (flv.amf0(date)[0].unix_ms, flv.amf0(date)[0].zone) == (1000.0, -60)
    with pytest.raises(flv.Error, match="unknown AMF0 marker 0x0e at byte 0"):
        flv.amf0(b"\x0e")


def pes_of(events, kind):
    return [event for event in events if isinstance(event, mpegts.Pes) and event.kind == kind]


def test_packets_of_a_transport_stream_are_those_that_ffmpeg_reads(ts_file):
    events = mpegts.parse(ts_file.read_bytes())
    video = pes_of(events, "h264")
    ours = [(pes.pts, pes.pts if pes.dts is None else pes.dts, pes.random_access, md5(pes.payload)) for pes in video]
    theirs = [(one["pts"], one["dts"], one["flags"].startswith("K"), one["data_hash"]) for one in packets(ts_file, "v")]
    assert len(ours) == 50 and ours == theirs
    audio = pes_of(events, "aac")
    assert b"".join(pes.payload for pes in audio) == payload(ts_file, "a")
    assert audio[0].pts == packets(ts_file, "a")[0]["pts"]


def test_tables_and_configurations_of_a_transport_stream(ts_file):
    events = mpegts.parse(ts_file.read_bytes())
    [program] = [event for event in events if isinstance(event, mpegts.Program)]
    # The defaults of ffmpeg's muxer.
    assert (program.transport_stream, program.program, program.pmt_pid, program.pcr_pid) == (1, 1, 0x1000, 0x100)
    streams = [(stream.pid, stream.kind, stream.stream_type, stream.language) for stream in program.streams]
    assert streams == [(0x100, "h264", 0x1B, None), (0x101, "aac", 0x0F, "deu")]
    config = pes_of(events, "h264")[0].config()
    assert (config.codec, config.size, config.record[0]) == ("H264", (320, 180), 1)
    assert pes_of(events, "h264")[1].config() is None
    sound = pes_of(events, "aac")[0].config()
    assert (sound.codec, sound.sample_rate, sound.channels) == ("AAC", 48_000, 1)
    # An access unit delimiter, the parameter sets, and a key frame.
    kinds = [nal[0] & 0x1F for nal in millstream.nal_units(pes_of(events, "h264")[0].payload)]
    assert kinds[:3] == [9, 7, 8] and 5 in kinds


def test_a_transport_stream_in_pieces_gives_the_same_events(ts_file):
    data = ts_file.read_bytes()
    events = mpegts.parse(data)
    for piece in (1, 187, 10_000):
        assert list(mpegts.read(io.BytesIO(data), piece)) == events
    demuxer = mpegts.Demuxer()
    assert demuxer.program is None and demuxer.pcr is None
    demuxer.push(data)
    assert demuxer.stats.packets == len(data) // 188 and demuxer.program.streams[0].pid == 0x100
    assert demuxer.pcr is not None and demuxer.stats.gaps == 0


def test_damage_is_counted_and_passed(ts_file):
    data = bytearray(ts_file.read_bytes())
    del data[188 * 20 : 188 * 21]
    demuxer = mpegts.Demuxer()
    events = demuxer.push(data[:-1]) + demuxer.finish()
    assert (demuxer.stats.gaps, demuxer.stats.sync_losses) == (1, 0)
    assert any(event.discontinuity for event in events if isinstance(event, mpegts.Pes))


def test_single_packets(ts_file):
    data = ts_file.read_bytes()
    all_packets = [mpegts.Packet.read(data[at : at + 188]) for at in range(0, len(data), 188)]
    assert {packet.pid for packet in all_packets} == {0, 0x11, 0x100, 0x101, 0x1000}
    first = next(packet for packet in all_packets if packet.pid == 0x100)
    header = mpegts.PesHeader.read(first.payload)
    assert (header.stream_id, first.unit_start, first.random_access) == (0xE0, True, True)
    assert header.pts == packets(ts_file, "v")[0]["pts"] and first.pcr // 300 < header.pts <= CLOCK_MASK
    with pytest.raises(mpegts.Error, match="^187 bytes are no packet of 188$"):
        mpegts.Packet.read(data[:187])
    with pytest.raises(mpegts.Error):
        mpegts.PesHeader.read(b"no header")


def test_units_with_lengths():
    assert millstream.nal_units(b"\0\2ab\0\1c", length_size=2) == [b"ab", b"c"]
    assert millstream.nal_units(b"\0\0\1ab\0\0\0\1c") == [b"ab", b"c"]
    with pytest.raises(millstream.Error):
        millstream.nal_units(b"\0\0\0\5a", length_size=4)
