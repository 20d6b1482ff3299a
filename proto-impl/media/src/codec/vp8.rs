//! VP8 (RFC 6386). It has no parameter sets, but Enhanced RTMP permits a VPCodecConfigurationBox, as for
//! VP9.

use bytes::Bytes;

use super::{CONFIG_BYTES_MAX, Error, vp9};

/// VP8 configuration of the publisher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Payload of a VPCodecConfigurationBox as received; often empty.
    pub record: Bytes,
}

impl Config {
    /// Parses the payload of a VPCodecConfigurationBox, which may be empty.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        if record.is_empty() {
            return Ok(Self::default());
        }
        vp9::Config::read(record).map(|config| Self { record: config.record })
    }
}

/// Returns width and height of a key frame (RFC 6386 §9.1); `None` for other frames and invalid ones.
#[must_use]
pub fn picture_size(frame: &[u8]) -> Option<(u32, u32)> {
    let &[head, _, _, 0x9d, 0x01, 0x2a, a, b, c, d] = frame.first_chunk::<10>()? else { return None };
    // The upper two bits contain the scaling.
    let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
    let size = (side(a, b), side(c, d));
    (head & 1 == 0 && size.0 > 0 && size.1 > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_a_key_frame() {
        let frame = [0x50, 0x42, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x42, 0x68, 0x81, 0x00];
        assert_eq!(picture_size(&frame), Some((640, 360)));
        assert_eq!(picture_size(&frame[..9]), None);
        assert_eq!(picture_size(&[&[0x51], &frame[1..]].concat()), None);
        assert_eq!(picture_size(&[0; 20]), None);
    }

    #[test]
    fn m_20_nothing_or_a_whole_record() {
        assert_eq!(Config::read(Bytes::new()), Ok(Config::default()));
        let record = Bytes::from_static(&[1, 0, 0, 0, 0, 10, 0x82, 2, 2, 2, 0, 0]);
        assert_eq!(Config::read(record.clone()).unwrap().record, record);
        assert!(Config::read(record.slice(..11)).is_err());
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }
}
