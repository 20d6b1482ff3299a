//! A control loop that moves a clock back to its correct position by letting it run a little faster or
//! slower.

use super::limits::Limits;

/// Number of successive measurement windows in which the error of a clock must exceed the threshold
/// before the clock is corrected.
const DRIFT_WINDOWS: u8 = 2;
/// Number of successive windows without a relevant error after which the correction stops.
const CALM_WINDOWS: u8 = 20;
/// Divisor of the integral gain per window. (The proportional part corrects the whole error within a second.)
const INTEGRAL_DIVISOR: i64 = 4;
/// Maximum error from which drift is learnt. Larger errors are steps, which are corrected without learning.
const LEARNT_FROM_US: i64 = 300_000;
/// Maximum drift that is learnt, in millionths.
const LEARNT_MAX_PPM: i64 = 200_000;
/// Maximum change of speed, in millionths.
const SPEED_MAX_PPM: i64 = 250_000;
/// Maximum change of speed, in millionths, for an error of more than a second.
const SPEED_FAR_MAX_PPM: i64 = 500_000;
/// A learnt drift below this counts as zero.
const LEARNT_MIN_PPM: i64 = 2_000;
/// Divisor for the weight of the newest window in the average noise.
const NOISE_DIVISOR: i64 = 8;
/// Maximum noise that one window contributes to the average.
const NOISE_MAX_US: i64 = 500_000;
/// Maximum noise at which arrival is considered even.
const QUIET_US: i64 = 5_000;
/// Number of measurement windows per second.
const WINDOWS_A_SECOND: i64 = 2;
const MILLION: i64 = 1_000_000;

/// Thresholds of a control loop, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    /// The loop starts if errors are larger than this in [`Thresholds::windows`] successive windows.
    pub(super) start_us: i64,
    /// Errors below this count as zero.
    pub(super) calm_us: i64,
    /// Number of successive windows with a larger error that start the loop.
    pub(super) windows: u8,
}

impl Thresholds {
    /// Thresholds for one track against the others.
    pub(super) const TRACK: Self = Self { start_us: 60_000, calm_us: 15_000, windows: DRIFT_WINDOWS };
    /// Thresholds for one track whose error looks like a drift since its first moment.
    pub(super) const EARLY: Self = Self { start_us: 30_000, ..Self::TRACK };
    /// Thresholds for all tracks together, compared with arrival. They are higher than for one
    /// track, because networks delay all tracks together.
    pub(super) const STREAM: Self = Self { start_us: 250_000, calm_us: 25_000, windows: 2 * DRIFT_WINDOWS };
}

/// Correction that moves a clock back to its correct position.
#[derive(Debug, Clone, Default)]
pub(super) struct Slew {
    active: bool,
    over: u8,
    calm: u8,
    learnt_ppm: i64,
    /// Part of the last error that must still be corrected, in millionths of a tick.
    left: i64,
    /// Maximum change of speed while this part is corrected, in millionths.
    speed_ppm: i64,
    /// Movement that is due but amounts to less than a tick, in millionths of a tick.
    owed: i64,
    noise: Noise,
}

/// Noise of the measured errors: the average distance of each error from the line through the two errors
/// before it. Drift alone gives a straight line, which has no noise.
#[derive(Debug, Clone, Copy, Default)]
struct Noise {
    last_us: [i64; 2],
    mean_us: i64,
}

impl Noise {
    const NONE: Self = Self { last_us: [0; 2], mean_us: 0 };

    fn note(&mut self, error_us: i64) {
        let [last, before] = self.last_us;
        let off = error_us.saturating_sub(last).saturating_sub(last.saturating_sub(before)).saturating_abs();
        self.mean_us =
            self.mean_us.saturating_add(off.min(NOISE_MAX_US).saturating_sub(self.mean_us) / NOISE_DIVISOR);
        self.last_us = [error_us, last];
    }
}

impl Slew {
    /// Initial state: the clock is not corrected.
    pub(super) const NEW: Self = Self {
        active: false,
        over: 0,
        calm: 0,
        learnt_ppm: 0,
        left: 0,
        speed_ppm: 0,
        owed: 0,
        noise: Noise::NONE,
    };

    /// True if arrival has recently been even.
    pub(super) const fn is_quiet(&self) -> bool {
        self.noise.mean_us < QUIET_US
    }

    /// True if a correction is active.
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    /// Handles the error of a window: the number of ticks by which the clock is ahead. Returns true if the
    /// loop has just started.
    pub(super) fn handle_error(&mut self, error: i64, limits: &Limits, thresholds: Thresholds) -> bool {
        let error_us = limits.to_us(error);
        // Jitter of the arrival causes the same amount of jitter in the measurement, so the noise is
        // subtracted.
        let off = error_us.saturating_abs().saturating_sub(self.noise.mean_us);
        self.noise.note(error_us);
        if !self.active {
            self.over = if off > thresholds.start_us { self.over.saturating_add(1) } else { 0 };
            if self.over < thresholds.windows {
                return false;
            }
            *self = Self { active: true, noise: self.noise, ..Self::NEW };
            self.correct(error, error_us);
            return true;
        }
        let is_calm = off < thresholds.calm_us && self.learnt_ppm.saturating_abs() < LEARNT_MIN_PPM;
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        if self.calm >= CALM_WINDOWS {
            *self = Self { noise: self.noise, ..Self::NEW };
            return false;
        }
        if error_us.saturating_abs() <= LEARNT_FROM_US {
            let learnt = self.learnt_ppm.saturating_add(error_us / INTEGRAL_DIVISOR);
            self.learnt_ppm = learnt.clamp(-LEARNT_MAX_PPM, LEARNT_MAX_PPM);
        }
        self.correct(error, error_us);
        false
    }

    /// Sets the part of an error that is to be corrected before the next window ends.
    fn correct(&mut self, error: i64, error_us: i64) {
        self.left = error.saturating_mul(MILLION / WINDOWS_A_SECOND);
        let is_far = error_us.saturating_abs() > MILLION;
        self.speed_ppm = if is_far { SPEED_FAR_MAX_PPM } else { SPEED_MAX_PPM };
    }

    /// Returns the number of ticks to subtract from the clock, given that it has just advanced by `step`
    /// ticks.
    pub(super) fn advance(&mut self, step: i64) -> i64 {
        if !self.active {
            return 0;
        }
        let most = self.speed_ppm.saturating_mul(step);
        let part = self.left.clamp(most.saturating_neg(), most);
        self.left = self.left.saturating_sub(part);
        self.owed = self.owed.saturating_add(part).saturating_add(self.learnt_ppm.saturating_mul(step));
        let ticks = self.owed / MILLION;
        self.owed = self.owed.saturating_sub(ticks.saturating_mul(MILLION));
        ticks
    }
}
