//! H.264: the AVCDecoderConfigurationRecord (ISO/IEC 14496-15 §5.3.3.1) and the head of the sequence parameter set
//! (ITU-T H.264 §7.3.2.1.1), as far as the picture size needs it.

use bytes::Bytes;
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error, real_size};
use crate::nal::unescape;

/// nal_unit_type of a coded slice of an IDR picture (H.264 table 7-1).
const NAL_IDR: u8 = 5;
/// nal_unit_type of the first non-IDR slice kind; 1 to 5 carry pictures.
const NAL_SLICE_FIRST: u8 = 1;
/// nal_unit_type of a sequence parameter set.
const NAL_SPS: u8 = 7;
/// Profiles whose SPS carries the chroma format (H.264 §7.3.2.1.1.1).
const PROFILES_WITH_CHROMA: [u8; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// A checked AVCDecoderConfigurationRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as it came.
    pub record: Bytes,
    /// Bytes of a NAL length: 1, 2 or 4.
    pub length_size: u8,
    /// Luma width after cropping; 0 when the SPS could not be read.
    pub width: u32,
    /// Luma height after cropping; 0 when the SPS could not be read.
    pub height: u32,
}

impl Config {
    /// Reads an AVCDecoderConfigurationRecord. A record without a readable SPS is taken (the decoder may know
    /// better), one whose lengths lie is not.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut reader = Reader::new(&record);
        if reader.u8()? != 1 {
            return Err(Error::Invalid("configurationVersion"));
        }
        reader.take(3)?;
        let length_size = (reader.u8()? & 3) + 1;
        if length_size == 3 {
            return Err(Error::Invalid("lengthSizeMinusOne"));
        }
        let sps_count = reader.u8()? & 0x1f;
        let mut size = None;
        for _ in 0..sps_count {
            let length = usize::from(reader.u16()?);
            let sps = reader.take(length)?;
            size = size.or_else(|| picture_size(sps).ok());
        }
        let pps_count = reader.u8()?;
        for _ in 0..pps_count {
            let length = usize::from(reader.u16()?);
            reader.take(length)?;
        }
        let (width, height) = size.unwrap_or((0, 0));
        Ok(Self { length_size, width, height, record })
    }
}

/// Whether a NAL unit carries (a slice of) a picture.
#[must_use]
pub fn is_picture(nal: &[u8]) -> bool {
    nal.first().is_some_and(|head| (NAL_SLICE_FIRST..=NAL_IDR).contains(&(head & 0x1f)))
}

/// Width and height after cropping, out of an SPS NAL unit.
pub fn picture_size(sps: &[u8]) -> Result<(u32, u32), Error> {
    let (head, body) = sps.split_first().ok_or(Truncated { at: 0, need: 1 })?;
    if head & 0x1f != NAL_SPS {
        return Err(Error::Invalid("SPS nal_unit_type"));
    }
    let rbsp = unescape(body);
    let mut bits = BitReader::new(&rbsp);
    let profile = u8::try_from(bits.bits(8)?).unwrap_or(0);
    bits.skip(16)?;
    bits.ue()?;
    let chroma_format = if PROFILES_WITH_CHROMA.contains(&profile) { read_chroma(&mut bits)? } else { 1 };
    bits.ue()?;
    skip_picture_order(&mut bits)?;
    bits.ue()?;
    bits.skip(1)?;
    let width_mbs = bits.ue()?;
    let height_map_units = bits.ue()?;
    let frame_mbs_only = bits.bit()?;
    if !frame_mbs_only {
        bits.skip(1)?;
    }
    bits.skip(1)?;
    let crop = if bits.bit()? { [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?] } else { [0; 4] };
    cropped_size(width_mbs, height_map_units, frame_mbs_only, chroma_format, crop)
        .ok_or(Error::Invalid("picture size"))
}

/// chroma_format_idc up to the scaling matrix (H.264 §7.3.2.1.1).
fn read_chroma(bits: &mut BitReader<'_>) -> Result<u32, Error> {
    let format = bits.ue()?;
    if format > 3 {
        return Err(Error::Invalid("chroma_format_idc"));
    }
    if format == 3 {
        bits.skip(1)?;
    }
    bits.ue()?;
    bits.ue()?;
    bits.skip(1)?;
    if bits.bit()? {
        let lists = if format == 3 { 12 } else { 8 };
        for index in 0..lists {
            if bits.bit()? {
                skip_scaling_list(bits, if index < 6 { 16 } else { 64 })?;
            }
        }
    }
    Ok(format)
}

/// H.264 §7.3.2.1.1.1.
fn skip_scaling_list(bits: &mut BitReader<'_>, size: u32) -> Result<(), Error> {
    let (mut last, mut next) = (8i32, 8i32);
    for _ in 0..size {
        if next != 0 {
            next = last.wrapping_add(bits.se()?) & 0xff;
        }
        last = if next == 0 { last } else { next };
    }
    Ok(())
}

/// pic_order_cnt_type and what hangs on it.
fn skip_picture_order(bits: &mut BitReader<'_>) -> Result<(), Error> {
    match bits.ue()? {
        0 => {
            bits.ue()?;
        }
        1 => {
            bits.skip(1)?;
            bits.se()?;
            bits.se()?;
            let cycle = bits.ue()?;
            if cycle > 255 {
                return Err(Error::Invalid("num_ref_frames_in_pic_order_cnt_cycle"));
            }
            for _ in 0..cycle {
                bits.se()?;
            }
        }
        2 => {}
        _ => return Err(Error::Invalid("pic_order_cnt_type")),
    }
    Ok(())
}

/// H.264 equations 7-13 to 7-22.
fn cropped_size(
    width_mbs: u32,
    map_units: u32,
    frames_only: bool,
    chroma: u32,
    crop: [u32; 4],
) -> Option<(u32, u32)> {
    let fields = if frames_only { 1 } else { 2 };
    let width = width_mbs.checked_add(1)?.checked_mul(16)?;
    let height = map_units.checked_add(1)?.checked_mul(16)?.checked_mul(fields)?;
    let unit_x = if matches!(chroma, 1 | 2) { 2 } else { 1 };
    let unit_y = if chroma == 1 { 2 } else { 1 } * fields;
    let [left, right, top, bottom] = crop;
    let width = width.checked_sub(left.checked_add(right)?.checked_mul(unit_x)?)?;
    let height = height.checked_sub(top.checked_add(bottom)?.checked_mul(unit_y)?)?;
    real_size(width, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x264, 640x360, constrained baseline 3.0.
    const SPS: &[u8] = &[
        0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00,
        0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48,
    ];

    fn record(sps: &[&[u8]], pps: &[&[u8]], length_size: u8) -> Bytes {
        let mut out =
            vec![1, 0x42, 0xc0, 0x1e, 0xfc | (length_size - 1), 0xe0 | u8::try_from(sps.len()).unwrap()];
        for (index, set) in sps.iter().chain(pps).enumerate() {
            if index == sps.len() {
                out.push(u8::try_from(pps.len()).unwrap());
            }
            out.extend_from_slice(&u16::try_from(set.len()).unwrap().to_be_bytes());
            out.extend_from_slice(set);
        }
        if pps.is_empty() {
            out.push(0);
        }
        out.into()
    }

    #[test]
    fn the_size_is_read_behind_the_cropping() {
        let config = Config::read(record(&[SPS], &[&[0x68, 0xcb, 0x83, 0xcb, 0x20]], 4)).unwrap();
        assert_eq!((config.width, config.height, config.length_size), (640, 360, 4));
    }

    #[test]
    fn m_20_lying_records_are_refused() {
        assert!(Config::read(Bytes::new()).is_err());
        let good = record(&[SPS], &[&[0x68]], 4);
        for end in 0..good.len() {
            assert!(Config::read(good.slice(..end)).is_err(), "cut at {end}");
        }
        assert_eq!(Config::read(record(&[SPS], &[], 3)), Err(Error::Invalid("lengthSizeMinusOne")));
        let mut many = good.to_vec();
        many[5] = 0xff;
        assert!(Config::read(many.into()).is_err());
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }

    #[test]
    fn m_20_monstrous_sizes_are_no_size() {
        assert!(picture_size(&[0x67, 0x42, 0, 0, 0, 0, 0, 0]).is_err());
        assert_eq!(cropped_size(u32::MAX, 0, true, 1, [0; 4]), None);
        assert_eq!(cropped_size(65_534, 65_534, true, 1, [0; 4]), None);
        assert_eq!(cropped_size(39, 22, true, 1, [400, 0, 0, 0]), None);
        // pic_order_cnt_type 1 with a cycle of 256.
        assert!(picture_size(&[0x67, 0x42, 0, 0, 0b1101_0111, 0xff, 0x80, 0x40, 0x40, 0]).is_err());
    }

    #[test]
    fn pictures_are_told_from_the_rest() {
        assert!(is_picture(&[0x65]) && is_picture(&[0x41]));
        assert!(!is_picture(&[0x67]) && !is_picture(&[0x06]) && !is_picture(&[]));
    }
}
