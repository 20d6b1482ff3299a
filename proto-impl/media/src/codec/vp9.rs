//! VP9: the VPCodecConfigurationBox (VP Codec ISO Media File Format Binding §2.2), with the version and flags of a full
//! box before it, as in FLV. Only key frames contain the picture size.

use bytes::Bytes;
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error};

/// Version of the box.
const VERSION: u8 = 1;
/// Length of colour primaries, transfer characteristics and matrix coefficients.
const COLOUR_BYTES: usize = 3;

/// A validated VPCodecConfigurationBox payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received: version and flags, then the VPCodecConfigurationRecord.
    pub record: Bytes,
    /// Profile, 0 to 3.
    pub profile: u8,
    /// Ten times the level; 0 if the encoder does not state it.
    pub level: u8,
    /// Bit depth: 8, 10 or 12.
    pub bit_depth: u8,
}

impl Config {
    /// Parses the payload of a VPCodecConfigurationBox.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut reader = Reader::new(&record);
        if reader.u8()? != VERSION {
            return Err(Error::Invalid("vpcC version"));
        }
        reader.take(3)?;
        let (profile, level) = (reader.u8()?, reader.u8()?);
        let bit_depth = reader.u8()? >> 4;
        if profile > 3 {
            return Err(Error::Invalid("profile"));
        }
        if !matches!(bit_depth, 8 | 10 | 12) {
            return Err(Error::Invalid("bitDepth"));
        }
        reader.take(COLOUR_BYTES)?;
        let length = usize::from(reader.u16()?);
        reader.take(length)?;
        Ok(Self { profile, level, bit_depth, record })
    }
}

/// Marker in the upper bits of the last byte of a superframe (VP9 bitstream annex B).
const SUPERFRAME_MASK: u8 = 0xe0;
const SUPERFRAME: u8 = 0xc0;
/// Value of frame_marker.
const FRAME_MARKER: u32 = 2;
/// frame_sync_code (§6.2.1).
const SYNC_CODE: u32 = 0x49_83_42;
/// color_space that is not followed by a color range.
const RGB: u32 = 7;

/// Returns the frames of a superframe (annex B), or the frame itself. A malformed index is ignored, as decoders do.
pub fn frames(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut sizes = index(unit);
    let mut rest = Some(unit);
    core::iter::from_fn(move || {
        let Some(reader) = &mut sizes else { return rest.take() };
        let (size, left) = reader.next()?;
        let (frame, behind) = rest?.split_at_checked(size)?;
        rest = Some(behind).filter(|_| left > 0);
        Some(frame)
    })
}

/// Returns the sizes of the frames in a superframe, each with the number of frames after it.
fn index(unit: &[u8]) -> Option<impl Iterator<Item = (usize, usize)>> {
    let last = *unit.last()?;
    let size_bytes = usize::from(last >> 3 & 3) + 1;
    let count = usize::from(last & 7) + 1;
    let bytes = size_bytes * count + 2;
    let index = unit.get(unit.len().checked_sub(bytes)?..)?;
    if last & SUPERFRAME_MASK != SUPERFRAME || index.first() != Some(&last) {
        return None;
    }
    let sizes = index
        .get(1..bytes - 1)?
        .chunks(size_bytes)
        .map(|size| size.iter().rev().fold(0_usize, |size, byte| size << 8 | usize::from(*byte)));
    Some(sizes.zip((0..count).rev()))
}

/// Returns width and height of a unit that begins with a key frame: those of the picture that is shown, which in a
/// superframe is the last one. A frame that does not state its size is taken to be as large as the one before. `None` for
/// other units.
#[must_use]
pub fn picture_size(unit: &[u8]) -> Option<(u32, u32)> {
    let mut frames = frames(unit);
    let first = key_frame_size(frames.next()?).ok().flatten()?;
    let size =
        |frame| key_frame_size(frame).ok().flatten().or_else(|| inter_frame_size(frame).ok().flatten());
    Some(frames.fold(first, |known, frame| size(frame).unwrap_or(known)))
}

/// Reads the beginning of a frame (§6.2): profile, true for frames other than key frames, show_frame and
/// error_resilient_mode. `None` for a repetition of an earlier frame.
fn head(bits: &mut BitReader<'_>) -> Result<Option<(u32, bool, bool, bool)>, Truncated> {
    let (marker, low, high) = (bits.bits(2)?, bits.bits(1)?, bits.bits(1)?);
    let profile = high << 1 | low;
    let is_reserved = profile == 3 && bits.bit()?;
    if marker != FRAME_MARKER || is_reserved || bits.bit()? {
        return Ok(None);
    }
    Ok(Some((profile, bits.bit()?, bits.bit()?, bits.bit()?)))
}

fn frame_size(bits: &mut BitReader<'_>) -> Result<(u32, u32), Truncated> {
    Ok((bits.bits(16)? + 1, bits.bits(16)? + 1))
}

fn key_frame_size(frame: &[u8]) -> Result<Option<(u32, u32)>, Truncated> {
    let mut bits = BitReader::new(frame);
    let Some((profile, false, ..)) = head(&mut bits)? else { return Ok(None) };
    if bits.bits(24)? != SYNC_CODE {
        return Ok(None);
    }
    if profile >= 2 {
        bits.skip(1)?;
    }
    let is_odd = profile == 1 || profile == 3;
    let colour = match bits.bits(3)? {
        RGB => usize::from(is_odd),
        _ => 1 + if is_odd { 3 } else { 0 },
    };
    bits.skip(colour)?;
    frame_size(&mut bits).map(Some)
}

/// Reads frame_size_with_refs (§6.2.2.2) of a frame that refers to others: an upper spatial layer of a key picture. `None`
/// if the size is that of another frame.
fn inter_frame_size(frame: &[u8]) -> Result<Option<(u32, u32)>, Truncated> {
    let mut bits = BitReader::new(frame);
    let Some((profile, true, is_shown, is_resilient)) = head(&mut bits)? else { return Ok(None) };
    let is_intra = !is_shown && bits.bit()?;
    if !is_resilient {
        bits.skip(2)?;
    }
    if is_intra {
        if bits.bits(24)? != SYNC_CODE || profile > 0 {
            return Ok(None);
        }
        bits.skip(8)?;
        return frame_size(&mut bits).map(Some);
    }
    // refresh_frame_flags; ref_frame_idx and ref_frame_sign_bias of three references.
    bits.skip(8 + 3 * 4)?;
    for _ in 0..3 {
        if bits.bit()? {
            return Ok(None);
        }
    }
    frame_size(&mut bits).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_a_key_frame() {
        // Profile 0, shown; BT.601; 1280 x 720.
        let frame = [0x82, 0x49, 0x83, 0x42, 0x20, 0x4f, 0xf0, 0x2c, 0xf0];
        assert_eq!(picture_size(&frame), Some((1280, 720)));
        assert_eq!(picture_size(&frame[..8]), None);
        assert_eq!(picture_size(&[&[0x86], &frame[1..]].concat()), None, "no key frame");
        assert_eq!(picture_size(&[0; 20]), None);
    }

    /// Appends bits to a frame that begins with `first`.
    fn frame_of(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|bit| *bit != b' ').map(|bit| bit - b'0').collect();
        bits.chunks(8)
            .map(|byte| (0..8).fold(0, |all, at| all << 1 | byte.get(at).copied().unwrap_or(0)))
            .collect()
    }

    #[test]
    fn the_size_of_a_superframe_is_that_of_its_last_frame() {
        let key: &[u8] = &[0x82, 0x49, 0x83, 0x42, 0x20, 0x13, 0xf0, 0x0b, 0x30];
        assert_eq!(picture_size(key), Some((320, 180)));
        // Shown, resilient; references of which none has the size; 640 x 360.
        let size = "0000001001111111 0000000101100111";
        let upper = |found: &str| {
            frame_of(&format!(
                "10 0 0 0 1 1 1 00000001 0000 0000 0000 {found} {}",
                if found == "000" { size } else { "" }
            ))
        };
        let unit = |frames: &[&[u8]]| {
            let count = u8::try_from(frames.len()).unwrap() - 1;
            let sizes: Vec<u8> = frames.iter().map(|frame| u8::try_from(frame.len()).unwrap()).collect();
            [&frames.concat()[..], &[0xc0 | count], &sizes, &[0xc0 | count]].concat()
        };
        let layered = unit(&[key, &upper("000")]);
        assert_eq!(picture_size(&layered), Some((640, 360)));
        assert_eq!(frames(&layered).collect::<Vec<_>>(), [key, &upper("000")[..]]);
        assert_eq!(picture_size(&unit(&[key, &upper("01")])), Some((320, 180)), "as large as a frame before");
        assert_eq!(picture_size(&unit(&[key, &upper("000"), &upper("1")])), Some((640, 360)));
        let intra = frame_of(&format!("10 0 0 0 1 0 1 1 {:024b} 00000001 {size}", SYNC_CODE));
        assert_eq!(picture_size(&unit(&[key, &intra])), Some((640, 360)), "intra only");
        assert_eq!(picture_size(&unit(&[&upper("000")])), None, "no key frame");
        // An index that does not fit is data; frames beyond the data are none.
        let long = [key, &[0xc1, 200, 1, 0xc1]].concat();
        assert_eq!(frames(&long).count(), 0);
        assert_eq!(picture_size(&long), None);
        assert_eq!(picture_size(&[0xc1; 3]), None);
        (0..layered.len())
            .for_each(|end| drop(frames(&layered[..end]).map(picture_size).collect::<Vec<_>>()));
    }

    /// Record of libvpx, written by ffmpeg.
    const RECORD: &[u8] = &[1, 0, 0, 0, 0, 0x0b, 0x82, 2, 2, 2, 0, 0];

    #[test]
    fn the_record_of_ffmpeg() {
        let config = Config::read(Bytes::from_static(RECORD)).unwrap();
        assert_eq!((config.profile, config.level, config.bit_depth), (0, 11, 8));
    }

    #[test]
    fn m_20_lying_records_are_refused() {
        for end in 0..RECORD.len() {
            assert!(Config::read(Bytes::from_static(&RECORD[..end])).is_err(), "cut at {end}");
        }
        let with = |at: usize, byte: u8| {
            let mut record = RECORD.to_vec();
            record[at] = byte;
            Config::read(record.into())
        };
        assert_eq!(with(0, 0), Err(Error::Invalid("vpcC version")));
        assert_eq!(with(4, 4), Err(Error::Invalid("profile")));
        assert_eq!(with(6, 0x92), Err(Error::Invalid("bitDepth")));
        assert!(with(11, 1).is_err());
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }
}
