//! Access units and parameter sets to FLV bodies: a short head, and the payload as it is.

use bytes::Bytes;
use flv::file::TagKind;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::{CodecConfig, Track};
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
}

/// The parameter sets of a track. `None` when its codec has none.
pub(in crate::protocol) fn config(track: &Track) -> Option<Body<'_>> {
    Some(match &track.config {
        CodecConfig::H264(config) => {
            let head = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
            Body::new(TagKind::Video, &head, &config.record)
        }
        CodecConfig::Aac(config) => {
            let head = AudioTag::write_header(AudioPacket::SequenceHeader);
            Body::new(TagKind::Audio, &head, &config.record)
        }
    })
}

/// A unit.
pub(in crate::protocol) fn unit(entry: &Entry) -> Body<'_> {
    let unit = &entry.unit;
    let Some(track) = entry.tracks.get(unit.track) else {
        return Body::new(TagKind::Data, &[], &unit.payload);
    };
    match track.config {
        CodecConfig::H264(_) => {
            let frame_type = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
            let composition = track.timescale.to_ms(unit.pts).saturating_sub(entry.dts_ms);
            let composition = i32::try_from(composition).unwrap_or(0);
            let head = VideoTag::write_header(frame_type, VideoPacket::NalUnits, composition);
            Body::new(TagKind::Video, &head, &unit.payload)
        }
        CodecConfig::Aac(_) => {
            let head = AudioTag::write_header(AudioPacket::Raw);
            Body::new(TagKind::Audio, &head, &unit.payload)
        }
    }
}
