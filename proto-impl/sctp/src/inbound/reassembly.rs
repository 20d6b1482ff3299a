//! Reassembly of messages from several chunks. The fragments of a message have consecutive TSNs (RFC 9260
//! §6.9), so runs of fragments are stored, and joined when missing fragments arrive.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use super::{Fragment, Message, Violation, charge, flag};

/// Fragments of one message with consecutive TSNs.
#[derive(Debug)]
struct Run {
    last: u64,
    stream: u16,
    ssn: u16,
    unordered: bool,
    /// Payload protocol identifier, from the first fragment.
    ppid: u32,
    has_begin: bool,
    has_end: bool,
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Run {
    fn of(fragment: Fragment) -> Self {
        Self {
            last: fragment.tsn,
            stream: fragment.stream,
            ssn: fragment.ssn,
            unordered: fragment.has(flag::UNORDERED),
            ppid: fragment.ppid,
            has_begin: fragment.has(flag::BEGIN),
            has_end: fragment.has(flag::END),
            bytes: fragment.payload.len(),
            parts: VecDeque::from([fragment.payload]),
        }
    }

    /// True if `next`, which begins where this run ends, belongs to the same message; false if one message ends
    /// and the next begins there.
    fn meets(&self, next: &Self) -> Result<bool, Violation> {
        if self.has_end != next.has_begin {
            return Err(Violation::Fragments);
        }
        let is_one = (self.stream, self.unordered) == (next.stream, next.unordered)
            && (self.unordered || self.ssn == next.ssn);
        if self.has_end || is_one { Ok(!self.has_end) } else { Err(Violation::Fragments) }
    }

    /// Appends `next`. The shorter list is moved, so that the cost does not depend on the order of arrival.
    fn join(&mut self, mut next: Self) {
        self.last = next.last;
        self.has_end = next.has_end;
        self.bytes = self.bytes.saturating_add(next.bytes);
        if self.parts.len() >= next.parts.len() {
            self.parts.append(&mut next.parts);
        } else {
            while let Some(part) = self.parts.pop_back() {
                next.parts.push_front(part);
            }
            self.parts = next.parts;
        }
    }

    fn charge(&self) -> usize {
        self.bytes.saturating_add(charge(0).saturating_mul(self.parts.len()))
    }

    fn into_message(mut self) -> Message {
        let payload = match (self.parts.len(), self.parts.pop_front()) {
            (1, Some(only)) => only,
            (_, first) => {
                let mut whole = BytesMut::with_capacity(self.bytes);
                first.iter().chain(&self.parts).for_each(|part| whole.extend_from_slice(part));
                whole.freeze()
            }
        };
        let Self { stream, ssn, unordered, ppid, .. } = self;
        Message { stream, ssn, unordered, ppid, payload }
    }
}

/// Fragments of incomplete messages.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Runs by the TSN of their first fragment.
    runs: BTreeMap<u64, Run>,
    held: usize,
}

impl Reassembly {
    /// Bytes of waiting fragments.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Adds a new fragment. Returns the message if this completes it.
    pub(crate) fn insert(
        &mut self,
        fragment: Fragment,
        message_bytes_max: usize,
    ) -> Result<Option<Message>, Violation> {
        let mut first = fragment.tsn;
        let mut run = Run::of(fragment);
        self.held = self.held.saturating_add(run.charge());
        let before =
            self.runs.range(..first).next_back().filter(|(_, run)| run.last.saturating_add(1) == first);
        if let Some((&begin, before)) = before
            && before.meets(&run)?
            && let Some(mut joined) = self.runs.remove(&begin)
        {
            joined.join(run);
            (run, first) = (joined, begin);
        }
        let behind = run.last.saturating_add(1);
        if let Some(next) = self.runs.get(&behind)
            && run.meets(next)?
            && let Some(next) = self.runs.remove(&behind)
        {
            run.join(next);
        }
        if run.bytes > message_bytes_max {
            return Err(Violation::TooLong);
        }
        if run.has_begin && run.has_end {
            self.held = self.held.saturating_sub(run.charge());
            return Ok(Some(run.into_message()));
        }
        self.runs.insert(first, run);
        Ok(None)
    }

    /// Drops messages that begin at or before `tsn`, which the peer has abandoned.
    pub(crate) fn forward(&mut self, tsn: u64) {
        while let Some(run) = self.runs.first_entry().filter(|run| *run.key() <= tsn) {
            self.held = self.held.saturating_sub(run.remove().charge());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(tsn: u64, flags: u8, payload: &[u8]) -> Fragment {
        Fragment { tsn, stream: 3, ssn: 4, ppid: 51, flags, payload: Bytes::copy_from_slice(payload) }
    }

    #[test]
    fn a_message_of_one_chunk_is_not_kept() {
        let mut reassembly = Reassembly::default();
        let message = reassembly.insert(fragment(9, flag::BEGIN | flag::END, b"x"), 10).unwrap().unwrap();
        assert_eq!((&message.payload[..], message.stream, message.ssn), (&b"x"[..], 3, 4));
        assert_eq!(reassembly.held(), 0);
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_make_the_message(
            lengths in proptest::collection::vec(1usize..9, 1..30),
            seed in any::<u64>(),
        ) {
            let mut random = crypto::Seed::from_number(seed).random();
            // Two consecutive messages, divided in the same way.
            let mut fragments: Vec<Fragment> = Vec::new();
            for half in 0u8..2 {
                let count = lengths.len();
                for (at, length) in lengths.iter().enumerate() {
                    let begin = if at == 0 { flag::BEGIN } else { 0 };
                    let end = if at + 1 == count { flag::END } else { 0 };
                    let tsn = 100 + u64::try_from(fragments.len()).unwrap();
                    fragments.push(fragment(tsn, begin | end, &vec![half * 100 + u8::try_from(at).unwrap(); *length]));
                }
            }
            let whole = |half: u8| -> Vec<u8> {
                lengths.iter().enumerate().flat_map(|(at, n)| vec![half * 100 + u8::try_from(at).unwrap(); *n]).collect()
            };
            let mut reassembly = Reassembly::default();
            let mut made = Vec::new();
            while !fragments.is_empty() {
                let at = usize::try_from(random.below(u64::try_from(fragments.len()).unwrap())).unwrap();
                made.extend(reassembly.insert(fragments.swap_remove(at), 1000).unwrap());
            }
            made.sort_by_key(|message| message.payload[0]);
            let made: Vec<Vec<u8>> = made.into_iter().map(|message| message.payload.to_vec()).collect();
            prop_assert_eq!(made, vec![whole(0), whole(1)]);
            prop_assert_eq!(reassembly.held(), 0);
            prop_assert!(reassembly.runs.is_empty());
        }
    }

    #[test]
    fn neighbours_that_do_not_belong_together_are_a_violation() {
        let (begin, middle, end) = (flag::BEGIN, 0, flag::END);
        let other = |tsn, flags| Fragment { stream: 9, ..fragment(tsn, flags, b"x") };
        let later = |tsn, flags| Fragment { ssn: 5, ..fragment(tsn, flags, b"x") };
        for (first, second) in [
            (fragment(1, begin, b"x"), fragment(2, begin, b"x")),
            (fragment(1, middle, b"x"), fragment(2, begin, b"x")),
            (fragment(1, begin, b"x"), other(2, end)),
            (fragment(1, begin, b"x"), later(2, end)),
            (fragment(1, begin, b"x"), fragment(2, flag::UNORDERED, b"x")),
            (fragment(1, end, b"x"), fragment(2, middle, b"x")),
        ] {
            for turned in [false, true] {
                let (first, second) =
                    if turned { (second.clone(), first.clone()) } else { (first.clone(), second.clone()) };
                let mut reassembly = Reassembly::default();
                assert_eq!(reassembly.insert(first, 10), Ok(None));
                assert_eq!(reassembly.insert(second, 10), Err(Violation::Fragments));
            }
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_a_violation_before_it_is_whole() {
        let mut reassembly = Reassembly::default();
        for tsn in 1..=5 {
            assert_eq!(reassembly.insert(fragment(tsn, if tsn == 1 { 2 } else { 0 }, b"xx"), 10), Ok(None));
        }
        assert_eq!(reassembly.insert(fragment(6, 0, b"x"), 10), Err(Violation::TooLong));
    }

    #[test]
    fn messages_that_were_given_up_are_dropped() {
        let mut reassembly = Reassembly::default();
        for (tsn, flags) in [(1, 2), (2, 0), (9, 2)] {
            reassembly.insert(fragment(tsn, flags, b"x"), 10).unwrap();
        }
        reassembly.forward(1);
        assert_eq!(reassembly.held(), charge(1));
        reassembly.forward(9);
        assert_eq!(reassembly.held(), 0);
    }
}
