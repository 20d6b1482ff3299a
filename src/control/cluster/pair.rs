//! The upgrade of a server without a cluster: for some time the server consists of two processes, each a node to the
//! other (docs/upgrade.md). Ids that are in use at the older process become its claims.

use std::time::Duration;

use super::{Cluster, Held, Membership, Own};
use crate::config::WithoutDirectory;
use crate::control::Outbound;
use crate::control::access::Access;
use crate::control::admission::Ticket;
use crate::control::broadcast::Broadcast;
use crate::control::context::Context;
use crate::control::live::{Live, Registry, State};
use crate::control::records::Records;
use crate::directory::{Holder, Node, Process, Request, Side};
use crate::types::{Now, PullId, StreamId, StreamKey};

/// Lease of the two processes: after this time, a request to end claims that has no answer is sent again.
const LEASE: Duration = Duration::from_secs(5);

/// The ids that this process uses without having claims for them, because it was the only process until now.
#[derive(Debug, Default)]
pub(in crate::control) struct Unclaimed {
    streams: Vec<(StreamId, StreamKey)>,
    sources: Vec<(PullId, StreamKey)>,
    admissions: Vec<(Ticket, StreamKey)>,
}

impl Unclaimed {
    /// Finds the ids of this process's streams, sources and pending admissions.
    pub(in crate::control) fn of(registry: &Registry, outbound: &Outbound, access: &Access) -> Self {
        let has_id = |live: &Live| !live.is_copy() && !matches!(live.source().state, State::Grace(_));
        let is_published = |live: &&Live| has_id(live) && !outbound.sources.is_running(&live.key);
        let streams = registry.all().filter(is_published);
        let streams = streams.filter_map(|live| Some((registry.find(&live.key)?, live.key.clone())));
        Self {
            streams: streams.collect(),
            sources: outbound.sources.own().map(|(key, pull)| (pull, key.clone())).collect(),
            admissions: access.admissions.claimed().collect(),
        }
    }
}

/// Notes that another process shares the records. That process must also know the records made by publishing, so these
/// are stored from now on, and the present numbers of viewers.
pub(super) fn share_records(records: &mut Records, now: Now) {
    records.writes.pair();
    let keys = write(records, now, |record| record.zombi || record.anyone_watching);
    // The store changes hands behind the requests that it has now. Records whose turn has not come are written twice.
    let ops = keys.into_iter().map(|key| records.writes.op(records.pending(&key), key)).collect();
    records.writes.commit_at_once(ops);
}

/// Notes that no other process shares the records any more. Records made by publishing are no longer stored.
pub(super) fn have_records(records: &mut Records, now: Now) {
    if records.writes.part() {
        write(records, now, |record| record.zombi);
    }
}

/// Writes records. Those made by publishing are stored if another process has to know them, and removed otherwise.
/// Returns the records whose turn has not come.
fn write(records: &mut Records, now: Now, is_written: impl Fn(&Broadcast) -> bool) -> Vec<StreamKey> {
    let written = records.all().filter(|(_, record)| is_written(record)).map(|(key, _)| key);
    let mut keys: Vec<StreamKey> = written.collect();
    keys.iter().for_each(|key| records.writes.mark_dirty(now, key.clone()));
    records.flush(now);
    keys.retain(|key| records.writes.is_dirty(key));
    keys
}

impl Context {
    /// Tells the workers whether there is another process, and which of the two this one is.
    pub(super) fn set_side(&mut self, side: Option<Side>) {
        if std::mem::replace(&mut self.side, side) != side {
            self.post_settings();
        }
    }
}

impl Membership {
    /// Makes the membership of a process that takes over from another one.
    #[must_use]
    pub fn of_pair(
        own: Process,
        claims: impl IntoIterator<Item = (StreamKey, Holder)>,
        nodes: Vec<Node>,
    ) -> Self {
        let Process { node, incarnation } = own;
        let claims = claims.into_iter().collect();
        let without_directory = WithoutDirectory::Accept;
        Self { node, incarnation, lease: LEASE, without_directory, nodes, claims, is_pair: true }
    }
}

impl Cluster {
    /// True if this server is one process, or two of which one takes over from the other; false for a node of a
    /// cluster.
    pub(in crate::control) fn is_pair(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_pair)
    }

    /// True if the other nodes are those of a cluster.
    pub(in crate::control) fn is_clustered(&self) -> bool {
        self.is_shared() && !self.is_pair()
    }

    /// True if another process lives.
    pub(in crate::control) fn has_other(&self) -> bool {
        let is_other = |node: &Node| self.own.as_ref().is_some_and(|own| own.node != node.id);
        self.nodes.values().any(|node| node.is_alive && is_other(node))
    }

    /// Makes this process a node with the name `process`, unless it is one, and reports its claims.
    pub(in crate::control) fn pair(&mut self, process: Process, unclaimed: Unclaimed) {
        if self.own.is_none() {
            let Process { node, incarnation } = process.clone();
            let without_directory = WithoutDirectory::Accept;
            self.own = Some(Own::new(node.clone(), incarnation, LEASE, without_directory, true));
            self.nodes.insert(node, Node::of(process.clone(), ""));
            let Unclaimed { streams, sources, admissions } = unclaimed;
            for (ticket, key) in admissions {
                self.have(&process, ticket, key);
            }
            for (stream, key) in streams {
                let ticket = self.new_ticket();
                self.of_streams.insert(stream, ticket);
                self.have(&process, ticket, key);
            }
            for (pull, key) in sources {
                let ticket = self.new_ticket();
                self.of_sources.insert(pull, ticket);
                self.have(&process, ticket, key);
            }
        }
        // The new process has heard of no connections yet.
        self.present.told.clear();
        let own = self.claims.iter().filter(|(_, holder)| self.is_own(holder));
        let own = own.map(|(key, holder)| (key.clone(), holder.clone())).collect();
        self.requests.push_back(Request::Paired(own));
    }

    /// Notes a claim of this process that no directory has granted.
    fn have(&mut self, process: &Process, ticket: Ticket, key: StreamKey) {
        let next = self.claims.values().map(|holder| holder.token).max().unwrap_or(0).saturating_add(1);
        let token = self.claims.get(&key).map_or(next, |holder| holder.token);
        let Process { node, incarnation } = process.clone();
        self.claims.insert(key.clone(), Holder { token, incarnation, node });
        self.tickets.entry(key.clone()).or_default().insert(ticket);
        self.held.insert(ticket, Held { key, token });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;

    #[test]
    fn the_ids_that_a_process_has_become_its_claims_once() {
        let mut cluster = Cluster::default();
        let process = Process { node: NodeId::new("old").unwrap(), incarnation: 3 };
        let key = |id: &str| StreamKey::new("live", id);
        let admitted = cluster.new_ticket();
        let unclaimed = Unclaimed {
            streams: vec![(StreamId(1), key("s"))],
            sources: vec![(PullId(2), key("pulled"))],
            admissions: vec![(admitted, key("t")), (Ticket::of(0), key("s"))],
        };
        assert!(!cluster.is_shared());
        cluster.pair(process.clone(), unclaimed);
        assert!(cluster.is_pair() && !cluster.is_clustered() && !cluster.has_other());
        let Some(Request::Paired(claims)) = cluster.poll_request() else { panic!() };
        let ids: Vec<&str> = claims.iter().map(|(key, _)| &*key.id).collect();
        assert_eq!(ids, ["pulled", "s", "t"]);
        assert!(claims.iter().all(|(_, holder)| holder.incarnation == 3 && holder.token > 0));
        // Two tickets have the id `s`: one of the stream, and one of an admission. The id is free when both are
        // released.
        cluster.release_stream(StreamId(1));
        assert_eq!(cluster.poll_request(), None);
        cluster.release(Ticket::of(0));
        assert!(
            matches!(cluster.poll_request(), Some(Request::Release { key: freed, .. }) if freed == key("s"))
        );
        cluster.release_source(PullId(2));
        cluster.release(admitted);
        assert!(cluster.is_idle());
        // A later upgrade keeps the name and the claims.
        while cluster.poll_request().is_some() {}
        let renamed = Process { node: NodeId::new("other").unwrap(), incarnation: 4 };
        let unclaimed = Unclaimed { streams: vec![(StreamId(5), key("u"))], ..Unclaimed::default() };
        cluster.pair(renamed, unclaimed);
        let Some(Request::Paired(claims)) = cluster.poll_request() else { panic!() };
        assert!(claims.iter().all(|(claimed, holder)| holder.node == process.node && *claimed != key("u")));
    }
}
