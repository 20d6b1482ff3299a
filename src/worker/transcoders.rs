//! The limit on simultaneously transcoded tracks, shared by all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Worker;
use super::streams::Live;

/// The number of transcoders that may run, shared by all workers without a lock.
#[derive(Debug)]
pub struct TranscoderBudget {
    limit: usize,
    running: AtomicUsize,
}

impl Default for TranscoderBudget {
    /// Makes a budget without a limit, for tests and simulations.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl TranscoderBudget {
    /// Makes a budget for `limit` transcoders at a time.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, running: AtomicUsize::new(0) }
    }

    /// True if another transcoder may run.
    pub(super) fn has_room(&self) -> bool {
        self.running.load(Ordering::Relaxed) < self.limit
    }

    /// Takes a permit, or returns `None` if the budget is used up.
    pub(super) fn take(self: &Arc<Self>) -> Option<TranscoderPermit> {
        if self.running.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(TranscoderPermit(Arc::clone(self)))
    }
}

/// A place in a [`TranscoderBudget`], freed when dropped.
#[derive(Debug)]
pub(super) struct TranscoderPermit(Arc<TranscoderBudget>);

impl Drop for TranscoderPermit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Live {
    /// Number of derived tracks being transcoded here.
    pub(super) fn transcoders(&self) -> usize {
        self.producers.values().filter(|producer| producer.permit.is_some()).count()
    }
}

impl Worker {
    /// Makes the transcoders of this worker count toward a budget that it shares with other
    /// workers.
    #[must_use]
    pub fn with_transcoders(mut self, budget: Arc<TranscoderBudget>) -> Self {
        self.live.transcoders = budget;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_permit_is_dropped() {
        let budget = Arc::new(TranscoderBudget::new(2));
        let first = budget.take();
        let second = budget.take();
        assert!(first.is_some() && second.is_some() && !budget.has_room());
        assert!(budget.take().is_none() && budget.take().is_none());
        drop(first);
        assert!(budget.has_room() && budget.take().is_some());
    }
}
