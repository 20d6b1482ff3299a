//! Waiting messages of each stream, and the scheduling of streams.
//!
//! A message is never interrupted, because its fragments have consecutive TSNs (RFC 9260 §6.9). After each
//! message, the stream that has sent the least is next: the bytes sent for each stream are counted, and a
//! stream that becomes active again starts at the count of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::Limit;
use crate::inbound::{charge, flag};
use crate::seq;

/// A message waiting to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) ppid: u32,
    pub(crate) unordered: bool,
    pub(crate) limit: Limit,
    pub(crate) payload: Bytes,
}

/// A stream with its queue.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Outgoing>,
    /// Sequence number of the next ordered message.
    ssn: u64,
    /// Bytes sent for the stream, plus the byte count at which the stream became active.
    given: u64,
}

/// The message that is being sent.
#[derive(Debug)]
struct Current {
    stream: u16,
    ssn: u16,
    id: u64,
    offset: usize,
    message: Outgoing,
}

/// The next piece of a message, sent as one data chunk.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    pub(crate) ppid: u32,
    /// Number of the message; the same for all its pieces.
    pub(crate) id: u64,
    pub(crate) flags: u8,
    pub(crate) limit: Limit,
    pub(crate) payload: Bytes,
}

/// Queued messages of all streams, described in the module.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    lanes: BTreeMap<u16, Lane>,
    /// Streams with messages, ordered by the bytes sent for them.
    turns: BTreeSet<(u64, u16)>,
    /// Byte count of the stream whose message was sent last; reactivated streams start at this count.
    clock: u64,
    current: Option<Current>,
    ids: u64,
    held: usize,
    /// Number of messages abandoned before any part of them was sent.
    pub(crate) expired: u64,
}

impl Queues {
    /// Bytes of waiting messages.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.current.is_none()
    }

    /// True if no message of a stream is waiting or being sent.
    pub(crate) fn is_idle(&self, stream: u16) -> bool {
        self.current.as_ref().is_none_or(|current| current.stream != stream)
            && self.lanes.get(&stream).is_none_or(|lane| lane.waiting.is_empty())
    }

    pub(crate) fn push(&mut self, stream: u16, message: Outgoing) {
        self.held = self.held.saturating_add(charge(message.payload.len()));
        let lane = self.lanes.entry(stream).or_default();
        if lane.waiting.is_empty() {
            lane.given = lane.given.max(self.clock);
            self.turns.insert((lane.given, stream));
        }
        lane.waiting.push_back(message);
    }

    /// Drops the waiting messages of a stream; a message being sent continues.
    pub(crate) fn clear(&mut self, stream: u16) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            self.turns.remove(&(lane.given, stream));
            let waiting: usize = lane.waiting.drain(..).map(|message| charge(message.payload.len())).sum();
            self.held = self.held.saturating_sub(waiting);
        }
    }

    /// Restarts a stream, and drops its waiting messages.
    pub(crate) fn reset(&mut self, stream: u16) {
        self.clear(stream);
        self.lanes.remove(&stream);
    }

    /// Drops the unsent rest of the abandoned message `id`. Returns true if there was any.
    pub(crate) fn abandon(&mut self, id: u64) -> bool {
        let Some(current) = self.current.take_if(|current| current.id == id) else { return false };
        let left = current.message.payload.len().saturating_sub(current.offset);
        self.held = self.held.saturating_sub(charge(left));
        true
    }

    /// Returns the next piece, of at most `room` bytes. `None` if nothing is waiting, or if the rest of the
    /// message exceeds `room` and should wait: because it fits into a whole packet, or because `room` is less
    /// than half a packet.
    pub(crate) fn next(&mut self, now: Instant, room: usize, packet: usize) -> Option<Piece> {
        if self.current.is_none() {
            self.begin(now);
        }
        let current = self.current.as_mut()?;
        let left = current.message.payload.len().saturating_sub(current.offset);
        if room == 0 || (left > room && (left <= packet || room < packet / 2)) {
            return None;
        }
        let length = left.min(room);
        let end = current.offset.saturating_add(length);
        let mut flags = if current.message.unordered { flag::UNORDERED } else { 0 };
        if current.offset == 0 {
            flags |= flag::BEGIN;
        }
        if length == left {
            // Perhaps no data follows soon, so the acknowledgement should not be delayed (RFC
            // 7053).
            flags |= flag::END | if self.turns.is_empty() { flag::IMMEDIATE } else { 0 };
        }
        let piece = Piece {
            stream: current.stream,
            ssn: current.ssn,
            ppid: current.message.ppid,
            id: current.id,
            flags,
            limit: current.message.limit,
            payload: current.message.payload.slice(current.offset..end),
        };
        current.offset = end;
        self.held = self.held.saturating_sub(length);
        if length == left {
            self.held = self.held.saturating_sub(charge(0));
            self.current = None;
        }
        Some(piece)
    }

    /// Selects the next message, and drops messages that are too old.
    fn begin(&mut self, now: Instant) {
        while let Some((given, stream)) = self.turns.pop_first() {
            let Some(lane) = self.lanes.get_mut(&stream) else { continue };
            let Some(message) = lane.waiting.pop_front() else { continue };
            let length = message.payload.len();
            self.clock = given;
            let is_over = matches!(message.limit, Limit::At(_)) && message.limit.is_over(now, 0);
            if !is_over {
                lane.given = given.saturating_add(u64::try_from(charge(length)).unwrap_or(u64::MAX));
            }
            if !lane.waiting.is_empty() {
                self.turns.insert((lane.given, stream));
            }
            if is_over {
                self.held = self.held.saturating_sub(charge(length));
                self.expired = self.expired.saturating_add(1);
                continue;
            }
            let ssn = seq::wrap_ssn(lane.ssn);
            if !message.unordered {
                lane.ssn = lane.ssn.saturating_add(1);
            }
            self.ids = self.ids.saturating_add(1);
            self.current = Some(Current { stream, ssn, id: self.ids, offset: 0, message });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netsim::{Clock, ms};

    fn message(length: usize, limit: Limit) -> Outgoing {
        Outgoing { ppid: 53, unordered: false, limit, payload: vec![7; length].into() }
    }

    #[test]
    fn a_stream_with_much_does_not_hold_up_others() {
        let now = Clock::new().now();
        let mut queues = Queues::default();
        (0..50).for_each(|_| queues.push(1, message(10_000, Limit::Never)));
        (0..50).for_each(|_| queues.push(2, message(100, Limit::Never)));
        let mut order = Vec::new();
        while let Some(piece) = queues.next(now, 1000, 1000) {
            if piece.flags & flag::BEGIN != 0 {
                order.push(piece.stream);
            }
        }
        // Both streams send equally many bytes, so all small messages are sent along with the first few large
        // ones.
        let last_small = order.iter().rposition(|stream| *stream == 2).unwrap();
        assert_eq!(order[..last_small].iter().filter(|stream| **stream == 1).count(), 1, "{order:?}");
        assert_eq!((order.len(), queues.held(), queues.is_empty()), (100, 0, true));
        // A stream that becomes active late does not make up for the time before, so both streams take turns.
        (0..50).for_each(|_| queues.push(1, message(1000, Limit::Never)));
        queues.push(3, message(1000, Limit::Never));
        queues.push(3, message(1000, Limit::Never));
        let order: Vec<u16> =
            std::iter::from_fn(|| queues.next(now, 1000, 1000)).map(|piece| piece.stream).collect();
        assert!(order[..4].contains(&1) && order[..4].contains(&3), "{order:?}");
    }

    #[test]
    fn fragments_of_a_message_are_not_interrupted() {
        let now = Clock::new().now();
        let mut queues = Queues::default();
        queues.push(1, message(2500, Limit::Never));
        queues.push(2, message(5, Limit::Never));
        let pieces: Vec<(u16, u8, usize)> = std::iter::from_fn(|| queues.next(now, 1000, 1000))
            .map(|piece| (piece.stream, piece.flags, piece.payload.len()))
            .collect();
        assert_eq!(pieces, [(1, 2, 1000), (1, 0, 1000), (1, 1, 500), (2, 11, 5)]);
    }

    #[test]
    fn a_piece_is_cut_only_when_it_fills_much_of_a_packet() {
        let now = Clock::new().now();
        let mut queues = Queues::default();
        queues.push(1, message(900, Limit::Never));
        assert!(queues.next(now, 800, 1000).is_none(), "it fits the next packet whole");
        assert_eq!(queues.next(now, 900, 1000).unwrap().payload.len(), 900);
        queues.push(1, message(1500, Limit::Never));
        assert!(queues.next(now, 400, 1000).is_none());
        assert_eq!(queues.next(now, 600, 1000).unwrap().payload.len(), 600);
        assert!(queues.next(now, 0, 1000).is_none());
    }

    #[test]
    fn messages_that_are_too_old_take_no_number() {
        let clock = Clock::new();
        let mut queues = Queues::default();
        for limit in [Limit::Never, Limit::At(clock.at(ms(10))), Limit::Retransmits(0)] {
            queues.push(1, message(5, limit));
        }
        let late = clock.at(ms(10));
        let ssns: Vec<u16> =
            std::iter::from_fn(|| queues.next(late, 1000, 1000)).map(|piece| piece.ssn).collect();
        assert_eq!((ssns, queues.expired, queues.held()), (vec![0, 1], 1, 0));
    }

    #[test]
    fn what_is_left_of_a_message_goes_with_it() {
        let now = Clock::new().now();
        let mut queues = Queues::default();
        queues.push(1, message(2500, Limit::Never));
        let first = queues.next(now, 1000, 1000).unwrap();
        assert!(!queues.is_idle(1));
        assert!(!queues.abandon(first.id + 1));
        assert!(queues.abandon(first.id) && !queues.abandon(first.id));
        assert!(queues.is_idle(1));
        assert_eq!(queues.held(), 0);
        queues.push(1, message(5, Limit::Never));
        assert_eq!(queues.next(now, 1000, 1000).unwrap().ssn, 1);
        queues.push(1, message(5, Limit::Never));
        queues.reset(1);
        assert_eq!((queues.held(), queues.is_empty()), (0, true));
        queues.push(1, message(5, Limit::Never));
        assert_eq!(queues.next(now, 1000, 1000).unwrap().ssn, 0);
    }
}
