//! Viewers that watch by separate requests, and were already watching when the server began to drain. They are still
//! served; new viewers are sent to other servers.
//!
//! A viewer's requests may reach any worker, so each worker reports the viewers that it counts to the others. Until
//! all workers have reported, every viewer is served. Drains are numbered, because a report for an earlier drain may
//! arrive late.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::leases::Ledger;
use crate::types::{StreamId, WorkerId};

/// Viewers of all workers, as digests of stream, protocol and name. Each worker reports at most
/// [`super::leases::LEASES_MAX`] of them.
#[derive(Debug, Default)]
pub(super) struct Incumbents {
    known: BTreeSet<u64>,
    /// Number of drains that this worker has begun. This is also the number of the latest drain.
    begun: u64,
    /// Number of the drain that the reports are for.
    drain: u64,
    /// Workers that have reported for this drain.
    reported: BTreeSet<WorkerId>,
}

impl Incumbents {
    /// Begins a drain at this worker. Returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.begun = self.begun.saturating_add(1);
        self.begun
    }

    /// Ends the drain at this worker. Keeps the reports if they belong to a later drain.
    pub(super) fn end(&mut self) {
        if self.drain <= self.begun {
            self.known.clear();
            self.reported.clear();
        }
    }

    /// Adds the viewers of a worker, as reported for a drain.
    pub(super) fn add(&mut self, drain: u64, worker: WorkerId, viewers: &[u64]) {
        if drain > self.drain {
            self.drain = drain;
            self.known.clear();
            self.reported.clear();
        }
        if drain == self.drain {
            self.known.extend(viewers);
            self.reported.insert(worker);
        }
    }

    /// True if a viewer is still served, because one of its names was reported or because not all workers have
    /// reported yet.
    pub(super) fn serves(
        &self,
        workers: u16,
        (stream, protocol): (StreamId, &str),
        mut names: impl Iterator<Item = impl AsRef<str>>,
    ) -> bool {
        let is_known = |name: &str| self.known.contains(&digest(stream, protocol, name));
        let all_reported = self.drain == self.begun && self.reported.len() >= usize::from(workers);
        !all_reported || names.any(|name| is_known(name.as_ref()))
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
    fn a_viewer_is_served_on_by_each_of_its_names_and_others_are_not_once_all_workers_have_reported() {
        let (mut one, mut two) = (Ledger::with_room(10), Ledger::with_room(10));
        let address = "192.0.2.1".parse().unwrap();
        one.renew(Instant::now(), (StreamId(1), "hls", "a"), address, LEASE);
        two.renew(Instant::now(), (StreamId(1), "hls", "b"), address, LEASE);
        let mut incumbents = Incumbents::default();
        let serves = |incumbents: &Incumbents, stream, protocol, names: &[&str]| {
            incumbents.serves(2, (StreamId(stream), protocol), names.iter())
        };
        let drain = incumbents.begin();
        incumbents.add(drain, WorkerId(0), &one.digests());
        incumbents.add(drain, WorkerId(0), &one.digests());
        assert!(serves(&incumbents, 1, "hls", &["c"]), "the other worker has not reported");
        incumbents.add(drain, WorkerId(1), &two.digests());
        assert!(serves(&incumbents, 1, "hls", &["a"]) && serves(&incumbents, 1, "hls", &["new", "b"]));
        for (stream, protocol, name) in [(1, "hls", "c"), (2, "hls", "a"), (1, "dash", "a")] {
            assert!(!serves(&incumbents, stream, protocol, &[name]));
        }
    }

    #[test]
    fn what_was_reported_for_a_former_drain_counts_for_none() {
        let mut incumbents = Incumbents::default();
        let serves = |incumbents: &Incumbents| incumbents.serves(2, (StreamId(1), "hls"), ["a"].iter());
        let former = incumbents.begin();
        incumbents.add(former, WorkerId(0), &[]);
        incumbents.end();
        incumbents.add(former, WorkerId(1), &[]);
        let drain = incumbents.begin();
        incumbents.add(drain, WorkerId(0), &[]);
        assert!(serves(&incumbents), "the other worker has not reported for this drain");
        incumbents.add(former, WorkerId(1), &[]);
        assert!(serves(&incumbents));
        incumbents.add(drain, WorkerId(1), &[]);
        assert!(!serves(&incumbents));
        // The other worker begins the next drain before this worker does.
        incumbents.add(drain + 1, WorkerId(1), &[digest(StreamId(1), "hls", "a")]);
        incumbents.end();
        let next = incumbents.begin();
        incumbents.add(next, WorkerId(0), &[]);
        assert!(serves(&incumbents) && incumbents.reported.len() == 2);
        assert!(!incumbents.serves(2, (StreamId(1), "hls"), ["c"].iter()));
    }
}
