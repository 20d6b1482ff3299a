//! MP3: MPEG-1 and MPEG-2 audio layer III. It has no parameter sets; every frame's header (ISO/IEC 11172-3 §2.4.1.3,
//! ISO/IEC 13818-3 §2.4.1) says how to decode it.

use wire::Reader;

use super::Error;

/// The syncword: eleven bits, the twelfth being set for all but MPEG-2.5.
const SYNC: u32 = 0xffe0_0000;
/// Layer III in the layer field.
const LAYER_III: u32 = 1;
/// channel_mode single_channel.
const MODE_MONO: u32 = 3;
/// Hz by sampling_frequency, for MPEG-1; MPEG-2 halves, MPEG-2.5 quarters it.
const SAMPLE_RATES: [u32; 3] = [44_100, 48_000, 32_000];

/// What the frames' headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Hz.
    pub sample_rate: u32,
    /// 1 or 2.
    pub channels: u8,
}

impl Config {
    /// Reads the header of the first frame in `frames`.
    pub fn of_frame(frames: &[u8]) -> Result<Self, Error> {
        let header = Reader::new(frames).u32()?;
        if header & SYNC != SYNC {
            return Err(Error::Invalid("syncword"));
        }
        if (header >> 17) & 3 != LAYER_III {
            return Err(Error::Invalid("layer"));
        }
        let halvings = match (header >> 19) & 3 {
            3 => 0,
            2 => 1,
            0 => 2,
            _ => return Err(Error::Invalid("version")),
        };
        let index = usize::try_from((header >> 10) & 3).unwrap_or(usize::MAX);
        let rate = SAMPLE_RATES.get(index).ok_or(Error::Invalid("sampling_frequency"))?;
        let channels = if (header >> 6) & 3 == MODE_MONO { 1 } else { 2 };
        Ok(Self { sample_rate: rate >> halvings, channels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_channels_are_in_the_frame() {
        let of =
            |bytes: [u8; 4]| Config::of_frame(&bytes).map(|config| (config.sample_rate, config.channels));
        assert_eq!(of([0xff, 0xfb, 0x94, 0x64]), Ok((48_000, 2)));
        assert_eq!(of([0xff, 0xfb, 0x50, 0xc4]), Ok((44_100, 1)));
        assert_eq!(of([0xff, 0xf3, 0x50, 0x44]), Ok((22_050, 2)));
        assert_eq!(of([0xff, 0xe3, 0x58, 0xc4]), Ok((8_000, 1)));
    }

    #[test]
    fn m_20_what_is_no_frame_is_refused() {
        for cut in [&b""[..], b"\xff", b"\xff\xfb\x94"] {
            assert!(Config::of_frame(cut).is_err());
        }
        assert_eq!(Config::of_frame(b"ID3\x04"), Err(Error::Invalid("syncword")));
        assert_eq!(Config::of_frame(&[0xff, 0xfd, 0x94, 0x64]), Err(Error::Invalid("layer")));
        assert_eq!(Config::of_frame(&[0xff, 0xeb, 0x94, 0x64]), Err(Error::Invalid("version")));
        assert_eq!(Config::of_frame(&[0xff, 0xfb, 0x9c, 0x64]), Err(Error::Invalid("sampling_frequency")));
    }
}
