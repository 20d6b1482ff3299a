//! Transcoder of an audio track.

use std::collections::VecDeque;

use bytes::Bytes;
use media::codec::{aac, opus};
use media::{AccessUnit, CodecConfig, Track, TrackId};

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::feed::Feed;
use crate::line::Line;
use crate::{CLOCK, Error};

/// Target codec and its bit rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Opus with its bits per second.
    Opus(u32),
    /// AAC-LC with its bits per second.
    Aac(u32),
}

impl Target {
    /// Configuration of the output track: 48 kHz, stereo.
    ///
    /// # Errors
    /// Never returns an error, because both configurations are valid. They are parsed like any other.
    pub fn config(self) -> Result<CodecConfig, media::codec::Error> {
        Ok(match self {
            Self::Opus(_) => CodecConfig::Opus(opus::Config::of_channels(2)?),
            // AAC LC, 48 kHz, two channels.
            Self::Aac(_) => CodecConfig::Aac(aac::Config::of_parts(2, 3, 2)?),
        })
    }

    /// True if this build can encode the target. AAC requires the feature `fdk-aac`.
    #[must_use]
    pub const fn can_encode(self) -> bool {
        match self {
            Self::Opus(_) => true,
            Self::Aac(_) => cfg!(feature = "fdk-aac"),
        }
    }

    fn encoder(self) -> Result<Encoder, Error> {
        match self {
            Self::Opus(bits) => Encoder::opus(bits),
            Self::Aac(bits) => Encoder::aac(bits),
        }
    }
}

/// Returns whether units of this configuration can be decoded.
#[must_use]
pub const fn can_decode(config: &CodecConfig) -> bool {
    match config {
        CodecConfig::Aac(config) => Decoder::takes_aac(config),
        CodecConfig::Opus(_) | CodecConfig::Mp3(_) | CodecConfig::G711(_) => true,
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => false,
    }
}

/// Maximum number of queued units. Beyond it, the oldest are dropped. Even an input unit of one second after a gap of
/// two seconds makes fewer than this.
const MADE_MAX: usize = 256;

/// Counters of a transcoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Decoded units.
    pub decoded: u64,
    /// Damaged units that could not be decoded.
    pub damaged: u64,
    /// Encoded units.
    pub encoded: u64,
    /// Number of times that gaps or repetitions moved samples by more than stretching can.
    pub jumps: u64,
    /// Samples that stretching added or removed.
    pub stretched: u64,
}

/// Transcoder that makes an audio track from another. See the crate's description.
#[derive(Debug)]
pub struct Transcoder {
    target: Target,
    encoder: Encoder,
    feed: Option<Feed>,
    line: Line,
    /// Time of the first unit. No output is made for earlier times.
    first: Option<i64>,
    made: VecDeque<AccessUnit>,
    stats: Stats,
    frame: Vec<f32>,
}

impl Transcoder {
    /// Creates a transcoder. The source's configuration is passed with each unit.
    ///
    /// # Errors
    /// Returns [`Error::Configuration`] if the encoder refuses the bit rate, [`Error::Codec`] if this build
    /// has no such encoder.
    pub fn new(target: Target) -> Result<Self, Error> {
        Ok(Self {
            target,
            encoder: target.encoder()?,
            feed: None,
            line: Line::default(),
            first: None,
            made: VecDeque::new(),
            stats: Stats::default(),
            frame: Vec::new(),
        })
    }

    /// Handles a unit of the source. `track` is the current state of its track.
    pub fn handle_unit(&mut self, track: &Track, unit: &AccessUnit) {
        let start = track.timescale.convert(unit.pts, CLOCK);
        self.first.get_or_insert(start);
        let feed = match self.feed.take().and_then(|mut feed| feed.fits(track).then_some(feed)) {
            Some(feed) => self.feed.insert(feed),
            None => self.feed.insert(Feed::new(track)),
        };
        feed.handle_unit(start, &unit.payload, &mut self.line, &mut self.stats);
        self.encode();
    }

    /// Encodes the complete frames of the line.
    fn encode(&mut self) {
        let delay = self.encoder.delay();
        while let Some(start) = self.line.take(self.encoder.frames(), &mut self.frame) {
            let Ok(payload) = self.encoder.encode(&self.frame) else {
                if let Ok(encoder) = self.target.encoder() {
                    self.encoder = encoder;
                }
                continue;
            };
            let pts = start.saturating_sub(delay);
            let Some(payload) = payload.filter(|_| self.first.is_some_and(|first| pts >= first)) else {
                continue;
            };
            if self.made.len() >= MADE_MAX {
                self.made.pop_front();
            }
            self.stats.encoded = self.stats.encoded.saturating_add(1);
            let (track, payload) = (TrackId::AUDIO, Bytes::from(payload));
            let unit = AccessUnit { track, dts: pts, pts, key_frame: false, config_epoch: 0, payload };
            self.made.push_back(unit);
        }
    }

    /// Returns the next output unit. Its times are in ticks of 48 kHz. The caller must set its track and epoch.
    pub fn poll_unit(&mut self) -> Option<AccessUnit> {
        self.made.pop_front()
    }

    /// Counters of the transcoder.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
}

#[cfg(test)]
#[cfg(feature = "fdk-aac")]
mod tests;

#[cfg(test)]
#[cfg(not(feature = "fdk-aac"))]
mod tests {
    use media::Timescale;
    use media::codec::g711;

    use super::*;
    use crate::{SAMPLE_RATE, Silence};

    fn aac(object_type: u8, rate_index: u8, channels: u8) -> CodecConfig {
        CodecConfig::Aac(aac::Config::of_parts(object_type, rate_index, channels).unwrap())
    }

    #[test]
    fn without_the_library_aac_is_not_made_and_only_aac_lc_is_heard() {
        let target = Target::Aac(128_000);
        assert_eq!(Transcoder::new(target).map(drop).unwrap_err(), Error::Codec);
        assert!(!target.can_encode() && Target::Opus(64_000).can_encode());
        // AAC-LC with two channels at 48 kHz and at 24 kHz, AAC-LC with six channels, and HE-AAC.
        let taken =
            [aac(2, 3, 2), aac(2, 6, 2), aac(2, 3, 6), aac(5, 3, 2)].map(|config| can_decode(&config));
        assert_eq!(taken, [true, false, false, false]);
        assert!(can_decode(&CodecConfig::G711(g711::Config { law: g711::Law::Mu, channels: 1 })));
    }

    #[test]
    fn aac_lc_still_becomes_opus() {
        let track = Track::new(TrackId::AUDIO, Target::Aac(0).config().unwrap(), Timescale::new(SAMPLE_RATE));
        let mut transcoder = Transcoder::new(Target::Opus(64_000)).unwrap();
        let mut silence = Silence::default();
        silence.advance(0);
        silence.advance(48_000);
        while let Some(unit) = silence.poll_unit() {
            transcoder.handle_unit(&track, &unit);
        }
        assert!(transcoder.stats().encoded > 40 && transcoder.stats().damaged == 0);
    }
}
