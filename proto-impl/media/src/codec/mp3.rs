//! MP3: MPEG-1 and MPEG-2 audio layer III. It has no parameter sets; every frame header (ISO/IEC 11172-3 §2.4.1.3,
//! ISO/IEC 13818-3 §2.4.1) defines how to decode the frame.

use wire::Reader;

use super::Error;

/// Syncword of eleven bits. The bit after it is set except in MPEG-2.5.
const SYNC: u32 = 0xffe0_0000;
/// Value of layer III in the layer field.
const LAYER_III: u32 = 1;
/// channel_mode of a single channel.
const MODE_MONO: u32 = 3;
/// Sample rates in Hz by sampling_frequency for MPEG-1. Those of MPEG-2 are half, those of MPEG-2.5 a quarter.
const SAMPLE_RATES: [u32; 3] = [44_100, 48_000, 32_000];

/// Parameters from the frame headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Number of channels, 1 or 2.
    pub channels: u8,
}

impl Config {
    /// Parses the header of the first frame in `frames`.
    pub fn of_frame(frames: &[u8]) -> Result<Self, Error> {
        Header::read(frames).map(|header| header.config)
    }
}

/// Bit rates in kbit/s by bitrate_index, for MPEG-1.
const BITRATES_1: [u32; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
/// Bit rates in kbit/s by bitrate_index, for MPEG-2 and MPEG-2.5.
const BITRATES_2: [u32; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Parameters of the track.
    pub config: Config,
    /// Length of the frame including its header. `None` in free format, where the length is only known when the
    /// next header is found.
    pub frame_bytes: Option<usize>,
    /// Samples per channel.
    pub samples: u32,
}

impl Header {
    /// Parses the header at the start of `frame`.
    pub fn read(frame: &[u8]) -> Result<Self, Error> {
        let header = Reader::new(frame).u32()?;
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
        let index = |shift: u32, mask: u32| usize::try_from((header >> shift) & mask).unwrap_or(usize::MAX);
        let rate = SAMPLE_RATES.get(index(10, 3)).ok_or(Error::Invalid("sampling_frequency"))?;
        let sample_rate = rate >> halvings;
        let channels = if (header >> 6) & 3 == MODE_MONO { 1 } else { 2 };
        let (bitrates, samples) = if halvings == 0 { (BITRATES_1, 1152) } else { (BITRATES_2, 576) };
        let bitrate = bitrates.get(index(12, 0xf)).ok_or(Error::Invalid("bitrate_index"))?;
        // The length of a frame (ISO/IEC 11172-3 §2.4.3.1): samples / 8 * bit rate / sample rate,
        // and one byte more if padding_bit is set.
        let slots = samples / 8 * bitrate * 1000 / sample_rate + ((header >> 9) & 1);
        let frame_bytes = usize::try_from(slots).ok().filter(|_| *bitrate > 0);
        Ok(Self { config: Config { sample_rate, channels }, frame_bytes, samples })
    }
}

/// Returns the samples per channel of the complete frames in `frames`. `None` if the first is invalid.
pub(crate) fn samples(frames: &[u8]) -> Option<u64> {
    let mut samples = u64::from(Header::read(frames).ok()?.samples);
    let mut rest = frames;
    while let Some(next) = Header::read(rest).ok().and_then(|header| rest.get(header.frame_bytes?..)) {
        rest = next;
        samples += Header::read(rest).map_or(0, |header| u64::from(header.samples));
    }
    Some(samples)
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

    #[test]
    fn the_length_of_a_frame_is_in_its_header() {
        let of = |bytes: [u8; 4]| Header::read(&bytes).map(|header| (header.frame_bytes, header.samples));
        assert_eq!(of([0xff, 0xfb, 0x94, 0x64]), Ok((Some(384), 1152)));
        assert_eq!(of([0xff, 0xfb, 0x90, 0x64]), Ok((Some(417), 1152)));
        assert_eq!(of([0xff, 0xfb, 0x92, 0x64]), Ok((Some(418), 1152)));
        assert_eq!(of([0xff, 0xf3, 0x84, 0xc4]), Ok((Some(192), 576)));
        assert_eq!(of([0xff, 0xfb, 0x04, 0x64]), Ok((None, 1152)));
        assert_eq!(of([0xff, 0xfb, 0xf4, 0x64]), Err(Error::Invalid("bitrate_index")));
    }
}
