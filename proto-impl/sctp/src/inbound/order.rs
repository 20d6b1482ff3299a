//! Ordered delivery of messages in each stream (RFC 9260 §6.6).

use std::collections::{BTreeMap, VecDeque};

use super::{Message, charge};
use crate::seq;

/// Maximum accepted distance to the next sequence number: half of the number space.
const AHEAD_MAX: u64 = 1 << 15;

/// State of one stream of the peer.
#[derive(Debug)]
struct Lane {
    next: u64,
    waiting: BTreeMap<u64, Message>,
}

impl Lane {
    const fn new() -> Self {
        Self { next: seq::SSN_BASE, waiting: BTreeMap::new() }
    }
}

/// Messages of all streams that wait for earlier messages.
#[derive(Debug)]
pub(crate) struct Order {
    lanes: BTreeMap<u16, Lane>,
    lanes_max: usize,
    held: usize,
}

impl Order {
    pub(crate) const fn new(lanes_max: usize) -> Self {
        Self { lanes: BTreeMap::new(), lanes_max, held: 0 }
    }

    /// Bytes of waiting messages.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Adds a complete message. Messages that can now be delivered are appended to `ready`. Returns false if
    /// the message is dropped, because its number was used before, or because there are too many streams.
    pub(crate) fn push(&mut self, message: Message, ready: &mut VecDeque<Message>) -> bool {
        if message.unordered {
            ready.push_back(message);
            return true;
        }
        if !self.lanes.contains_key(&message.stream) && self.lanes.len() >= self.lanes_max {
            // There are too many streams. The first message of a stream is still delivered: it requests a
            // channel, which is then refused.
            let is_first = message.ssn == 0;
            if is_first {
                ready.push_back(message);
            }
            return is_first;
        }
        let lane = self.lanes.entry(message.stream).or_insert_with(Lane::new);
        let ssn = seq::unwrap_ssn(lane.next, message.ssn);
        if ssn < lane.next || ssn.saturating_sub(lane.next) >= AHEAD_MAX || lane.waiting.contains_key(&ssn) {
            return false;
        }
        self.held = self.held.saturating_add(charge(message.payload.len()));
        lane.waiting.insert(ssn, message);
        Self::release(lane, &mut self.held, ready);
        true
    }

    fn release(lane: &mut Lane, held: &mut usize, ready: &mut VecDeque<Message>) {
        while let Some(first) = lane.waiting.first_entry().filter(|first| *first.key() <= lane.next) {
            let (ssn, message) = first.remove_entry();
            *held = held.saturating_sub(charge(message.payload.len()));
            lane.next = ssn.saturating_add(1);
            ready.push_back(message);
        }
    }

    /// Skips messages up to `ssn`, which the peer has abandoned (RFC 3758 §3.6).
    pub(crate) fn forward(&mut self, stream: u16, ssn: u16, ready: &mut VecDeque<Message>) {
        let has_room = self.lanes.len() < self.lanes_max;
        if !has_room && !self.lanes.contains_key(&stream) {
            return;
        }
        let lane = self.lanes.entry(stream).or_insert_with(Lane::new);
        let ssn = seq::unwrap_ssn(lane.next, ssn);
        if ssn < lane.next || ssn.saturating_sub(lane.next) >= AHEAD_MAX {
            return;
        }
        while let Some(first) = lane.waiting.first_entry().filter(|first| *first.key() <= ssn) {
            let message = first.remove();
            self.held = self.held.saturating_sub(charge(message.payload.len()));
            ready.push_back(message);
        }
        lane.next = ssn.saturating_add(1);
        Self::release(lane, &mut self.held, ready);
    }

    /// Restarts a stream.
    pub(crate) fn reset(&mut self, stream: u16) {
        if let Some(lane) = self.lanes.remove(&stream) {
            let waiting: usize = lane.waiting.values().map(|message| charge(message.payload.len())).sum();
            self.held = self.held.saturating_sub(waiting);
        }
    }

    /// Returns the streams that have been used.
    pub(crate) fn streams(&self) -> Vec<u16> {
        self.lanes.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(stream: u16, ssn: u16, unordered: bool) -> Message {
        Message { stream, ssn, unordered, ppid: 51, payload: Bytes::from_static(b"x") }
    }

    fn numbers(ready: &mut VecDeque<Message>) -> Vec<u16> {
        ready.drain(..).map(|message| message.ssn).collect()
    }

    #[test]
    fn a_stream_waits_for_its_own_messages_only() {
        let (mut order, mut ready) = (Order::new(9), VecDeque::new());
        for (message, released) in [
            (message(1, 1, false), &[][..]),
            (message(2, 0, false), &[0]),
            (message(1, 7, true), &[7]),
            (message(1, 2, false), &[]),
            (message(1, 0, false), &[0, 1, 2]),
            (message(1, 3, false), &[3]),
        ] {
            assert!(order.push(message, &mut ready));
            assert_eq!(numbers(&mut ready), released);
        }
        assert_eq!(order.held(), 0);
        assert!(!order.push(message(1, 2, false), &mut ready), "it was there");
        order.reset(1);
        assert!(order.push(message(1, 0, false), &mut ready));
        assert_eq!(numbers(&mut ready), [0]);
    }

    #[test]
    fn numbers_wrap() {
        let (mut order, mut ready) = (Order::new(9), VecDeque::new());
        for round in 0..3 {
            for ssn in 0..=u16::MAX {
                assert!(order.push(message(1, ssn, false), &mut ready), "{round} {ssn}");
            }
            assert_eq!(ready.len(), 1 << 16);
            ready.clear();
        }
    }

    #[test]
    fn what_was_given_up_is_not_waited_for() {
        let (mut order, mut ready) = (Order::new(9), VecDeque::new());
        for ssn in [2, 4, 6] {
            order.push(message(1, ssn, false), &mut ready);
        }
        for (up_to, released) in [(0, &[][..]), (3, &[2, 4]), (3, &[]), (40_000, &[]), (9, &[6])] {
            order.forward(1, up_to, &mut ready);
            assert_eq!(numbers(&mut ready), released, "{up_to}");
        }
        assert_eq!(order.held(), 0);
        assert!(order.push(message(1, 10, false), &mut ready));
        assert_eq!(numbers(&mut ready), [10]);
    }

    #[test]
    fn streams_have_an_end_and_a_first_message_beyond_is_seen() {
        let (mut order, mut ready) = (Order::new(2), VecDeque::new());
        for (stream, ssn, taken) in [(1, 0, true), (2, 0, true), (3, 1, false), (3, 0, true), (1, 1, true)] {
            assert_eq!(order.push(message(stream, ssn, false), &mut ready), taken, "{stream} {ssn}");
        }
        order.forward(4, 0, &mut ready);
        assert_eq!(order.streams(), [1, 2]);
    }
}
