//! The hold: the time for which packets wait for a missing one.
//!
//! If the sender retransmits, the hold is the time for a few requests and their answers, or for more of them if the
//! loss is high. Otherwise only reordered packets can still arrive, and the hold is the lateness of earlier reordered
//! packets.

use std::time::{Duration, Instant};

use super::nack::RequestTimes;
use crate::number::ExtendedSequence;

/// Maximum hold with retransmissions: three requests at a round trip of 800 ms.
pub const HOLD_REPAIR_MAX: Duration = Duration::from_secs(3);
/// Maximum hold without retransmissions, which limits the reordering that is tolerated.
pub const HOLD_REORDER_MAX: Duration = Duration::from_millis(500);
/// Minimum hold with retransmissions; short outages end within it.
const HOLD_REPAIR_MIN: Duration = Duration::from_millis(300);
/// Hold with retransmissions until the round trip is known.
const HOLD_UNMEASURED: Duration = Duration::from_secs(1);
/// Minimum hold without retransmissions.
const HOLD_REORDER_MIN: Duration = Duration::from_millis(60);

/// Maximum number of gaps whose time is remembered, to determine how late a packet is.
const GAPS_MAX: usize = 256;
/// Length of a window; lateness and repair times are forgotten after one or two windows.
const WINDOW: Duration = Duration::from_secs(10);
/// Minimum number of packets over which loss is averaged; at most twice as many are used.
const LOSS_WINDOW: u32 = 512;
/// Maximum number of packets of one gap that count as lost, because a long outage does not show how often single
/// requests are lost.
const LOSS_GAP_MAX: u32 = 16;
/// Packets needed before the measured loss is used.
const LOSS_PACKETS_MIN: u32 = 64;

/// Number of requests for which the hold leaves time, by the share of packets lost, in thousandths. If requests
/// and answers are lost as often as other packets, at most a few packets in ten thousand are given up.
const TRIES: [(u32, u32); 7] = [(5, 2), (25, 3), (60, 4), (120, 5), (200, 9), (300, 12), (1000, 16)];
/// The hold leaves time for up to this many requests in any case.
const TRIES_AT_ANY_TIME: u32 = 8;
/// The hold leaves time for further requests only if all requests together take at most this long; otherwise they cost
/// more delay than they are worth.
const MORE_TRIES_MAX: Duration = Duration::from_millis(1200);
/// Time until a request is repeated before a round trip is known.
const REPEAT_FIRST: Duration = Duration::from_millis(100);
/// Time from a request to its second copy.
const ECHO: Duration = Duration::from_millis(10);
/// Loss in thousandths from which on requests are sent twice.
const ECHO_LOSS_MIN: u32 = 20;
/// Maximum time for which a packet may be late before it is requested, on a path where packets overtake each
/// other.
const TOLERANCE_MAX: Duration = Duration::from_millis(250);
/// Share of late packets, in thousandths, above which packets count as overtaking each other.
const LATE_SHARE_MIN: u32 = 10;
/// Number of requests for which the hold leaves time until the loss is known.
const TRIES_FIRST: u32 = 3;

/// Extreme value over the last one or two windows.
#[derive(Debug, Default)]
struct Windowed<T> {
    now: Option<T>,
    before: Option<T>,
    since: Option<Instant>,
}

impl<T: Copy + Ord> Windowed<T> {
    /// Starts a new window if the current one is over.
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

/// Sequence numbers found missing when a later packet arrived.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: ExtendedSequence,
    to: ExtendedSequence,
    since: Instant,
}

/// Measures the path of one source and computes the hold.
#[derive(Debug, Default)]
pub(super) struct Hold {
    round_trip: Option<Duration>,
    /// Times from the first request for a packet to its repair. The shortest counts, because a time exceeds the
    /// round trip if requests or repairs were lost or rate-limited.
    repairs: Windowed<Duration>,
    /// Delays of reordered packets.
    lateness: Windowed<Duration>,
    gaps: alloc::collections::VecDeque<Gap>,
    /// Mean lateness of late packets, and its mean deviation.
    late: (Duration, Duration),
    /// True if repairs have their own sequence numbers (RFC 4588), so that originals can be recognized.
    repairs_apart: bool,
    expected: u32,
    missing: u32,
    /// Number of late packets among the expected ones.
    late_count: u32,
}

impl Hold {
    /// Sets a round trip that was measured by other means than repairs.
    pub(super) const fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// Records that `to` arrived while the numbers from `from` up to but not including `to` are missing. If
    /// both are equal, nothing is missing.
    pub(super) fn advanced(&mut self, now: Instant, from: ExtendedSequence, to: ExtendedSequence) {
        self.lateness.age(now);
        let gap = u32::try_from(to.since(from)).unwrap_or(u32::MAX);
        let lost = gap.min(LOSS_GAP_MAX);
        (self.expected, self.missing) = (self.expected + lost + 1, self.missing + lost);
        if self.expected >= LOSS_WINDOW * 2 {
            (self.expected, self.missing) = (self.expected / 2, self.missing / 2);
            self.late_count /= 2;
        }
        if gap > 0 {
            self.gaps.truncate(GAPS_MAX - 1);
            self.gaps.push_front(Gap { from, to, since: now });
        }
    }

    /// Records that a missing packet arrived late: it was reordered, not lost. A packet that is not new may be a second
    /// copy of a repair, if repairs do not have their own SSRC; such a packet does not lengthen the tolerance.
    pub(super) fn reordered(&mut self, now: Instant, sequence: ExtendedSequence, is_new: bool) {
        self.missing = self.missing.saturating_sub(1);
        let gap = self.gaps.iter().find(|gap| gap.from <= sequence && sequence < gap.to);
        if let Some(gap) = gap {
            let late = now.saturating_duration_since(gap.since);
            self.lateness.add(late, Duration::max);
            if !is_new && !self.repairs_apart {
                return;
            }
            self.late_count = self.late_count.saturating_add(1);
            let (mean, deviation) = &mut self.late;
            *deviation = (*deviation * 15 + late.abs_diff(*mean)) / 16;
            *mean = (*mean * 15 + late) / 16;
        }
    }

    /// Records that repairs have their own sequence numbers.
    pub(super) const fn set_repairs_apart(&mut self) {
        self.repairs_apart = true;
    }

    /// True if a packet that arrives under its own number, `since_request` after its first request, is the
    /// late original and not a repair.
    pub(super) fn is_original(&self, since_request: Duration) -> bool {
        self.repairs_apart || self.round_trip.is_some_and(|round_trip| since_request < round_trip / 2)
    }

    /// Returns the time for which a packet may be late before it is requested: at least `least`, and short enough for
    /// an answer to arrive within `most`. On a path where packets overtake each other, earlier requests would be for
    /// packets that arrive anyway, and their repairs would take capacity from media.
    pub(super) fn tolerance(&self, least: Duration, jitter: Duration, most: Duration) -> Duration {
        if self.late_count.saturating_mul(1000) < self.expected.saturating_mul(LATE_SHARE_MIN) {
            return least;
        }
        let (mean, deviation) = self.late;
        let answer = self.repeat(jitter).unwrap_or(REPEAT_FIRST);
        let late = mean.saturating_add(deviation.saturating_mul(2)).min(TOLERANCE_MAX);
        late.min(most.saturating_sub(answer)).max(least)
    }

    /// Records a repair that arrived this long after the first request.
    pub(super) fn repaired(&mut self, now: Instant, time: Duration) {
        self.repairs.age(now);
        self.repairs.add(time, Duration::min);
    }

    /// Forgets all gaps, because the sequence numbers restarted.
    pub(super) fn restart(&mut self) {
        self.gaps.clear();
    }

    /// Returns the time after which a request is repeated: a round trip plus its variation. `None` before the
    /// first measurement.
    pub(super) fn repeat(&self, jitter: Duration) -> Option<Duration> {
        let round_trip = self.round_trip.or_else(|| self.repairs.all().min())?;
        Some(round_trip.saturating_add(round_trip / 4).saturating_add(jitter))
    }

    /// Returns the times between requests for one packet. On a path that loses packets, each request is sent
    /// twice, because a lost request costs as much time as a lost answer. Senders whose repairs have their
    /// own SSRC (RFC 4588) ignore a second request so soon after the first; some other senders would
    /// retransmit the packet twice.
    pub(super) fn requests(&self, jitter: Duration) -> RequestTimes {
        let repeat = self.repeat(jitter).unwrap_or(REPEAT_FIRST);
        let is_lossy = self.expected >= LOSS_PACKETS_MIN && self.loss() >= ECHO_LOSS_MIN;
        RequestTimes { repeat, echo: (is_lossy && self.repairs_apart).then_some(ECHO) }
    }

    /// Returns the hold with retransmissions, at most `most`.
    pub(super) fn of_repair(&self, tolerance: Duration, jitter: Duration, most: Duration) -> Duration {
        let Some(repeat) = self.repeat(jitter) else { return HOLD_UNMEASURED.min(most) };
        if repeat.saturating_add(tolerance) > most {
            return self.of_reordering(jitter).min(most);
        }
        let tries = self.tries();
        let first = repeat.saturating_mul(tries.min(TRIES_AT_ANY_TIME));
        let all = repeat.saturating_mul(tries).min(MORE_TRIES_MAX).max(first);
        let asked = all.saturating_add(tolerance);
        asked.saturating_add(jitter).max(self.of_lateness()).max(HOLD_REPAIR_MIN).min(most)
    }

    /// Returns the hold without retransmissions.
    pub(super) fn of_reordering(&self, jitter: Duration) -> Duration {
        // If delays are evenly distributed, the jitter of RFC 3550 slowly converges to a third of their
        // range, so four times the jitter covers the range.
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
        let loss = self.loss();
        TRIES.iter().find(|(most, _)| loss <= *most).map_or(TRIES_FIRST, |(_, tries)| *tries)
    }

    /// Returns the share of packets lost, in thousandths.
    fn loss(&self) -> u32 {
        self.missing.saturating_mul(1000).checked_div(self.expected).unwrap_or(0)
    }
}
