//! Removals of files and objects that wait for another attempt.
//!
//! Each failed attempt doubles the pause before the next one. An application has at most [`WAITING_MAX`] removals that
//! wait. While it has as many, no further recording of it is removed: the record stays, and with it the file, so that a
//! later call or a later search for old recordings finds both again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of waiting removals from which on an application's recordings are no longer removed.
pub(super) const WAITING_MAX: usize = 4000;
/// Maximum number of waiting removals of an application. Removals that were ordered before [`WAITING_MAX`] was reached,
/// or by another node, come on top of it.
const HARD_MAX: usize = 4 * WAITING_MAX;

/// A removal of one file or object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal<T> {
    pub(super) app: Arc<str>,
    /// Number of failed attempts.
    pub(super) failed: u32,
    /// The file or object.
    pub(super) target: T,
}

impl<T> Removal<T> {
    pub(super) fn new(app: &Arc<str>, target: T) -> Self {
        Self { app: Arc::clone(app), failed: 0, target }
    }

    /// The removal after another failed attempt.
    pub(super) fn after_failure(self) -> Self {
        Self { failed: self.failed.saturating_add(1), ..self }
    }
}

/// Removals that wait, by due time.
#[derive(Debug)]
pub(super) struct Removals<T> {
    due: BTreeMap<(Instant, u64), Removal<T>>,
    /// Number of waiting removals of each application that has any.
    counts: BTreeMap<Arc<str>, usize>,
    /// Number of removals that ever waited, which keeps those of the same time apart.
    added: u64,
    /// Number of failed attempts since the start.
    failures: u64,
}

impl<T> Default for Removals<T> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), counts: BTreeMap::new(), added: 0, failures: 0 }
    }
}

impl<T> Removals<T> {
    /// True if further recordings of an application may be removed.
    pub(super) fn has_room(&self, app: &str) -> bool {
        self.of_app(app) < WAITING_MAX
    }

    fn of_app(&self, app: &str) -> usize {
        self.counts.get(app).copied().unwrap_or(0)
    }

    /// Number of waiting removals.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Number of failed attempts since the start.
    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Counts a failed attempt.
    pub(super) const fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Lets a removal wait until `at`. Returns it if too many of its application wait.
    pub(super) fn wait(&mut self, at: Instant, removal: Removal<T>) -> Result<(), Removal<T>> {
        let count = self.counts.entry(Arc::clone(&removal.app)).or_default();
        if *count >= HARD_MAX {
            return Err(removal);
        }
        *count = count.saturating_add(1);
        if *count == WAITING_MAX {
            let app = &*removal.app;
            tracing::warn!(
                app,
                waiting = *count,
                "recordings no longer removed: too many failed removals wait"
            );
        }
        self.added = self.added.wrapping_add(1);
        self.due.insert((at, self.added), removal);
        Ok(())
    }

    /// Takes the next removal that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Removal<T>> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let removal = first.remove();
        if let Some(count) = self.counts.get_mut(&removal.app) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&removal.app);
            }
        }
        Some(removal)
    }
}

/// Returns the pause after this number of failed attempts: `first` after none and after one, then doubled each time up
/// to `max`.
pub(super) fn pause(first: Duration, max: Duration, failed: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(failed.saturating_sub(1).min(16))).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_taken_when_due_and_bounded_for_each_application() {
        let (now, mut removals) = (Instant::now(), Removals::default());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for n in 0..HARD_MAX {
            assert_eq!(removals.has_room("a"), n < WAITING_MAX);
            removals.wait(now + Duration::from_secs(1), Removal::new(&a, n)).unwrap();
        }
        assert_eq!(removals.wait(now, Removal::new(&a, 7)), Err(Removal::new(&a, 7)));
        assert!(removals.has_room("b"));
        removals.wait(now, Removal::new(&b, 7)).unwrap();
        assert_eq!((removals.deadline(), removals.len()), (Some(now), HARD_MAX + 1));
        assert_eq!(removals.take_due(now), Some(Removal::new(&b, 7)));
        assert_eq!(removals.take_due(now), None);
        let later = now + Duration::from_secs(1);
        let taken: Vec<usize> =
            std::iter::from_fn(|| removals.take_due(later)).map(|removal| removal.target).collect();
        assert!(taken.into_iter().eq(0..HARD_MAX));
        assert!(removals.has_room("a") && removals.counts.is_empty() && removals.deadline().is_none());
    }

    #[test]
    fn pauses_grow_up_to_the_maximum() {
        let of = |failed| pause(Duration::from_secs(5), Duration::from_secs(600), failed).as_secs();
        assert_eq!([0, 1, 2, 3, 7, 8, 40].map(of), [5, 5, 10, 20, 320, 600, 600]);
    }
}
