//! The limit on derived tracks that are transcoded at a time, by all workers together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Worker;
use super::streams::Live;

/// The places that there are; shared by all workers without a lock.
#[derive(Debug)]
pub struct TranscoderBudget {
    limit: usize,
    running: AtomicUsize,
}

impl Default for TranscoderBudget {
    /// A budget without a limit: for tests and simulations.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl TranscoderBudget {
    /// Creates a budget of so many at a time.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, running: AtomicUsize::new(0) }
    }

    /// Whether there is a place.
    pub(super) fn has_room(&self) -> bool {
        self.running.load(Ordering::Relaxed) < self.limit
    }

    /// A place; `None`: there is none.
    pub(super) fn take(self: &Arc<Self>) -> Option<TranscoderPermit> {
        if self.running.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(TranscoderPermit(Arc::clone(self)))
    }
}

/// A place in a [`TranscoderBudget`], until it is dropped.
#[derive(Debug)]
pub(super) struct TranscoderPermit(Arc<TranscoderBudget>);

impl Drop for TranscoderPermit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Live {
    /// Derived tracks that are transcoded here.
    pub(super) fn transcoders(&self) -> usize {
        self.producers.values().filter(|producer| producer.permit.is_some()).count()
    }
}

impl Worker {
    /// Has the transcoders of this worker count against a budget that it shares with others.
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
