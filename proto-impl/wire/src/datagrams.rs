//! Datagrams for a single destination, as a protocol's state machine returns them.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of datagrams in a batch: the limit of one send with segmentation offload (Linux `UDP_MAX_SEGMENTS`).
const COUNT_MAX: usize = 64;
/// Maximum number of bytes in a batch: the limit of one send, which is the largest payload of an IPv4 datagram.
const BYTES_MAX: usize = 65_507;

/// Batch of whole datagrams in one buffer, so that the owner of the socket can send a run of datagrams of equal length
/// with one call. Payload shared with other batches is copied into the buffer once; a list of slices would save the
/// copy, but was measured to be no faster.
#[derive(Debug, Default)]
pub struct Datagrams {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Datagrams {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether there is room for `length` more bytes. A state machine checks this before it removes a datagram
    /// from its queue.
    #[must_use]
    pub const fn has_room(&self, length: usize) -> bool {
        self.ends.len() < COUNT_MAX && self.bytes.len().saturating_add(length) <= BYTES_MAX
    }

    /// Appends a datagram made of a header and a payload.
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

    /// Removes all datagrams and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Number of datagrams.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if the batch is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Total length of all datagrams in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the datagram at `index`, or an empty slice after the last.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        self.bytes.get(self.range(index)).unwrap_or_default()
    }

    /// Iterates over the datagrams in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns the run that begins with the datagram `from`: at most `most` datagrams of the same length; the last one
    /// may be shorter. Returns `None` if there is no datagram `from`.
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

/// Collects existing datagrams into a batch. The limits do not apply; the caller is responsible for the size.
impl<T: AsRef<[u8]>> FromIterator<T> for Datagrams {
    fn from_iter<I: IntoIterator<Item = T>>(datagrams: I) -> Self {
        let mut batch = Self::new();
        for datagram in datagrams {
            batch.push(datagram.as_ref(), &[]);
        }
        batch
    }
}

/// Makes a batch of a single datagram without copying it.
impl From<Vec<u8>> for Datagrams {
    fn from(datagram: Vec<u8>) -> Self {
        Self { ends: vec![datagram.len()], bytes: datagram }
    }
}

/// Copies each datagram to its own vector, for owners that send them one by one and keep them.
impl From<&Datagrams> for Vec<Vec<u8>> {
    fn from(batch: &Datagrams) -> Self {
        batch.iter().map(<[u8]>::to_vec).collect()
    }
}

/// Run of datagrams that can be sent with a single call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// Bytes of the datagrams, back to back.
    pub bytes: &'a [u8],
    /// Length of each datagram. The last one may be shorter.
    pub segment: usize,
    /// Index of the first datagram after the run.
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
