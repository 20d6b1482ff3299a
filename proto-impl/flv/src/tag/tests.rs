use super::*;
use crate::Error;
use bytes::Bytes;
use media::Codec;
use media::codec::g711::Law;
use proptest::prelude::*;

fn video(bytes: &[u8]) -> Result<VideoTag, Error> {
    VideoTag::read(&Bytes::copy_from_slice(bytes))
}

fn audio(bytes: &[u8]) -> Result<AudioTag, Error> {
    AudioTag::read(&Bytes::copy_from_slice(bytes))
}

fn video_body(bytes: &[u8]) -> Result<VideoBody, Error> {
    VideoBody::read(&Bytes::copy_from_slice(bytes))
}

fn audio_body(bytes: &[u8]) -> Result<AudioBody, Error> {
    AudioBody::read(&Bytes::copy_from_slice(bytes))
}

#[test]
fn avc_bodies_of_ffmpeg_are_read() {
    let header = video(b"\x17\x00\x00\x00\x00\x01\x64").unwrap();
    assert_eq!((header.frame_type, header.packet), (FrameType::Key, VideoPacket::SequenceHeader));
    assert_eq!(header.payload, b"\x01\x64"[..]);
    let frame = video(b"\x27\x01\xff\xff\xd8\0\0\0\x01\x41").unwrap();
    assert_eq!((frame.frame_type, frame.composition_time_ms), (FrameType::Inter, -40));
    assert_eq!(video(b"\x17\x02").unwrap().packet, VideoPacket::EndOfSequence);
    assert_eq!(video(b"\x17\x02\0\0\0").unwrap().packet, VideoPacket::EndOfSequence);
}

#[test]
fn hevc_under_its_old_id_is_hevc() {
    let frame = video(b"\x1c\x01\0\0\x28\0\0\0\x02\x26\x01").unwrap();
    assert_eq!((frame.codec, frame.composition_time_ms), (Codec::H265, 40));
}

#[test]
fn enhanced_video_bodies_are_read() {
    use VideoPacket::{EndOfSequence, Frame, Metadata, Mpeg2TsSequenceStart, SequenceHeader};
    type Case = (&'static [u8], Codec, VideoPacket, i32, &'static [u8]);
    let cases: [Case; 13] = [
        (b"\x90hvc1\x01\x02", Codec::H265, SequenceHeader, 0, b"\x01\x02"),
        (b"\x91hvc1\0\0\x43abc", Codec::H265, Frame, 67, b"abc"),
        (b"\xa1hvc1\xff\xff\xffabc", Codec::H265, Frame, -1, b"abc"),
        (b"\xa3hvc1abc", Codec::H265, Frame, 0, b"abc"),
        (b"\x91avc1\0\0\x01abc", Codec::H264, Frame, 1, b"abc"),
        (b"\x92avc1", Codec::H264, EndOfSequence, 0, b""),
        (b"\x90av01\x81", Codec::Av1, SequenceHeader, 0, b"\x81"),
        (b"\x91av01\x12\0", Codec::Av1, Frame, 0, b"\x12\0"),
        (b"\x95av01\x80\x04", Codec::Av1, Mpeg2TsSequenceStart, 0, b"\x80\x04"),
        (b"\x91vp09abc", Codec::Vp9, Frame, 0, b"abc"),
        (b"\x91vp08abc", Codec::Vp8, Frame, 0, b"abc"),
        // ffmpeg gives metadata the frame type of a command, other encoders that of a key frame.
        (b"\xd4hvc1\x02\0", Codec::H265, Metadata, 0, b"\x02\0"),
        (b"\x94hvc1\x02\0", Codec::H265, Metadata, 0, b"\x02\0"),
    ];
    for (body, codec, packet, composition, payload) in cases {
        let tag = video(body).unwrap_or_else(|error| panic!("{body:?}: {error}"));
        assert_eq!(
            (tag.codec, tag.packet, tag.composition_time_ms),
            (codec, packet, composition),
            "{body:?}"
        );
        assert_eq!(tag.payload, payload, "{body:?}");
    }
}

#[test]
fn enhanced_audio_bodies_are_read() {
    use AudioPacket::{EndOfSequence, Frame, MultichannelConfig, SequenceHeader};
    let cases: [(&[u8], Codec, AudioPacket, &[u8]); 9] = [
        (b"\x90OpusOpusHead", Codec::Opus, SequenceHeader, b"OpusHead"),
        (b"\x91Opus\xfc", Codec::Opus, Frame, b"\xfc"),
        (b"\x92Opus", Codec::Opus, EndOfSequence, b""),
        (b"\x94Opus\x01\x02\0\0\0\x03", Codec::Opus, MultichannelConfig, b"\x01\x02\0\0\0\x03"),
        (b"\x90mp4a\x11\x90", Codec::Aac, SequenceHeader, b"\x11\x90"),
        (b"\x90ac-3", Codec::Ac3, SequenceHeader, b""),
        (b"\x91ec-3\x0b\x77", Codec::Eac3, Frame, b"\x0b\x77"),
        (b"\x91.mp3\xff\xfb", Codec::Mp3, Frame, b"\xff\xfb"),
        (b"\x90fLaC\x04\0", Codec::Flac, SequenceHeader, b"\x04\0"),
    ];
    for (body, codec, packet, payload) in cases {
        let tag = audio(body).unwrap_or_else(|error| panic!("{body:?}: {error}"));
        assert_eq!((tag.codec, tag.packet), (codec, packet), "{body:?}");
        assert_eq!(tag.payload, payload, "{body:?}");
    }
}

#[test]
fn legacy_audio_without_a_packet_type_is_read() {
    let cases: [(&[u8], Codec, bool); 4] = [
        (b"\x2f\xff\xfb", Codec::Mp3, true),
        (b"\xe2\xff\xe3", Codec::Mp3, false),
        (b"\x72\xd5\xd5", Codec::G711(Law::A), false),
        (b"\x83\xff\xff", Codec::G711(Law::Mu), true),
    ];
    for (body, codec, stereo) in cases {
        let tag = audio(body).unwrap();
        assert_eq!((tag.codec, tag.packet, tag.stereo), (codec, AudioPacket::Frame, stereo), "{body:?}");
        assert_eq!(tag.payload, body[1..]);
    }
    assert_eq!(AudioTag::write_mp3(48_000, 2), [0x2f]);
    assert_eq!(AudioTag::write_mp3(22_050, 1), [0x2a]);
    assert_eq!(AudioTag::write_mp3(8_000, 1), [0xe2]);
    assert_eq!((AudioTag::write_g711(Law::A, 1), AudioTag::write_g711(Law::Mu, 2)), ([0x72], [0x83]));
}

#[test]
fn the_payload_is_a_slice_of_the_body() {
    let body = Bytes::from_static(b"\x27\x01\0\0\0abc");
    assert_eq!(VideoTag::read(&body).unwrap().payload.as_ptr(), body[5..].as_ptr());
    let body = Bytes::from_static(b"\xa1hvc1\0\0\0abc");
    assert_eq!(VideoTag::read(&body).unwrap().payload.as_ptr(), body[8..].as_ptr());
    let body = Bytes::from_static(b"\xaf\x01abc");
    assert_eq!(AudioTag::read(&body).unwrap().payload.as_ptr(), body[2..].as_ptr());
}

#[test]
fn an_empty_audio_body_is_silence() {
    assert_eq!(audio(b"").unwrap().packet, AudioPacket::Silence);
    assert_eq!(audio(b"\xaf\x01").unwrap().packet, AudioPacket::Frame);
    assert_eq!(audio(b"\xaf\x00\x12\x10").unwrap().payload, b"\x12\x10"[..]);
}

#[test]
fn modifiers_stand_before_the_packet() {
    // A modifier with 999 999 ns, then CodedFramesX.
    let tag = video(b"\x97\x02\x0f\x42\x3f\x03hvc1abc").unwrap();
    assert_eq!((tag.packet, tag.offset_nanos, &tag.payload[..]), (VideoPacket::Frame, 999_999, &b"abc"[..]));
    // An unknown modifier, then the known one.
    let tag = audio(b"\x97\x00?\x57\x02\0\0\x05\x01Opusabc").unwrap();
    assert_eq!((tag.codec, tag.offset_nanos, &tag.payload[..]), (Codec::Opus, 5, &b"abc"[..]));
    // Modifier data of 256 bytes or more has a longer size field.
    let long = [&b"\x97\xff\x01\x2b"[..], &[0; 300], b"\x01Opusabc"].concat();
    assert_eq!(audio(&long).unwrap().payload, b"abc"[..]);
    for end in 1..long.len() - 3 {
        assert!(matches!(audio(&long[..end]), Err(Error::Truncated(_))), "cut at {end}");
    }
}

#[test]
fn every_track_of_several_is_read() {
    let one = video_body(b"\x96\x03hvc1\x02abc").unwrap();
    let VideoBody::Multitrack(packets) = one else { panic!("{one:?}") };
    assert_eq!((packets.len(), packets[0].id, packets[0].four_cc), (1, 2, *b"hvc1"));
    assert_eq!(packets[0].tag.as_ref().unwrap().payload, b"abc"[..]);
    assert_eq!(video(b"\x96\x03hvc1\x02abc"), Err(Error::NoDefaultTrack));
    // A single track, several tracks of the same codec, several tracks with their own codecs.
    assert_eq!(video(b"\x96\x03hvc1\x00abc").unwrap().payload, b"abc"[..]);
    let many = b"\x95\x11Opus\x01\0\0\x02xx\x00\0\0\x03abc";
    let Ok(AudioBody::Multitrack(packets)) = audio_body(many) else { panic!() };
    let payloads = packets.iter().map(|packet| (packet.id, packet.tag.as_ref().unwrap().payload.clone()));
    assert_eq!(payloads.collect::<Vec<_>>(), [(1, b"xx"[..].into()), (0, b"abc"[..].into())]);
    assert_eq!(audio(many).unwrap().payload, b"abc"[..]);
    // An unknown codec does not affect the other tracks.
    let mixed = b"\x95\x21nope\x07\0\0\x01xmp4a\x00\0\0\x02ab";
    let Ok(AudioBody::Multitrack(packets)) = audio_body(mixed) else { panic!() };
    assert_eq!(packets[0].tag, Err(Error::UnsupportedAudioFourCc(*b"nope")));
    assert_eq!(audio(mixed).map(|tag| (tag.codec, tag.payload)), Ok((Codec::Aac, b"ab"[..].into())));
    let timed = b"\x96\x11avc1\x00\0\0\x04\0\0\x28a\x01\0\0\x04\0\0\0b";
    assert_eq!(video(timed).unwrap().composition_time_ms, 40);
}

#[test]
fn m_20_lying_multitrack_bodies_are_refused() {
    assert_eq!(video_body(b"\x96\x06hvc1\0"), Err(Error::NestedMultitrack));
    assert_eq!(audio_body(b"\x95\x05Opus\0"), Err(Error::NestedMultitrack));
    assert_eq!(video_body(b"\x96\x31hvc1\0"), Err(Error::UnknownMultitrack(3)));
    assert!(matches!(video_body(b"\x96\x11hvc1\0\0\0\x09abc"), Err(Error::Truncated(_))));
    let many = [&b"\x96\x11vp09"[..], &b"\x01\0\0\0".repeat(66)].concat();
    assert_eq!(video_body(&many), Err(Error::TooManyTracks));
    assert_eq!(audio(b"\x95\x01nope\x00abc"), Err(Error::UnsupportedAudioFourCc(*b"nope")));
}

#[test]
fn m_20_empty_and_short_tags_are_truncated() {
    for short in
        [&b""[..], b"\x17", b"\x17\x01", b"\x17\x01\0\0", b"\x90", b"\x90hvc", b"\x91hvc1\0\0", b"\xd0"]
    {
        assert!(matches!(video(short), Err(Error::Truncated(_))), "{short:?}");
    }
    for short in [&b"\xaf"[..], b"\x90", b"\x90Opu", b"\x95", b"\x97\x02\0\0", b"\x97\x00\x00\x01"] {
        assert!(matches!(audio(short), Err(Error::Truncated(_))), "{short:?}");
    }
}

#[test]
fn m_20_unknown_codecs_fourccs_and_packets_are_named() {
    for id in (0..16).filter(|id| ![AVC, HEVC].contains(id)) {
        assert_eq!(video(&[0x10 | id, 1, 0, 0, 0]), Err(Error::UnsupportedVideoCodec(id)));
    }
    for format in (0..16).filter(|format| ![2, 7, 8, 9, 10, 14].contains(format)) {
        assert_eq!(audio(&[format << 4, 1]), Err(Error::UnsupportedAudioCodec(format)));
    }
    assert_eq!(video(b"\x90vvc1\0\0\0"), Err(Error::UnsupportedVideoFourCc(*b"vvc1")));
    assert_eq!(video(b"\x90Opus"), Err(Error::UnsupportedVideoFourCc(*b"Opus")));
    assert_eq!(audio(b"\x90hvc1"), Err(Error::UnsupportedAudioFourCc(*b"hvc1")));
    for packet in [8, 15] {
        assert_eq!(video(&[0x90 | packet, b'h', b'v', b'c', b'1']), Err(Error::UnknownPacketType(packet)));
    }
    for packet in [3, 6, 8, 15] {
        assert_eq!(audio(&[0x90 | packet, b'O', b'p', b'u', b's']), Err(Error::UnknownPacketType(packet)));
    }
    assert_eq!(video(b"\x17\x03\0\0\0"), Err(Error::UnknownPacketType(3)));
    assert_eq!(audio(b"\xaf\x02"), Err(Error::UnknownPacketType(2)));
    assert_eq!(video(b"\x57\x00"), Err(Error::UnknownFrameType(5)));
    assert_eq!(video(b"\x07\x00"), Err(Error::UnknownFrameType(0)));
    assert_eq!(video(b"\xe0hvc1"), Err(Error::UnknownFrameType(6)));
}

#[test]
fn a_command_is_no_frame_and_names_no_codec() {
    assert_eq!(video_body(b"\xd1\x01"), Ok(VideoBody::Command(1)));
    assert_eq!(video(b"\xd1\x01"), Err(Error::UnknownFrameType(5)));
}

const VIDEO_CODECS: [Codec; 5] = [Codec::H264, Codec::H265, Codec::Av1, Codec::Vp9, Codec::Vp8];
const AUDIO_CODECS: [Codec; 6] = [Codec::Aac, Codec::Opus, Codec::Mp3, Codec::Ac3, Codec::Eac3, Codec::Flac];

proptest! {
    #[test]
    fn legacy_heads_are_read_back(frame in 1u8..5, packet in 0u8..3, cts in -0x80_0000i32..0x80_0000, payload in prop::collection::vec(any::<u8>(), 0..40)) {
        let frame_type = [FrameType::Key, FrameType::Inter, FrameType::Disposable, FrameType::GeneratedKey][usize::from(frame - 1)];
        let packet = [VideoPacket::SequenceHeader, VideoPacket::Frame, VideoPacket::EndOfSequence][usize::from(packet)];
        let body = [&VideoTag::write_header(frame_type, packet, cts)[..], &payload].concat();
        let want = VideoTag { frame_type, codec: Codec::H264, packet, composition_time_ms: cts, offset_nanos: 0, payload: payload.clone().into() };
        prop_assert_eq!(video(&body), Ok(want));
        for packet in [AudioPacket::SequenceHeader, AudioPacket::Frame] {
            let body = [&AudioTag::write_header(packet)[..], &payload].concat();
            prop_assert_eq!(audio(&body), Ok(AudioTag { codec: Codec::Aac, packet, stereo: true, offset_nanos: 0, payload: payload.clone().into() }));
        }
    }

    #[test]
    fn enhanced_heads_are_read_back(id: u8, codec in 0usize..5, packet in 0usize..5, cts in -0x80_0000i32..0x80_0000, nanos in 0u32..1_000_000, payload in prop::collection::vec(any::<u8>(), 0..40)) {
        use VideoPacket::{EndOfSequence, Frame, Metadata, Mpeg2TsSequenceStart, SequenceHeader};
        let codec = VIDEO_CODECS[codec];
        let packet = [SequenceHeader, Frame, EndOfSequence, Metadata, Mpeg2TsSequenceStart][packet];
        let composed = packet == Frame && matches!(codec, Codec::H264 | Codec::H265);
        let composition_time_ms = if composed { cts } else { 0 };
        let head = VideoTag::write_enhanced(FrameType::Key, packet, codec.four_cc().unwrap(), composition_time_ms);
        let mut want = VideoTag { frame_type: FrameType::Key, codec, packet, composition_time_ms, offset_nanos: 0, payload: payload.clone().into() };
        prop_assert_eq!(video(&[&head[..], &payload].concat()), Ok(want.clone()));
        // The same packet after a modifier, and as track 0 of a body of its own.
        let [_, a, b, c] = nanos.to_be_bytes();
        let modified = [&[0x97, 2, a, b, c, head[0] & 0x0f][..], &head[1..], &payload].concat();
        want.offset_nanos = nanos;
        prop_assert_eq!(video(&modified), Ok(want.clone()));
        want.offset_nanos = 0;
        let head = VideoTag::write_multitrack(id, FrameType::Key, packet, codec.four_cc().unwrap(), composition_time_ms);
        let Ok(VideoBody::Multitrack(packets)) = video_body(&[&head[..], &payload].concat()) else { panic!() };
        prop_assert_eq!((packets.len(), packets[0].id, &packets[0].tag), (1, id, &Ok(want)));
    }

    #[test]
    fn enhanced_audio_heads_are_read_back(id: u8, codec in 0usize..6, packet in 0usize..4, payload in prop::collection::vec(any::<u8>(), 0..40)) {
        use AudioPacket::{EndOfSequence, Frame, MultichannelConfig, SequenceHeader};
        let codec = AUDIO_CODECS[codec];
        let packet = [SequenceHeader, Frame, EndOfSequence, MultichannelConfig][packet];
        let head = AudioTag::write_enhanced(packet, codec.four_cc().unwrap());
        let want = AudioTag { codec, packet, stereo: false, offset_nanos: 0, payload: payload.clone().into() };
        prop_assert_eq!(audio(&[&head[..], &payload].concat()), Ok(want.clone()));
        let head = AudioTag::write_multitrack(id, packet, codec.four_cc().unwrap());
        let Ok(AudioBody::Multitrack(packets)) = audio_body(&[&head[..], &payload].concat()) else { panic!() };
        prop_assert_eq!((packets.len(), packets[0].id, &packets[0].tag), (1, id, &Ok(want)));
    }

    #[test]
    fn random_bytes_never_panic(enhanced in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut().filter(|_| enhanced) {
            *first |= 0x90;
        }
        let _ = (video_body(&bytes), audio_body(&bytes));
    }
}
