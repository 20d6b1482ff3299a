//! The limits of a timeline, in ticks of its timescale.

use core::time::Duration;

use crate::Timescale;

/// Named durations in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) timescale: Timescale,
    /// Largest ordinary step back within a track: jitter if units come in decoding order, or reordered
    /// pictures if timestamps are presentation times.
    pub(super) back: i64,
    /// Largest distance by which a unit may be ahead of the place that its predecessors and its arrival
    /// suggest.
    pub(super) slack: i64,
    /// Largest step forward that counts as a pause of the encoder even if there was no pause in the arrival.
    pub(super) pause: i64,
    /// Longest time between units that still counts as their ordinary interval.
    pub(super) step_max: i64,
    /// Assumed interval of units before it is known.
    pub(super) step_first: i64,
    /// A unit this close to the place that a known step of the clock would give it is taken to have made the
    /// same step.
    pub(super) near: i64,
    /// Time for which known steps of the clock are remembered.
    pub(super) step_memory: i64,
    /// Minimum time without units after which a track may have been muted.
    pub(super) gap: i64,
    /// After a gap, a track that is later than the others by more than this had a clock that stood still.
    pub(super) late: i64,
    /// Largest distance between two tracks that is taken from their timestamps.
    pub(super) apart: i64,
    /// A track counts as flowing if its last unit arrived within this time.
    pub(super) fresh: i64,
    /// Equal timestamps for longer than this mean that the clock stands still.
    pub(super) frozen: i64,
    /// Longest time between the arrival of a unit and the moment at which it was known to be complete.
    pub(super) held: i64,
    /// Length of a measurement window.
    pub(super) window: i64,
    /// A larger change of the delay of all tracks within a window is attributed to the network.
    pub(super) absorbed: i64,
    /// Larger errors are corrected in one step instead of gradually.
    pub(super) far: i64,
    /// Largest distance from arrival at which sender reports are believed.
    pub(super) believed: i64,
    /// Reports that differ by no more than this count as equal.
    pub(super) agree: i64,
    /// Later changes in reports count once they have been stable for this long.
    pub(super) settled: i64,
    /// Largest movement of a track per unit because of reports.
    pub(super) nudge: i64,
    /// Largest first timestamp that is kept. A stream with a later one starts at zero.
    pub(super) start_kept: i64,
    /// Distance between the last unit before a publisher was lost and the first after its return.
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
            nudge: ms(10),
            start_kept: ms(5000),
            resume_gap: ms(40),
        }
    }

    /// Returns the limits for timestamps that are presentation times.
    pub(super) fn showing(timescale: Timescale) -> Self {
        let ms = |ms: i64| Timescale::MILLISECONDS.convert(ms, timescale);
        Self { back: ms(1000), slack: ms(500), ..Self::decoding(timescale) }
    }

    /// Longest step of a clock that kept running while `passed` ticks went by, drift included.
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
