//! H.265: the HEVCDecoderConfigurationRecord (ISO/IEC 14496-15 §8.3.3.1) and the head of the sequence parameter set
//! (ITU-T H.265 §7.3.2.2.1), as far as the picture size needs it.

use bytes::Bytes;
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error, real_size};
use crate::nal::unescape;

/// Bytes of the record before lengthSizeMinusOne: profile, tier, level and formats, which decoders read themselves.
const GENERAL_BYTES: usize = 20;
/// nal_unit_type of a sequence parameter set (H.265 table 7-1).
const NAL_SPS: u8 = 33;
/// First nal_unit_type that carries no slice.
const NAL_VPS: u8 = 32;
/// Bits of a profile, without its level (§7.3.3).
const PROFILE_BITS: usize = 88;
/// Bits of a level.
const LEVEL_BITS: usize = 8;
/// Most sub-layers that a stream may have, minus one (§7.4.3.2.1).
const SUB_LAYERS_MINUS1_MAX: u32 = 6;

/// A checked HEVCDecoderConfigurationRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as it came.
    pub record: Bytes,
    /// Bytes of a NAL length: 1, 2 or 4.
    pub length_size: u8,
    /// Luma size inside of the conformance window, when an SPS could be read.
    pub size: Option<(u32, u32)>,
}

impl Config {
    /// Reads an HEVCDecoderConfigurationRecord. A record without a readable SPS is taken (it may come in-band), one
    /// whose lengths lie is not.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut reader = Reader::new(&record);
        if reader.u8()? != 1 {
            return Err(Error::Invalid("configurationVersion"));
        }
        reader.take(GENERAL_BYTES)?;
        let length_size = (reader.u8()? & 3) + 1;
        if length_size == 3 {
            return Err(Error::Invalid("lengthSizeMinusOne"));
        }
        let mut size = None;
        let arrays = reader.u8()?;
        for _ in 0..arrays {
            reader.u8()?;
            let nals = reader.u16()?;
            for _ in 0..nals {
                let length = usize::from(reader.u16()?);
                let nal = reader.take(length)?;
                size = size.or_else(|| picture_size(nal).ok());
            }
        }
        Ok(Self { length_size, size, record })
    }
}

/// nal_unit_type (§7.3.1.2).
fn nal_type(nal: &[u8]) -> Option<u8> {
    nal.first().map(|head| (head >> 1) & 0x3f)
}

/// Whether a NAL unit carries (a slice segment of) a picture.
#[must_use]
pub fn is_picture(nal: &[u8]) -> bool {
    nal_type(nal).is_some_and(|kind| kind < NAL_VPS)
}

/// Width and height inside of the conformance window, out of an SPS NAL unit.
pub fn picture_size(sps: &[u8]) -> Result<(u32, u32), Error> {
    let (head, body) = sps.split_at_checked(2).ok_or(Truncated { at: 0, need: 2 })?;
    if nal_type(head) != Some(NAL_SPS) {
        return Err(Error::Invalid("SPS nal_unit_type"));
    }
    let rbsp = unescape(body);
    let mut bits = BitReader::new(&rbsp);
    bits.skip(4)?;
    let sub_layers_minus1 = bits.bits(3)?;
    if sub_layers_minus1 > SUB_LAYERS_MINUS1_MAX {
        return Err(Error::Invalid("sps_max_sub_layers_minus1"));
    }
    bits.skip(1)?;
    skip_profile_tier_level(&mut bits, sub_layers_minus1)?;
    bits.ue()?;
    let chroma = bits.ue()?;
    if chroma > 3 {
        return Err(Error::Invalid("chroma_format_idc"));
    }
    if chroma == 3 {
        bits.skip(1)?;
    }
    let (width, height) = (bits.ue()?, bits.ue()?);
    let window = if bits.bit()? { [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?] } else { [0; 4] };
    windowed_size(width, height, chroma, window).ok_or(Error::Invalid("picture size"))
}

/// profile_tier_level( 1, sub_layers_minus1 ) of §7.3.3.
fn skip_profile_tier_level(bits: &mut BitReader<'_>, sub_layers_minus1: u32) -> Result<(), Error> {
    bits.skip(PROFILE_BITS + LEVEL_BITS)?;
    let mut skip = 0;
    for _ in 0..sub_layers_minus1 {
        skip += if bits.bit()? { PROFILE_BITS } else { 0 };
        skip += if bits.bit()? { LEVEL_BITS } else { 0 };
    }
    if sub_layers_minus1 > 0 {
        // reserved_zero_2bits pad the flags to eight sub-layers.
        for _ in sub_layers_minus1..8 {
            bits.skip(2)?;
        }
    }
    Ok(bits.skip(skip)?)
}

/// §7.4.3.2.1: the conformance window counts chroma samples (table 6-1).
fn windowed_size(width: u32, height: u32, chroma: u32, window: [u32; 4]) -> Option<(u32, u32)> {
    let unit_x = if matches!(chroma, 1 | 2) { 2 } else { 1 };
    let unit_y = if chroma == 1 { 2 } else { 1 };
    let [left, right, top, bottom] = window;
    let width = width.checked_sub(left.checked_add(right)?.checked_mul(unit_x)?)?;
    let height = height.checked_sub(top.checked_add(bottom)?.checked_mul(unit_y)?)?;
    real_size(width, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x265, 320x180 (coded as 320x184).
    const SPS: &[u8] = &[
        0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00,
        0x3c, 0xa0, 0x0a, 0x08, 0x0c, 0x1f, 0x3e, 0x59, 0x59, 0x12, 0x93, 0x0b, 0xc0, 0x5a, 0x02, 0x00, 0x00,
        0x03, 0x00, 0x02, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x10,
    ];
    const PPS: &[u8] = &[0x44, 0x01, 0xc0, 0x73, 0xc1, 0x89];

    fn record(length_size: u8, nals: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![1];
        out.extend_from_slice(&[0; GENERAL_BYTES]);
        out.push(0x0c | (length_size - 1));
        out.push(u8::try_from(nals.len()).unwrap());
        for nal in nals {
            out.extend_from_slice(&[nal[0] >> 1, 0, 1]);
            out.extend_from_slice(&u16::try_from(nal.len()).unwrap().to_be_bytes());
            out.extend_from_slice(nal);
        }
        out
    }

    #[test]
    fn the_size_is_that_of_the_conformance_window() {
        let config = Config::read(record(4, &[SPS, PPS]).into()).unwrap();
        assert_eq!((config.length_size, config.size), (4, Some((320, 180))));
        assert_eq!(Config::read(record(2, &[PPS]).into()).unwrap().size, None);
    }

    #[test]
    fn m_20_lying_records_are_refused() {
        let good = record(4, &[SPS, PPS]);
        for end in 0..good.len() {
            assert!(Config::read(Bytes::copy_from_slice(&good[..end])).is_err(), "cut at {end}");
        }
        assert_eq!(Config::read(record(3, &[SPS]).into()), Err(Error::Invalid("lengthSizeMinusOne")));
        let mut version = good.clone();
        version[0] = 2;
        assert_eq!(Config::read(version.into()), Err(Error::Invalid("configurationVersion")));
        let mut many = good;
        many[22] = 0xff;
        assert!(Config::read(many.into()).is_err());
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }

    #[test]
    fn m_20_a_cut_or_monstrous_sps_has_no_size() {
        for end in 0..24 {
            assert!(picture_size(&SPS[..end]).is_err(), "cut at {end}");
        }
        let mut layers = SPS.to_vec();
        layers[2] |= 0x0e;
        assert_eq!(picture_size(&layers), Err(Error::Invalid("sps_max_sub_layers_minus1")));
        assert_eq!(windowed_size(65_535, 65_535, 1, [0; 4]), None);
        assert_eq!(windowed_size(320, 184, 1, [160, 0, 0, 0]), None);
        assert_eq!(windowed_size(320, 184, 1, [u32::MAX; 4]), None);
        assert_eq!(windowed_size(0, 184, 1, [0; 4]), None);
    }

    #[test]
    fn pictures_are_told_from_the_rest() {
        // TRAIL_R, IDR_W_RADL, CRA_NUT, SPS, SEI.
        let of = |kind: u8| [kind << 1, 1];
        assert!(is_picture(&of(1)) && is_picture(&of(19)) && is_picture(&of(21)));
        assert!(!is_picture(&of(33)) && !is_picture(&of(39)) && !is_picture(&[]));
    }
}
