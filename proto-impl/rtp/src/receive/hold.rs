//! The hold: how long packets wait for a missing one.
//!
//! If the sender repeats packets, the hold is the time that a few requests and their answers take: more of them the more is
//! lost. If it does not, only reordered packets can still come, and the hold is as long as they were late before.

use std::time::{Duration, Instant};

use crate::number::ExtendedSequence;

/// The longest hold with retransmissions: three requests at a round trip of 800 ms.
pub const HOLD_REPAIR_MAX: Duration = Duration::from_secs(3);
/// The longest hold without retransmissions: the largest reordering that is waited for.
pub const HOLD_REORDER_MAX: Duration = Duration::from_millis(500);
/// Shortest hold with retransmissions: short fades end within it.
const HOLD_REPAIR_MIN: Duration = Duration::from_millis(300);
/// Hold with retransmissions before the round trip is known.
const HOLD_UNMEASURED: Duration = Duration::from_secs(1);
/// Shortest hold without retransmissions.
const HOLD_REORDER_MIN: Duration = Duration::from_millis(60);

/// Gaps whose age is remembered, so that a late packet tells how late it was.
const GAPS_MAX: usize = 64;
/// Lateness and times of repairs are forgotten after one to two of these.
const WINDOW: Duration = Duration::from_secs(10);
/// Packets over which loss is averaged, once to twice as many.
const LOSS_WINDOW: u32 = 512;
/// Packets of one gap that count as lost: an outage says nothing of the requests behind it.
const LOSS_GAP_MAX: u32 = 16;
/// Packets before the loss is believed.
const LOSS_PACKETS_MIN: u32 = 64;

/// Requests that the hold leaves time for, by the share of packets lost, in thousandths: of ten thousand packets at most a
/// few are given up when each request or its answer is lost as often as the packets are.
const TRIES: [(u32, u32); 5] = [(5, 2), (25, 3), (60, 4), (120, 5), (1000, 8)];
/// The same before the loss is known.
const TRIES_FIRST: u32 = 3;

/// The extremes of the last one to two windows of time.
#[derive(Debug, Default)]
struct Windowed<T> {
    now: Option<T>,
    before: Option<T>,
    since: Option<Instant>,
}

impl<T: Copy + Ord> Windowed<T> {
    /// Begins another window when this one is over.
    fn age(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= WINDOW {
            self.before = if age < WINDOW * 2 { self.now } else { None };
            (self.now, self.since) = (None, Some(now));
        }
    }

    fn add(&mut self, value: T, better: impl Fn(T, T) -> T) {
        self.now = Some(self.now.map_or(value, |now| better(now, value)));
    }

    fn all(&self) -> impl Iterator<Item = T> {
        self.now.into_iter().chain(self.before)
    }
}

/// Numbers that were missing when a later packet came.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: ExtendedSequence,
    to: ExtendedSequence,
    since: Instant,
}

/// Measures the path of one source, and says how long to wait on it.
#[derive(Debug, Default)]
pub(super) struct Hold {
    round_trip: Option<Duration>,
    /// Times from the first request of a packet to its repair. Where requests or repairs were lost, or are sent at a
    /// limited rate, they took longer than a round trip: the shortest tells it.
    repairs: Windowed<Duration>,
    /// The delays of reordered packets.
    lateness: Windowed<Duration>,
    gaps: std::collections::VecDeque<Gap>,
    expected: u32,
    missing: u32,
}

impl Hold {
    /// The round trip was measured otherwise than by repairs.
    pub(super) const fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// The numbers from `from` up to, and without, `to` were overtaken by `to`; none when both are the same.
    pub(super) fn advanced(&mut self, now: Instant, from: ExtendedSequence, to: ExtendedSequence) {
        self.lateness.age(now);
        let gap = u32::try_from(to.since(from)).unwrap_or(u32::MAX);
        let lost = gap.min(LOSS_GAP_MAX);
        (self.expected, self.missing) = (self.expected + lost + 1, self.missing + lost);
        if self.expected >= LOSS_WINDOW * 2 {
            (self.expected, self.missing) = (self.expected / 2, self.missing / 2);
        }
        if gap > 0 {
            self.gaps.truncate(GAPS_MAX - 1);
            self.gaps.push_front(Gap { from, to, since: now });
        }
    }

    /// A packet came late that nobody had asked for: it was reordered, not lost.
    pub(super) fn reordered(&mut self, now: Instant, sequence: ExtendedSequence) {
        self.missing = self.missing.saturating_sub(1);
        let gap = self.gaps.iter().find(|gap| gap.from <= sequence && sequence < gap.to);
        if let Some(gap) = gap {
            self.lateness.add(now.saturating_duration_since(gap.since), Duration::max);
        }
    }

    /// A repair came this long behind the first request for it.
    pub(super) fn repaired(&mut self, now: Instant, time: Duration) {
        self.repairs.age(now);
        self.repairs.add(time, Duration::min);
    }

    /// The numbers began anew.
    pub(super) fn restart(&mut self) {
        self.gaps.clear();
    }

    /// The time after which a request is repeated: a round trip, and what varies of it. `None` before it was measured.
    pub(super) fn repeat(&self, jitter: Duration) -> Option<Duration> {
        let round_trip = self.round_trip.or_else(|| self.repairs.all().min())?;
        Some(round_trip.saturating_add(round_trip / 4).saturating_add(jitter))
    }

    /// The hold where missing packets are asked for, `most` at the longest.
    pub(super) fn of_repair(&self, tolerance: Duration, jitter: Duration, most: Duration) -> Duration {
        let Some(repeat) = self.repeat(jitter) else { return HOLD_UNMEASURED.min(most) };
        if repeat.saturating_add(tolerance) > most {
            return self.of_reordering(jitter).min(most);
        }
        let asked = repeat.saturating_mul(self.tries()).saturating_add(tolerance);
        asked.saturating_add(jitter).max(self.of_lateness()).max(HOLD_REPAIR_MIN).min(most)
    }

    /// The hold where packets are not repeated.
    pub(super) fn of_reordering(&self, jitter: Duration) -> Duration {
        // The jitter of RFC 3550 is a third of the range of delays that are spread evenly, and grows to that slowly.
        let spread = jitter.saturating_mul(4);
        self.of_lateness().max(spread).clamp(HOLD_REORDER_MIN, HOLD_REORDER_MAX)
    }

    fn of_lateness(&self) -> Duration {
        let longest = self.lateness.all().max().unwrap_or_default();
        longest.saturating_add(longest / 4)
    }

    fn tries(&self) -> u32 {
        if self.expected < LOSS_PACKETS_MIN {
            return TRIES_FIRST;
        }
        let loss = self.missing.saturating_mul(1000) / self.expected;
        TRIES.iter().find(|(most, _)| loss <= *most).map_or(TRIES_FIRST, |(_, tries)| *tries)
    }
}
