//! Decodes units, resamples them, and keeps the samples in step with the times of the units.

use media::{CodecConfig, Timescale, Track};

use crate::decoder::{Decoder, Pcm};
use crate::line::{Line, stretch};
use crate::resampler::Resampler;
use crate::transcoder::Stats;
use crate::{CHANNELS, CLOCK, Error};

/// Number of ticks by which a unit may be early or late (60 ms). Encoders set timestamps with another clock than that
/// of the samples. A larger difference means that samples are missing or repeated.
const STRAY_MAX: i64 = 2880;
/// If this many consecutive units are off by more than [`LOST_MIN`] in the same direction, samples are missing or
/// repeated. Fewer are considered jitter.
const STRAYS_MAX: u32 = 8;
/// Minimum gap in ticks that is filled by concealment if the codec has it: 10 ms, half a packet.
const LOST_MIN: i64 = 480;
/// Mean distance of samples from the times of their units, in ticks, above which samples are stretched.
const DRIFT_MAX: i64 = 240;
/// Mean distance of samples from the times of their units, in ticks, below which stretching stops.
const DRIFT_MIN: i64 = 48;
/// Limit of stretching: at most one sample in this many, which is inaudible.
const STRETCH: i64 = 200;
/// Approximate number of units over which the mean of the distance is taken.
const DRIFT_UNITS: i64 = 32;
/// Number of consecutive damaged units after which the decoder is restarted.
const DAMAGED_MAX: u32 = 8;

/// Decoder for one configuration, and the position of its samples.
#[derive(Debug)]
pub(crate) struct Feed {
    config: CodecConfig,
    epoch: u32,
    /// Decoder of the units, or `None` if the configuration cannot be decoded.
    decoder: Option<Decoder>,
    resampler: Option<Resampler>,
    clock: Clock,
    /// Number of damaged units since the last good one.
    damaged: u32,
    /// Number of samples per channel in the last good unit.
    unit_frames: usize,
    pcm: Pcm,
    resampled: Vec<f32>,
    stretched: Vec<f32>,
}

/// Relation between the times of units and their samples.
#[derive(Debug, Default)]
struct Clock {
    /// Sample rate of the decoded audio in Hz.
    rate: u32,
    /// Time of the first sample since the last jump. `None`: the next sample becomes the first.
    base: Option<i64>,
    /// Number of samples per channel since the last jump.
    frames: i64,
    /// Mean lateness of units in ticks, multiplied by `DRIFT_UNITS`. Positive if samples are missing.
    drift: i64,
    /// True while samples are stretched to reduce the mean lateness.
    stretches: bool,
    /// Number of consecutive units that were off by more than [`LOST_MIN`] in the same direction.
    strays: u32,
    /// True if the units counted in `strays` were late, false if they were early.
    strays_late: bool,
}

impl Clock {
    /// Number of ticks by which a unit at `start` is late; 0 after a jump.
    fn late(&self, start: i64) -> i64 {
        let since = Timescale::new(self.rate).convert(self.frames, CLOCK);
        self.base.map_or(0, |base| start.saturating_sub(base.saturating_add(since)))
    }

    /// Returns whether the samples must jump to the time of their unit, instead of being stretched. `late` is
    /// the number of ticks by which the unit is late.
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

    /// Records the lateness of a unit that needs no jump. Returns the number of samples by which the unit's
    /// `frames` samples must be lengthened; negative if they must be shortened.
    fn stretch(&mut self, late: i64, frames: i64) -> i64 {
        // The mean is scaled, so that small distances are not rounded away.
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

    /// Returns whether the feed can continue with this state of the track, that is, whether the configuration is the
    /// same.
    pub(crate) fn fits(&mut self, track: &Track) -> bool {
        if self.epoch != track.epoch && self.config == track.config {
            self.epoch = track.epoch;
        }
        self.epoch == track.epoch
    }

    /// Decodes a unit and appends its samples to the line. `start` is its time in ticks of 48 kHz.
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

    /// Appends silence instead of a damaged unit. The silence is as long as the previous unit.
    fn stand_in(&mut self, start: i64, line: &mut Line, stats: &mut Stats) {
        if self.clock.base.is_some() && self.unit_frames > 0 {
            self.pcm.rate = self.clock.rate;
            self.pcm.samples.clear();
            self.pcm.samples.resize(self.unit_frames * CHANNELS, 0.0);
            let _ = self.append(start, line, stats);
        }
    }

    /// Appends the decoded samples to the line.
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

    /// Number of ticks by which the samples are later than the times of their units, because of decoder and
    /// resampler.
    fn delay(&self) -> i64 {
        let decoder = self.decoder.as_ref().map_or(0, Decoder::delay);
        let decoder = Timescale::new(self.clock.rate).convert(i64::from(decoder), CLOCK);
        let resampler = self.resampler.as_ref().map_or(0, Resampler::delay);
        decoder.saturating_add(i64::try_from(resampler).unwrap_or(0))
    }
}
