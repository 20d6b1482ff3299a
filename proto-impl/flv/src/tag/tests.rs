use super::*;
use crate::Error;
use bytes::Bytes;
use proptest::prelude::*;

fn video(bytes: &[u8]) -> Result<VideoTag, Error> {
    VideoTag::read(&Bytes::copy_from_slice(bytes))
}

fn audio(bytes: &[u8]) -> Result<AudioTag, Error> {
    AudioTag::read(&Bytes::copy_from_slice(bytes))
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
fn the_payload_is_a_slice_of_the_body() {
    let body = Bytes::from_static(b"\x27\x01\0\0\0abc");
    assert_eq!(VideoTag::read(&body).unwrap().payload.as_ptr(), body[5..].as_ptr());
    let body = Bytes::from_static(b"\xaf\x01abc");
    assert_eq!(AudioTag::read(&body).unwrap().payload.as_ptr(), body[2..].as_ptr());
}

#[test]
fn an_empty_audio_body_is_silence() {
    assert_eq!(audio(b"").unwrap().packet, AudioPacket::Silence);
    assert_eq!(audio(b"\xaf\x01").unwrap().packet, AudioPacket::Raw);
    assert_eq!(audio(b"\xaf\x00\x12\x10").unwrap().payload, b"\x12\x10"[..]);
}

#[test]
fn m_20_empty_and_short_tags_are_truncated() {
    for short in [&b""[..], b"\x17", b"\x17\x01", b"\x17\x01\0\0", b"\x90", b"\x90hvc"] {
        assert!(matches!(video(short), Err(Error::Truncated(_))), "{short:?}");
    }
    for short in [&b"\xaf"[..], b"\x90", b"\x90Opu"] {
        assert!(matches!(audio(short), Err(Error::Truncated(_))), "{short:?}");
    }
}

#[test]
fn m_20_unknown_codecs_fourccs_and_multitrack_are_named() {
    for id in (0..16).filter(|id| *id != AVC) {
        assert_eq!(video(&[0x10 | id, 1, 0, 0, 0]), Err(Error::UnsupportedVideoCodec(id)));
    }
    for format in (0..16).filter(|format| *format != AAC && *format != 9) {
        assert_eq!(audio(&[format << 4, 1]), Err(Error::UnsupportedAudioCodec(format)));
    }
    assert_eq!(video(b"\x90hvc1\0\0\0"), Err(Error::UnsupportedVideoFourCc(*b"hvc1")));
    assert_eq!(audio(b"\x90Opus"), Err(Error::UnsupportedAudioFourCc(*b"Opus")));
    assert_eq!(video(b"\x96\x10av01\0"), Err(Error::UnsupportedVideoFourCc(*b"\x10av0")));
    assert_eq!(video(b"\x17\x03\0\0\0"), Err(Error::UnknownPacketType(3)));
    assert_eq!(audio(b"\xaf\x02"), Err(Error::UnknownPacketType(2)));
    assert_eq!(video(b"\x57\x00"), Err(Error::UnknownFrameType(5)));
    assert_eq!(video(b"\x07\x00"), Err(Error::UnknownFrameType(0)));
}

proptest! {
    #[test]
    fn heads_are_read_back(frame in 1u8..5, packet in 0u8..3, cts in -0x80_0000i32..0x80_0000, payload in prop::collection::vec(any::<u8>(), 0..40)) {
        let frame_type = [FrameType::Key, FrameType::Inter, FrameType::Disposable, FrameType::GeneratedKey][usize::from(frame - 1)];
        let packet = [VideoPacket::SequenceHeader, VideoPacket::NalUnits, VideoPacket::EndOfSequence][usize::from(packet)];
        let body = [&VideoTag::write_header(frame_type, packet, cts)[..], &payload].concat();
        let want = VideoTag { frame_type, codec_id: AVC, packet, composition_time_ms: cts, payload: payload.clone().into() };
        prop_assert_eq!(video(&body), Ok(want));
        for packet in [AudioPacket::SequenceHeader, AudioPacket::Raw] {
            let body = [&AudioTag::write_header(packet)[..], &payload].concat();
            prop_assert_eq!(audio(&body), Ok(AudioTag { format: AAC, packet, payload: payload.clone().into() }));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = (video(&bytes), audio(&bytes));
    }
}
