//! Reassembles handshake messages from fragments, in order (RFC 6347 §4.2.3), within fixed memory limits and in
//! linear time.

use std::collections::VecDeque;

use crate::error::Failure;
use crate::handshake::{FragmentHead, MessageType};

/// Maximum size of a message, in bytes. Certificates with a chain are smaller.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of messages being reassembled: the next one, and seven after it.
pub(crate) const MESSAGES_MAX: usize = 8;
/// Maximum number of bytes kept for messages after the next one; together with the next one, at most 40 KiB.
pub(crate) const AHEAD_BYTES_MAX: usize = 24 * 1024;

/// A complete message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: MessageType,
    pub(crate) sequence: u16,
    pub(crate) protected: bool,
    pub(crate) body: Vec<u8>,
}

/// Result of adding a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The fragment was stored, or was already known.
    Kept,
    /// The fragment belongs to a message that was already taken: the peer retransmits.
    Old,
    /// The fragment is too far ahead, or there is no room.
    Ahead,
    /// The fragment contradicts earlier ones.
    Malformed,
}

/// A partially received message.
#[derive(Debug)]
struct Partial {
    kind: MessageType,
    protected: bool,
    body: Vec<u8>,
    /// A bit per byte of the body, set if the byte was received.
    have: Vec<u8>,
    missing: usize,
}

impl Partial {
    fn new(head: &FragmentHead, protected: bool) -> Self {
        Self {
            kind: head.kind,
            protected,
            body: vec![0; head.length],
            have: vec![0; head.length.div_ceil(8)],
            missing: head.length,
        }
    }

    /// Stores a fragment. Returns false if it contradicts bytes received before.
    fn insert(&mut self, offset: usize, fragment: &[u8]) -> bool {
        let place = self.body.iter_mut().skip(offset);
        for ((byte, index), new) in place.zip(offset..).zip(fragment) {
            let Some(bits) = self.have.get_mut(index / 8) else { return false };
            let bit = 1u8 << (index % 8);
            if *bits & bit == 0 {
                *bits |= bit;
                *byte = *new;
                self.missing = self.missing.saturating_sub(1);
            } else if *byte != *new {
                return false;
            }
        }
        true
    }
}

/// Reassembles the messages of one peer.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Sequence number of the next message; exceeds the range of sequence numbers if no more can follow.
    next: u32,
    /// Partial messages, starting with number `next`.
    slots: VecDeque<Option<Partial>>,
}

impl Reassembly {
    /// Starts with a message other than the first. Must be called before any fragment is added.
    pub(crate) fn begin_at(&mut self, sequence: u16) {
        self.next = sequence.into();
        self.slots.clear();
    }

    /// Adds a fragment. An error is fatal: the peer has sent two versions of the same message.
    pub(crate) fn insert(
        &mut self,
        head: &FragmentHead,
        fragment: &[u8],
        protected: bool,
    ) -> Result<Taken, Failure> {
        let Some(ahead) = u32::from(head.sequence).checked_sub(self.next) else {
            return Ok(Taken::Old);
        };
        let ahead = usize::try_from(ahead).unwrap_or(MESSAGES_MAX);
        let end = head.offset.saturating_add(fragment.len());
        if end > head.length || (fragment.is_empty() && head.length > 0) {
            return Ok(Taken::Malformed);
        }
        if ahead >= MESSAGES_MAX {
            return Ok(Taken::Ahead);
        }
        if head.length > MESSAGE_BYTES_MAX {
            return if ahead == 0 { Err(Failure::TooLarge) } else { Ok(Taken::Ahead) };
        }
        while self.slots.len() <= ahead {
            self.slots.push_back(None);
        }
        let known = self.slots.get(ahead).is_some_and(Option::is_some);
        if !known && ahead > 0 && self.ahead_bytes().saturating_add(head.length) > AHEAD_BYTES_MAX {
            return Ok(Taken::Ahead);
        }
        let Some(slot) = self.slots.get_mut(ahead) else { return Ok(Taken::Ahead) };
        // Authenticated messages replace unauthenticated ones, which anyone may have sent.
        if slot.as_ref().is_some_and(|partial| protected && !partial.protected) {
            *slot = None;
        }
        let partial = slot.get_or_insert_with(|| Partial::new(head, protected));
        if partial.protected && !protected {
            return Ok(Taken::Malformed);
        }
        if partial.kind != head.kind || partial.body.len() != head.length {
            return Err(Failure::Illegal("fragments of one message disagree about it"));
        }
        if !partial.insert(head.offset, fragment) {
            return Err(Failure::Illegal("overlapping fragments differ"));
        }
        Ok(Taken::Kept)
    }

    /// Returns the type of the next message once it is complete.
    pub(crate) fn peek(&self) -> Option<MessageType> {
        let partial = self.slots.front()?.as_ref()?;
        (partial.missing == 0).then_some(partial.kind)
    }

    /// Takes the next message once it is complete.
    pub(crate) fn take(&mut self) -> Option<Message> {
        self.peek()?;
        let partial = self.slots.pop_front().flatten()?;
        let sequence = u16::try_from(self.next).ok()?;
        self.next = self.next.saturating_add(1);
        Some(Message { kind: partial.kind, sequence, protected: partial.protected, body: partial.body })
    }

    /// True if no fragment is stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Drops fragments that were received unencrypted: anyone may have sent them, and there are keys now.
    pub(crate) fn drop_unprotected(&mut self) {
        for slot in &mut self.slots {
            slot.take_if(|partial| !partial.protected);
        }
    }

    /// Frees unused memory after the handshake; stored fragments are kept.
    pub(crate) fn release(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// True if the message with this sequence number was already taken.
    pub(crate) fn is_old(&self, sequence: u16) -> bool {
        u32::from(sequence) < self.next
    }

    fn ahead_bytes(&self) -> usize {
        self.slots.iter().skip(1).flatten().map(|partial| partial.body.len()).sum()
    }

    /// Returns the number of bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.slots.iter().flatten().map(|partial| partial.body.len().saturating_add(partial.have.len())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: MessageType = MessageType::CERTIFICATE;

    fn head(sequence: u16, length: usize, offset: usize, fragment: usize) -> FragmentHead {
        FragmentHead { kind: KIND, length, sequence, offset, fragment }
    }

    /// Inserts `body[from..to]` as part of message `sequence`.
    fn put(r: &mut Reassembly, sequence: u16, body: &[u8], from: usize, to: usize) -> Result<Taken, Failure> {
        r.insert(&head(sequence, body.len(), from, to - from), &body[from..to], false)
    }

    #[test]
    fn d_10_any_cut_in_any_order_gives_the_message() {
        let body: Vec<u8> = (0..100).collect();
        for size in 1..=100 {
            let mut pieces: Vec<(usize, usize)> =
                (0..100).step_by(size).map(|at| (at, (at + size).min(100))).collect();
            for reversed in [false, true] {
                if reversed {
                    pieces.reverse();
                }
                let mut r = Reassembly::default();
                for (at, (from, to)) in pieces.iter().enumerate() {
                    assert_eq!(r.take(), None);
                    assert_eq!(put(&mut r, 0, &body, *from, *to), Ok(Taken::Kept), "{size} {at}");
                }
                assert_eq!(r.take().unwrap().body, body);
                assert_eq!(put(&mut r, 0, &body, 0, 1), Ok(Taken::Old));
            }
        }
    }

    #[test]
    fn d_10_overlaps_must_agree() {
        let body = [1, 2, 3, 4, 5, 6];
        let mut r = Reassembly::default();
        put(&mut r, 0, &body, 1, 4).unwrap();
        put(&mut r, 0, &body, 0, 3).unwrap();
        assert!(matches!(put(&mut r, 0, &[9; 6], 2, 5), Err(Failure::Illegal(_))));
        assert!(matches!(put(&mut r, 0, &[1, 2, 3, 4, 5], 0, 2), Err(Failure::Illegal(_))));
        let other = FragmentHead { kind: MessageType::FINISHED, ..head(0, 6, 0, 1) };
        assert!(matches!(r.insert(&other, &[1], false), Err(Failure::Illegal(_))));
        assert_eq!(r.take(), None);
        put(&mut r, 0, &body, 3, 6).unwrap();
        assert_eq!(r.take().unwrap().body, body);
    }

    #[test]
    fn d_10_lengths_that_lie_are_dropped() {
        let mut r = Reassembly::default();
        for (length, offset, fragment) in
            [(4, 0, 5), (4, 5, 0), (4, 2, 0), (4, 0xff_ffff, 3), (0, 0, 1), (0, 1, 0)]
        {
            let taken = r.insert(&head(0, length, offset, fragment), &vec![0; fragment], false);
            assert_eq!(taken, Ok(Taken::Malformed), "{length} {offset} {fragment}");
        }
        assert_eq!(r.held_bytes(), 0);
        assert_eq!(r.insert(&head(0, 0, 0, 0), &[], false), Ok(Taken::Kept));
        assert_eq!(r.take().unwrap().body, []);
    }

    #[test]
    fn d_10_a_message_of_16_mib_gets_nothing() {
        let mut r = Reassembly::default();
        assert_eq!(r.insert(&head(0, 0xff_ffff, 0, 1), &[0], false), Err(Failure::TooLarge));
        assert_eq!(r.insert(&head(1, 0xff_ffff, 0, 1), &[0], false), Ok(Taken::Ahead));
        assert_eq!(r.held_bytes(), 0);
    }

    #[test]
    fn d_10_ten_thousand_messages_ahead_hold_no_more_than_seven() {
        let mut r = Reassembly::default();
        for round in 0..3 {
            for sequence in 1..=10_000 {
                let taken = r.insert(&head(sequence, MESSAGE_BYTES_MAX, 0, 1), &[0], false).unwrap();
                assert!(sequence == 1 || taken == Taken::Ahead, "{round} {sequence}");
            }
        }
        // There is always room for the next message, regardless of messages after it.
        for sequence in 2..=10_000 {
            let _ = r.insert(&head(sequence, 1000, 0, 1), &[0], false);
        }
        let body = vec![5; MESSAGE_BYTES_MAX];
        put(&mut r, 0, &body, 0, body.len()).unwrap();
        assert!(r.held_bytes() <= 64 * 1024, "{}", r.held_bytes());
        assert!(r.slots.len() <= MESSAGES_MAX);
        assert_eq!(r.take().unwrap().body, body);
    }

    #[test]
    fn what_is_protected_counts_more() {
        let mut r = Reassembly::default();
        put(&mut r, 0, &[9, 9], 0, 1).unwrap();
        assert_eq!(r.insert(&head(0, 3, 0, 3), b"yes", true), Ok(Taken::Kept));
        assert_eq!(put(&mut r, 0, b"not", 0, 3), Ok(Taken::Malformed));
        let message = r.take().unwrap();
        assert!(message.protected && message.body == b"yes");
    }
}
