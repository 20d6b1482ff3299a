//! Decoder of MP3 (ISO/IEC 11172-3, 13818-3), with symphonia.

use std::fmt;

use media::codec::mp3::Header;
use symphonia_bundle_mp3::MpaDecoder;
use symphonia_core::codecs::audio::AudioDecoderOptions;
use symphonia_core::codecs::audio::well_known::CODEC_ID_MP3;

use super::{Pcm, symphonia};
use crate::{Error, UNIT_SECONDS_MAX};

/// Decoder of MP3 frames.
pub(crate) struct Mp3 {
    decoder: MpaDecoder,
    /// Rate and channels of the frames for which the decoder was made.
    config: Option<media::codec::mp3::Config>,
    frame: Vec<f32>,
}

impl fmt::Debug for Mp3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mp3").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Mp3 {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { decoder: decoder()?, config: None, frame: Vec::new() })
    }

    /// Decodes a unit of whole frames, usually one. Stops at a frame of another rate, and after one second
    /// of samples. The new rate applies from the next unit on.
    pub(crate) fn decode(&mut self, payload: &[u8], pcm: &mut Pcm) -> Result<(), Error> {
        let mut rest = payload;
        let mut rate = None;
        while let Ok(header) = Header::read(rest) {
            let length = header.frame_bytes.unwrap_or(rest.len());
            let Some((frame, behind)) = rest.split_at_checked(length) else { break };
            if *rate.get_or_insert(header.config.sample_rate) != header.config.sample_rate {
                break;
            }
            if self.config != Some(header.config) {
                (self.decoder, self.config) = (decoder()?, Some(header.config));
            }
            // The first frames after a start may refer to bits of earlier frames that never arrived. They
            // are dropped.
            symphonia::decode(&mut self.decoder, frame, &mut self.frame, &mut pcm.samples);
            rest = behind;
            let seconds = usize::try_from(header.config.sample_rate).unwrap_or(0) * UNIT_SECONDS_MAX;
            if rest.is_empty() || pcm.samples.len() / crate::CHANNELS >= seconds {
                break;
            }
        }
        pcm.rate = rate.ok_or(Error::Damaged)?;
        if pcm.samples.is_empty() { Err(Error::Damaged) } else { Ok(()) }
    }
}

fn decoder() -> Result<MpaDecoder, Error> {
    let parameters = symphonia::parameters(CODEC_ID_MP3, &[]);
    MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default()).map_err(|_| Error::Library)
}
