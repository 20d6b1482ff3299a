//! VP8 (RFC 6386). It has no parameter sets; Enhanced RTMP lets a VPCodecConfigurationBox come, as for VP9.

use bytes::Bytes;

use super::{CONFIG_BYTES_MAX, Error, vp9};

/// The publisher's VP8 configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The payload of a VPCodecConfigurationBox as it came; often empty.
    pub record: Bytes,
}

impl Config {
    /// Takes an empty record, or reads the payload of a VPCodecConfigurationBox.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_20_nothing_or_a_whole_record() {
        assert_eq!(Config::read(Bytes::new()), Ok(Config::default()));
        let record = Bytes::from_static(&[1, 0, 0, 0, 0, 10, 0x82, 2, 2, 2, 0, 0]);
        assert_eq!(Config::read(record.clone()).unwrap().record, record);
        assert!(Config::read(record.slice(..11)).is_err());
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }
}
