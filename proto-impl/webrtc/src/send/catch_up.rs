//! Timestamps for a viewer who starts at an earlier point than the live edge.
//!
//! Pictures before the edge leave as fast as the path allows. A receiver derives the sender's clock from
//! timestamps and arrival times, so the timestamps of these pictures follow the times at which they leave: the
//! viewer shows them on arrival, and is in sync from the edge on. If the timestamps were squeezed into a fixed
//! time while the path takes longer, the sender's clock would seem slow, and browsers would delay the following
//! pictures for seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Delay up to which a picture counts as on time: the time that the pacer may take to send a picture.
const ON_TIME: Duration = Duration::from_millis(30);
/// Time after which timestamps return to those of the track, even if pictures still leave late.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(5);
/// With each picture, the shift is reduced by the timestamp step to the previous picture, divided by this.
const RETURN_SHARE: u32 = 5;
/// Longest step between two pictures, in seconds; a longer one is attributed to a change of the clock.
const STEP_MAX: u32 = 60;
/// Maximum number of units whose shift is kept for retransmissions: ten seconds at 100 pictures per second.
const SHIFTS_MAX: usize = 1024;
/// Time for which shifts are kept after the last shifted unit.
const SHIFTS_KEPT: Duration = Duration::from_secs(10);

/// Shift of a unit's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shift {
    /// Timestamp on the track's clock.
    of: u32,
    /// Ticks added to the timestamp.
    ticks: u32,
}

/// The shifts of timestamps, described in the module.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Timestamp of the live edge when the viewer started, and the time of that start.
    edge: (u32, Instant),
    clock_rate: u32,
    /// True until the first unit that leaves on time.
    is_behind: bool,
    latest: Option<Shift>,
    /// Shifts of recent units that were shifted.
    shifts: VecDeque<Shift>,
    /// Time at which the last shifted unit left.
    shifted: Instant,
}

impl CatchUp {
    /// Creates the state for a viewer who starts now; `edge` is the timestamp of the live edge.
    pub(super) const fn new(now: Instant, edge: u32, clock_rate: u32) -> Self {
        Self {
            edge: (edge, now),
            clock_rate,
            is_behind: true,
            latest: None,
            shifts: VecDeque::new(),
            shifted: now,
        }
    }

    /// Lets timestamps return to those of the track from now on.
    pub(super) const fn end(&mut self) {
        self.is_behind = false;
    }

    /// True if neither new packets nor possible retransmissions are shifted any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_kept = now.saturating_duration_since(self.shifted) < SHIFTS_KEPT;
        !self.is_behind && self.latest.is_none_or(|latest| latest.ticks == 0) && !is_kept
    }

    /// Returns the ticks to add to the timestamp of a packet that leaves for the first time, now.
    pub(super) fn leaves(&mut self, now: Instant, timestamp: u32) -> u32 {
        if let Some(latest) = self.latest.filter(|latest| latest.of == timestamp) {
            return latest.ticks;
        }
        let late = if self.is_behind { self.late(now, timestamp) } else { 0 };
        let shift = Shift { of: timestamp, ticks: late.max(self.least(timestamp)) };
        self.is_behind &= late > 0;
        self.latest = Some(shift);
        if shift.ticks > 0 {
            if self.shifts.len() >= SHIFTS_MAX {
                self.shifts.pop_front();
            }
            self.shifts.push_back(shift);
            self.shifted = now;
        }
        shift.ticks
    }

    /// Returns the ticks that were added to the timestamp when this packet was first sent.
    pub(super) fn left(&self, timestamp: u32) -> u32 {
        self.shifts.iter().rev().find(|shift| shift.of == timestamp).map_or(0, |shift| shift.ticks)
    }

    /// Ticks by which a unit that leaves now is late.
    fn late(&self, now: Instant, timestamp: u32) -> u32 {
        let (edge, at) = self.edge;
        let passed = now.saturating_duration_since(at);
        if passed > CATCHES_UP_WITHIN {
            return 0;
        }
        let on_time = edge.wrapping_add(self.ticks(passed)).wrapping_sub(self.ticks(ON_TIME));
        // A timestamp later than `on_time` wraps around to a difference of more than half of the range.
        let late = on_time.wrapping_sub(timestamp);
        if late < u32::MAX / 2 { late } else { 0 }
    }

    /// Minimum shift of the next unit: sent timestamps must increase, and return gradually to those of the
    /// track.
    fn least(&self, timestamp: u32) -> u32 {
        let Some(latest) = self.latest.filter(|latest| latest.ticks > 0) else { return 0 };
        let step = timestamp.wrapping_sub(latest.of);
        if step > self.clock_rate.saturating_mul(STEP_MAX) {
            return latest.ticks;
        }
        let back = if self.is_behind { step.saturating_sub(1) } else { step / RETURN_SHARE };
        latest.ticks.saturating_sub(back)
    }

    fn ticks(&self, time: Duration) -> u32 {
        let ticks = time.as_micros().saturating_mul(self.clock_rate.into()) / 1_000_000;
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 90_000;
    const STEP: u32 = 3600;
    const EDGE: u32 = 1000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Sends pictures of 40 ms, starting `behind` pictures before the live edge. A picture is sent once it
    /// exists and `each` has passed since the previous one. Returns the time since the start and the
    /// timestamp of each picture; the timestamp is relative to the edge at the start.
    fn run(behind: u32, each: Duration, count: u32) -> (CatchUp, Vec<(Duration, i32)>) {
        let start = netsim::Clock::new().now();
        let mut catch_up = CatchUp::new(start, EDGE, RATE);
        let mut now = start;
        let mut sent = Vec::new();
        for n in 0..count {
            let of = EDGE.wrapping_sub(behind * STEP).wrapping_add(n * STEP);
            now = (now + each).max(start + ms(40) * n.saturating_sub(behind));
            let ticks = catch_up.leaves(now, of);
            assert_eq!(
                (catch_up.leaves(now, of), catch_up.left(of)),
                (ticks, ticks),
                "each packet of a picture"
            );
            sent.push((now - start, of.wrapping_add(ticks).wrapping_sub(EDGE).cast_signed()));
        }
        (catch_up, sent)
    }

    #[test]
    fn timestamps_follow_the_time_of_leaving_until_a_picture_is_on_time() {
        for (behind, each) in [(50, ms(2)), (50, ms(20)), (40, ms(30)), (1, ms(1)), (0, ms(1))] {
            let (_, sent) = run(behind, each, 300);
            assert!(sent.windows(2).all(|pair| pair[0].1 < pair[1].1), "{behind} {each:?}: timestamps rise");
            for (at, timestamp) in &sent {
                let left = i32::try_from(at.as_micros() * 90 / 1000).unwrap();
                let late = left - timestamp;
                assert!((0..=40 * 90).contains(&late), "{behind} {each:?}: at {at:?} late by {late} ticks");
            }
            // The last timestamps are those of the track.
            let last = sent.last().unwrap().1;
            assert_eq!(last, i32::try_from(STEP * (299 - behind)).unwrap());
        }
    }

    #[test]
    fn where_pictures_stay_late_timestamps_return_gradually() {
        let (catch_up, sent) = run(25, ms(40), 400);
        assert!(sent.windows(2).all(|pair| pair[0].1 < pair[1].1));
        let steps: Vec<i32> = sent.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        let slow = steps.iter().filter(|step| **step == 2880).count();
        assert!((120..130).contains(&slow), "{slow} steps of four fifths");
        assert_eq!(sent.last().unwrap().1, i32::try_from(STEP * (399 - 25)).unwrap());
        assert!(catch_up.shifts.len() < 400);
    }

    #[test]
    fn shifts_are_kept_for_a_while_and_are_few() {
        let start = netsim::Clock::new().now();
        let (catch_up, _) = run(50, ms(2), 60);
        assert!(!catch_up.is_over(start + ms(500)));
        assert!(catch_up.is_over(start + ms(500) + SHIFTS_KEPT));
        let mut hostile = CatchUp::new(start, 0, RATE);
        (0..100_000u32).for_each(|n| {
            hostile.leaves(start, n.wrapping_mul(0x9e37_79b9));
        });
        assert!(hostile.shifts.len() <= SHIFTS_MAX);
    }

    #[test]
    fn another_clock_takes_no_part_in_it() {
        let start = netsim::Clock::new().now();
        let mut catch_up = CatchUp::new(start, EDGE, RATE);
        let first = catch_up.leaves(start, EDGE.wrapping_sub(50 * STEP));
        assert_eq!(first, 50 * STEP - 30 * 90);
        catch_up.end();
        // After a jump of the track's clock, the first picture keeps the shift; with the next picture, the
        // shift is reduced.
        assert_eq!(catch_up.leaves(start, EDGE.wrapping_sub(1 << 30)), first);
        assert_eq!(catch_up.leaves(start, EDGE.wrapping_sub(1 << 30).wrapping_add(STEP)), first - STEP / 5);
    }
}
