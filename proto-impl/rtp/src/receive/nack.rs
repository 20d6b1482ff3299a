//! Missing packets, and the times at which to request them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use std::time::{Duration, Instant};

use crate::number::{ExtendedSequence, SequenceNumber};

/// Maximum number of missing packets that are tracked.
pub const NACK_LIST_MAX: usize = 1000;
/// Maximum number of requests for one packet.
pub const NACK_TRIES_MAX: u8 = 18;
/// Maximum time for which a packet is requested: the longest hold.
pub const NACK_AGE_MAX: Duration = super::hold::HOLD_REPAIR_MAX;
/// Minimum time between two requests for one packet; matters for very short round trips.
const REPEAT_MIN: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
struct Missing {
    since: Instant,
    next: Instant,
    tries: u8,
    first_asked: Option<Instant>,
    /// True if the last request was sent once, and its second copy must still be sent.
    echo: bool,
}

/// Times between requests for one packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTimes {
    /// Time until an answer is overdue, and the packet is requested again.
    pub(super) repeat: Duration,
    /// Time after which each request is sent a second time, since the path loses some requests; shorter than
    /// `repeat`.
    pub(super) echo: Option<Duration>,
}

/// A missing packet that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Time of the packet's first request; `None` if it was not requested.
    pub(super) first_asked: Option<Instant>,
}

/// Maximum number of abandoned packets for which a late repair still yields a round trip.
const GIVEN_UP_MAX: usize = 64;

/// The missing packets of a source, in order of their sequence numbers; limited in number, age and requests.
#[derive(Debug)]
pub(super) struct NackList {
    missing: BTreeMap<ExtendedSequence, Missing>,
    due: Option<Instant>,
    /// Recently abandoned packets, with the times of their first requests.
    given_up: VecDeque<(ExtendedSequence, Instant)>,
}

impl NackList {
    pub(super) const fn new() -> Self {
        Self { missing: BTreeMap::new(), due: None, given_up: VecDeque::new() }
    }

    /// Adds the numbers from `from` up to but not including `to` as missing, to be requested at `next`.
    /// Returns false if there are too many: the list is then cleared, since a new key frame costs less than
    /// the retransmission of all of them.
    #[must_use]
    pub(super) fn lost(
        &mut self,
        now: Instant,
        next: Instant,
        from: ExtendedSequence,
        to: ExtendedSequence,
    ) -> bool {
        let count = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
        if count > NACK_LIST_MAX.saturating_sub(self.missing.len()) {
            self.clear();
            return false;
        }
        let mut sequence = from;
        while sequence < to {
            self.missing
                .insert(sequence, Missing { since: now, next, tries: 0, first_asked: None, echo: false });
            sequence = sequence.next();
        }
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
        true
    }

    /// Removes a packet that arrived; `None` if it was neither missing nor recently abandoned.
    pub(super) fn arrived(&mut self, sequence: ExtendedSequence) -> Option<Arrived> {
        let missing = self.missing.remove(&sequence);
        if self.missing.is_empty() {
            self.due = None;
        }
        let given_up = || {
            let at = self.given_up.iter().position(|(given_up, _)| *given_up == sequence)?;
            self.given_up.remove(at).map(|(_, asked)| Arrived { first_asked: Some(asked) })
        };
        missing.map(|missing| Arrived { first_asked: missing.first_asked }).or_else(given_up)
    }

    /// Drops requests for packets before `sequence`.
    pub(super) fn forget_before(&mut self, sequence: ExtendedSequence) {
        while self.missing.first_key_value().is_some_and(|(first, _)| *first < sequence) {
            let Some((given_up, missing)) = self.missing.pop_first() else { break };
            if let Some(asked) = missing.first_asked {
                self.given_up.truncate(GIVEN_UP_MAX - 1);
                self.given_up.push_front((given_up, asked));
            }
        }
        if self.missing.is_empty() {
            self.due = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.missing.clear();
        self.given_up.clear();
        self.due = None;
    }

    /// Adds the packets to request now to `out`, in ascending order. Packets requested too often or for too
    /// long are abandoned.
    pub(super) fn poll(&mut self, now: Instant, times: RequestTimes, out: &mut Vec<SequenceNumber>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let repeat = times.repeat.max(REPEAT_MIN);
        self.missing.retain(|sequence, missing| {
            if missing.next > now {
                return true;
            }
            if missing.echo {
                missing.echo = false;
                missing.next = now + repeat.saturating_sub(times.echo.unwrap_or_default());
                out.push(sequence.number());
                return true;
            }
            if missing.tries >= NACK_TRIES_MAX || now.saturating_duration_since(missing.since) >= NACK_AGE_MAX
            {
                return false;
            }
            missing.tries = missing.tries.saturating_add(1);
            missing.first_asked.get_or_insert(now);
            missing.echo = times.echo.is_some();
            missing.next = now + times.echo.unwrap_or(repeat);
            out.push(sequence.number());
            true
        });
        self.due = self.missing.values().map(|missing| missing.next).min();
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    const fn once(repeat: Duration) -> RequestTimes {
        RequestTimes { repeat, echo: None }
    }

    /// Checks that on a lossy path each request is sent twice, while the answer is awaited no longer than
    /// otherwise.
    #[test]
    fn requests_are_echoed_on_a_lossy_path() {
        let start = netsim::Clock::new().now();
        let mut list = NackList::new();
        assert!(list.lost(start, start, sequence(5), sequence(6)));
        let times = RequestTimes { repeat: RTT, echo: Some(Duration::from_millis(10)) };
        let mut asked = Vec::new();
        for ms in 0..3000 {
            let mut out = Vec::new();
            list.poll(start + Duration::from_millis(ms), times, &mut out);
            asked.extend(out.iter().map(|_| ms));
        }
        let expected: Vec<u64> = (0..u64::from(NACK_TRIES_MAX)).flat_map(|n| [n * 50, n * 50 + 10]).collect();
        assert_eq!((asked, list.len(), list.poll_timeout()), (expected, 0, None));
    }

    fn sequence(number: u64) -> ExtendedSequence {
        ExtendedSequence::first(SequenceNumber(0)).plus(number)
    }

    #[test]
    fn a_packet_is_asked_for_after_a_moment_then_once_per_round_trip_then_no_more() {
        let start = netsim::Clock::new().now();
        let mut list = NackList::new();
        assert!(list.lost(start, start + Duration::from_millis(10), sequence(5), sequence(7)));
        let mut asked = Vec::new();
        for ms in 0..3000 {
            let mut out = Vec::new();
            list.poll(start + Duration::from_millis(ms), once(RTT), &mut out);
            asked.extend(out.into_iter().map(|number| (ms, number.0)));
        }
        let times: Vec<u64> = (0..u64::from(NACK_TRIES_MAX)).map(|n| 10 + n * 50).collect();
        let expected: Vec<(u64, u16)> = times.iter().flat_map(|&ms| [(ms, 5), (ms, 6)]).collect();
        assert_eq!((asked, list.len(), list.poll_timeout()), (expected, 0, None));
    }

    #[test]
    fn age_ends_it_too_and_what_comes_is_not_asked_for() {
        let start = netsim::Clock::new().now();
        let mut list = NackList::new();
        assert!(list.lost(start, start, sequence(1), sequence(4)));
        assert!(list.arrived(sequence(2)).is_some());
        assert_eq!((list.arrived(sequence(2)), list.arrived(sequence(9))), (None, None));
        let mut out = Vec::new();
        for ms in (0..5000).step_by(10) {
            list.poll(start + Duration::from_millis(ms), once(Duration::from_millis(400)), &mut out);
        }
        assert_eq!(out.iter().map(|number| number.0).collect::<Vec<_>>(), [1, 3].repeat(8));
        assert!(list.lost(start, start, sequence(1), sequence(4)));
        list.forget_before(sequence(3));
        assert_eq!(list.len(), 1);
        list.forget_before(sequence(30));
        assert_eq!(list.poll_timeout(), None);
    }

    #[test]
    fn too_many_are_not_asked_for_at_all() {
        let start = netsim::Clock::new().now();
        let mut list = NackList::new();
        assert!(list.lost(start, start, sequence(0), sequence(900)));
        assert!(!list.lost(start, start, sequence(1000), sequence(1101)));
        assert_eq!((list.len(), list.poll_timeout()), (0, None));
        assert!(list.lost(start, start, sequence(0), sequence(NACK_LIST_MAX as u64)));
    }
}
