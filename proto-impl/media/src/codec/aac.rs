//! AAC: the AudioSpecificConfig (ISO/IEC 14496-3 §1.6.2.1), and ADTS (§1.A.3.2), which repeats the configuration in
//! each frame.

use bytes::Bytes;
use wire::{BitReader, Reader};

use super::{CONFIG_BYTES_MAX, Error};

/// Sample rates in Hz by samplingFrequencyIndex (ISO/IEC 14496-3 table 1.18).
const SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];
/// Index that announces an explicit 24-bit frequency.
const RATE_EXPLICIT: u32 = 15;
/// audioObjectType that announces an extended type in 6 more bits.
const OBJECT_TYPE_ESCAPE: u32 = 31;

/// A validated AudioSpecificConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received.
    pub record: Bytes,
    /// audioObjectType; 2 is AAC LC.
    pub object_type: u32,
    /// Sample rate in Hz, before SBR.
    pub sample_rate: u32,
    /// channelConfiguration; 0 means that the bit stream defines the channels.
    pub channel_configuration: u8,
}

impl Config {
    /// Parses an AudioSpecificConfig.
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

/// Syncword of ADTS and the bits around it: twelve ones, ID, layer 0.
const ADTS_SYNC: u16 = 0xfff0;
/// Length of an ADTS header without its CRC.
pub const ADTS_BYTES: usize = 7;
/// Length of the optional CRC.
const ADTS_CRC_BYTES: usize = 2;
/// adts_buffer_fullness that denotes a variable bit rate.
const ADTS_FULLNESS: u32 = 0x7ff;
/// Samples per frame, before SBR.
pub const FRAME_SAMPLES: u32 = 1024;
/// audioObjectType of AAC LC. Of the types that ADTS supports (1 to 4), encoders only use this one.
const OBJECT_TYPE_LC: u32 = 2;
/// Object types of HE-AAC (SBR, and PS). Its core is AAC LC.
const OBJECT_TYPES_HE: [u32; 2] = [5, 29];

/// The header of an ADTS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adts {
    /// audioObjectType, 1 to 4.
    pub object_type: u8,
    /// samplingFrequencyIndex.
    pub rate_index: u8,
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// channel_configuration; 0 means that the frame defines the channels.
    pub channel_configuration: u8,
    /// Length of the header, including its CRC.
    pub header_bytes: usize,
    /// Length of the whole frame.
    pub frame_bytes: usize,
    /// number_of_raw_data_blocks_in_frame, counted from 1.
    pub blocks: u8,
}

impl Adts {
    /// Parses the header at the start of `frame`.
    pub fn read(frame: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(frame);
        let sync = reader.u16()?;
        // ID may be 0 (MPEG-4) or 1 (MPEG-2).
        if sync & 0xfff6 != ADTS_SYNC {
            return Err(Error::Invalid("ADTS syncword"));
        }
        let header_bytes = if sync & 1 == 0 { ADTS_BYTES + ADTS_CRC_BYTES } else { ADTS_BYTES };
        let mut bits = BitReader::new(reader.take(ADTS_BYTES - 2)?);
        let object_type = super::small(bits.bits(2)? + 1, 4, "profile")?;
        let rate_index = super::small(bits.bits(4)?, 12, "sampling_frequency_index")?;
        let sample_rate = *SAMPLE_RATES.get(usize::from(rate_index)).ok_or(Error::Invalid("rate"))?;
        bits.skip(1)?;
        let channel_configuration = super::small(bits.bits(3)?, 7, "channel_configuration")?;
        bits.skip(4)?;
        let frame_bytes = usize::try_from(bits.bits(13)?).unwrap_or(0);
        bits.skip(11)?;
        let blocks = super::small(bits.bits(2)? + 1, 4, "blocks")?;
        if frame_bytes <= header_bytes {
            return Err(Error::Invalid("aac_frame_length"));
        }
        Ok(Self {
            object_type,
            rate_index,
            sample_rate,
            channel_configuration,
            header_bytes,
            frame_bytes,
            blocks,
        })
    }
}

impl Config {
    /// Creates the record that corresponds to an ADTS header. Channel configuration 0 is refused: the frames then
    /// define the channels, and the record would have to contain that definition.
    pub fn of_parts(object_type: u8, rate_index: u8, channel_configuration: u8) -> Result<Self, Error> {
        if channel_configuration == 0 {
            return Err(Error::Invalid("channel_configuration"));
        }
        let bits =
            u16::from(object_type) << 11 | u16::from(rate_index) << 7 | u16::from(channel_configuration) << 3;
        Self::read(Bytes::copy_from_slice(&bits.to_be_bytes()))
    }

    /// Creates the record that corresponds to an ADTS header; see [`Self::of_parts`].
    pub fn of_adts(adts: &Adts) -> Result<Self, Error> {
        Self::of_parts(adts.object_type, adts.rate_index, adts.channel_configuration)
    }

    /// Returns the number of channels of the channelConfiguration (ISO/IEC 14496-3 table 1.19). `None` for 0,
    /// which means that the frames define the channels, and for unsupported values (8 to 10, 13, 15).
    #[must_use]
    pub const fn channels(&self) -> Option<u8> {
        match self.channel_configuration {
            channels @ 1..=6 => Some(channels),
            7 | 12 | 14 => Some(8),
            11 => Some(7),
            _ => None,
        }
    }

    /// Returns the ADTS header of a raw frame. `None` if ADTS cannot express it: other object types or sample rates,
    /// channels that only the record defines, or a frame that is too long.
    #[must_use]
    pub fn adts(&self, payload_bytes: usize) -> Option<[u8; ADTS_BYTES]> {
        let he = OBJECT_TYPES_HE.contains(&self.object_type);
        let object_type = if he { OBJECT_TYPE_LC } else { self.object_type };
        let profile = object_type.checked_sub(1).filter(|profile| *profile < 4)?;
        let rate = SAMPLE_RATES.iter().position(|rate| *rate == self.sample_rate)?;
        let channels = u32::from(self.channel_configuration);
        if !(1..=7).contains(&channels) {
            return None;
        }
        let length =
            u32::try_from(payload_bytes.checked_add(ADTS_BYTES)?).ok().filter(|length| *length < 1 << 13)?;
        // MPEG-4, no CRC; the bits after the length are constant.
        let head = u32::from(ADTS_SYNC | 1) << 16
            | profile << 14
            | u32::try_from(rate).ok()? << 10
            | channels << 6
            | length >> 11;
        let tail = (length & 0x7ff) << 13 | ADTS_FULLNESS << 2;
        let [a, b, c, d] = head.to_be_bytes();
        let [_, e, f, g] = tail.to_be_bytes();
        Some([a, b, c, d, e, f, g])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adts_headers_are_read_and_written() {
        // Header written by ffmpeg for 48 kHz stereo.
        let header = [0xff, 0xf1, 0x4c, 0x80, 0x2b, 0xbf, 0xfc];
        let adts = Adts::read(&header).unwrap();
        assert_eq!((adts.object_type, adts.sample_rate, adts.channel_configuration), (2, 48_000, 2));
        assert_eq!((adts.frame_bytes, adts.header_bytes, adts.blocks), (349, 7, 1));
        let config = Config::of_adts(&adts).unwrap();
        assert_eq!(config.record, [0x11, 0x90][..]);
        assert_eq!(config.adts(349 - 7), Some(header));
        // With a CRC the header is longer.
        assert_eq!(Adts::read(&[0xff, 0xf0, 0x4c, 0x80, 0x2b, 0xbf, 0xfc]).unwrap().header_bytes, 9);
        for size in [1, 2040, 2041, 8184] {
            assert_eq!(Adts::read(&config.adts(size).unwrap()).unwrap().frame_bytes, size + 7);
        }
        assert_eq!(config.adts(8185), None);
        // The ADTS header of HE-AAC describes its AAC LC core. ADTS cannot express other object
        // types.
        let he = Config::read(Bytes::from_static(&[0x2b, 0x11, 0x88])).unwrap();
        assert_eq!(Adts::read(&he.adts(10).unwrap()).unwrap().sample_rate, 24_000);
        let eld = Config::read(Bytes::from_static(&[0xf8, 0xe6, 0x40])).unwrap();
        assert_eq!(eld.adts(10), None);
    }

    #[test]
    fn m_20_adts_headers_that_lie() {
        let header = [0xff, 0xf1, 0x4c, 0x80, 0x2b, 0xbf, 0xfc];
        for end in 0..7 {
            assert!(Adts::read(&header[..end]).is_err());
        }
        let with = |at: usize, byte: u8| {
            let mut header = header;
            header[at] = byte;
            Adts::read(&header)
        };
        assert!(with(1, 0xe1).is_err() && with(1, 0xf3).is_err());
        assert!(with(2, 0x7c).is_err(), "samplingFrequencyIndex 15");
        assert!(with(4, 0).is_err(), "shorter than its header");
        let none = with(3, 0).unwrap();
        assert!(Config::of_adts(&Adts { channel_configuration: 0, ..none }).is_err());
    }

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
