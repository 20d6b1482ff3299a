//! Parameter sets of H.264 and H.265 by type and id, and the configuration made of them; for RTMP and MPEG-TS, which
//! carry them in band.

use std::collections::BTreeMap;

use bytes::Bytes;
use media::CodecConfig;
use media::codec::{h264, h265};

/// Maximum id of a parameter set: that of an H.264 picture parameter set.
pub(super) const SET_ID_MAX: u32 = 255;

/// Parameter sets in the order of a configuration record: by nal_unit_type, then id.
pub(super) type Sets = BTreeMap<(u8, u32), Bytes>;

/// The two codecs with NAL units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    H264,
    H265,
}

impl Coding {
    /// Returns the key of a parameter set in [`Sets`]; `None` for other NAL units and malformed sets.
    pub(super) fn set_key(self, nal: &[u8]) -> Option<(u8, u32)> {
        let (kind, id) = match self {
            Self::H264 => match h264::nal_type(nal) {
                kind @ (h264::NAL_SPS | h264::NAL_PPS) => (kind, h264::set_id(nal).ok()?),
                _ => return None,
            },
            Self::H265 => match h265::nal_type(nal)? {
                kind @ h265::NAL_VPS..=h265::NAL_PPS => (kind, h265::set_id(nal).ok()?),
                _ => return None,
            },
        };
        (id <= SET_ID_MAX).then_some((kind, id))
    }

    /// Makes the configuration of the sets.
    ///
    /// # Errors
    /// The sets are too many or too large, or a required one is missing.
    pub(super) fn config(self, sets: &Sets) -> Result<CodecConfig, media::codec::Error> {
        let of = |kind: u8| -> Vec<&[u8]> {
            sets.range((kind, 0)..=(kind, SET_ID_MAX)).map(|(_, set)| &set[..]).collect()
        };
        Ok(match self {
            Self::H264 => CodecConfig::H264(h264::Config::of_sets(&of(h264::NAL_SPS), &of(h264::NAL_PPS))?),
            Self::H265 => CodecConfig::H265(h265::Config::of_sets(
                &of(h265::NAL_VPS),
                &of(h265::NAL_SPS),
                &of(h265::NAL_PPS),
            )?),
        })
    }
}
