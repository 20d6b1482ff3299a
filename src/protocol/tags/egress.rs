//! Access units and parameter sets to FLV bodies: a short head, and the payload as it is.
//!
//! H.264, AAC, MP3 and G.711 are written in the legacy form, which every player knows; the others have only the
//! enhanced one.

use bytes::Bytes;
use flv::file::TagKind;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::{Codec, CodecConfig, Track, TrackKind};
use smallvec::SmallVec;

use crate::hub::Entry;

/// A body: what follows a tag's or a message's own head.
#[derive(Debug)]
pub(in crate::protocol) struct Body<'a> {
    /// What it is.
    pub(in crate::protocol) kind: TagKind,
    /// The head that the codec needs.
    pub(in crate::protocol) head: SmallVec<[u8; 16]>,
    /// The rest.
    pub(in crate::protocol) payload: &'a Bytes,
}

impl<'a> Body<'a> {
    fn new(kind: TagKind, head: &[u8], payload: &'a Bytes) -> Self {
        Self { kind, head: SmallVec::from_slice(head), payload }
    }

    fn enhanced_video(
        codec: Codec,
        frame_type: FrameType,
        packet: VideoPacket,
        composition_ms: i32,
        payload: &'a Bytes,
    ) -> Self {
        // Every video codec has a FourCC.
        let four_cc = codec.four_cc().unwrap_or_default();
        let head = VideoTag::write_enhanced(frame_type, packet, four_cc, composition_ms);
        Self::new(TagKind::Video, &head, payload)
    }

    fn enhanced_audio(codec: Codec, packet: AudioPacket, payload: &'a Bytes) -> Self {
        // G.711 alone has none, and nothing of it is written in this form.
        let four_cc = codec.four_cc().unwrap_or_default();
        Self::new(TagKind::Audio, &AudioTag::write_enhanced(packet, four_cc), payload)
    }
}

/// The FourCC that a player must know to make anything of the track. `None`: it is written in the legacy form.
pub(in crate::protocol) const fn needed_four_cc(track: &Track) -> Option<[u8; 4]> {
    let codec = track.config.codec();
    match codec {
        Codec::H264 | Codec::Aac | Codec::Mp3 | Codec::G711(_) => None,
        Codec::H265
        | Codec::Av1
        | Codec::Vp9
        | Codec::Vp8
        | Codec::Opus
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => codec.four_cc(),
    }
}

/// The parameter sets of a track. `None` when its codec has none.
pub(in crate::protocol) fn config(track: &Track) -> Option<Body<'_>> {
    let (codec, record) = (track.config.codec(), track.config.record());
    Some(match codec {
        Codec::H264 => {
            let head = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
            Body::new(TagKind::Video, &head, record)
        }
        Codec::H265 | Codec::Av1 | Codec::Vp9 | Codec::Vp8 => {
            Body::enhanced_video(codec, FrameType::Key, VideoPacket::SequenceHeader, 0, record)
        }
        Codec::Aac => {
            let head = AudioTag::write_header(AudioPacket::SequenceHeader);
            Body::new(TagKind::Audio, &head, record)
        }
        // ffmpeg begins AC-3 and E-AC-3 with an empty record, too.
        Codec::Opus | Codec::Ac3 | Codec::Eac3 | Codec::Flac => {
            Body::enhanced_audio(codec, AudioPacket::SequenceHeader, record)
        }
        Codec::Mp3 | Codec::G711(_) => return None,
    })
}

/// What else the publisher said of a track, in the enhanced form: for players that know the track's FourCC.
pub(in crate::protocol) fn extra(track: &Track) -> Option<Body<'_>> {
    let (codec, extra) = (track.config.codec(), track.extra.as_ref()?);
    Some(match codec.kind() {
        // The frame type of metadata means nothing; ffmpeg and OBS write that of a command.
        TrackKind::Video => Body::enhanced_video(codec, FrameType::Command, VideoPacket::Metadata, 0, extra),
        TrackKind::Audio => Body::enhanced_audio(codec, AudioPacket::MultichannelConfig, extra),
        TrackKind::Data => return None,
    })
}

/// A unit.
pub(in crate::protocol) fn unit(entry: &Entry) -> Body<'_> {
    let unit = &entry.unit;
    let Some(track) = entry.tracks.get(unit.track) else {
        return Body::new(TagKind::Data, &[], &unit.payload);
    };
    let payload = &unit.payload;
    let frame_type = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
    let composition = || {
        let composition = track.timescale.to_ms(unit.pts).saturating_sub(entry.dts_ms);
        i32::try_from(composition).unwrap_or(0)
    };
    let codec = track.config.codec();
    match &track.config {
        CodecConfig::H264(_) => {
            let head = VideoTag::write_header(frame_type, VideoPacket::Frame, composition());
            Body::new(TagKind::Video, &head, payload)
        }
        CodecConfig::H265(_) | CodecConfig::Av1(_) | CodecConfig::Vp9(_) | CodecConfig::Vp8(_) => {
            Body::enhanced_video(codec, frame_type, VideoPacket::Frame, composition(), payload)
        }
        CodecConfig::Aac(_) => {
            Body::new(TagKind::Audio, &AudioTag::write_header(AudioPacket::Frame), payload)
        }
        CodecConfig::Mp3(config) => {
            let head = AudioTag::write_mp3(config.sample_rate, config.channels);
            Body::new(TagKind::Audio, &head, payload)
        }
        CodecConfig::G711(config) => {
            let head = AudioTag::write_g711(config.law, config.channels);
            Body::new(TagKind::Audio, &head, payload)
        }
        CodecConfig::Opus(_) | CodecConfig::Ac3(_) | CodecConfig::Eac3(_) | CodecConfig::Flac(_) => {
            Body::enhanced_audio(codec, AudioPacket::Frame, payload)
        }
    }
}
