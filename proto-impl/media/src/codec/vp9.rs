//! VP9: the VPCodecConfigurationBox (VP Codec ISO Media File Format Binding §2.2), with the version and flags of a
//! full box before it, as FLV carries it. The picture size is in the key frames only.

use bytes::Bytes;
use wire::Reader;

use super::{CONFIG_BYTES_MAX, Error};

/// The version of the box.
const VERSION: u8 = 1;
/// Colour primaries, transfer characteristics and matrix coefficients.
const COLOUR_BYTES: usize = 3;

/// A checked VPCodecConfigurationBox payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as it came: version and flags, then the VPCodecConfigurationRecord.
    pub record: Bytes,
    /// 0 to 3.
    pub profile: u8,
    /// Ten times the level; 0 when the encoder does not know.
    pub level: u8,
    /// 8, 10 or 12.
    pub bit_depth: u8,
}

impl Config {
    /// Reads the payload of a VPCodecConfigurationBox.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// libvpx through ffmpeg.
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
