//! Decoder of AAC-LC with one or two channels (ISO/IEC 14496-3 §4), with symphonia. Nearly every encoder sends this
//! kind. The decoder adds no delay.

use std::fmt;

use media::codec::aac::Config;
use symphonia_codec_aac::AacDecoder;
use symphonia_core::codecs::audio::AudioDecoderOptions;
use symphonia_core::codecs::audio::well_known::CODEC_ID_AAC;

use super::{Pcm, symphonia};
use crate::Error;

/// Value of audioObjectType for AAC LC.
const OBJECT_TYPE_LC: u32 = 2;
/// Minimum sample rate in Hz. At lower rates the stream may be HE-AAC that is only announced within its frames
/// (ISO/IEC 14496-3 §1.6.6.2).
const RATE_MIN: u32 = 32_000;

/// Decoder of raw AAC-LC frames.
pub(crate) struct AacLc {
    decoder: AacDecoder,
    frame: Vec<f32>,
}

impl fmt::Debug for AacLc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AacLc").finish_non_exhaustive()
    }
}

impl AacLc {
    /// True if this decoder supports the configuration.
    pub(crate) const fn takes(config: &Config) -> bool {
        config.object_type == OBJECT_TYPE_LC
            && config.sample_rate >= RATE_MIN
            && matches!(config.channel_configuration, 1 | 2)
    }

    /// Creates the decoder. Returns `None` if it does not support the configuration.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let parameters = symphonia::parameters(CODEC_ID_AAC, &config.record);
        let decoder =
            Self::takes(config).then(|| AacDecoder::try_new(&parameters, &AudioDecoderOptions::default()));
        Some(Self { decoder: decoder?.ok()?, frame: Vec::new() })
    }

    pub(crate) fn decode(&mut self, payload: &[u8], pcm: &mut Pcm) -> Result<(), Error> {
        let rate = symphonia::decode(&mut self.decoder, payload, &mut self.frame, &mut pcm.samples);
        pcm.rate = rate.ok_or(Error::Damaged)?;
        Ok(())
    }
}
