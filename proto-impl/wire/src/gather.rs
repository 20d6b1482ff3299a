//! Slices of a vectored write, borrowed from their owners.

use std::io::IoSlice;

/// Maximum number of slices in a write. Each message takes two slices (header and payload), so a single write is enough
/// for the messages that accumulate from one frame to the next. A backlog takes several writes.
const SLICES_MAX: usize = 64;

/// Length of a scratch buffer with room for a write that consists only of made slices ([`Gather::push_made`]), of up to
/// 32 bytes each.
pub const SCRATCH_BYTES: usize = SLICES_MAX * 32;

/// Borrowed slices for a `writev`, up to a budget of bytes.
#[derive(Debug)]
pub struct Gather<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    len: usize,
    bytes: usize,
    budget: usize,
    scratch: &'a mut [u8],
}

impl<'a> Gather<'a> {
    /// Creates an empty list with a budget in bytes. A slice that exceeds the budget is still added as a whole.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { slices: [IoSlice::new(&[]); SLICES_MAX], len: 0, bytes: 0, budget, scratch: &mut [] }
    }

    /// Like [`Gather::new`], with a scratch buffer for bytes that exist only for this write (see
    /// [`Gather::push_made`]).
    #[must_use]
    pub fn with_scratch(budget: usize, scratch: &'a mut [u8]) -> Self {
        Self { scratch, ..Self::new(budget) }
    }

    /// Copies `template` into the scratch buffer, lets `make` change the copy, and adds it as a slice. Returns false if
    /// there is no room.
    pub fn push_made(&mut self, template: &[u8], make: impl FnOnce(&mut [u8])) -> bool {
        if self.bytes >= self.budget || self.len >= SLICES_MAX || self.scratch.len() < template.len() {
            return false;
        }
        let (made, rest) = core::mem::take(&mut self.scratch).split_at_mut(template.len());
        self.scratch = rest;
        made.copy_from_slice(template);
        make(made);
        self.push(made)
    }

    /// Adds a slice. Returns false if there is no room; the caller then sends the rest with the next write.
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

    /// Slices for `write_vectored`.
    #[must_use]
    pub fn slices(&self) -> &[IoSlice<'a>] {
        self.slices.get(..self.len).unwrap_or_default()
    }

    /// Total length of the slices in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if there are no slices.
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
