//! Viewers that watched by separate requests when the server began to drain: they are served on, and others are sent elsewhere.
//!
//! Each worker tells the others whom it counts, because a viewer's requests may reach any worker. Until all have told, everybody is served.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::leases::Ledger;
use crate::types::StreamId;

/// The viewers of all workers, as digests of stream, protocol and name. At most [`super::leases::LEASES_MAX`] of each worker.
#[derive(Debug, Default)]
pub(super) struct Incumbents {
    known: BTreeSet<u64>,
    /// Number of workers that have told.
    told: usize,
}

impl Incumbents {
    /// Adds the viewers of a worker.
    pub(super) fn add(&mut self, viewers: &[u64]) {
        self.known.extend(viewers);
        self.told = self.told.saturating_add(1);
    }

    /// True if a viewer is to be served, by one of its names.
    pub(super) fn serves(
        &self,
        workers: u16,
        (stream, protocol): (StreamId, &str),
        mut names: impl Iterator<Item = impl AsRef<str>>,
    ) -> bool {
        let is_known = |name: &str| self.known.contains(&digest(stream, protocol, name));
        self.told < usize::from(workers) || names.any(|name| is_known(name.as_ref()))
    }
}

impl Ledger {
    /// Returns the digests of all viewers.
    pub(super) fn digests(&self) -> Arc<[u64]> {
        self.all().map(|(stream, protocol, viewer)| digest(stream, protocol, viewer)).collect()
    }
}

fn digest(stream: StreamId, protocol: &str, viewer: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stream, protocol, viewer).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::leases::LEASE;
    use super::*;

    #[test]
    fn a_viewer_is_served_on_by_each_of_its_names_and_others_are_not_once_all_workers_have_told() {
        let (mut one, mut two) = (Ledger::with_room(10), Ledger::with_room(10));
        let address = "192.0.2.1".parse().unwrap();
        one.renew(Instant::now(), (StreamId(1), "hls", "a"), address, LEASE);
        two.renew(Instant::now(), (StreamId(1), "hls", "b"), address, LEASE);
        let mut incumbents = Incumbents::default();
        let serves = |incumbents: &Incumbents, stream, protocol, names: &[&str]| {
            incumbents.serves(2, (StreamId(stream), protocol), names.iter())
        };
        incumbents.add(&one.digests());
        assert!(serves(&incumbents, 1, "hls", &["c"]), "the other worker has not told");
        incumbents.add(&two.digests());
        assert!(serves(&incumbents, 1, "hls", &["a"]) && serves(&incumbents, 1, "hls", &["new", "b"]));
        for (stream, protocol, name) in [(1, "hls", "c"), (2, "hls", "a"), (1, "dash", "a")] {
            assert!(!serves(&incumbents, stream, protocol, &[name]));
        }
    }
}
