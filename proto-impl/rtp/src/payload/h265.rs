//! H.265 (RFC 7798) without decoding order numbers: single NAL units, aggregation packets and fragmentation units.
//!
//! ```text
//! NAL unit header   F(1) Type(6) LayerId(6) TID(3)
//! AP                header(48) { size(16) NAL unit } ...
//! FU                header(49) FU header: S(1) E(1) Type(6), a fragment
//! ```

use media::codec::{CodecConfig, h265};

use super::Error;
use super::nal_units::{self, Form, Head, NalFormat};

/// Type of an aggregation packet (RFC 7798 §4.4.2).
const AP: u8 = 48;
/// Type of a fragmentation unit (RFC 7798 §4.4.3).
const FU: u8 = 49;
/// Type of a PACI packet (RFC 7798 §4.4.4).
const PACI: u8 = 50;
/// Forbidden bit in the first byte of a NAL unit header.
const F: u8 = 0x80;
/// Type field in the first byte of a NAL unit header.
const TYPE: u8 = 0x7e;

/// Depacketizer of H.265; see [`super::Depacketizer`].
pub(super) type Depacketizer = nal_units::Depacketizer<H265>;

#[derive(Debug, Default)]
pub(super) struct H265;

impl NalFormat for H265 {
    const HEAD_BYTES: usize = 2;

    fn parameter_sets(config: &CodecConfig) -> impl Iterator<Item = &[u8]> {
        let config = if let CodecConfig::H265(config) = config { Some(config) } else { None };
        config.into_iter().flat_map(h265::Config::parameter_sets)
    }

    fn is_sps(nal: &[u8]) -> bool {
        h265::nal_type(nal) == Some(h265::NAL_SPS)
    }

    fn says_nothing(nal: &[u8]) -> bool {
        matches!(h265::nal_type(nal), Some(h265::NAL_AUD | h265::NAL_FILLER))
    }

    fn is_picture(nal: &[u8]) -> bool {
        h265::is_picture(nal)
    }

    fn begins_picture(nal: &[u8]) -> bool {
        h265::begins_picture(nal)
    }

    fn is_key(nal: &[u8]) -> bool {
        h265::is_key(nal)
    }

    /// Returns the header of an aggregation packet: the forbidden bit if set in any unit, the lowest layer id,
    /// and the lowest temporal id (RFC 7798 §4.4.2).
    fn aggregate_head(nals: &[&[u8]]) -> Head {
        let heads = || nals.iter().filter_map(|nal| nal.first_chunk::<2>());
        let forbidden = heads().fold(0, |bit, [first, _]| bit | (first & F));
        let layer = heads().map(|[first, second]| u16::from_be_bytes([first & 1, *second]) >> 3).min();
        let temporal = heads().map(|[_, second]| second & 7).min().unwrap_or(1);
        let [high, low] = ((u16::from(AP) << 9) | (layer.unwrap_or(0) << 3)).to_be_bytes();
        [high | forbidden, low | temporal]
    }

    fn fragment_head([first, second]: Head) -> (Head, u8) {
        ([(first & !TYPE) | (FU << 1), second], (first & TYPE) >> 1)
    }

    fn fragmented_head([first, second]: Head, kind: u8) -> Head {
        [(first & !TYPE) | ((kind << 1) & TYPE), second]
    }

    fn form(payload: &[u8]) -> Result<Form, Error> {
        if payload.is_empty() {
            return Ok(Form::Reserved);
        }
        let [first, _] = payload.first_chunk::<2>().ok_or(Error::Malformed("NAL unit header"))?;
        match (first & TYPE) >> 1 {
            0..AP => Ok(Form::Single),
            AP => Ok(Form::Aggregate),
            FU => Ok(Form::Fragment),
            PACI => Err(Error::Unsupported("PACI")),
            // RFC 7798 §1.1.4: 51 to 63 have no meaning.
            _ => Ok(Form::Reserved),
        }
    }
}
