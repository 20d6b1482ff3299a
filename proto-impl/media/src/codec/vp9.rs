//! VP9: the VPCodecConfigurationBox (VP Codec ISO Media File Format Binding §2.2), with the version and flags of a full
//! box before it, as in FLV. Only key frames contain the picture size.

use bytes::Bytes;
use wire::{BitReader, Reader};

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

/// Returns width and height of a key frame (VP9 bitstream §6.2); `None` for other frames and invalid ones.
#[must_use]
pub fn picture_size(frame: &[u8]) -> Option<(u32, u32)> {
    /// color_space that is not followed by a color range.
    const RGB: u32 = 7;
    let mut bits = BitReader::new(frame);
    let (marker, low, high) = (bits.bits(2).ok()?, bits.bits(1).ok()?, bits.bits(1).ok()?);
    let profile = high << 1 | low;
    let is_reserved = profile == 3 && bits.bit().ok()?;
    let (shows_existing, is_other) = (bits.bit().ok()?, bits.bit().ok()?);
    bits.skip(2).ok()?;
    if marker != 2 || is_reserved || shows_existing || is_other || bits.bits(24).ok()? != 0x49_83_42 {
        return None;
    }
    if profile >= 2 {
        bits.skip(1).ok()?;
    }
    let is_odd = profile == 1 || profile == 3;
    let colour = match bits.bits(3).ok()? {
        RGB => usize::from(is_odd),
        _ => 1 + if is_odd { 3 } else { 0 },
    };
    bits.skip(colour).ok()?;
    Some((bits.bits(16).ok()? + 1, bits.bits(16).ok()? + 1))
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
