//! Detection of key frames from their bytes, for containers and senders that do not mark them.

use wire::Reader;

use super::{CodecConfig, av1, h264, h265};
use crate::nal::Nals;

/// Value of nal_unit_type for an IDR slice (H.264 Table 7-1).
const H264_IDR: u8 = 5;
/// Value of nal_unit_type for SEI (H.264 Table 7-1).
const H264_SEI: u8 = 6;

/// True if decoding can start with the frame. NAL units must have lengths of four bytes. For AV1, `frame` is the OBUs
/// of a temporal unit.
#[must_use]
pub fn is_key_frame(config: &CodecConfig, frame: &[u8]) -> bool {
    let any_nal = |is: fn(&[u8]) -> bool| Nals::new(frame, 4).flatten().any(is);
    match config {
        CodecConfig::H264(_) => any_nal(|nal| match h264::nal_type(nal) {
            H264_IDR => true,
            H264_SEI => h264::is_recovery_point(nal),
            _ => false,
        }),
        CodecConfig::H265(_) => any_nal(h265::is_key),
        CodecConfig::Av1(_) => has_sequence_header(frame),
        CodecConfig::Vp9(_) => is_vp9_key(frame),
        // RFC 6386 §9.1: the lowest bit is 0 in key frames.
        CodecConfig::Vp8(_) => frame.first().is_some_and(|first| first & 1 == 0),
        CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => false,
    }
}

/// True if a temporal unit contains a sequence header. A sequence header precedes a key frame with which decoding may
/// start (AV1 §7.6.1).
fn has_sequence_header(unit: &[u8]) -> bool {
    let mut reader = Reader::new(unit);
    while reader.remaining() > 0 {
        match av1::read_obu(&mut reader) {
            Ok(obu) if obu.kind == av1::OBU_SEQUENCE_HEADER => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

/// True for a VP9 key frame, by the first byte: frame_marker, the two bits of the profile, a reserved one in profile 3,
/// show_existing_frame, frame_type (VP9 §6.2).
fn is_vp9_key(frame: &[u8]) -> bool {
    let Some(first) = frame.first() else { return false };
    let below_profile = if first & 0x30 == 0x30 { first << 1 } else { *first };
    first >> 6 == 2 && below_profile & 0x0c == 0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Codec;

    fn is_key(codec: Codec, record: &'static [u8], frame: &[u8]) -> bool {
        let config = CodecConfig::read(codec, Bytes::from_static(record)).unwrap().unwrap();
        is_key_frame(&config, frame)
    }

    #[test]
    fn vp8_and_vp9_tell_in_the_first_byte() {
        assert!(
            is_key(Codec::Vp8, &[], &[0x10])
                && !is_key(Codec::Vp8, &[], &[0x11])
                && !is_key(Codec::Vp8, &[], &[])
        );
        const RECORD: &[u8] = &[1, 0, 0, 0, 0, 0x0b, 0x82, 2, 2, 2, 0, 0];
        for (frame, key) in [
            (&[0x82, 0x49][..], true),
            (&[0x86], false),
            (&[0x88], false),
            // Profile 3 has an additional bit before show_existing_frame.
            (&[0xb1], true),
            (&[0xb2], false),
            (&[0x02], false),
            (&[], false),
        ] {
            assert_eq!(is_key(Codec::Vp9, RECORD, frame), key, "{frame:x?}");
        }
    }

    #[test]
    fn av1_begins_where_a_sequence_header_is() {
        const RECORD: &[u8] = &[0x81, 0, 0, 0];
        let delimiter = [0x12, 0];
        let frame = [0x32, 1, 0];
        let sequence = [0x0a, 1, 0];
        assert!(is_key(Codec::Av1, RECORD, &[&delimiter[..], &sequence, &frame].concat()));
        assert!(!is_key(Codec::Av1, RECORD, &[&delimiter[..], &frame].concat()));
        assert!(!is_key(Codec::Av1, RECORD, &[0xff, 1]));
    }
}
