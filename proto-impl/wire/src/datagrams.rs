//! Datagrams for one destination, as a machine hands them out.

use std::ops::Range;

/// Datagrams that one drain hands out: what one send with segmentation offload may carry (Linux `UDP_MAX_SEGMENTS`).
const COUNT_MAX: usize = 64;
/// Bytes that one drain hands out: what one send may carry, an IPv4 datagram's most without its heads.
const BYTES_MAX: usize = 65_507;

/// Collects whole datagrams, one behind the other, so that the owner of the socket sends runs of equal length with one
/// call. Payload that is shared with others is copied here once, on its way out: measured, naming the pieces instead
/// does not pay (17 to 50 ns of 640).
#[derive(Debug, Default)]
pub struct Datagrams {
    bytes: Vec<u8>,
    ends: Vec<usize>,
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
        self.ends.len() < COUNT_MAX && self.bytes.len().saturating_add(length) <= BYTES_MAX
    }

    /// A datagram of a head and a payload.
    pub fn push(&mut self, head: &[u8], payload: &[u8]) {
        self.push_made(|out| {
            out.extend_from_slice(head);
            out.extend_from_slice(payload);
        });
    }

    /// Appends the datagram that `make` writes.
    pub fn push_made(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        make(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Forgets all of them and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The number of datagrams.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all datagrams.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The datagram at `index`; empty behind the last.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        self.bytes.get(self.range(index)).unwrap_or_default()
    }

    /// The datagrams in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The run that begins with datagram `from`: at most `most`, all of one length but the last, which may be shorter.
    /// `None` behind the last.
    #[must_use]
    pub fn run(&self, from: usize, most: usize) -> Option<Run<'_>> {
        let first = self.ends.get(from).map(|_| self.range(from))?;
        let mut next = from.saturating_add(1);
        let mut end = first.end;
        while next < self.ends.len().min(from.saturating_add(most.max(1))) {
            let range = self.range(next);
            if range.len() > first.len() {
                break;
            }
            end = range.end;
            next = next.saturating_add(1);
            if range.len() < first.len() {
                break;
            }
        }
        let bytes = self.bytes.get(first.start..end).unwrap_or_default();
        Some(Run { bytes, segment: first.len(), next })
    }

    fn range(&self, index: usize) -> Range<usize> {
        let end_of = |index: usize| self.ends.get(index).copied();
        let start = index.checked_sub(1).map_or(Some(0), end_of).unwrap_or(self.bytes.len());
        start..end_of(index).unwrap_or(start)
    }
}

/// A batch of datagrams that exist already, without a bound: whoever collects them has one.
impl<T: AsRef<[u8]>> FromIterator<T> for Datagrams {
    fn from_iter<I: IntoIterator<Item = T>>(datagrams: I) -> Self {
        let mut batch = Self::new();
        for datagram in datagrams {
            batch.push(datagram.as_ref(), &[]);
        }
        batch
    }
}

/// The batch of one datagram; its bytes are not copied.
impl From<Vec<u8>> for Datagrams {
    fn from(datagram: Vec<u8>) -> Self {
        Self { ends: vec![datagram.len()], bytes: datagram }
    }
}

/// Each datagram as a vector of its own, for owners that send one by one and keep them.
impl From<&Datagrams> for Vec<Vec<u8>> {
    fn from(batch: &Datagrams) -> Self {
        batch.iter().map(<[u8]>::to_vec).collect()
    }
}

/// Datagrams that one send can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// The datagrams, back to back.
    pub bytes: &'a [u8],
    /// The length of each but the last.
    pub segment: usize,
    /// The datagram behind them.
    pub next: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lengths(lengths: &[usize]) -> Datagrams {
        let mut datagrams = Datagrams::new();
        for (n, &length) in lengths.iter().enumerate() {
            let byte = u8::try_from(n).unwrap();
            if n % 2 == 0 && length > 2 {
                datagrams.push(&[byte; 2], &vec![byte; length - 2]);
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
        while let Some(run) = datagrams.run(from, 3) {
            runs.push((run.next - from, run.bytes.len(), run.segment));
            from = run.next;
        }
        assert_eq!(runs, [(3, 30, 10), (1, 4, 4), (1, 10, 10), (3, 36, 12)]);
        assert_eq!(datagrams.run(0, 64).map(|run| run.next), Some(4));
    }

    #[test]
    fn what_was_pushed_is_there() {
        let mut datagrams = of_lengths(&[5, 3, 8]);
        assert_eq!((datagrams.len(), datagrams.bytes()), (3, 16));
        assert_eq!(datagrams.get(1), [1; 3]);
        assert_eq!(datagrams.run(2, 9).unwrap().bytes, [2; 8]);
        assert_eq!(datagrams.get(9), [0; 0]);
        datagrams.clear();
        assert!(datagrams.is_empty() && datagrams.run(0, 1).is_none() && datagrams.get(0).is_empty());
    }

    #[test]
    fn batches_are_made_of_vectors_and_become_vectors() {
        let vectors = vec![vec![1; 3], vec![], vec![2; 5]];
        let batch: Datagrams = vectors.iter().collect();
        assert_eq!((batch.len(), batch.bytes()), (3, 8));
        assert_eq!(Vec::from(&batch), vectors);
        assert!(batch.iter().eq([&[1; 3][..], &[], &[2; 5]]));
        assert_eq!(batch.iter().len(), 3);
        let one = Datagrams::from(vec![9; 4]);
        assert_eq!((one.len(), one.get(0)), (1, &[9; 4][..]));
        assert_eq!(Vec::from(&Datagrams::new()), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn room_is_bounded_by_count_and_by_bytes() {
        let mut datagrams = Datagrams::new();
        while datagrams.has_room(1400) {
            datagrams.push(&[0; 1400], &[]);
        }
        assert_eq!(datagrams.len(), BYTES_MAX / 1400);
        datagrams.clear();
        while datagrams.has_room(1) {
            datagrams.push(&[0], &[]);
        }
        assert_eq!(datagrams.len(), COUNT_MAX);
    }
}
