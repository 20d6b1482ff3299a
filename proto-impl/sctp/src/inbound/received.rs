//! Received TSNs: a cumulative TSN with no gaps before it, and runs after it.

use std::collections::BTreeMap;

use crate::config::{GAPS_MAX, TSN_AHEAD_MAX};
use crate::seq;

/// Maximum number of duplicates in one report.
const DUPLICATES_MAX: usize = 16;

/// Position of a TSN relative to the TSNs received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Next,
    /// New, but after a gap.
    Ahead,
    Duplicate,
    /// Too far ahead, or after too many gaps.
    NoRoom,
}

/// Received TSNs of the peer, as described in the module.
#[derive(Debug)]
pub(crate) struct Received {
    cumulative: u64,
    /// First and last TSN of each run after the cumulative TSN.
    runs: BTreeMap<u64, u64>,
    duplicates: Vec<u32>,
}

impl Received {
    /// Creates the state before the peer's first TSN.
    pub(crate) fn new(first: u32) -> Self {
        let first = seq::TSN_BASE.saturating_add(u64::from(first));
        Self { cumulative: first.saturating_sub(1), runs: BTreeMap::new(), duplicates: Vec::new() }
    }

    pub(crate) const fn cumulative(&self) -> u64 {
        self.cumulative
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Returns the position of a TSN. Modifies nothing but the list of duplicates.
    pub(crate) fn judge(&mut self, tsn: u64) -> Arrival {
        let run = self.runs.range(..=tsn).next_back().map(|(_, last)| *last);
        if tsn <= self.cumulative || run.is_some_and(|last| tsn <= last) {
            if self.duplicates.len() < DUPLICATES_MAX {
                self.duplicates.push(seq::wrap_tsn(tsn));
            }
            return Arrival::Duplicate;
        }
        if tsn == self.cumulative.saturating_add(1) {
            return Arrival::Next;
        }
        let extends = run.is_some_and(|last| last.saturating_add(1) == tsn)
            || self.runs.contains_key(&tsn.saturating_add(1));
        let is_near = tsn.saturating_sub(self.cumulative) <= TSN_AHEAD_MAX;
        if is_near && (extends || self.runs.len() < GAPS_MAX) { Arrival::Ahead } else { Arrival::NoRoom }
    }

    /// Marks a TSN as received, for which `judge` must have returned [`Arrival::Next`] or [`Arrival::Ahead`].
    pub(crate) fn insert(&mut self, tsn: u64) {
        if tsn == self.cumulative.saturating_add(1) {
            self.cumulative = tsn;
            self.absorb();
            return;
        }
        let last = self.runs.remove(&tsn.saturating_add(1)).unwrap_or(tsn);
        if let Some((_, end)) = self.runs.range_mut(..tsn).next_back()
            && end.saturating_add(1) == tsn
        {
            *end = last;
        } else {
            self.runs.insert(tsn, last);
        }
    }

    /// Marks all TSNs up to `tsn` as received (RFC 3758 §3.6). Returns false if this changes nothing.
    pub(crate) fn forward(&mut self, tsn: u64) -> bool {
        if tsn <= self.cumulative {
            return false;
        }
        self.cumulative = tsn;
        self.absorb();
        true
    }

    fn absorb(&mut self) {
        while let Some(run) = self.runs.first_entry() {
            if *run.key() > self.cumulative.saturating_add(1) {
                break;
            }
            self.cumulative = self.cumulative.max(run.remove());
        }
    }

    /// Returns the value of a `SACK` (RFC 9260 §3.3.4) of at most `bytes_max` bytes. Each duplicate is listed once.
    pub(crate) fn write_sack(&mut self, window: u32, bytes_max: usize) -> Vec<u8> {
        let room = bytes_max.saturating_sub(12) / 4;
        let offset = |tsn: u64| u16::try_from(tsn.saturating_sub(self.cumulative)).ok();
        let gaps: Vec<(u16, u16)> = self
            .runs
            .iter()
            .map_while(|(first, last)| Some((offset(*first)?, offset(*last)?)))
            .take(room)
            .collect();
        let duplicates: Vec<u32> = self.duplicates.drain(..).take(room.saturating_sub(gaps.len())).collect();
        let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        let mut out = seq::wrap_tsn(self.cumulative).to_be_bytes().to_vec();
        out.extend_from_slice(&window.to_be_bytes());
        out.extend_from_slice(&count(gaps.len()));
        out.extend_from_slice(&count(duplicates.len()));
        for (first, last) in gaps {
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&last.to_be_bytes());
        }
        duplicates.iter().for_each(|tsn| out.extend_from_slice(&tsn.to_be_bytes()));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = u32::MAX - 2;

    fn at(offset: u64) -> u64 {
        seq::TSN_BASE + u64::from(FIRST) + offset - 1
    }

    #[test]
    fn gaps_are_told_by_their_distance() {
        let mut received = Received::new(FIRST);
        let gaps = |received: &mut Received| {
            let sack = received.write_sack(1, 1000);
            let count = u16::from_be_bytes([sack[8], sack[9]]);
            (
                sack[..4].to_vec(),
                (0..count)
                    .map(|n| {
                        let from = 12 + 4 * usize::from(n);
                        (
                            u16::from_be_bytes([sack[from], sack[from + 1]]),
                            u16::from_be_bytes([sack[from + 2], sack[from + 3]]),
                        )
                    })
                    .collect::<Vec<_>>(),
            )
        };
        // For each TSN: its offset, the expected position, and the gap blocks afterwards.
        type Step = (u64, Arrival, &'static [(u16, u16)]);
        let steps: [Step; 8] = [
            (1, Arrival::Next, &[]),
            (3, Arrival::Ahead, &[(2, 2)]),
            (3, Arrival::Duplicate, &[(2, 2)]),
            (6, Arrival::Ahead, &[(2, 2), (5, 5)]),
            (5, Arrival::Ahead, &[(2, 2), (4, 5)]),
            (4, Arrival::Ahead, &[(2, 5)]),
            (1, Arrival::Duplicate, &[(2, 5)]),
            (2, Arrival::Next, &[]),
        ];
        for (offset, arrival, told) in steps {
            assert_eq!(received.judge(at(offset)), arrival, "{offset}");
            if matches!(arrival, Arrival::Next | Arrival::Ahead) {
                received.insert(at(offset));
            }
            assert_eq!(gaps(&mut received).1, told, "{offset}");
        }
        // The TSNs have wrapped around.
        assert_eq!(gaps(&mut received).0, 3u32.wrapping_sub(1).to_be_bytes().to_vec());
    }

    #[test]
    fn gaps_and_distance_have_an_end() {
        let mut received = Received::new(1);
        let first = received.cumulative() + 1;
        for gap in 1..=u64::try_from(GAPS_MAX).unwrap() {
            assert_eq!(received.judge(first + 2 * gap), Arrival::Ahead);
            received.insert(first + 2 * gap);
        }
        let beyond = first + 2 * u64::try_from(GAPS_MAX + 1).unwrap();
        assert_eq!(received.judge(beyond), Arrival::NoRoom);
        assert_eq!(received.judge(beyond - 1), Arrival::Ahead, "it makes a run longer");
        assert_eq!(received.judge(first), Arrival::Next);
        let mut received = Received::new(1);
        assert_eq!(received.judge(first + TSN_AHEAD_MAX - 1), Arrival::Ahead);
        assert_eq!(received.judge(first + TSN_AHEAD_MAX), Arrival::NoRoom);
        assert_eq!(received.write_sack(0, 64).len(), 12);
    }

    #[test]
    fn duplicates_are_told_once_and_gaps_as_far_as_there_is_room() {
        let mut received = Received::new(1);
        let first = received.cumulative() + 1;
        for gap in 1..100 {
            received.insert(first + 2 * gap);
        }
        (0..100).for_each(|_| assert_eq!(received.judge(first + 2), Arrival::Duplicate));
        assert_eq!(received.write_sack(0, 100).len(), 100);
        assert_eq!(received.write_sack(0, 1000).len(), 12 + 4 * 99, "no duplicates any more");
    }

    #[test]
    fn forwarding_fills_gaps_and_never_goes_back() {
        let mut received = Received::new(1);
        let first = received.cumulative() + 1;
        for offset in [2, 4, 5, 9] {
            received.insert(first + offset);
        }
        assert!(received.forward(first + 3));
        assert_eq!(received.cumulative(), first + 5);
        assert!(!received.forward(first + 5) && !received.forward(first));
        assert!(received.forward(first + 9) && !received.has_gaps());
        assert_eq!(received.cumulative(), first + 9);
    }
}
