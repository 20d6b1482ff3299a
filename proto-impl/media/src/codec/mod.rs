//! Codecs and their parameter sets. A new codec is one file here and one variant of each enum; the exhaustive
//! matches then list every container that must answer for it.

pub mod aac;
pub mod h264;

/// Largest parameter set record that is taken.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;

/// A coding of sound or pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// H.264 / AVC (ITU-T H.264).
    H264,
    /// AAC (ISO/IEC 14496-3).
    Aac,
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::H264 => "H264",
            Self::Aac => "AAC",
        })
    }
}

/// The parameter sets of a track, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodecConfig {
    /// AVCDecoderConfigurationRecord.
    H264(h264::Config),
    /// AudioSpecificConfig.
    Aac(aac::Config),
}

impl CodecConfig {
    /// Which codec it configures.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        match self {
            Self::H264(_) => Codec::H264,
            Self::Aac(_) => Codec::Aac,
        }
    }
}

/// Why a parameter set record was refused.
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
