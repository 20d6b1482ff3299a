//! Streams of a node that has died while their publishers were expected back there. For that time a stream has no claim,
//! so there is none to be ended, and its record would stay live for ever.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Cluster;
use crate::control::broadcast::status;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::{Control, Outbound};
use crate::types::{Now, StreamKey};

/// Number of leases after which a live record without a claim belongs to nobody, in addition to the time for which its
/// publisher may be expected at a node that lives.
const LEASES: u32 = 2;

/// The records that may have lost their node.
#[derive(Debug)]
pub(super) struct Orphans {
    /// True if the nodes have changed since the records were last searched.
    is_search_due: bool,
    /// Live records without a claim, each with the time at which its stream counts as ended.
    until: BTreeMap<StreamKey, Instant>,
}

impl Orphans {
    pub(super) const fn new() -> Self {
        Self { is_search_due: true, until: BTreeMap::new() }
    }

    /// Notes that nodes have come or gone.
    pub(super) const fn note_change(&mut self) {
        self.is_search_due = true;
    }

    /// Notes that a node has claimed an id.
    pub(super) fn note_claim(&mut self, key: &StreamKey) {
        self.until.remove(key);
    }
}

impl Cluster {
    /// Returns the records that may have lost their node, if this node is the one that cleans up.
    fn orphans(&mut self) -> Option<&mut Orphans> {
        let is_cleaner = self.is_clustered() && self.is_cleaner();
        let orphans = &mut self.own.as_mut()?.orphans;
        if !is_cleaner {
            *orphans = Orphans::new();
        }
        Some(orphans).filter(|_| is_cleaner)
    }
}

impl Control {
    /// Ends streams whose node has died while it waited for their publishers.
    pub(super) fn end_orphans(&mut self, now: Now) {
        let Some(is_search_due) =
            self.registry.cluster.orphans().map(|orphans| std::mem::take(&mut orphans.is_search_due))
        else {
            return;
        };
        let found: Vec<StreamKey> = if is_search_due {
            let all = self.records.all().map(|(key, _)| key);
            all.filter(|key| is_orphan(&self.records, &self.registry, &self.outbound, key)).collect()
        } else {
            Vec::new()
        };
        let lease = self.registry.cluster.shared_lease().unwrap_or_default();
        for key in found {
            let grace = self.cx.apps.get(&key.app).map_or(Duration::ZERO, |app| app.loss.publisher_grace);
            let until = now.mono.checked_add(grace.saturating_add(lease.saturating_mul(LEASES)));
            if let (Some(orphans), Some(until)) = (self.registry.cluster.orphans(), until) {
                orphans.until.entry(key).or_insert(until);
            }
        }
        let Some(orphans) = self.registry.cluster.orphans() else { return };
        let due = orphans.until.iter().filter(|(_, until)| **until <= now.mono).map(|(key, _)| key.clone());
        let due: Vec<StreamKey> = due.collect();
        orphans.until.retain(|_, until| *until > now.mono);
        for key in due {
            if is_orphan(&self.records, &self.registry, &self.outbound, &key) {
                tracing::info!(%key, "stream ended: its node has died while it waited for the publisher");
                self.outgoing(now).clear_up(&key);
            }
        }
    }
}

/// True if a record says that its stream is live, while no node claims the stream and this node does not have it.
/// Virtual main tracks, such as rooms, have no claim; they follow their subtracks.
fn is_orphan(records: &Records, registry: &Registry, outbound: &Outbound, key: &StreamKey) -> bool {
    let is_live = |state: &str| state == status::BROADCASTING || state == status::PREPARING;
    records.get(key).is_some_and(|record| is_live(&record.status) && !record.is_virtual)
        && !registry.cluster.claims.contains_key(key)
        && !registry.is_live(key)
        && !outbound.sources.is_running(key)
}
