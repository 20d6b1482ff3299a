//! The currency of the hub.

use bytes::Bytes;

use crate::TrackId;

/// The data of one decode instant of one track, immutable once it has entered a ring.
///
/// * H.264: NAL units with 4-byte lengths, at least one of them a picture. Parameter sets, SEI and delimiters may
///   be inside, as the source sent them.
/// * AAC: one raw frame, no ADTS.
/// * Data: AMF0 values as an FLV script tag has them, name first.
///
/// DTS never falls within a track, PTS is never before DTS; both count ticks of the track's own timescale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// The track it belongs to.
    pub track: TrackId,
    /// Decode time in ticks.
    pub dts: i64,
    /// Presentation time in ticks.
    pub pts: i64,
    /// Whether a decoder can start here: a video random access point. Units of other tracks are never key frames.
    pub key_frame: bool,
    /// The [`crate::Tracks::epoch`] that decodes it.
    pub config_epoch: u32,
    /// The data.
    pub payload: Bytes,
}
