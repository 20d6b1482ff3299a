//! Decoding of units to stereo samples.

#[cfg(feature = "fdk-aac")]
mod aac;
mod aac_lc;
mod g711;
mod mp3;
mod opus;
mod symphonia;

use media::CodecConfig;
use media::codec::aac as aac_config;

use crate::Error;

/// Interleaved samples of two channels, nominally from -1 to 1.
#[derive(Debug, Default)]
pub(crate) struct Pcm {
    /// The samples.
    pub(crate) samples: Vec<f32>,
    /// Sample rate in Hz.
    pub(crate) rate: u32,
}

/// Decoder for one codec configuration.
#[derive(Debug)]
pub(crate) enum Decoder {
    AacLc(Box<aac_lc::AacLc>),
    #[cfg(feature = "fdk-aac")]
    Aac(Box<aac::Aac>),
    Opus(Box<opus::Opus>),
    Mp3(Box<mp3::Mp3>),
    G711(media::codec::g711::Config),
}

impl Decoder {
    /// True if this AAC configuration can be decoded.
    pub(crate) const fn takes_aac(config: &aac_config::Config) -> bool {
        cfg!(feature = "fdk-aac") || aac_lc::AacLc::takes(config)
    }

    /// Creates the decoder of this configuration.
    pub(crate) fn new(config: &CodecConfig) -> Result<Self, Error> {
        Ok(match config {
            CodecConfig::Aac(config) => match aac_lc::AacLc::new(config) {
                Some(decoder) => Self::AacLc(Box::new(decoder)),
                #[cfg(feature = "fdk-aac")]
                None => Self::Aac(Box::new(aac::Aac::new(config)?)),
                #[cfg(not(feature = "fdk-aac"))]
                None => return Err(Error::Codec),
            },
            CodecConfig::Opus(config) => Self::Opus(Box::new(opus::Opus::new(config)?)),
            CodecConfig::Mp3(_) => Self::Mp3(Box::new(mp3::Mp3::new()?)),
            CodecConfig::G711(config) => Self::G711(*config),
            CodecConfig::H264(_)
            | CodecConfig::H265(_)
            | CodecConfig::Av1(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Vp8(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_) => return Err(Error::Codec),
        })
    }

    /// Decodes a unit into `pcm`, whose previous content is discarded.
    ///
    /// # Errors
    /// Returns an error if the unit is damaged. `pcm` then has no samples.
    pub(crate) fn decode(&mut self, payload: &[u8], pcm: &mut Pcm) -> Result<(), Error> {
        pcm.samples.clear();
        match self {
            Self::AacLc(decoder) => decoder.decode(payload, pcm),
            #[cfg(feature = "fdk-aac")]
            Self::Aac(decoder) => decoder.decode(payload, pcm),
            Self::Opus(decoder) => decoder.decode(payload, pcm),
            Self::Mp3(decoder) => decoder.decode(payload, pcm),
            Self::G711(config) => {
                g711::decode(*config, payload, pcm);
                Ok(())
            }
        }
    }

    /// Conceals units missing before `next`, with at most `frames` samples per channel at 48 kHz. Returns false if
    /// the codec has no concealment that is better than silence.
    pub(crate) fn conceal(&mut self, frames: usize, next: &[u8], pcm: &mut Pcm) -> bool {
        pcm.samples.clear();
        match self {
            Self::Opus(decoder) => decoder.conceal(frames, next, pcm),
            #[cfg(feature = "fdk-aac")]
            Self::Aac(_) => false,
            Self::AacLc(_) | Self::Mp3(_) | Self::G711(_) => false,
        }
    }

    /// Number of samples, at the decoder's rate, by which the output is later than the times of the units.
    pub(crate) fn delay(&self) -> u32 {
        match self {
            #[cfg(feature = "fdk-aac")]
            Self::Aac(decoder) => decoder.delay(),
            Self::AacLc(_) | Self::Opus(_) | Self::Mp3(_) | Self::G711(_) => 0,
        }
    }
}
