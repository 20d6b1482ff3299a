//! H.264 (RFC 6184) in packetization-mode 1: single NAL units, STAP-A and FU-A.
//!
//! ```text
//! NAL unit header   F(1) NRI(2) Type(5)
//! STAP-A            header(24) { size(16) NAL unit } ...
//! FU-A              indicator(28) header: S(1) E(1) R(1) Type(5), a fragment
//! ```

use media::codec::{CodecConfig, h264};

use super::Error;
use super::nal_units::{self, Form, Head, NalFormat};

/// Type of an aggregation packet (RFC 6184 §5.7.1).
const STAP_A: u8 = 24;
/// Type of a fragmentation unit (RFC 6184 §5.8).
const FU_A: u8 = 28;
/// Forbidden bit of a NAL unit header.
const F: u8 = 0x80;
/// Reference field of a NAL unit header.
const NRI: u8 = 0x60;
const TYPE: u8 = 0x1f;

/// Depacketizer of H.264; see [`super::Depacketizer`].
pub(super) type Depacketizer = nal_units::Depacketizer<H264>;

#[derive(Debug, Default)]
pub(super) struct H264;

impl NalFormat for H264 {
    const HEAD_BYTES: usize = 1;

    fn parameter_sets(config: &CodecConfig) -> impl Iterator<Item = &[u8]> {
        let config = if let CodecConfig::H264(config) = config { Some(config) } else { None };
        config.into_iter().flat_map(h264::Config::parameter_sets)
    }

    fn is_sps(nal: &[u8]) -> bool {
        h264::nal_type(nal) == h264::NAL_SPS
    }

    fn says_nothing(nal: &[u8]) -> bool {
        matches!(h264::nal_type(nal), h264::NAL_AUD | h264::NAL_FILLER)
    }

    fn is_picture(nal: &[u8]) -> bool {
        h264::is_picture(nal)
    }

    fn begins_picture(nal: &[u8]) -> bool {
        h264::begins_picture(nal)
    }

    fn is_key(nal: &[u8]) -> bool {
        let kind = h264::nal_type(nal);
        kind == h264::NAL_IDR || (kind == h264::NAL_SEI && h264::is_recovery_point(nal))
    }

    /// Returns the header of an aggregation packet: the forbidden bit if set in any unit, and the highest NRI
    /// (RFC 6184 §5.7).
    fn aggregate_head(nals: &[&[u8]]) -> Head {
        let heads = || nals.iter().filter_map(|nal| nal.first());
        let forbidden = heads().fold(0, |bit, head| bit | (head & F));
        let importance = heads().map(|head| head & NRI).max().unwrap_or(0);
        [forbidden | importance | STAP_A, 0]
    }

    fn fragment_head([head, _]: Head) -> (Head, u8) {
        ([(head & !TYPE) | FU_A, 0], head & TYPE)
    }

    fn fragmented_head([indicator, _]: Head, kind: u8) -> Head {
        // The third bit of the header is reserved.
        [(indicator & !TYPE) | (kind & TYPE), 0]
    }

    fn form(payload: &[u8]) -> Result<Form, Error> {
        if payload.is_empty() {
            return Ok(Form::Reserved);
        }
        match h264::nal_type(payload) {
            1..=23 => Ok(Form::Single),
            STAP_A => Ok(Form::Aggregate),
            FU_A => Ok(Form::Fragment),
            25..=27 | 29 => Err(Error::Unsupported("interleaved mode")),
            // RFC 6184 §5.2: types 0, 30 and 31.
            _ => Ok(Form::Reserved),
        }
    }
}
