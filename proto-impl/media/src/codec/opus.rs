//! Opus: the identification header (RFC 7845 §5.1), which may be left out: every packet tells how to decode it.

use bytes::Bytes;
use wire::Reader;

use super::{CONFIG_BYTES_MAX, Error};

/// The header's magic signature.
const MAGIC: &[u8; 8] = b"OpusHead";
/// Majors of the version (its high nibble) that are compatible.
const VERSION_MAJOR: u8 = 0;
/// What an empty header means: the channels of mapping family 0 that most streams have.
const CHANNELS_DEFAULT: u8 = 2;

/// A checked identification header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The header as it came; may be empty.
    pub record: Bytes,
    /// Output channels.
    pub channels: u8,
    /// Samples at 48 kHz to be thrown away at the start.
    pub pre_skip: u16,
}

impl Config {
    /// Reads an identification header, or takes none.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        if record.is_empty() {
            return Ok(Self { record, channels: CHANNELS_DEFAULT, pre_skip: 0 });
        }
        let mut reader = Reader::new(&record);
        if &reader.array::<8>()? != MAGIC {
            return Err(Error::Invalid("OpusHead"));
        }
        if reader.u8()? >> 4 != VERSION_MAJOR {
            return Err(Error::Invalid("OpusHead version"));
        }
        let channels = reader.u8()?;
        if channels == 0 {
            return Err(Error::Invalid("channel count"));
        }
        let pre_skip = u16::from_le_bytes(reader.array()?);
        // Input sample rate and output gain.
        reader.take(4 + 2)?;
        let family = reader.u8()?;
        if family == 0 && channels > 2 {
            return Err(Error::Invalid("channel count"));
        }
        if family != 0 {
            reader.take(usize::from(channels).saturating_add(2))?;
        }
        Ok(Self { channels, pre_skip, record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libopus through ffmpeg.
    const HEAD: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";

    #[test]
    fn the_header_is_read_and_may_be_empty() {
        let config = Config::read(Bytes::from_static(HEAD)).unwrap();
        assert_eq!((config.channels, config.pre_skip), (2, 312));
        assert_eq!(Config::read(Bytes::new()).unwrap().channels, 2);
        let surround = [&HEAD[..9], &[6], &HEAD[10..18], &[1, 4, 2, 0, 4, 1, 2, 3, 5]].concat();
        assert_eq!(Config::read(surround.into()).unwrap().channels, 6);
    }

    #[test]
    fn m_20_lying_headers_are_refused() {
        for end in 1..HEAD.len() {
            assert!(Config::read(Bytes::from_static(&HEAD[..end])).is_err(), "cut at {end}");
        }
        let with = |at: usize, byte: u8| {
            let mut head = HEAD.to_vec();
            head[at] = byte;
            Config::read(head.into())
        };
        assert_eq!(with(0, b'o'), Err(Error::Invalid("OpusHead")));
        assert_eq!(with(8, 0x10), Err(Error::Invalid("OpusHead version")));
        assert_eq!(with(9, 0), Err(Error::Invalid("channel count")));
        assert_eq!(with(9, 3), Err(Error::Invalid("channel count")));
        assert!(with(18, 1).is_err());
        assert_eq!(Config::read(vec![b'O'; 65_537].into()), Err(Error::TooLarge(65_537)));
    }
}
