//! Datagrams for one destination, as a machine hands them out.

use std::ops::Range;

use bytes::Bytes;

/// Datagrams that one drain hands out: what one send with segmentation offload may carry (Linux `UDP_MAX_SEGMENTS`).
const COUNT_MAX: usize = 64;
/// Bytes that one drain hands out: what one send may carry, an IPv4 datagram's most without its heads.
const BYTES_MAX: usize = 65_507;

/// A piece of a datagram.
#[derive(Debug, Clone)]
enum Part {
    /// Of the scratch.
    Made(Range<usize>),
    /// Shared with others.
    Shared(Bytes),
}

#[derive(Debug, Clone, Copy)]
struct Datagram {
    /// Its parts end before this one.
    parts_end: usize,
    length: usize,
}

/// Collects whole datagrams: heads and ciphertext are made in a scratch of its own, shared payload is named. The owner
/// of the socket sends runs of equal length at once.
#[derive(Debug, Default)]
pub struct Datagrams {
    scratch: Vec<u8>,
    parts: Vec<Part>,
    datagrams: Vec<Datagram>,
    bytes: usize,
}

impl Datagrams {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `length` more bytes have room. A machine asks before it takes a datagram out of its queue.
    #[must_use]
    pub const fn has_room(&self, length: usize) -> bool {
        self.datagrams.len() < COUNT_MAX && self.bytes.saturating_add(length) <= BYTES_MAX
    }

    /// A datagram of a head, which is copied, and a payload, which is shared.
    pub fn push_shared(&mut self, head: &[u8], payload: Bytes) {
        let from = self.scratch.len();
        self.scratch.extend_from_slice(head);
        self.parts.push(Part::Made(from..self.scratch.len()));
        let length = head.len().saturating_add(payload.len());
        self.parts.push(Part::Shared(payload));
        self.end(length);
    }

    /// A datagram that `make` appends to what it is given.
    pub fn push_made(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        let from = self.scratch.len();
        make(&mut self.scratch);
        let to = self.scratch.len().max(from);
        self.parts.push(Part::Made(from..to));
        self.end(to - from);
    }

    fn end(&mut self, length: usize) {
        self.bytes = self.bytes.saturating_add(length);
        self.datagrams.push(Datagram { parts_end: self.parts.len(), length });
    }

    /// Forgets all of them and keeps the room.
    pub fn clear(&mut self) {
        self.scratch.clear();
        self.parts.clear();
        self.datagrams.clear();
        self.bytes = 0;
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The run that begins with datagram `from`: at most `most`, all of one length but the last, which may be shorter.
    /// Gives its datagrams and that length. Empty behind the last.
    #[must_use]
    pub fn run(&self, from: usize, most: usize) -> (Range<usize>, usize) {
        let rest = self.datagrams.get(from..).unwrap_or_default();
        let Some(first) = rest.first() else { return (from..from, 0) };
        let mut count = 1;
        for next in rest.get(1..most.max(1).min(rest.len())).unwrap_or_default() {
            if next.length > first.length {
                break;
            }
            count += 1;
            if next.length < first.length {
                break;
            }
        }
        (from..from.saturating_add(count), first.length)
    }

    /// The slices of some datagrams, in order.
    pub fn slices(&self, of: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let end_of = |index: usize| self.datagrams.get(index).map_or(0, |datagram| datagram.parts_end);
        let from = of.start.checked_sub(1).map_or(0, end_of);
        let to = of.end.checked_sub(1).map_or(0, end_of).max(from);
        self.parts.get(from..to).unwrap_or_default().iter().map(|part| match part {
            Part::Made(range) => self.scratch.get(range.clone()).unwrap_or_default(),
            Part::Shared(bytes) => bytes,
        })
    }

    /// One datagram, copied together.
    #[must_use]
    pub fn copy(&self, index: usize) -> Bytes {
        self.slices(index..index.saturating_add(1)).collect::<Vec<_>>().concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lengths(lengths: &[usize]) -> Datagrams {
        let mut datagrams = Datagrams::new();
        for (n, &length) in lengths.iter().enumerate() {
            let byte = u8::try_from(n).unwrap();
            if n % 2 == 0 && length > 2 {
                datagrams.push_shared(&[byte; 2], Bytes::from(vec![byte; length - 2]));
            } else {
                datagrams.push_made(|out| out.resize(out.len() + length, byte));
            }
        }
        datagrams
    }

    #[test]
    fn runs_end_behind_a_shorter_one_and_before_a_longer_one() {
        let datagrams = of_lengths(&[10, 10, 10, 4, 10, 12, 12, 12]);
        let mut runs = Vec::new();
        let mut from = 0;
        while from < datagrams.len() {
            let (run, length) = datagrams.run(from, 3);
            runs.push((run.clone(), length));
            from = run.end;
        }
        assert_eq!(runs, [(0..3, 10), (3..4, 4), (4..5, 10), (5..8, 12)]);
        assert_eq!(datagrams.run(8, 3), (8..8, 0));
        assert_eq!(datagrams.run(0, 64), (0..4, 10));
    }

    #[test]
    fn what_was_pushed_is_what_the_slices_say() {
        let mut datagrams = of_lengths(&[5, 3, 8]);
        assert_eq!((datagrams.len(), datagrams.bytes()), (3, 16));
        assert_eq!(datagrams.copy(1), Bytes::from(vec![1; 3]));
        assert_eq!(datagrams.slices(0..3).map(<[u8]>::len).sum::<usize>(), 16);
        assert_eq!(datagrams.slices(2..3).collect::<Vec<_>>().concat(), [2; 8]);
        assert_eq!(datagrams.copy(9), Bytes::new());
        datagrams.clear();
        assert!(datagrams.is_empty() && datagrams.slices(0..1).next().is_none());
    }

    #[test]
    fn room_is_bounded_by_count_and_by_bytes() {
        let mut datagrams = Datagrams::new();
        while datagrams.has_room(1400) {
            datagrams.push_made(|out| out.resize(out.len() + 1400, 0));
        }
        assert_eq!(datagrams.len(), BYTES_MAX / 1400);
        datagrams.clear();
        while datagrams.has_room(1) {
            datagrams.push_made(|out| out.push(0));
        }
        assert_eq!(datagrams.len(), COUNT_MAX);
    }
}
