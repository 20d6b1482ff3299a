//! The limits of a timeline, in ticks of its timescale.

use core::time::Duration;

use crate::Timescale;

/// The durations, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) timescale: Timescale,
    /// Largest normal step back within a track. It is caused by jitter if units are in decoding order, or by
    /// reordered pictures if timestamps are presentation times.
    pub(super) back: i64,
    /// Maximum distance by which a unit may be ahead of the place that is expected from the units before it
    /// and from its arrival.
    pub(super) slack: i64,
    /// Maximum step forward that is considered a pause of the encoder even if the arrival showed no pause.
    pub(super) pause: i64,
    /// Maximum time between units that is considered their ordinary interval.
    pub(super) step_max: i64,
    /// Assumed interval of units before it is known.
    pub(super) step_first: i64,
    /// If a unit is this close to the place at which a known step of the clock would put it, its track is
    /// assumed to have made the same step.
    pub(super) near: i64,
    /// Time for which known steps of the clock are remembered.
    pub(super) step_memory: i64,
    /// Minimum time without units after which a track is assumed to have been muted.
    pub(super) gap: i64,
    /// If, after a gap, a track is later than the others by more than this, its clock is assumed to have
    /// stood still.
    pub(super) late: i64,
    /// The distance of two tracks by their timestamps is kept if it differs from their distance at arrival by at most
    /// this.
    pub(super) apart: i64,
    /// A track counts as flowing if its last unit arrived within this time.
    pub(super) fresh: i64,
    /// If timestamps stay equal for longer than this, the clock is assumed to stand still.
    pub(super) frozen: i64,
    /// Maximum time for which a unit is held back after its arrival until its end is known.
    pub(super) held: i64,
    /// Length of a measurement window.
    pub(super) window: i64,
    /// If the delay of all tracks changes by more than this within a window, the network is assumed to be
    /// the cause.
    pub(super) absorbed: i64,
    /// Errors larger than this are corrected in a single step, smaller ones gradually.
    pub(super) far: i64,
    /// Sender reports are ignored if they differ from arrival by more than this.
    pub(super) believed: i64,
    /// Sender reports that differ by at most this are considered equal.
    pub(super) agree: i64,
    /// After the first sender reports, a change in the reports is followed once it has been stable
    /// for this long.
    pub(super) settled: i64,
    /// Maximum first timestamp that is kept. If the first timestamp is larger, the stream starts at zero.
    pub(super) start_kept: i64,
    /// Distance between the last unit before a publisher was lost and the first unit after its return.
    pub(super) resume_gap: i64,
}

impl Limits {
    /// Returns the limits for units in decoding order.
    pub(super) fn decoding(timescale: Timescale) -> Self {
        let ms = |ms: i64| Timescale::MILLISECONDS.convert(ms, timescale);
        Self {
            timescale,
            back: ms(100),
            slack: ms(250),
            pause: ms(1000),
            step_max: ms(1000),
            step_first: ms(33),
            near: ms(500),
            step_memory: ms(10_000),
            gap: ms(1000),
            late: ms(1500),
            apart: ms(3000),
            fresh: ms(300),
            frozen: ms(500),
            held: ms(5000),
            window: ms(500),
            absorbed: ms(125),
            far: ms(1000),
            believed: ms(1000),
            agree: ms(50),
            settled: ms(6000),
            start_kept: ms(5000),
            resume_gap: ms(40),
        }
    }

    /// Returns the limits for timestamps that are presentation times.
    pub(super) fn showing(timescale: Timescale) -> Self {
        let ms = |ms: i64| Timescale::MILLISECONDS.convert(ms, timescale);
        Self { back: ms(1000), slack: ms(500), ..Self::decoding(timescale) }
    }

    /// Period in which sender reports that vary too much to be stable are observed. If they varied by at
    /// most `noise`, the track is moved to the middle of the distances that they have shown. If they vary
    /// more, and have not been within `strayed` for this long, arrival decides.
    pub(super) const fn noisy(&self) -> i64 {
        self.settled.saturating_mul(2)
    }

    /// Maximum variation of sender reports within a period (`noisy`) at which the track still follows them.
    pub(super) const fn noise(&self) -> i64 {
        self.agree.saturating_mul(4)
    }

    /// Sender reports whose distance from the track's position is greater than this disagree with the
    /// position.
    pub(super) const fn strayed(&self) -> i64 {
        self.agree.saturating_mul(2)
    }

    /// Longest step that a running clock may make while `passed` ticks go by, including drift.
    pub(super) const fn longest_step(&self, passed: i64) -> i64 {
        let drifted = passed.saturating_add(passed / 4);
        if drifted > self.step_max { drifted } else { self.step_max }
    }

    /// Converts a duration to ticks.
    pub(super) fn ticks_of(&self, duration: Duration) -> i64 {
        let ticks = u64::from(self.timescale.ticks());
        let whole = duration.as_secs().saturating_mul(ticks);
        let rest = u64::from(duration.subsec_nanos()) * ticks / 1_000_000_000;
        i64::try_from(whole.saturating_add(rest)).unwrap_or(i64::MAX)
    }

    /// Converts ticks to microseconds.
    pub(super) fn to_us(self, ticks: i64) -> i64 {
        self.timescale.convert(ticks, Timescale::new(1_000_000))
    }

    /// Converts ticks to milliseconds.
    pub(super) fn to_ms(self, ticks: i64) -> i64 {
        self.timescale.to_ms(ticks)
    }
}
