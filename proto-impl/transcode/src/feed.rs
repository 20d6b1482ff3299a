//! From units to the line: decoding, resampling, and keeping samples in step with the times that they came with.

use media::{CodecConfig, Timescale, Track};

use crate::decoder::{Decoder, Pcm};
use crate::line::{Line, stretch};
use crate::resampler::Resampler;
use crate::transcoder::Stats;
use crate::{CHANNELS, CLOCK, Error};

/// Ticks by which a unit may come before or behind its turn. Encoders stamp by a clock that is not that of the samples; what is more
/// is a gap, or comes twice. 60 ms.
const STRAY_MAX: i64 = 2880;
/// The number of units in a row off by over [`LOST_MIN`], all to the same side, that are no jitter of a clock: something is missing, or too
/// much.
const STRAYS_MAX: u32 = 8;
/// From so many ticks on a codec that can make up for lost units does. 10 ms, half a packet.
const LOST_MIN: i64 = 480;
/// Samples are stretched when their mean distance from their times is beyond this, ...
const DRIFT_MAX: i64 = 240;
/// ... until it is below this, ...
const DRIFT_MIN: i64 = 48;
/// ... by at most one in so many, which nobody hears.
const STRETCH: i64 = 200;
/// The mean is one of about so many units.
const DRIFT_UNITS: i64 = 32;
/// The number of damaged units in a row after which the decoder begins anew.
const DAMAGED_MAX: u32 = 8;

/// The decoder of a configuration, and where its samples stand.
#[derive(Debug)]
pub(crate) struct Feed {
    config: CodecConfig,
    epoch: u32,
    /// `None`: the configuration cannot be decoded.
    decoder: Option<Decoder>,
    resampler: Option<Resampler>,
    clock: Clock,
    /// Damaged units since the last good one.
    damaged: u32,
    /// Samples of each channel of the last good unit.
    unit_frames: usize,
    pcm: Pcm,
    resampled: Vec<f32>,
    stretched: Vec<f32>,
}

/// The relation of times and samples.
#[derive(Debug, Default)]
struct Clock {
    /// Hz of what is decoded.
    rate: u32,
    /// The time of the first sample since the last jump; `None`: the next one is the first.
    base: Option<i64>,
    /// Samples of each channel since then.
    frames: i64,
    /// The mean distance of times from samples: positive when samples are missing.
    drift: i64,
    /// The distance is being made smaller.
    stretches: bool,
    /// The last units that were off by over [`LOST_MIN`] to one side.
    strays: u32,
    /// Whether those units came too late; else too early.
    strays_late: bool,
}

impl Clock {
    /// The time by which a unit of this time comes too late; 0 behind a jump.
    fn late(&self, start: i64) -> i64 {
        let since = Timescale::new(self.rate).convert(self.frames, CLOCK);
        self.base.map_or(0, |base| start.saturating_sub(base.saturating_add(since)))
    }

    /// Whether the samples have to be put in step at once, at a unit that is late by so much.
    fn is_stray(&mut self, late: i64) -> bool {
        if late.abs() <= LOST_MIN {
            self.strays = 0;
        } else if self.strays > 0 && self.strays_late == (late > 0) {
            self.strays += 1;
        } else {
            (self.strays, self.strays_late) = (1, late > 0);
        }
        late.abs() > STRAY_MAX || self.strays >= STRAYS_MAX
    }

    /// Notes the distance of a unit that is in its place. The samples to add, of so many; negative: to leave out.
    fn stretch(&mut self, late: i64, frames: i64) -> i64 {
        // Scaled, so that small distances are not rounded away.
        self.drift += (late * DRIFT_UNITS - self.drift) / DRIFT_UNITS;
        let mean = self.drift / DRIFT_UNITS;
        self.stretches = mean.abs() > if self.stretches { DRIFT_MIN } else { DRIFT_MAX };
        if !self.stretches {
            return 0;
        }
        let most = (frames / STRETCH).max(1);
        let by = mean.clamp(-most, most);
        self.base = self.base.map(|base| base.saturating_add(by));
        self.drift -= by * DRIFT_UNITS;
        by
    }
}

impl Feed {
    pub(crate) fn new(track: &Track) -> Self {
        Self {
            config: track.config.clone(),
            epoch: track.epoch,
            decoder: Decoder::new(&track.config).ok(),
            resampler: None,
            clock: Clock::default(),
            damaged: 0,
            unit_frames: 0,
            pcm: Pcm::default(),
            resampled: Vec::new(),
            stretched: Vec::new(),
        }
    }

    /// Whether it goes on with this track as it is now.
    pub(crate) fn fits(&mut self, track: &Track) -> bool {
        if self.epoch != track.epoch && self.config == track.config {
            self.epoch = track.epoch;
        }
        self.epoch == track.epoch
    }

    /// Decodes a unit of this time, in ticks of 48 kHz, and appends it to the line.
    pub(crate) fn handle_unit(&mut self, start: i64, payload: &[u8], line: &mut Line, stats: &mut Stats) {
        let Some(decoder) = &mut self.decoder else {
            stats.damaged = stats.damaged.saturating_add(1);
            return;
        };
        let late = self.clock.late(start);
        if late >= LOST_MIN
            && usize::try_from(late).is_ok_and(|late| decoder.conceal(late, payload, &mut self.pcm))
        {
            let made_up = i64::try_from(self.pcm.samples.len() / CHANNELS).unwrap_or(0);
            let _ = self.append(start.saturating_sub(made_up), line, stats);
        }
        let Some(decoder) = &mut self.decoder else { return };
        let done = decoder.decode(payload, &mut self.pcm).and_then(|()| self.append(start, line, stats));
        if done.is_ok() {
            self.damaged = 0;
            self.unit_frames = self.pcm.samples.len() / CHANNELS;
            stats.decoded = stats.decoded.saturating_add(1);
            return;
        }
        stats.damaged = stats.damaged.saturating_add(1);
        self.damaged = self.damaged.saturating_add(1);
        self.stand_in(start, line, stats);
        if self.damaged >= DAMAGED_MAX {
            self.damaged = 0;
            self.decoder = Decoder::new(&self.config).ok();
            self.clock = Clock::default();
        }
    }

    /// Puts silence in place of a damaged unit, as long as the unit before it was.
    fn stand_in(&mut self, start: i64, line: &mut Line, stats: &mut Stats) {
        if self.clock.base.is_some() && self.unit_frames > 0 {
            self.pcm.rate = self.clock.rate;
            self.pcm.samples.clear();
            self.pcm.samples.resize(self.unit_frames * CHANNELS, 0.0);
            let _ = self.append(start, line, stats);
        }
    }

    /// Appends what was decoded.
    fn append(&mut self, start: i64, line: &mut Line, stats: &mut Stats) -> Result<(), Error> {
        if self.clock.rate != self.pcm.rate {
            self.resampler = Resampler::from_rate(self.pcm.rate)?;
            self.clock = Clock { rate: self.pcm.rate, ..Clock::default() };
        }
        let late = self.clock.late(start);
        let is_stray = self.clock.is_stray(late);
        if self.clock.base.is_none() || is_stray {
            stats.jumps = stats.jumps.saturating_add(u64::from(is_stray));
            self.resampler = Resampler::from_rate(self.pcm.rate)?;
            self.clock = Clock { rate: self.pcm.rate, base: Some(start), ..Clock::default() };
            line.join(start.saturating_sub(self.delay()));
        }
        let frames = i64::try_from(self.pcm.samples.len() / CHANNELS).unwrap_or(0);
        self.clock.frames = self.clock.frames.saturating_add(frames);
        let samples = match &mut self.resampler {
            None => &self.pcm.samples,
            Some(resampler) => {
                self.resampled.clear();
                resampler.process(&self.pcm.samples, &mut self.resampled)?;
                &self.resampled
            }
        };
        let late = if is_stray { 0 } else { late };
        let by = self.clock.stretch(late, i64::try_from(samples.len() / CHANNELS).unwrap_or(0));
        if by == 0 {
            line.push(samples);
        } else {
            stretch(samples, by, &mut self.stretched);
            line.push(&self.stretched);
            stats.stretched = stats.stretched.saturating_add(by.unsigned_abs());
        }
        Ok(())
    }

    /// The number of ticks by which samples lag behind the times of their units.
    fn delay(&self) -> i64 {
        let decoder = self.decoder.as_ref().map_or(0, Decoder::delay);
        let decoder = Timescale::new(self.clock.rate).convert(i64::from(decoder), CLOCK);
        let resampler = self.resampler.as_ref().map_or(0, Resampler::delay);
        decoder.saturating_add(i64::try_from(resampler).unwrap_or(0))
    }
}
