//! The access unit, which all protocols convert media to and from.

use bytes::Bytes;

use crate::TrackId;

/// The data of one decode time of one track, immutable once it is in a ring.
///
/// * H.264, H.265: NAL units with 4-byte lengths, at least one of them a slice of a picture. Parameter sets, SEI and delimiters
///   may be inside, as the source sent them.
/// * AV1: the OBUs of one temporal unit, each with its size. A temporal delimiter is not wanted (AV1 in ISOBMFF
///   §2.4), and passed on where a source sends one.
/// * VP8, VP9: one frame; of VP9 perhaps a superframe.
/// * AAC: one raw frame, no ADTS.
/// * Opus: one packet (RFC 6716 §3). MP3: whole frames, usually one, each with its header. AC-3, E-AC-3: whole
///   syncframes. FLAC: one frame (RFC 9639 §9).
/// * G.711: samples, as many as the source put together, channels interleaved.
/// * Data: AMF0 values as an FLV script tag has them, name first.
///
/// DTS never falls within a track, PTS is never before DTS; both count ticks of the track's own timescale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Track of the unit.
    pub track: TrackId,
    /// Decode time in ticks of the track's timescale.
    pub dts: i64,
    /// Presentation time in ticks of the track's timescale.
    pub pts: i64,
    /// A decoder can start here: a video random access point. Always false for units of other tracks.
    pub key_frame: bool,
    /// The [`crate::Track::epoch`] whose configuration decodes the unit; 0 for data.
    pub config_epoch: u32,
    /// Media data in the format described above.
    pub payload: Bytes,
}
