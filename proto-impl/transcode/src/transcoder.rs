//! The transcoder.

use std::collections::VecDeque;

use bytes::Bytes;
use media::codec::{aac, opus};
use media::{AccessUnit, CodecConfig, Track, TrackId};

use crate::encoder::Encoder;
use crate::feed::Feed;
use crate::line::Line;
use crate::{CLOCK, Error};

/// The wanted codec, and its bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Opus.
    Opus(u32),
    /// AAC-LC.
    Aac(u32),
}

impl Target {
    /// The configuration of the track that is made: 48 kHz, stereo.
    ///
    /// # Errors
    /// None: both are valid. They are read like any other.
    pub fn config(self) -> Result<CodecConfig, media::codec::Error> {
        Ok(match self {
            Self::Opus(_) => CodecConfig::Opus(opus::Config::of_channels(2)?),
            // AAC LC, 48 kHz, two channels.
            Self::Aac(_) => CodecConfig::Aac(aac::Config::of_parts(2, 3, 2)?),
        })
    }

    fn encoder(self) -> Result<Encoder, Error> {
        match self {
            Self::Opus(bits) => Encoder::opus(bits),
            Self::Aac(bits) => Encoder::aac(bits),
        }
    }
}

/// Whether units of this configuration can be decoded.
#[must_use]
pub const fn can_decode(config: &CodecConfig) -> bool {
    match config {
        CodecConfig::Aac(_) | CodecConfig::Opus(_) | CodecConfig::Mp3(_) | CodecConfig::G711(_) => true,
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

/// Units that wait to be taken; beyond, the oldest go. A unit of a second and a gap of two make fewer.
const MADE_MAX: usize = 256;

/// The counts of a transcoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Units that were decoded.
    pub decoded: u64,
    /// Units that could not be.
    pub damaged: u64,
    /// Units that were made.
    pub encoded: u64,
    /// Gaps, and what came twice: how often samples were put in step by more than stretching.
    pub jumps: u64,
    /// Samples that were added or left out by stretching.
    pub stretched: u64,
}

/// Makes one audio track of another. See the crate's description.
#[derive(Debug)]
pub struct Transcoder {
    target: Target,
    encoder: Encoder,
    feed: Option<Feed>,
    line: Line,
    /// The time of the first unit: nothing is made for times before.
    first: Option<i64>,
    made: VecDeque<AccessUnit>,
    stats: Stats,
    frame: Vec<f32>,
}

impl Transcoder {
    /// Creates a transcoder. Of what, the units will tell.
    ///
    /// # Errors
    /// [`Error::Configuration`]: the encoder refuses the bit rate.
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

    /// A unit of the source, and the track as it is with this unit.
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

    /// Encodes the whole frames of the line.
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

    /// The next unit that was made. Its times are ticks of 48 kHz; track and epoch are the caller's to set.
    pub fn poll_unit(&mut self) -> Option<AccessUnit> {
        self.made.pop_front()
    }

    /// The counts so far.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
