//! MP3 (ISO/IEC 11172-3, 13818-3), by symphonia.

use std::fmt;

use media::codec::mp3::Header;
use symphonia_bundle_mp3::MpaDecoder;
use symphonia_core::codecs::audio::well_known::CODEC_ID_MP3;
use symphonia_core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia_core::packet::PacketRef;
use symphonia_core::units::{Duration, Timestamp};

use super::Pcm;
use crate::{Error, UNIT_SECONDS_MAX, fold};

/// A decoder of frames.
pub(crate) struct Mp3 {
    decoder: MpaDecoder,
    /// Rate and channels of the frames that the decoder was made for.
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

    /// A unit has whole frames, usually one. Those of one rate are taken, up to a second; another begins with the next unit.
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
            self.frame(frame, usize::from(header.config.channels), &mut pcm.samples);
            rest = behind;
            let seconds = usize::try_from(header.config.sample_rate).unwrap_or(0) * UNIT_SECONDS_MAX;
            if rest.is_empty() || pcm.samples.len() / crate::CHANNELS >= seconds {
                break;
            }
        }
        pcm.rate = rate.ok_or(Error::Damaged)?;
        if pcm.samples.is_empty() { Err(Error::Damaged) } else { Ok(()) }
    }

    /// The first frames after a start may refer to bits of frames that never came; they are left out.
    fn frame(&mut self, frame: &[u8], channels: usize, out: &mut Vec<f32>) {
        let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, frame);
        if let Ok(buffer) = self.decoder.decode_ref(&packet) {
            buffer.copy_to_vec_interleaved(&mut self.frame);
            fold::vorbis(&self.frame, channels, out);
        }
    }
}

fn decoder() -> Result<MpaDecoder, Error> {
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(CODEC_ID_MP3);
    MpaDecoder::try_new(&parameters, &AudioDecoderOptions::default()).map_err(|_| Error::Library)
}
