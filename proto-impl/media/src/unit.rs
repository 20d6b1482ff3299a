//! The access unit: the form of media that all protocols have in common. Each protocol converts its media to and from
//! this form.

use bytes::Bytes;

use crate::TrackId;

/// Data of a track at a single decode time. It is immutable once it is in the ring of its stream. The payload depends
/// on the codec:
///
/// * H.264, H.265: NAL units with 4-byte lengths, of which at least one is a slice of a picture. Parameter sets, SEI
///   and delimiters may be among them, as the source sent them.
/// * AV1: the OBUs of a temporal unit, each with its size. A temporal delimiter should be absent (AV1 in ISOBMFF
///   §2.4), but is passed on if a source sends it.
/// * VP8, VP9: a frame, or for VP9 also a superframe.
/// * AAC: a raw frame without ADTS.
/// * Opus: a packet (RFC 6716 §3). MP3: whole frames, usually one, each with its header. AC-3, E-AC-3: whole
///   syncframes. FLAC: a frame (RFC 9639 §9).
/// * G.711: samples with interleaved channels, as many as the source put together.
/// * Data: AMF0 values as in an FLV script tag, with the name first ([`TrackId::DATA`]); ID3v2 tags ([`TrackId::METADATA`]);
///   a splice_info_section ([`TrackId::CUES`]); a cue of subtitles ([`TrackId::SUBTITLES`]); a message of a data
///   channel ([`TrackId::MESSAGES`]).
///
/// DTS never decreases within a track, and PTS is never before DTS. Both count ticks of the track's timescale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Track of the unit.
    pub track: TrackId,
    /// Decode time in ticks of the track's timescale.
    pub dts: i64,
    /// Presentation time in ticks of the track's timescale.
    pub pts: i64,
    /// True if a decoder can start with this unit: a video random access point. Always false for units of other kinds
    /// of tracks.
    pub key_frame: bool,
    /// The [`crate::Track::epoch`] whose configuration decodes the unit; 0 for data.
    pub config_epoch: u32,
    /// Media data in the format described above.
    pub payload: Bytes,
}
