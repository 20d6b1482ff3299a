//! Bytes that wait for a socket: refcounted slices. Small writes are collected in a shared scratch buffer.

use alloc::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

#[cfg(feature = "std")]
use crate::Gather;

/// Maximum length in bytes of a write that is copied into the scratch buffer instead of becoming its own slice.
const SCRATCH_WRITE_MAX: usize = 256;
/// Number of scratch bytes that are reserved at a time.
const SCRATCH_BYTES: usize = 1024;

/// Queue of outgoing bytes. It has no limit: the owner must check [`SendQueue::len`] and stop adding bytes above its
/// own high-water mark.
#[derive(Debug, Default)]
pub struct SendQueue {
    parts: VecDeque<Bytes>,
    scratch: BytesMut,
    len: usize,
}

impl SendQueue {
    /// Creates an empty queue without an allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a refcounted slice without copying it.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.seal();
        self.len = self.len.saturating_add(part.len());
        self.parts.push_back(part);
    }

    /// Queues a copy of `bytes`. Meant for small slices that are not refcounted.
    pub fn push_slice(&mut self, bytes: &[u8]) {
        if bytes.len() > SCRATCH_WRITE_MAX {
            self.push(Bytes::copy_from_slice(bytes));
            return;
        }
        if self.scratch.capacity().saturating_sub(self.scratch.len()) < bytes.len() {
            self.seal();
            self.scratch.reserve(SCRATCH_BYTES);
        }
        self.scratch.put_slice(bytes);
        self.len = self.len.saturating_add(bytes.len());
    }

    /// Appends everything in `other` to the queued bytes.
    pub fn append(&mut self, other: &mut Self) {
        other.seal();
        for part in other.parts.drain(..) {
            self.push(part);
        }
        other.len = 0;
    }

    /// Adds the queued slices to `gather`, front first. Returns false if `gather` had no room for all of them.
    #[cfg(feature = "std")]
    pub fn gather<'a>(&'a self, gather: &mut Gather<'a>) -> bool {
        self.parts.iter().all(|part| gather.push(part)) && gather.push(&self.scratch)
    }

    /// Drops `n` sent bytes from the front. If `n` is larger than the queue, the queue becomes empty.
    pub fn advance(&mut self, n: usize) {
        let mut n = n.min(self.len);
        self.len -= n;
        while let Some(front) = self.parts.front_mut() {
            if n < front.len() {
                front.advance(n);
                return;
            }
            n -= front.len();
            self.parts.pop_front();
        }
        self.scratch.advance(n.min(self.scratch.len()));
        self.release_if_empty();
    }

    /// Takes all queued bytes as a single buffer, for tests and drivers without vectored writes.
    pub fn take_all(&mut self) -> Bytes {
        self.seal();
        let mut all = BytesMut::with_capacity(self.len);
        for part in self.parts.drain(..) {
            all.put_slice(&part);
        }
        self.len = 0;
        all.freeze()
    }

    /// Takes all queued bytes as separate slices, without copying them.
    pub fn take_parts(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        self.seal();
        self.len = 0;
        self.scratch = BytesMut::new();
        core::mem::take(&mut self.parts).into_iter()
    }

    /// Number of queued bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the queue is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn seal(&mut self) {
        if !self.scratch.is_empty() {
            self.parts.push_back(self.scratch.split().freeze());
        }
    }

    /// Frees the buffers if the queue is empty, so that an idle session holds no memory.
    fn release_if_empty(&mut self) {
        if self.len == 0 {
            self.parts = VecDeque::new();
            self.scratch = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(queue: &SendQueue) -> Vec<u8> {
        let mut gather = Gather::new(usize::MAX);
        queue.gather(&mut gather);
        gather.slices().iter().flat_map(|s| s.to_vec()).collect()
    }

    #[test]
    fn parts_come_out_in_their_order_and_uncopied() {
        let mut q = SendQueue::new();
        let long = Bytes::from(vec![7; 1000]);
        q.push_slice(b"ab");
        q.push(long.clone());
        q.push_slice(b"cd");
        let parts: Vec<Bytes> = q.take_parts().collect();
        assert_eq!(parts, [Bytes::from_static(b"ab"), long.clone(), Bytes::from_static(b"cd")]);
        assert!(parts[1].as_ptr() == long.as_ptr() && q.is_empty());
    }

    #[test]
    fn order_is_kept_between_copies_and_slices() {
        let mut q = SendQueue::new();
        q.push_slice(b"ab");
        q.push(Bytes::from_static(b"cd"));
        q.push_slice(b"ef");
        assert_eq!(sent(&q), b"abcdef");
        q.advance(3);
        assert_eq!((sent(&q), q.len()), (b"def".to_vec(), 3));
        q.advance(99);
        assert!(q.is_empty() && sent(&q).is_empty());
    }

    proptest! {
        #[test]
        fn any_cut_delivers_the_same_bytes(parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..600)), 0..12), cut in 1usize..500) {
            let mut q = SendQueue::new();
            let mut want = Vec::new();
            for (copy, part) in &parts {
                want.extend_from_slice(part);
                if *copy { q.push_slice(part) } else { q.push(Bytes::copy_from_slice(part)) }
            }
            prop_assert_eq!(q.len(), want.len());
            let mut got = Vec::new();
            while !q.is_empty() {
                let head: Vec<u8> = sent(&q).into_iter().take(cut).collect();
                q.advance(head.len());
                got.extend(head);
            }
            prop_assert_eq!(got, want);
        }
    }
}
