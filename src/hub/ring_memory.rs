//! The memory of all rings of the process. Each worker counts the bytes of its own rings. The workers share the sum
//! without a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::types::WorkerId;

/// Maximum number of bytes that a worker appends before it compares the bytes of all rings with the budget
/// again. With a small budget, it does so more often.
const LOOK_BYTES: usize = 1024 * 1024;
/// Part of the budget (one eighth) that is left free when rings are shrunk, so that the rings are not shrunk again with
/// every unit.
const HEADROOM_SHARE: usize = 8;

/// The budget of all rings.
#[derive(Debug)]
pub struct RingMemory {
    limit: usize,
    /// The bytes that the rings of each worker retain, as last reported.
    held: Box<[AtomicUsize]>,
}

impl RingMemory {
    /// Makes a budget of `limit` bytes for the rings of this many workers.
    #[must_use]
    pub fn new(limit: usize, workers: usize) -> Self {
        Self { limit, held: (0..workers).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// Bytes that a worker may append before it must call [`RingMemory::excess`] again.
    #[must_use]
    pub fn look_after(&self) -> usize {
        (self.limit / 64).min(LOOK_BYTES)
    }

    /// Records the bytes that a worker's rings retain, and returns the number of bytes that the worker must free. If
    /// the sum is over the budget, each worker that has more than an even share frees its excess, as far as needed.
    pub fn excess(&self, worker: WorkerId, held: usize) -> usize {
        if let Some(of_worker) = self.held.get(usize::from(worker.0)) {
            of_worker.store(held, Ordering::Relaxed);
        }
        let sum = self.held.iter().fold(0usize, |sum, one| sum.saturating_add(one.load(Ordering::Relaxed)));
        if sum <= self.limit {
            return 0;
        }
        let target = self.limit - self.limit / HEADROOM_SHARE;
        let share = target / self.held.len().max(1);
        sum.saturating_sub(target).min(held.saturating_sub(share))
    }
}

impl Default for RingMemory {
    /// Makes an unlimited budget, so that only the limits of each ring apply.
    fn default() -> Self {
        Self::new(usize::MAX, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_27_who_has_more_than_its_share_gives_up_what_is_too_much() {
        let memory = RingMemory::new(800, 2);
        let (a, b) = (WorkerId(0), WorkerId(1));
        assert_eq!((memory.excess(a, 500), memory.excess(b, 300)), (0, 0));
        // 900 bytes exceed the budget of 800. An eighth of the budget is to be left free, so 700 bytes may stay, and
        // the share of each worker is 350.
        assert_eq!(memory.excess(a, 600), 200);
        assert_eq!(memory.excess(b, 300), 0, "it has less than its share");
        assert_eq!(memory.excess(a, 400), 0);
        assert_eq!((memory.excess(b, 500), memory.excess(a, 400)), (150, 50));
        assert_eq!(RingMemory::default().excess(a, usize::MAX), 0);
    }
}
