//! Codecs and their parameter sets. A new codec needs one file here and one variant in each enum. The compiler then
//! reports, by the exhaustive matches, every container that must support it.

pub mod aac;
pub mod ac3;
pub mod av1;
pub mod dependency;
pub mod flac;
pub mod g711;
pub mod h264;
pub mod h265;
pub mod key_frame;
pub mod latm;
pub mod mp3;
pub mod opus;
mod rfc6381;
pub mod slice;
pub mod vp8;
pub mod vp9;

use bytes::{BufMut, Bytes, BytesMut};

use crate::TrackKind;

/// Largest parameter set record accepted, in bytes.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Largest plausible width or height.
const DIMENSION_MAX: u32 = 16_384;

/// Empty bytes, returned as the record of codecs that have none.
static NO_RECORD: Bytes = Bytes::new();

/// An audio or video codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// H.264 / AVC (ITU-T H.264).
    H264,
    /// H.265 / HEVC (ITU-T H.265).
    H265,
    /// AV1 (AOMedia).
    Av1,
    /// VP9 (draft-grange-vp9-bitstream).
    Vp9,
    /// VP8 (RFC 6386).
    Vp8,
    /// AAC (ISO/IEC 14496-3).
    Aac,
    /// Opus (RFC 6716).
    Opus,
    /// MPEG audio layer III (ISO/IEC 11172-3).
    Mp3,
    /// AC-3 (ETSI TS 102 366).
    Ac3,
    /// Enhanced AC-3 (ETSI TS 102 366 annex E).
    Eac3,
    /// FLAC (RFC 9639).
    Flac,
    /// G.711 (ITU-T G.711).
    G711(g711::Law),
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 13] = [
        Self::H264,
        Self::H265,
        Self::Av1,
        Self::Vp9,
        Self::Vp8,
        Self::Aac,
        Self::Opus,
        Self::Mp3,
        Self::Ac3,
        Self::Eac3,
        Self::Flac,
        Self::G711(g711::Law::A),
        Self::G711(g711::Law::Mu),
    ];

    /// Kind of the tracks that use the codec.
    #[must_use]
    pub const fn kind(self) -> TrackKind {
        match self {
            Self::H264 | Self::H265 | Self::Av1 | Self::Vp9 | Self::Vp8 => TrackKind::Video,
            Self::Aac | Self::Opus | Self::Mp3 | Self::Ac3 | Self::Eac3 | Self::Flac | Self::G711(_) => {
                TrackKind::Audio
            }
        }
    }

    /// Returns the FourCC in Enhanced RTMP v2 (`VideoFourCc`, `AudioFourCc`); `None` for G.711.
    #[must_use]
    pub const fn four_cc(self) -> Option<[u8; 4]> {
        Some(match self {
            Self::H264 => *b"avc1",
            Self::H265 => *b"hvc1",
            Self::Av1 => *b"av01",
            Self::Vp9 => *b"vp09",
            Self::Vp8 => *b"vp08",
            Self::Aac => *b"mp4a",
            Self::Opus => *b"Opus",
            Self::Mp3 => *b".mp3",
            Self::Ac3 => *b"ac-3",
            Self::Eac3 => *b"ec-3",
            Self::Flac => *b"fLaC",
            Self::G711(_) => return None,
        })
    }

    /// Returns the codec with a FourCC of Enhanced RTMP v2.
    #[must_use]
    pub const fn from_four_cc(four_cc: [u8; 4]) -> Option<Self> {
        Some(match &four_cc {
            b"avc1" => Self::H264,
            b"hvc1" => Self::H265,
            b"av01" => Self::Av1,
            b"vp09" => Self::Vp9,
            b"vp08" => Self::Vp8,
            b"mp4a" => Self::Aac,
            b"Opus" => Self::Opus,
            b".mp3" => Self::Mp3,
            b"ac-3" => Self::Ac3,
            b"ec-3" => Self::Eac3,
            b"fLaC" => Self::Flac,
            _ => return None,
        })
    }
}

impl core::fmt::Display for Codec {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::H264 => "H264",
            Self::H265 => "H265",
            Self::Av1 => "AV1",
            Self::Vp9 => "VP9",
            Self::Vp8 => "VP8",
            Self::Aac => "AAC",
            Self::Opus => "Opus",
            Self::Mp3 => "MP3",
            Self::Ac3 => "AC-3",
            Self::Eac3 => "E-AC-3",
            Self::Flac => "FLAC",
            Self::G711(g711::Law::A) => "PCMA",
            Self::G711(g711::Law::Mu) => "PCMU",
        })
    }
}

/// Validated parameter sets of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodecConfig {
    /// H.264 with its AVCDecoderConfigurationRecord.
    H264(h264::Config),
    /// H.265 with its HEVCDecoderConfigurationRecord.
    H265(h265::Config),
    /// AV1 with its AV1CodecConfigurationRecord.
    Av1(av1::Config),
    /// VP9 with its VPCodecConfigurationBox.
    Vp9(vp9::Config),
    /// VP8 with its VPCodecConfigurationBox, which may be empty.
    Vp8(vp8::Config),
    /// AAC with its AudioSpecificConfig.
    Aac(aac::Config),
    /// Opus with its identification header, which may be empty.
    Opus(opus::Config),
    /// MP3. Its frame headers contain the configuration.
    Mp3(mp3::Config),
    /// AC-3, which has no record.
    Ac3(ac3::Config),
    /// E-AC-3, which has no record.
    Eac3(ac3::Config),
    /// FLAC with its STREAMINFO.
    Flac(flac::Config),
    /// G.711, configured by its container.
    G711(g711::Config),
}

impl CodecConfig {
    /// Parses the record of a codec. `None` for codecs without a record; their frames or their container define the
    /// configuration.
    pub fn read(codec: Codec, record: Bytes) -> Result<Option<Self>, Error> {
        Ok(Some(match codec {
            Codec::H264 => Self::H264(h264::Config::read(record)?),
            Codec::H265 => Self::H265(h265::Config::read(record)?),
            Codec::Av1 => Self::Av1(av1::Config::read(record)?),
            Codec::Vp9 => Self::Vp9(vp9::Config::read(record)?),
            Codec::Vp8 => Self::Vp8(vp8::Config::read(record)?),
            Codec::Aac => Self::Aac(aac::Config::read(record)?),
            Codec::Opus => Self::Opus(opus::Config::read(record)?),
            Codec::Flac => Self::Flac(flac::Config::read(record)?),
            Codec::Ac3 => Self::Ac3(ac3::Config),
            Codec::Eac3 => Self::Eac3(ac3::Config),
            Codec::Mp3 | Codec::G711(_) => return Ok(None),
        }))
    }

    /// Codec of the configuration.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        match self {
            Self::H264(_) => Codec::H264,
            Self::H265(_) => Codec::H265,
            Self::Av1(_) => Codec::Av1,
            Self::Vp9(_) => Codec::Vp9,
            Self::Vp8(_) => Codec::Vp8,
            Self::Aac(_) => Codec::Aac,
            Self::Opus(_) => Codec::Opus,
            Self::Mp3(_) => Codec::Mp3,
            Self::Ac3(_) => Codec::Ac3,
            Self::Eac3(_) => Codec::Eac3,
            Self::Flac(_) => Codec::Flac,
            Self::G711(config) => Codec::G711(config.law),
        }
    }

    /// Record as received; empty for codecs without one.
    #[must_use]
    pub fn record(&self) -> &Bytes {
        match self {
            Self::H264(config) => &config.record,
            Self::H265(config) => &config.record,
            Self::Av1(config) => &config.record,
            Self::Vp9(config) => &config.record,
            Self::Vp8(config) => &config.record,
            Self::Aac(config) => &config.record,
            Self::Opus(config) => &config.record,
            Self::Flac(config) => &config.record,
            Self::Mp3(_) | Self::Ac3(_) | Self::Eac3(_) | Self::G711(_) => &NO_RECORD,
        }
    }

    /// Returns the number of samples in a payload, and the sample rate in Hz. `None` when unknown or not audio.
    #[must_use]
    pub fn samples_of(&self, payload: &[u8]) -> Option<(u64, u32)> {
        match self {
            // A packet is one raw_data_block (ISO/IEC 14496-3 §4.5.2.1.1) of 1024 samples. Frames of 960 samples are
            // not recognized.
            Self::Aac(config) => Some((1024, config.sample_rate)),
            Self::Opus(_) => Some((opus::packet_samples(payload)?.into(), 48_000)),
            Self::Mp3(config) => Some((mp3::samples(payload)?, config.sample_rate)),
            Self::Ac3(_) | Self::Eac3(_) => ac3::samples(payload),
            Self::G711(config) => {
                let samples = payload.len().checked_div(usize::from(config.channels))?;
                Some((samples as u64, g711::Config::SAMPLE_RATE))
            }
            Self::Flac(_) | Self::H264(_) | Self::H265(_) | Self::Av1(_) | Self::Vp9(_) | Self::Vp8(_) => {
                None
            }
        }
    }

    /// Returns the sample rate in Hz and the number of channels, if the configuration contains them.
    #[must_use]
    pub fn sound(&self) -> Option<(u32, u8)> {
        match self {
            Self::Aac(config) => Some((config.sample_rate, config.channels()?)),
            Self::Opus(config) => Some((opus::SAMPLE_RATE, config.channels)),
            Self::Mp3(config) => Some((config.sample_rate, config.channels)),
            Self::Flac(config) => Some((config.sample_rate, config.channels)),
            Self::G711(config) => Some((g711::Config::SAMPLE_RATE, config.channels)),
            Self::Ac3(_)
            | Self::Eac3(_)
            | Self::H264(_)
            | Self::H265(_)
            | Self::Av1(_)
            | Self::Vp9(_)
            | Self::Vp8(_) => None,
        }
    }

    /// Returns width and height, if the parameter sets contain them: those of VP8 and VP9 do not.
    #[must_use]
    pub const fn picture_size(&self) -> Option<(u32, u32)> {
        match self {
            Self::H264(config) if config.width > 0 => Some((config.width, config.height)),
            Self::H265(config) => config.size,
            Self::Av1(config) => config.size,
            Self::H264(_)
            | Self::Vp9(_)
            | Self::Vp8(_)
            | Self::Aac(_)
            | Self::Opus(_)
            | Self::Mp3(_)
            | Self::Ac3(_)
            | Self::Eac3(_)
            | Self::Flac(_)
            | Self::G711(_) => None,
        }
    }
}

/// The reason a configuration record was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The record ended early.
    #[error(transparent)]
    Truncated(#[from] wire::Truncated),
    /// A field has a value that the standard forbids.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The record is larger than [`CONFIG_BYTES_MAX`].
    #[error("parameter sets of {0} bytes")]
    TooLarge(usize),
}

/// Appends a parameter set after its 16-bit length. The caller must have ensured that the record is below 64 KiB.
fn put_set(set: &[u8], out: &mut BytesMut) {
    out.put_u16(u16::try_from(set.len()).unwrap_or(u16::MAX));
    out.put_slice(set);
}

/// Returns a field that must be at most `max` and fit a byte.
fn small(value: u32, max: u32, name: &'static str) -> Result<u8, Error> {
    u8::try_from(value).ok().filter(|_| value <= max).ok_or(Error::Invalid(name))
}

/// Returns a size if it is plausible.
fn real_size(width: u32, height: u32) -> Option<(u32, u32)> {
    let real = 1..=DIMENSION_MAX;
    (real.contains(&width) && real.contains(&height)).then_some((width, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_has_a_rate_and_channels_where_its_configuration_tells() {
        let of = |codec, record: &'static [u8]| {
            CodecConfig::read(codec, Bytes::from_static(record)).unwrap().unwrap().sound()
        };
        for (channels, expected) in
            [(1u8, Some(1)), (2, Some(2)), (6, Some(6)), (7, Some(8)), (11, Some(7)), (12, Some(8))]
        {
            let config = aac::Config::of_parts(2, 4, channels).unwrap();
            assert_eq!(CodecConfig::Aac(config).sound(), expected.map(|channels| (44_100, channels)));
        }
        assert_eq!(of(Codec::Aac, &[0x11, 0x80]), None, "the frames tell");
        assert_eq!(of(Codec::Opus, &[]), Some((48_000, 2)));
        assert_eq!(of(Codec::H264, &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]), None);
    }

    #[test]
    fn every_four_cc_leads_back_to_its_codec() {
        for codec in Codec::ALL {
            let expected = if matches!(codec, Codec::G711(_)) { None } else { Some(codec) };
            assert_eq!(codec.four_cc().and_then(Codec::from_four_cc), expected);
        }
        assert_eq!(Codec::from_four_cc(*b"vvc1"), None);
    }
}
