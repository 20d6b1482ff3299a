//! H.265: the HEVCDecoderConfigurationRecord (ISO/IEC 14496-15 §8.3.3.1), and the sequence parameter set (ITU-T H.265
//! §7.3.2.2.1). Of the latter, only some fields are read, such as those for the picture size.

use bytes::{BufMut, Bytes, BytesMut};
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error, real_size};
use crate::nal::unescape;

/// Number of bytes of the record before lengthSizeMinusOne: profile, tier, level and formats. Only decoders need them.
const GENERAL_BYTES: usize = 20;
/// nal_unit_type of a video parameter set (H.265 table 7-1), the first type that carries no slice.
pub const NAL_VPS: u8 = 32;
/// nal_unit_type of a sequence parameter set.
pub const NAL_SPS: u8 = 33;
/// nal_unit_type of a picture parameter set.
pub const NAL_PPS: u8 = 34;
/// nal_unit_type of an access unit delimiter.
pub const NAL_AUD: u8 = 35;
/// nal_unit_type of filler data.
pub const NAL_FILLER: u8 = 38;
/// nal_unit_type of supplemental enhancement information before a picture.
pub const NAL_SEI: u8 = 39;
/// An access unit delimiter that permits all slice types (pic_type 2, table 7-2).
pub const AUD: [u8; 3] = [NAL_AUD << 1, 1, 0x50];
/// nal_unit_types of pictures at which decoding can start (IRAP, §7.4.2.2).
const NAL_IRAP: core::ops::RangeInclusive<u8> = 16..=23;
/// Length of profile, tier and level, as in an SPS and in the record.
const PROFILE_BYTES: usize = 12;
/// Maximum number of NAL units in one array of a record.
const SETS_MAX: usize = 64;
/// Number of bits of a profile, without its level (§7.3.3).
const PROFILE_BITS: usize = 88;
/// Number of bits of a level.
const LEVEL_BITS: usize = 8;
/// Maximum number of sub-layers of a stream, minus one (§7.4.3.2.1).
const SUB_LAYERS_MINUS1_MAX: u32 = 6;

/// Upper bound of sps_max_num_reorder_pics: the size of the decoded picture buffer (H.265 §A.4.2).
const REORDER_MAX: u32 = 16;

/// A validated HEVCDecoderConfigurationRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received.
    pub record: Bytes,
    /// Length of NAL length fields: 1, 2 or 4 bytes.
    pub length_size: u8,
    /// Luma size within the conformance window; `None` if no SPS could be read.
    pub size: Option<(u32, u32)>,
}

impl Config {
    /// Parses an HEVCDecoderConfigurationRecord. If the SPS is not readable, the record is still accepted, because the
    /// SPS may come in band. A record with invalid lengths is refused.
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

    /// Creates a record from parameter sets that were received in band. It states NAL lengths of 4 bytes.
    pub fn of_sets(vps: &[&[u8]], sps: &[&[u8]], pps: &[&[u8]]) -> Result<Self, Error> {
        let first = Sps::read(sps.first().ok_or(Error::Invalid("no SPS"))?)?;
        let arrays = [(NAL_VPS, vps), (NAL_SPS, sps), (NAL_PPS, pps)];
        if arrays.iter().any(|(_, sets)| sets.len() > SETS_MAX) {
            return Err(Error::Invalid("number of parameter sets"));
        }
        let bytes = arrays.iter().flat_map(|(_, sets)| *sets).map(|set| set.len().saturating_add(2)).sum();
        if bytes > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(bytes));
        }
        let mut out = BytesMut::with_capacity(bytes.saturating_add(48));
        out.put_u8(1);
        out.put_slice(&first.profile);
        // min_spatial_segmentation_idc and parallelismType: unknown.
        out.put_slice(&[0xf0, 0, 0xfc]);
        out.put_slice(&[0xfc | first.chroma_format, 0xf8 | first.luma_bits_above_8]);
        out.put_slice(&[0xf8 | first.chroma_bits_above_8, 0, 0]);
        // constantFrameRate (unknown), numTemporalLayers, temporalIdNested, lengthSizeMinusOne.
        let layers = first.sub_layers_minus1.saturating_add(1);
        out.put_u8(layers << 3 | u8::from(first.temporal_id_nesting) << 2 | 3);
        let present = arrays.iter().filter(|(_, sets)| !sets.is_empty());
        out.put_u8(u8::try_from(present.clone().count()).unwrap_or(0));
        for (kind, sets) in present {
            // array_completeness: there are no further parameter sets in band.
            out.put_u8(0x80 | kind);
            out.put_u16(u16::try_from(sets.len()).unwrap_or(0));
            sets.iter().for_each(|set| super::put_set(set, &mut out));
        }
        Self::read(out.freeze())
    }

    /// Iterates over the NAL units of the record in order: VPS, SPS, PPS, possibly SEI.
    pub fn parameter_sets(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(&self.record);
        let mut arrays = reader.take(GENERAL_BYTES + 2).and_then(|_| reader.u8()).unwrap_or(0);
        let mut left = 0;
        core::iter::from_fn(move || {
            while left == 0 {
                arrays = arrays.checked_sub(1)?;
                reader.u8().ok()?;
                left = reader.u16().ok()?;
            }
            left -= 1;
            let length = reader.u16().ok()?;
            reader.take(usize::from(length)).ok()
        })
    }
}

/// Returns nal_unit_type (§7.3.1.2).
#[must_use]
pub fn nal_type(nal: &[u8]) -> Option<u8> {
    nal.first().map(|head| (head >> 1) & 0x3f)
}

/// True if a NAL unit carries (a slice segment of) a picture.
#[must_use]
pub fn is_picture(nal: &[u8]) -> bool {
    nal_type(nal).is_some_and(|kind| kind < NAL_VPS)
}

/// True if decoding can start with the picture of a NAL unit: IDR, BLA or CRA.
#[must_use]
pub fn is_key(nal: &[u8]) -> bool {
    nal_type(nal).is_some_and(|kind| NAL_IRAP.contains(&kind))
}

/// True if a NAL unit is the first slice segment of a picture (first_slice_segment_in_pic_flag, §7.3.6.1).
#[must_use]
pub fn begins_picture(nal: &[u8]) -> bool {
    is_picture(nal) && nal.get(2).is_some_and(|byte| byte & 0x80 != 0)
}

/// Returns the id of a VPS, SPS or PPS. A later set with the same id replaces an earlier one.
pub fn set_id(set: &[u8]) -> Result<u32, Error> {
    match nal_type(set) {
        Some(NAL_VPS) => set.get(2).map(|byte| u32::from(byte >> 4)).ok_or_else(short),
        Some(NAL_SPS) => Sps::read(set).map(|sps| sps.id),
        Some(NAL_PPS) => Ok(BitReader::new(set.get(2..).ok_or_else(short)?).ue()?),
        _ => Err(Error::Invalid("parameter set nal_unit_type")),
    }
}

const fn short() -> Error {
    Error::Truncated(Truncated { at: 2, need: 1 })
}

/// The fields read from a sequence parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sps {
    /// sps_seq_parameter_set_id.
    pub id: u32,
    /// Fields from general_profile_space to general_level_idc.
    pub profile: [u8; PROFILE_BYTES],
    /// sps_max_sub_layers_minus1.
    pub sub_layers_minus1: u8,
    /// sps_temporal_id_nesting_flag.
    pub temporal_id_nesting: bool,
    /// chroma_format_idc.
    pub chroma_format: u8,
    /// bit_depth_luma_minus8.
    pub luma_bits_above_8: u8,
    /// bit_depth_chroma_minus8.
    pub chroma_bits_above_8: u8,
    /// Luma size within the conformance window.
    pub size: (u32, u32),
    /// sps_max_num_reorder_pics of the highest sub-layer: number of pictures that may precede a picture in decoding
    /// order and follow it in output order. `None` if it could not be read.
    pub reorder: Option<u8>,
}

impl Sps {
    /// Parses a sequence parameter set NAL unit.
    pub fn read(sps: &[u8]) -> Result<Self, Error> {
        let (head, body) = sps.split_at_checked(2).ok_or(Truncated { at: 0, need: 2 })?;
        if nal_type(head) != Some(NAL_SPS) {
            return Err(Error::Invalid("SPS nal_unit_type"));
        }
        let rbsp = unescape(body);
        let profile = *rbsp.get(1..).unwrap_or_default().first_chunk().ok_or_else(short)?;
        let mut bits = BitReader::new(&rbsp);
        bits.skip(4)?;
        let sub_layers_minus1 = bits.bits(3)?;
        if sub_layers_minus1 > SUB_LAYERS_MINUS1_MAX {
            return Err(Error::Invalid("sps_max_sub_layers_minus1"));
        }
        let temporal_id_nesting = bits.bit()?;
        skip_profile_tier_level(&mut bits, sub_layers_minus1)?;
        let id = bits.ue()?;
        let chroma_format = super::small(bits.ue()?, 3, "chroma_format_idc")?;
        if chroma_format == 3 {
            bits.skip(1)?;
        }
        let (width, height) = (bits.ue()?, bits.ue()?);
        let window = if bits.bit()? { [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?] } else { [0; 4] };
        let size = windowed_size(width, height, u32::from(chroma_format), window);
        Ok(Self {
            id,
            profile,
            sub_layers_minus1: super::small(sub_layers_minus1, SUB_LAYERS_MINUS1_MAX, "sub-layers")?,
            temporal_id_nesting,
            chroma_format,
            luma_bits_above_8: super::small(bits.ue()?, 8, "bit_depth_luma_minus8")?,
            chroma_bits_above_8: super::small(bits.ue()?, 8, "bit_depth_chroma_minus8")?,
            size: size.ok_or(Error::Invalid("picture size"))?,
            reorder: read_reorder(&mut bits, sub_layers_minus1).ok(),
        })
    }
}

/// Reads sps_max_num_reorder_pics of the highest sub-layer (H.265 §7.3.2.2.1).
fn read_reorder(bits: &mut BitReader<'_>, sub_layers_minus1: u32) -> Result<u8, Error> {
    bits.ue()?;
    // The values are present for all sub-layers, or only for the highest one.
    let first = if bits.bit()? { 0 } else { sub_layers_minus1 };
    let mut reorder = 0;
    for _ in first..=sub_layers_minus1 {
        bits.ue()?;
        reorder = bits.ue()?;
        bits.ue()?;
    }
    super::small(reorder, REORDER_MAX, "sps_max_num_reorder_pics")
}

/// Returns width and height within the conformance window, from an SPS NAL unit.
pub fn picture_size(sps: &[u8]) -> Result<(u32, u32), Error> {
    Sps::read(sps).map(|sps| sps.size)
}

/// Skips profile_tier_level( 1, sub_layers_minus1 ) (§7.3.3).
pub(super) fn skip_profile_tier_level(bits: &mut BitReader<'_>, sub_layers_minus1: u32) -> Result<(), Error> {
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

/// Computes the size within the conformance window, whose offsets count chroma samples (§7.4.3.2.1, table 6-1).
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

    /// SPS of x265, 320x180 (coded as 320x184).
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
        // The nal_unit_types below, in order: TRAIL_R, IDR_W_RADL, CRA_NUT, SPS, SEI.
        let of = |kind: u8| [kind << 1, 1];
        assert!(is_picture(&of(1)) && is_picture(&of(19)) && is_picture(&of(21)));
        assert!(!is_picture(&of(33)) && !is_picture(&of(39)) && !is_picture(&[]));
    }

    #[test]
    fn a_record_is_made_of_sets_and_gives_them_back() {
        const VPS: &[u8] = &[0x40, 0x01, 0x0c, 0x01, 0xff];
        let config = Config::of_sets(&[VPS], &[SPS], &[PPS]).unwrap();
        assert_eq!((config.length_size, config.size), (4, Some((320, 180))));
        assert_eq!(config.parameter_sets().collect::<Vec<_>>(), [VPS, SPS, PPS]);
        assert_eq!(config.record[1..13], [1, 0x60, 0, 0, 0, 0x90, 0, 0, 0, 0, 0, 0x3c]);
        assert_eq!(config.record[16..22], [0xfd, 0xf8, 0xf8, 0, 0, 0x0f]);
        assert_eq!((set_id(VPS), set_id(SPS), set_id(PPS)), (Ok(0), Ok(0), Ok(0)));
        assert!(Config::of_sets(&[VPS], &[], &[PPS]).is_err());
        assert!(Config::of_sets(&[VPS; 65], &[SPS], &[PPS]).is_err());
        assert!(is_key(&[21 << 1, 1]) && !is_key(&[1 << 1, 1]));
        assert!(begins_picture(&[38, 1, 0xaf]) && !begins_picture(&[38, 1, 0x2f]));
    }
}
