//! Decoder of Opus (RFC 6716), with its reference library. More than two channels follow RFC 7845 §5.1.1.

use std::fmt;

use media::codec::opus::{Config, packet_samples};
use opus::MSDecoder;

use super::Pcm;
use crate::{Error, SAMPLE_RATE, fold};

/// Number of samples per channel in the longest packet: 120 ms.
const PACKET_FRAMES_MAX: usize = 5760;
/// Maximum number of samples per channel that are concealed when packets were lost. After 100 ms, concealment would
/// only produce silence.
const CONCEALED_FRAMES_MAX: usize = 4800;
/// Step in samples for the length of a concealment: 2.5 ms.
const CONCEALED_STEP: usize = 120;
/// Maximum number of channels for which RFC 7845 defines an order.
const CHANNELS_MAX: usize = 8;

/// Decoder of Opus packets.
pub(crate) struct Opus {
    decoder: MSDecoder,
    channels: usize,
    packet: Vec<f32>,
}

impl fmt::Debug for Opus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opus").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Opus {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let layout = Layout::of(config)?;
        let decoder = MSDecoder::new(SAMPLE_RATE, layout.streams, layout.coupled, &layout.mapping)
            .map_err(|_| Error::Configuration)?;
        let channels = layout.mapping.len();
        Ok(Self { decoder, channels, packet: vec![0.0; PACKET_FRAMES_MAX * channels] })
    }

    pub(crate) fn decode(&mut self, payload: &[u8], pcm: &mut Pcm) -> Result<(), Error> {
        // An empty packet must not reach the library: it would be taken for a lost packet.
        packet_samples(payload).ok_or(Error::Damaged)?;
        self.run(payload, PACKET_FRAMES_MAX, false, pcm)
    }

    /// Conceals missing packets. If `next` contains a repetition of the last missing packet (RFC 6716 §2.1.7), that
    /// packet is recovered from it.
    pub(crate) fn conceal(&mut self, frames: usize, next: &[u8], pcm: &mut Pcm) -> bool {
        let frames = frames / CONCEALED_STEP * CONCEALED_STEP;
        if frames == 0 || frames > CONCEALED_FRAMES_MAX {
            return false;
        }
        let last = packet_samples(next).and_then(|samples| usize::try_from(samples).ok()).unwrap_or(0);
        let last = if last <= frames { last } else { 0 };
        let made_up = frames - last;
        (made_up == 0 || self.run(&[], made_up, false, pcm).is_ok())
            && (last == 0 || self.run(next, last, true, pcm).is_ok())
    }

    fn run(&mut self, payload: &[u8], frames: usize, fec: bool, pcm: &mut Pcm) -> Result<(), Error> {
        let room = self.packet.get_mut(..frames * self.channels).ok_or(Error::Damaged)?;
        let decoded = self.decoder.decode_float(payload, room, fec).map_err(|_| Error::Damaged)?;
        let samples = self.packet.get(..decoded * self.channels).ok_or(Error::Library)?;
        pcm.rate = SAMPLE_RATE;
        fold::vorbis(samples, self.channels, &mut pcm.samples);
        Ok(())
    }
}

/// Distribution of channels over the streams of a packet.
struct Layout {
    streams: u8,
    coupled: u8,
    mapping: Vec<u8>,
}

impl Layout {
    /// Reads the layout from the header. Without a header, or with mapping family 0, there is a single stream. It is
    /// always decoded as stereo, because each of its packets may have one or two channels.
    fn of(config: &Config) -> Result<Self, Error> {
        let stereo = Self { streams: 1, coupled: 1, mapping: vec![0, 1] };
        // The first 18 bytes of the header are the magic, version, channels, pre-skip, rate and gain. The mapping
        // family and its table follow (RFC 7845 §5.1).
        let Some(family) = config.record.get(18) else { return Ok(stereo) };
        match family {
            0 => Ok(stereo),
            1 => {
                let channels = usize::from(config.channels);
                let table = config.record.get(19..).ok_or(Error::Configuration)?;
                let [streams, coupled, mapping @ ..] = table else { return Err(Error::Configuration) };
                let mapping = mapping.get(..channels).ok_or(Error::Configuration)?.to_vec();
                if channels > CHANNELS_MAX {
                    return Err(Error::Configuration);
                }
                Ok(Self { streams: *streams, coupled: *coupled, mapping })
            }
            _ => Err(Error::Configuration),
        }
    }
}
