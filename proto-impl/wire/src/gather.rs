//! The slices of one vectored write, borrowed from wherever they lie.

use std::io::IoSlice;

/// The number of slices that one write may have. Two per message (head and payload) make room for what comes
/// while a frame is waited for; a backlog takes several writes.
const SLICES_MAX: usize = 64;

/// Bytes that a scratch needs so that every slice of a write may be a made one of up to 32 bytes.
pub const SCRATCH_BYTES: usize = SLICES_MAX * 32;

/// Collects borrowed slices for one `writev`, up to a budget of bytes.
#[derive(Debug)]
pub struct Gather<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    len: usize,
    bytes: usize,
    budget: usize,
    scratch: &'a mut [u8],
}

impl<'a> Gather<'a> {
    /// Takes slices until `budget` bytes are named; the slice that crosses it is still taken whole.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { slices: [IoSlice::new(&[]); SLICES_MAX], len: 0, bytes: 0, budget, scratch: &mut [] }
    }

    /// As [`Gather::new`], with room for bytes that are made for this write alone: see [`Gather::push_made`].
    #[must_use]
    pub fn with_scratch(budget: usize, scratch: &'a mut [u8]) -> Self {
        Self { scratch, ..Self::new(budget) }
    }

    /// Copies `template` into the scratch, lets `make` change the copy, and names it. False when there is no room
    /// left.
    pub fn push_made(&mut self, template: &[u8], make: impl FnOnce(&mut [u8])) -> bool {
        if self.bytes >= self.budget || self.len >= SLICES_MAX || self.scratch.len() < template.len() {
            return false;
        }
        let (made, rest) = std::mem::take(&mut self.scratch).split_at_mut(template.len());
        self.scratch = rest;
        made.copy_from_slice(template);
        make(made);
        self.push(made)
    }

    /// Names one more slice. False when there is no room left: stop, and take the rest with the next write.
    pub fn push(&mut self, slice: &'a [u8]) -> bool {
        if self.bytes >= self.budget {
            return false;
        }
        if slice.is_empty() {
            return true;
        }
        let Some(entry) = self.slices.get_mut(self.len) else {
            return false;
        };
        *entry = IoSlice::new(slice);
        self.len += 1;
        self.bytes = self.bytes.saturating_add(slice.len());
        true
    }

    /// The slices, for `write_vectored`.
    #[must_use]
    pub fn slices(&self) -> &[IoSlice<'a>] {
        self.slices.get(..self.len).unwrap_or_default()
    }

    /// Bytes named so far.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_slices_live_in_the_scratch_until_it_is_full() {
        let mut scratch = [0; 7];
        let mut g = Gather::with_scratch(100, &mut scratch);
        assert!(g.push_made(b"abc", |made| made.fill(b'x')) && g.push(b"-") && g.push_made(b"def", |_| ()));
        assert!(!g.push_made(b"gh", |_| ()));
        assert_eq!(g.slices().iter().flat_map(|s| s.to_vec()).collect::<Vec<_>>(), b"xxx-def");
        assert!(!Gather::new(100).push_made(b"a", |_| ()));
    }

    #[test]
    fn stops_at_the_budget_and_at_the_slots() {
        let mut g = Gather::new(10);
        assert!(g.push(&[0; 4]) && g.push(&[]) && g.push(&[0; 8]));
        assert!(!g.push(&[0; 1]));
        assert_eq!((g.slices().len(), g.bytes()), (2, 12));

        let mut g = Gather::new(usize::MAX);
        let taken = (0..1000).take_while(|_| g.push(&[1])).count();
        assert_eq!((taken, g.slices().len()), (SLICES_MAX, SLICES_MAX));
    }
}
