//! Encoding of samples to units.

use std::fmt;

#[cfg(feature = "fdk-aac")]
use fdk_aac::enc::{AudioObjectType, BitRate, ChannelMode, Encoder as FdkEncoder, EncoderParams, Transport};
use opus::{Application, Bitrate, Channels, Encoder as OpusEncoder};

#[cfg(feature = "fdk-aac")]
use crate::CHANNELS;
use crate::{Error, SAMPLE_RATE};

/// Number of samples per channel in an Opus packet: 20 ms, as browsers send.
const OPUS_FRAMES: usize = 960;
/// Effort of the Opus encoder, from 0 to 10. Encoding with a higher value takes half as long again, without an audible
/// difference at the bit rates of music.
const OPUS_COMPLEXITY: i32 = 5;
/// Maximum length of an Opus packet in bytes (RFC 6716 §3.4).
const OPUS_BYTES_MAX: usize = 1275;
/// Number of samples per channel in an AAC frame.
#[cfg(feature = "fdk-aac")]
const AAC_FRAMES: usize = 1024;
/// Maximum length of an AAC frame in bytes: 6144 bits per channel (ISO/IEC 14496-3 §4.5.3.1).
#[cfg(feature = "fdk-aac")]
const AAC_BYTES_MAX: usize = 6144 / 8 * CHANNELS;

/// Encoder of interleaved stereo at 48 kHz.
pub(crate) enum Encoder {
    Opus(OpusEncoder),
    #[cfg(feature = "fdk-aac")]
    Aac {
        encoder: FdkEncoder,
        frame: Vec<i16>,
        delay: i64,
    },
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opus(_) => "Encoder::Opus",
            #[cfg(feature = "fdk-aac")]
            Self::Aac { .. } => "Encoder::Aac",
        })
    }
}

impl Encoder {
    /// Creates an encoder of Opus with this bit rate.
    pub(crate) fn opus(bits: u32) -> Result<Self, Error> {
        let failed = |_| Error::Library;
        let mut encoder =
            OpusEncoder::new(SAMPLE_RATE, Channels::Stereo, Application::Audio).map_err(failed)?;
        encoder.set_complexity(OPUS_COMPLEXITY).map_err(failed)?;
        let bits = i32::try_from(bits).map_err(|_| Error::Configuration)?;
        encoder.set_bitrate(Bitrate::Bits(bits)).map_err(|_| Error::Configuration)?;
        Ok(Self::Opus(encoder))
    }

    /// Creates an encoder of AAC-LC with this bit rate.
    #[cfg(feature = "fdk-aac")]
    pub(crate) fn aac(bits: u32) -> Result<Self, Error> {
        let encoder = FdkEncoder::new(EncoderParams {
            bit_rate: BitRate::Cbr(bits),
            sample_rate: SAMPLE_RATE,
            transport: Transport::Raw,
            channels: ChannelMode::Stereo,
            audio_object_type: AudioObjectType::Mpeg4LowComplexity,
        })
        .map_err(|_| Error::Configuration)?;
        let info = encoder.info().map_err(|_| Error::Library)?;
        Ok(Self::Aac { encoder, frame: Vec::new(), delay: i64::from(info.nDelay) })
    }

    /// Always fails, because this build has no encoder of AAC.
    #[cfg(not(feature = "fdk-aac"))]
    pub(crate) const fn aac(_: u32) -> Result<Self, Error> {
        Err(Error::Codec)
    }

    /// Number of samples per channel in a unit.
    pub(crate) const fn frames(&self) -> usize {
        match self {
            Self::Opus(_) => OPUS_FRAMES,
            #[cfg(feature = "fdk-aac")]
            Self::Aac { .. } => AAC_FRAMES,
        }
    }

    /// Number of samples by which the decoded output of a unit is later than the input of the encoder.
    pub(crate) fn delay(&mut self) -> i64 {
        match self {
            Self::Opus(encoder) => encoder.get_lookahead().map_or(0, i64::from),
            #[cfg(feature = "fdk-aac")]
            Self::Aac { delay, .. } => *delay,
        }
    }

    /// Encodes [`Self::frames`] samples of each channel. Returns `None` if there is no output yet.
    pub(crate) fn encode(&mut self, samples: &[f32]) -> Result<Option<Vec<u8>>, Error> {
        let payload = match self {
            Self::Opus(encoder) => {
                encoder.encode_vec_float(samples, OPUS_BYTES_MAX).map_err(|_| Error::Library)?
            }
            #[cfg(feature = "fdk-aac")]
            Self::Aac { encoder, frame, .. } => {
                frame.clear();
                frame.extend(samples.iter().copied().map(sixteen_bits));
                let mut payload = vec![0; AAC_BYTES_MAX];
                let done = encoder.encode(frame, &mut payload).map_err(|_| Error::Library)?;
                payload.truncate(done.output_size);
                payload
            }
        };
        Ok((!payload.is_empty()).then_some(payload))
    }
}

/// Converts a sample to 16 bits. Values that are too loud are clipped.
#[cfg(feature = "fdk-aac")]
fn sixteen_bits(sample: f32) -> i16 {
    // A cast of a float saturates, so a value that does not fit is clipped.
    #[allow(clippy::cast_possible_truncation)]
    let sample = (sample * 32_768.0).round() as i16;
    sample
}
