//! H.264: the AVCDecoderConfigurationRecord (ISO/IEC 14496-15 §5.3.3.1), and the sequence parameter set (ITU-T H.264
//! §7.3.2.1.1). Of the latter, only some fields are read, such as those for the picture size.

use bytes::{BufMut, Bytes, BytesMut};
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error, real_size};
use crate::nal::unescape;

/// nal_unit_type of a coded slice of an IDR picture (H.264 table 7-1).
pub const NAL_IDR: u8 = 5;
/// Lowest nal_unit_type of a slice, that of a non-IDR slice. Types 1 to 5 are slices of pictures.
const NAL_SLICE_FIRST: u8 = 1;
/// nal_unit_type of supplemental enhancement information.
pub const NAL_SEI: u8 = 6;
/// nal_unit_type of a sequence parameter set.
pub const NAL_SPS: u8 = 7;
/// nal_unit_type of a picture parameter set.
pub const NAL_PPS: u8 = 8;
/// nal_unit_type of an access unit delimiter.
pub const NAL_AUD: u8 = 9;
/// nal_unit_type of filler data.
pub const NAL_FILLER: u8 = 12;
/// An access unit delimiter that permits all slice types (primary_pic_type 7, table 7-5).
pub const AUD: [u8; 2] = [NAL_AUD, 0xf0];
/// payloadType of a recovery point (H.264 §D.1.8).
const SEI_RECOVERY_POINT: usize = 6;
/// Maximum number of bytes of one SEI that are read.
const SEI_BYTES_MAX: usize = 1024;
/// Maximum number of messages of one SEI that are read.
const SEI_MESSAGES_MAX: usize = 16;
/// Maximum number of sequence parameter sets in a record, whose count has five bits.
const SPS_MAX: usize = 31;
/// Maximum number of picture parameter sets in a record, whose count has eight bits.
const PPS_MAX: usize = 255;
/// Profiles whose SPS carries the chroma format (H.264 §7.3.2.1.1.1).
pub(super) const PROFILES_WITH_CHROMA: [u8; 13] =
    [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// profile_idc of the Baseline profiles, which have no B pictures.
const PROFILE_BASELINE: u8 = 66;
/// Value of aspect_ratio_idc that is followed by an explicit width and height.
const SAMPLE_ASPECT_EXTENDED: u32 = 255;
/// Largest max_num_reorder_frames, because the decoded picture buffer has at most 16 frames (H.264
/// §A.3.1).
const REORDER_MAX: u32 = 16;

/// A validated AVCDecoderConfigurationRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received.
    pub record: Bytes,
    /// Length of NAL length fields: 1, 2 or 4 bytes.
    pub length_size: u8,
    /// Luma width after cropping; 0 when the SPS could not be read.
    pub width: u32,
    /// Luma height after cropping; 0 when the SPS could not be read.
    pub height: u32,
}

impl Config {
    /// Parses an AVCDecoderConfigurationRecord. If the SPS is not readable, the record is still accepted, because the
    /// decoder may be able to read it. A record with invalid lengths is refused.
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

    /// Creates a record from parameter sets that were received in band. It states NAL lengths of 4 bytes.
    pub fn of_sets(sps: &[&[u8]], pps: &[&[u8]]) -> Result<Self, Error> {
        let first = sps.first().ok_or(Error::Invalid("no SPS"))?;
        let [_, profile, compatibility, level] =
            *first.first_chunk::<4>().ok_or(Truncated { at: 0, need: 4 })?;
        if sps.len() > SPS_MAX || pps.len() > PPS_MAX {
            return Err(Error::Invalid("number of parameter sets"));
        }
        let bytes = sps.iter().chain(pps).map(|set| set.len().saturating_add(2)).sum::<usize>();
        if bytes > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(bytes));
        }
        let count = |sets: &[&[u8]]| u8::try_from(sets.len()).unwrap_or(0);
        let mut out = BytesMut::with_capacity(bytes.saturating_add(16));
        out.put_slice(&[1, profile, compatibility, level, 0xff, 0xe0 | count(sps)]);
        sps.iter().for_each(|set| super::put_set(set, &mut out));
        out.put_u8(count(pps));
        pps.iter().for_each(|set| super::put_set(set, &mut out));
        if PROFILES_WITH_CHROMA.contains(&profile)
            && let Ok(sps) = Sps::read(first)
        {
            out.put_slice(&[0xfc | sps.chroma_format, 0xf8 | sps.luma_bits_above_8]);
            out.put_slice(&[0xf8 | sps.chroma_bits_above_8, 0]);
        }
        Self::read(out.freeze())
    }

    /// Iterates over the parameter sets of the record, sequence parameter sets first.
    pub fn parameter_sets(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(&self.record);
        let sps = reader.take(5).and_then(|_| reader.u8()).map_or(0, |count| count & 0x1f);
        let (mut left, mut pps_to_come) = (sps, true);
        core::iter::from_fn(move || {
            if left == 0 && core::mem::take(&mut pps_to_come) {
                left = reader.u8().ok()?;
            }
            left = left.checked_sub(1)?;
            let length = reader.u16().ok()?;
            reader.take(usize::from(length)).ok()
        })
    }
}

/// Returns nal_unit_type; 0 for an empty NAL unit.
#[must_use]
pub fn nal_type(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |head| head & 0x1f)
}

/// True if a NAL unit carries (a slice of) a picture.
#[must_use]
pub fn is_picture(nal: &[u8]) -> bool {
    (NAL_SLICE_FIRST..=NAL_IDR).contains(&nal_type(nal))
}

/// True if a NAL unit is the first slice of a picture: first_mb_in_slice is 0, coded as a single bit (§7.3.3).
#[must_use]
pub fn begins_picture(nal: &[u8]) -> bool {
    is_picture(nal) && nal.get(1).is_some_and(|byte| byte & 0x80 != 0)
}

/// True if a SEI NAL unit contains a recovery point (§D.2.8). Decoding can start at this picture.
/// The output is correct from this picture on, or from one a few pictures later.
#[must_use]
pub fn is_recovery_point(sei: &[u8]) -> bool {
    let body = sei.get(1..).unwrap_or_default();
    let rbsp = unescape(body.get(..SEI_BYTES_MAX).unwrap_or(body));
    let mut reader = Reader::new(&rbsp);
    for _ in 0..SEI_MESSAGES_MAX {
        let (Ok(kind), Ok(size)) = (sei_value(&mut reader), sei_value(&mut reader)) else { return false };
        if kind == SEI_RECOVERY_POINT && size > 0 {
            return nal_type(sei) == NAL_SEI;
        }
        if reader.take(size).is_err() {
            return false;
        }
    }
    false
}

/// Reads a payloadType or payloadSize: each leading byte 0xff adds 255 (§7.3.2.3.1).
fn sei_value(reader: &mut Reader<'_>) -> Result<usize, Truncated> {
    let mut sum = 0usize;
    loop {
        let byte = reader.u8()?;
        sum = sum.saturating_add(usize::from(byte));
        if byte != 0xff {
            return Ok(sum);
        }
    }
}

/// Returns the seq_parameter_set_id or pic_parameter_set_id. A later set with the same id replaces an earlier one.
pub fn set_id(set: &[u8]) -> Result<u32, Error> {
    let skipped = match nal_type(set) {
        NAL_SPS => 24,
        NAL_PPS => 0,
        _ => return Err(Error::Invalid("parameter set nal_unit_type")),
    };
    // The id is within the first bytes of the set, so only these are unescaped.
    let head = unescape(set.get(1..set.len().min(12)).unwrap_or_default());
    let mut bits = BitReader::new(&head);
    bits.skip(skipped)?;
    Ok(bits.ue()?)
}

/// The fields read from a sequence parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sps {
    /// chroma_format_idc.
    pub chroma_format: u8,
    /// bit_depth_luma_minus8.
    pub luma_bits_above_8: u8,
    /// bit_depth_chroma_minus8.
    pub chroma_bits_above_8: u8,
    /// frame_mbs_only_flag: no picture is coded as fields.
    pub frames_only: bool,
    /// Luma width after cropping.
    pub width: u32,
    /// Luma height after cropping.
    pub height: u32,
    /// max_num_reorder_frames: number of pictures that may precede a picture in decoding order and follow it in output
    /// order. `None` if not given; 0 for Baseline profiles.
    pub reorder: Option<u8>,
}

impl Sps {
    /// Parses a sequence parameter set NAL unit.
    pub fn read(sps: &[u8]) -> Result<Self, Error> {
        let (head, body) = sps.split_first().ok_or(Truncated { at: 0, need: 1 })?;
        if head & 0x1f != NAL_SPS {
            return Err(Error::Invalid("SPS nal_unit_type"));
        }
        let rbsp = unescape(body);
        let mut bits = BitReader::new(&rbsp);
        let profile = u8::try_from(bits.bits(8)?).unwrap_or(0);
        bits.skip(16)?;
        bits.ue()?;
        let [chroma_format, luma_bits_above_8, chroma_bits_above_8] =
            if PROFILES_WITH_CHROMA.contains(&profile) { read_chroma(&mut bits)? } else { [1, 0, 0] };
        bits.ue()?;
        skip_picture_order(&mut bits)?;
        bits.ue()?;
        bits.skip(1)?;
        let width_mbs = bits.ue()?;
        let height_map_units = bits.ue()?;
        let frames_only = bits.bit()?;
        if !frames_only {
            bits.skip(1)?;
        }
        bits.skip(1)?;
        let crop = if bits.bit()? { [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?] } else { [0; 4] };
        let size = cropped_size(width_mbs, height_map_units, frames_only, u32::from(chroma_format), crop);
        let (width, height) = size.ok_or(Error::Invalid("picture size"))?;
        let reorder = match profile {
            PROFILE_BASELINE => Some(0),
            _ => read_reorder(&mut bits).ok().flatten(),
        };
        Ok(Self {
            chroma_format,
            luma_bits_above_8,
            chroma_bits_above_8,
            frames_only,
            width,
            height,
            reorder,
        })
    }
}

/// Reads max_num_reorder_frames of the VUI parameters (H.264 §E.1.1); `None` without bitstream restrictions.
fn read_reorder(bits: &mut BitReader<'_>) -> Result<Option<u8>, Error> {
    if !bits.bit()? {
        return Ok(None);
    }
    if bits.bit()? && bits.bits(8)? == SAMPLE_ASPECT_EXTENDED {
        bits.skip(32)?;
    }
    if bits.bit()? {
        bits.skip(1)?;
    }
    if bits.bit()? {
        bits.skip(4)?;
        if bits.bit()? {
            bits.skip(24)?;
        }
    }
    if bits.bit()? {
        bits.ue()?;
        bits.ue()?;
    }
    if bits.bit()? {
        bits.skip(65)?;
    }
    let nal_hrd = bits.bit()?;
    if nal_hrd {
        skip_hrd(bits)?;
    }
    let vcl_hrd = bits.bit()?;
    if vcl_hrd {
        skip_hrd(bits)?;
    }
    if nal_hrd || vcl_hrd {
        bits.skip(1)?;
    }
    bits.skip(1)?;
    if !bits.bit()? {
        return Ok(None);
    }
    bits.skip(1)?;
    for _ in 0..4 {
        bits.ue()?;
    }
    super::small(bits.ue()?, REORDER_MAX, "max_num_reorder_frames").map(Some)
}

/// Skips hrd_parameters (H.264 §E.1.2).
fn skip_hrd(bits: &mut BitReader<'_>) -> Result<(), Error> {
    let count = super::small(bits.ue()?, 31, "cpb_cnt_minus1")?;
    bits.skip(8)?;
    for _ in 0..=count {
        bits.ue()?;
        bits.ue()?;
        bits.skip(1)?;
    }
    bits.skip(20)?;
    Ok(())
}

/// Returns width and height after cropping, from an SPS NAL unit.
pub fn picture_size(sps: &[u8]) -> Result<(u32, u32), Error> {
    Sps::read(sps).map(|sps| (sps.width, sps.height))
}

/// Reads chroma_format_idc and the bit depths, and skips the scaling matrix (H.264 §7.3.2.1.1).
pub(super) fn read_chroma(bits: &mut BitReader<'_>) -> Result<[u8; 3], Error> {
    let format = super::small(bits.ue()?, 3, "chroma_format_idc")?;
    if format == 3 {
        bits.skip(1)?;
    }
    let luma = super::small(bits.ue()?, 6, "bit_depth_luma_minus8")?;
    let chroma = super::small(bits.ue()?, 6, "bit_depth_chroma_minus8")?;
    bits.skip(1)?;
    if bits.bit()? {
        let lists = if format == 3 { 12 } else { 8 };
        for index in 0..lists {
            if bits.bit()? {
                skip_scaling_list(bits, if index < 6 { 16 } else { 64 })?;
            }
        }
    }
    Ok([format, luma, chroma])
}

/// Skips a scaling list (H.264 §7.3.2.1.1.1).
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

/// Skips pic_order_cnt_type and the fields that depend on it.
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

/// Computes the cropped size (H.264 equations 7-13 to 7-22).
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

    /// SPS of x264, 640x360, constrained baseline 3.0.
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
        // pic_order_cnt_type 1 with a cycle of 256 pictures; at most 255 are allowed.
        assert!(picture_size(&[0x67, 0x42, 0, 0, 0b1101_0111, 0xff, 0x80, 0x40, 0x40, 0]).is_err());
    }

    #[test]
    fn pictures_are_told_from_the_rest() {
        assert!(is_picture(&[0x65]) && is_picture(&[0x41]));
        assert!(!is_picture(&[0x67]) && !is_picture(&[0x06]) && !is_picture(&[]));
    }

    #[test]
    fn a_record_is_made_of_sets_and_gives_them_back() {
        const PPS: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x20];
        let config = Config::of_sets(&[SPS], &[PPS]).unwrap();
        assert_eq!(config.record, record(&[SPS], &[PPS], 4));
        assert_eq!((config.width, config.height, config.length_size), (640, 360, 4));
        assert_eq!(config.parameter_sets().collect::<Vec<_>>(), [SPS, PPS]);
        assert_eq!((set_id(SPS), set_id(PPS)), (Ok(0), Ok(0)));
        // A profile with chroma information. The record contains it after the parameter sets.
        let high = [
            0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00,
            0x01, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2d, 0x96,
        ];
        let config = Config::of_sets(&[&high], &[PPS]).unwrap();
        assert_eq!((config.width, config.height), (640, 360));
        assert!(Sps::read(&high).unwrap().frames_only);
        assert_eq!(config.record[config.record.len() - 4..], [0xfd, 0xf8, 0xf8, 0]);
        assert_eq!(config.parameter_sets().count(), 2);
        assert!(Config::of_sets(&[], &[PPS]).is_err());
        assert!(Config::of_sets(&[&[0x67]], &[]).is_err());
        assert!(Config::of_sets(&[SPS; 32], &[]).is_err());
        let huge = vec![0x67; 66_000];
        assert!(Config::of_sets(&[&huge], &[]).is_err());
    }

    #[test]
    fn slices_and_recovery_points() {
        assert!(
            begins_picture(&[0x65, 0x88]) && !begins_picture(&[0x41, 0x40]) && !begins_picture(&[0x67, 0xff])
        );
        assert!(is_recovery_point(&[6, 6, 1, 0xc4, 0x80]));
        // A recovery point after another message is found. The messages below have none, or are truncated.
        assert!(is_recovery_point(&[6, 1, 2, 7, 0xff, 6, 1, 0xc4, 0x80]));
        for none in [&[6, 5, 1, 0, 0x80][..], &[6, 6], &[6], &[], &[6, 0xff, 0xff], &[6, 1, 200, 6, 1, 0]] {
            assert!(!is_recovery_point(none), "{none:?}");
        }
    }
}
