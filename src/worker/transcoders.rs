//! The limit on simultaneously transcoded tracks, shared by all workers and divided among applications.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Worker;
use super::streams::Live;
use crate::jobs::shares::Room;

/// Number of counters over which the transcoders are spread by application.
const PARTS: usize = 64;

/// The number of transcoders that may run, shared by all workers without a lock.
#[derive(Debug)]
pub struct TranscoderBudget {
    limit: usize,
    /// Keys of the hash of names, so that nobody can choose a name that shares the counter of another one.
    keys: RandomState,
    /// Running transcoders, by application. A few applications may share a counter.
    parts: [AtomicUsize; PARTS],
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
    pub fn new(limit: usize) -> Self {
        Self { limit, keys: RandomState::new(), parts: [const { AtomicUsize::new(0) }; PARTS] }
    }

    /// Returns the index of an application's counter.
    fn part(&self, app: &str) -> usize {
        let parts = u64::try_from(PARTS).unwrap_or(1);
        usize::try_from(self.keys.hash_one(app) % parts).unwrap_or(0)
    }

    /// True if the application with this counter, which has `own` transcoders, may have another one ([`Room`]). An
    /// eighth of the limit is left for applications that have none.
    fn has_room_beside(&self, part: usize, own: usize) -> bool {
        let counts = self.parts.iter().enumerate().filter(|(other, _)| *other != part);
        let others = counts.map(|(_, count)| count.load(Ordering::Relaxed)).filter(|running| *running > 0);
        let others: Vec<usize> = others.chain([0]).collect();
        Room::new(self.limit, own, others.into_iter()).is_there()
    }

    /// True if another transcoder of an application may run.
    pub(super) fn has_room(&self, app: &str) -> bool {
        let part = self.part(app);
        let own = self.parts.get(part).map_or(0, |count| count.load(Ordering::Relaxed));
        self.has_room_beside(part, own)
    }

    /// Takes a permit for an application, or returns `None` if its share of the budget is used up.
    pub(super) fn take(self: &Arc<Self>, app: &str) -> Option<TranscoderPermit> {
        let part = self.part(app);
        let own = self.parts.get(part)?.fetch_add(1, Ordering::Relaxed);
        let permit = TranscoderPermit { budget: Arc::clone(self), part };
        self.has_room_beside(part, own).then_some(permit)
    }
}

/// A place in a [`TranscoderBudget`], freed when dropped.
#[derive(Debug)]
pub(super) struct TranscoderPermit {
    budget: Arc<TranscoderBudget>,
    /// Index of the application's counter.
    part: usize,
}

impl Drop for TranscoderPermit {
    fn drop(&mut self) {
        if let Some(count) = self.budget.parts.get(self.part) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
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
        let first = budget.take("live");
        let second = budget.take("live");
        assert!(first.is_some() && second.is_some() && !budget.has_room("live"));
        assert!(budget.take("live").is_none() && budget.take("live").is_none());
        drop(first);
        assert!(budget.has_room("live") && budget.take("live").is_some());
    }

    #[test]
    fn q_17_an_application_leaves_transcoders_for_others() {
        let budget = Arc::new(TranscoderBudget::new(32));
        let take =
            |app: &str, times: usize| -> Vec<_> { (0..times).filter_map(|_| budget.take(app)).collect() };
        let of_live = take("live", 64);
        assert_eq!(of_live.len(), 28, "an eighth is left");
        assert!(!budget.has_room("live") && budget.has_room("LiveApp"));
        let of_other = take("LiveApp", 64);
        assert_eq!(of_other.len(), 3);
        assert!(budget.take("third").is_some(), "one of them is for an application that has none");
        // As places become free, the other application takes its half first.
        drop(of_live);
        let of_live = take("live", 12);
        assert_eq!(take("LiveApp", 64).len() + of_other.len(), 16, "{}", of_live.len());
    }
}
