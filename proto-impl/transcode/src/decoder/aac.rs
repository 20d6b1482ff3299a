//! Decoder of all kinds of AAC (ISO/IEC 14496-3) with up to eight channels, mainly needed for HE-AAC, using the FDK
//! library. It mixes channels down to two (ISO/IEC 14496-3 §4.5.1.2.2) and conceals damaged frames. Concealment and the
//! limiter delay the output.

use std::fmt;

use fdk_aac::dec::{Decoder, DecoderError, Transport};
use media::codec::aac::Config;

use super::Pcm;
use crate::{CHANNELS, Error};

/// Maximum number of samples of a frame: 2048 for each of two channels with SBR, doubled for rare kinds of AAC.
const FRAME_SAMPLES_MAX: usize = 2 * 2048 * CHANNELS;

/// Maximum length in bytes of a frame of eight channels, with 6144 bits each (ISO/IEC 14496-3 §4.5.3.1). Longer frames
/// are not passed to the library, because it would keep the bytes that it cannot accept.
const FRAME_BYTES_MAX: usize = 6144 / 8 * 8;

/// Delay of the SBR filters in samples at the higher rate (ISO/IEC 14496-3 §4.6.18.5).
const SBR_DELAY: u32 = 962;

/// Results that the library returns for a damaged frame that it has concealed. The samples can be used.
const CONCEALED: [DecoderError; 13] = [
    DecoderError::TRANSPORT_ERROR,
    DecoderError::PARSE_ERROR,
    DecoderError::UNSUPPORTED_EXTENSION_PAYLOAD,
    DecoderError::DECODE_FRAME_ERROR,
    DecoderError::CRC_ERROR,
    DecoderError::INVALID_CODE_BOOK,
    DecoderError::UNSUPPORTED_PREDICTION,
    DecoderError::UNSUPPORTED_CCE,
    DecoderError::UNSUPPORTED_LFE,
    DecoderError::UNSUPPORTED_GAIN_CONTROL_DATA,
    DecoderError::UNSUPPORTED_SBA,
    DecoderError::TNS_READ_ERROR,
    DecoderError::RVLC_ERROR,
];

/// Decoder of raw AAC frames.
pub(crate) struct Aac {
    decoder: Decoder,
    frame: Vec<i16>,
}

impl fmt::Debug for Aac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aac").finish_non_exhaustive()
    }
}

impl Aac {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut decoder = Decoder::new(Transport::Raw);
        let refused = |_| Error::Configuration;
        decoder.set_min_output_channels(CHANNELS).map_err(refused)?;
        decoder.set_max_output_channels(CHANNELS).map_err(refused)?;
        decoder.config_raw(&config.record).map_err(refused)?;
        Ok(Self { decoder, frame: vec![0; FRAME_SAMPLES_MAX] })
    }

    pub(crate) fn decode(&mut self, payload: &[u8], pcm: &mut Pcm) -> Result<(), Error> {
        if payload.len() > FRAME_BYTES_MAX {
            return Err(Error::Damaged);
        }
        let taken = self.decoder.fill(payload).map_err(|_| Error::Damaged)?;
        if taken < payload.len() {
            return Err(Error::Damaged);
        }
        match self.decoder.decode_frame(&mut self.frame) {
            Ok(()) => {}
            Err(error) if CONCEALED.contains(&error) => {}
            Err(_) => return Err(Error::Damaged),
        }
        let info = self.decoder.stream_info();
        let rate = u32::try_from(info.sampleRate).map_err(|_| Error::Damaged)?;
        let channels = usize::try_from(info.numChannels).unwrap_or(0);
        let samples = self.frame.get(..self.decoder.decoded_frame_size()).ok_or(Error::Damaged)?;
        if rate == 0 || channels != CHANNELS || samples.is_empty() {
            return Err(Error::Damaged);
        }
        pcm.rate = rate;
        pcm.samples.extend(samples.iter().map(|sample| f32::from(*sample) / 32_768.0));
        Ok(())
    }

    /// Delay that the library adds, without the delay of SBR. Players do not subtract the delay of SBR, and encoders
    /// set their timestamps accordingly.
    pub(crate) fn delay(&self) -> u32 {
        let info = self.decoder.stream_info();
        let sbr = if info.sampleRate > info.aacSampleRate { SBR_DELAY } else { 0 };
        info.outputDelay.saturating_sub(sbr)
    }
}
