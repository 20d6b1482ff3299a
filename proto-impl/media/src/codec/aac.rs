//! AAC: the AudioSpecificConfig (ISO/IEC 14496-3 §1.6.2.1).

use bytes::Bytes;
use wire::BitReader;

use super::{CONFIG_BYTES_MAX, Error};

/// samplingFrequencyIndex, ISO/IEC 14496-3 table 1.18.
const SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];
/// Index that announces an explicit 24-bit frequency.
const RATE_EXPLICIT: u32 = 15;
/// audioObjectType that announces an extension by 6 more bits.
const OBJECT_TYPE_ESCAPE: u32 = 31;

/// A checked AudioSpecificConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as it came.
    pub record: Bytes,
    /// audioObjectType; 2 is AAC LC.
    pub object_type: u32,
    /// Hz, before SBR.
    pub sample_rate: u32,
    /// channelConfiguration; 0 means that the bit stream tells.
    pub channel_configuration: u8,
}

impl Config {
    /// Reads an AudioSpecificConfig.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut bits = BitReader::new(&record);
        let mut object_type = bits.bits(5)?;
        if object_type == OBJECT_TYPE_ESCAPE {
            object_type = 32 + bits.bits(6)?;
        }
        if object_type == 0 {
            return Err(Error::Invalid("audioObjectType"));
        }
        let index = bits.bits(4)?;
        let sample_rate = if index == RATE_EXPLICIT {
            bits.bits(24)?
        } else {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            SAMPLE_RATES.get(index).copied().ok_or(Error::Invalid("samplingFrequencyIndex"))?
        };
        if sample_rate == 0 {
            return Err(Error::Invalid("samplingFrequency"));
        }
        let channel_configuration = u8::try_from(bits.bits(4)?).unwrap_or(0);
        Ok(Self { object_type, sample_rate, channel_configuration, record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_record() {
        let config = Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        assert_eq!((config.object_type, config.sample_rate, config.channel_configuration), (2, 48_000, 2));
        // HE-AAC with an explicit frequency.
        let config = Config::read(Bytes::from_static(&[0x2f, 0x80, 0x5d, 0xc0, 0x10])).unwrap();
        assert_eq!((config.object_type, config.sample_rate), (5, 48_000));
    }

    #[test]
    fn m_20_short_and_forbidden_records() {
        assert!(Config::read(Bytes::new()).is_err());
        assert!(Config::read(Bytes::from_static(&[0x11])).is_err());
        assert_eq!(Config::read(Bytes::from_static(&[0, 0])), Err(Error::Invalid("audioObjectType")));
        assert_eq!(
            Config::read(Bytes::from_static(&[0x16, 0x90])),
            Err(Error::Invalid("samplingFrequencyIndex"))
        );
        assert_eq!(
            Config::read(Bytes::from_static(&[0x17, 0x80, 0, 0, 0])),
            Err(Error::Invalid("samplingFrequency"))
        );
        assert_eq!(Config::read(Bytes::from(vec![0; 65_537])), Err(Error::TooLarge(65_537)));
    }
}
