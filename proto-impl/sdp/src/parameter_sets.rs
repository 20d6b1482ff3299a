//! Parameter sets in `fmtp` lines: `sprop-parameter-sets` of H.264 (RFC 6184 §8.1); `sprop-vps`, `sprop-sps`
//! and `sprop-pps` of H.265 (RFC 7798 §7.1); `config` of MPEG-4 audio (RFC 3640 §4.1). Their contents are not
//! parsed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use crate::fmtp::Parameters;
use crate::limits::VALUES_MAX;

/// Standard base64 alphabet. Padding is written, but optional when reading; nonzero trailing bits are accepted,
/// because cameras write them.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Error: a parameter is neither valid base64 nor hexadecimal, or has too many parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct BadParameter(
    /// Name of the parameter.
    pub &'static str,
);

/// Parameter sets of H.265: NAL units without start codes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct H265Sets {
    /// Video parameter sets.
    pub vps: Vec<Bytes>,
    /// Sequence parameter sets.
    pub sps: Vec<Bytes>,
    /// Picture parameter sets.
    pub pps: Vec<Bytes>,
}

impl Parameters {
    /// Returns the NAL units in `sprop-parameter-sets` in order, usually SPS first. Empty if the parameter sets
    /// are sent in band.
    pub fn h264_sets(&self) -> Result<Vec<Bytes>, BadParameter> {
        self.base64_list("sprop-parameter-sets")
    }

    /// Sets `sprop-parameter-sets`.
    #[must_use]
    pub fn with_h264_sets<T: AsRef<[u8]>>(self, sets: &[T]) -> Self {
        self.with("sprop-parameter-sets", base64_list(sets))
    }

    /// Returns the NAL units in `sprop-vps`, `sprop-sps` and `sprop-pps`.
    pub fn h265_sets(&self) -> Result<H265Sets, BadParameter> {
        Ok(H265Sets {
            vps: self.base64_list("sprop-vps")?,
            sps: self.base64_list("sprop-sps")?,
            pps: self.base64_list("sprop-pps")?,
        })
    }

    /// Sets `sprop-vps`, `sprop-sps`, `sprop-pps`.
    #[must_use]
    pub fn with_h265_sets(self, sets: &H265Sets) -> Self {
        self.with("sprop-vps", base64_list(&sets.vps))
            .with("sprop-sps", base64_list(&sets.sps))
            .with("sprop-pps", base64_list(&sets.pps))
    }

    /// Returns the hexadecimal `config`: the AudioSpecificConfig of `MPEG4-GENERIC`, or the StreamMuxConfig of
    /// `MP4A-LATM`.
    pub fn mpeg4_config(&self) -> Result<Option<Bytes>, BadParameter> {
        let Some(text) = self.get("config") else { return Ok(None) };
        // Some peers write the value in quotes.
        let digits = text.trim_matches('"');
        hex(digits).map(Some).ok_or(BadParameter("config"))
    }

    /// Sets `config`.
    #[must_use]
    pub fn with_mpeg4_config(self, config: &[u8]) -> Self {
        self.with("config", config.iter().map(|byte| format!("{byte:02X}")).collect::<String>())
    }

    fn base64_list(&self, name: &'static str) -> Result<Vec<Bytes>, BadParameter> {
        let text = self.get(name).unwrap_or_default();
        // A leading or trailing comma is common.
        let parts = text.split(',').map(str::trim_ascii).filter(|part| !part.is_empty());
        let sets: Result<Vec<Bytes>, _> =
            parts.take(VALUES_MAX + 1).map(|part| BASE64.decode(part).map(Bytes::from)).collect();
        sets.ok().filter(|sets| sets.len() <= VALUES_MAX).ok_or(BadParameter(name))
    }
}

fn base64_list<T: AsRef<[u8]>>(sets: &[T]) -> String {
    sets.iter().map(|set| BASE64.encode(set)).collect::<Vec<_>>().join(",")
}

fn hex(digits: &str) -> Option<Bytes> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?)).collect();
    bytes.filter(|bytes| rest.is_empty() && !bytes.is_empty()).map(Bytes::from)
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h264_sets_read_what_they_write() {
        let sets = [&[0x67, 0x42, 0xc0, 0x1f][..], &[0x68, 0xce, 0x38, 0x80, 0x01]];
        let parameters = Parameters::new().with_h264_sets(&sets);
        let read = Parameters::read(&parameters.to_string()).unwrap();
        assert_eq!(read.h264_sets().unwrap(), sets);
        assert_eq!(Parameters::new().h264_sets(), Ok(Vec::new()));
    }

    #[test]
    fn p_10_base64_may_lack_its_padding_but_not_its_alphabet() {
        let sets =
            |text: &str| Parameters::read(&format!("sprop-parameter-sets={text}")).unwrap().h264_sets();
        assert_eq!(sets("Z0LAHw==,aM4="), sets("Z0LAHw,aM5,"));
        assert_eq!(sets("Z0LA!w=="), Err(BadParameter("sprop-parameter-sets")));
        assert_eq!(sets("Z"), Err(BadParameter("sprop-parameter-sets")));
        assert!(sets(&"aM4=,".repeat(129)).is_err());
    }

    #[test]
    fn h265_sets_come_in_three_parameters() {
        let one = |byte| vec![Bytes::from(vec![byte, 1, 2])];
        let sets = H265Sets { vps: one(0x40), sps: one(0x42), pps: one(0x44) };
        let parameters = Parameters::new().with_h265_sets(&sets);
        assert_eq!(Parameters::read(&parameters.to_string()).unwrap().h265_sets(), Ok(sets));
    }

    #[test]
    fn aac_configs_are_hexadecimal() {
        let config = |text: &str| Parameters::read(text).unwrap().mpeg4_config();
        let aac = Some(Bytes::from_static(&[0x12, 0x10]));
        assert_eq!((config("config=1210"), config("CONFIG=\"1210\"")), (Ok(aac.clone()), Ok(aac)));
        assert_eq!((config("mode=AAC-hbr"), config("config=1")), (Ok(None), Err(BadParameter("config"))));
        assert_eq!(
            (config("config=1x"), config("config=")),
            (Err(BadParameter("config")), Err(BadParameter("config")))
        );
        let text = Parameters::new().with_mpeg4_config(&[0x11, 0x9f]).to_string();
        assert_eq!(text, "config=119F");
    }
}
