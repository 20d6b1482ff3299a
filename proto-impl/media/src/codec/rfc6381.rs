//! Codec names for the `codecs` parameter (RFC 6381; ISO/IEC 14496-15 annex E; the bindings of AV1, VP9, Opus and FLAC
//! to ISO BMFF), as used in playlists and manifests.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use super::{CodecConfig, h265};

/// Length of the general part of an HEVCDecoderConfigurationRecord: profile, compatibility, constraints, level (ISO/IEC
/// 14496-15 §8.3.2.1).
const H265_GENERAL_BYTES: usize = 12;

impl CodecConfig {
    /// Returns the name for a `codecs` parameter of a track whose parameter sets are in its sample description. `None`
    /// for codecs that are not used in files.
    #[must_use]
    pub fn rfc6381(&self) -> Option<String> {
        Some(match self {
            Self::H264(config) => {
                let general = config.record.get(1..4)?;
                general.iter().fold("avc1.".to_owned(), |mut text, byte| {
                    let _ = write!(text, "{byte:02X}");
                    text
                })
            }
            Self::H265(config) => hevc(config)?,
            Self::Av1(config) => av1(config.profile, config.level, &config.record)?,
            Self::Vp9(config) => {
                let level = if config.level == 0 { 10 } else { config.level };
                format!("vp09.{:02}.{level:02}.{:02}", config.profile, config.bit_depth)
            }
            Self::Vp8(_) => "vp08.00.10.08".to_owned(),
            Self::Aac(config) => format!("mp4a.40.{}", config.object_type),
            Self::Mp3(_) => "mp4a.40.34".to_owned(),
            Self::Opus(_) => "opus".to_owned(),
            Self::Flac(_) => "fLaC".to_owned(),
            Self::Ac3(_) => "ac-3".to_owned(),
            Self::Eac3(_) => "ec-3".to_owned(),
            Self::G711(_) => return None,
        })
    }
}

/// Returns the name for H.265 (ISO/IEC 14496-15 §E.3).
fn hevc(config: &h265::Config) -> Option<String> {
    let general = config.record.get(1..=H265_GENERAL_BYTES)?;
    let (first, compatibility, rest) = (general.first()?, general.get(1..5)?, general.get(5..)?);
    let (constraints, level) = (rest.get(..6)?, rest.get(6)?);
    let space = ["", "A", "B", "C"].get(usize::from(first >> 6))?;
    let tier = if first & 0x20 == 0 { 'L' } else { 'H' };
    let flags = compatibility.iter().fold(0u32, |flags, byte| flags << 8 | u32::from(*byte)).reverse_bits();
    let mut text = format!("hvc1.{space}{}.{flags:X}.{tier}{level}", first & 0x1f);
    let used = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    for byte in constraints.iter().take(used) {
        let _ = write!(text, ".{byte:X}");
    }
    Some(text)
}

/// Returns the name for AV1 (AV1 codec ISO media file format binding §5).
fn av1(profile: u8, level: u8, record: &[u8]) -> Option<String> {
    let flags = record.get(2)?;
    let (tier, high, twelve) = (flags & 0x80, flags & 0x40, flags & 0x20);
    let depth = match (high, twelve) {
        (0, _) => 8,
        (_, 0) => 10,
        _ => 12,
    };
    Some(format!("av01.{profile}.{level:02}{}.{depth:02}", if tier == 0 { 'M' } else { 'H' }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Codec;
    use super::*;

    fn named(codec: Codec, record: &[u8]) -> Option<String> {
        CodecConfig::read(codec, Bytes::copy_from_slice(record)).unwrap().unwrap().rfc6381()
    }

    #[test]
    fn names_as_browsers_take_them() {
        assert_eq!(named(Codec::H264, &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]).as_deref(), Some("avc1.64001F"));
        // Main profile, level 3.1, progressive and frame only: the example of the annex with another level.
        let mut hevc = vec![1, 0x01, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93];
        hevc.extend([0xf0, 0, 0xfc, 0xfd, 0xf8, 0xf8, 0, 0, 0x0f, 0]);
        assert_eq!(named(Codec::H265, &hevc).as_deref(), Some("hvc1.1.6.L93.B0"));
        assert_eq!(named(Codec::Av1, &[0x81, 0x08, 0x0c, 0]).as_deref(), Some("av01.0.08M.08"));
        assert_eq!(named(Codec::Aac, &[0x11, 0x90]).as_deref(), Some("mp4a.40.2"));
        let vp9 = [1, 0, 0, 0, 0, 31, 0x82, 2, 2, 2, 0, 0];
        assert_eq!(named(Codec::Vp9, &vp9).as_deref(), Some("vp09.00.31.08"));
        assert_eq!(named(Codec::Ac3, &[]).as_deref(), Some("ac-3"));
    }
}
