//! Handing over the ids of a draining node. The directory moves each claim in one step, so that no third node can
//! claim the id in between.

use std::collections::BTreeMap;

use super::{Cluster, Held};
use crate::directory::{Holder, Node, Request};
use crate::types::{NodeId, PullId, StreamKey};

/// Size of a step of processor load, in percent. Nodes whose loads fall into the same step count as equally busy.
const CPU_STEP: u8 = 25;

/// The nodes that may take ids, with the number of ids that each holds.
struct Successors<'a>(Vec<(&'a Node, usize)>);

impl Successors<'_> {
    /// Returns the node that gets the next id: of the nodes that accept the id, the least busy ones, and of these the
    /// one with the fewest ids.
    fn next(&mut self, takes: impl Fn(&NodeId) -> bool) -> Option<(NodeId, u64)> {
        let busy = |node: &Node| node.profile.cpu_percent.checked_div(CPU_STEP);
        let able = self.0.iter_mut().filter(|(node, _)| takes(&node.id));
        let (node, count) = able.min_by_key(|(node, count)| (busy(node), *count))?;
        *count = count.saturating_add(1);
        Some((node.id.clone(), node.incarnation))
    }
}

impl Cluster {
    /// True if another node could take the sources of this one.
    pub(in crate::control) fn has_successor(&self) -> bool {
        !self.is_away && self.others().next().is_some()
    }

    /// Returns the live other nodes that are not draining.
    fn others(&self) -> impl Iterator<Item = &Node> {
        let own = self.own.as_ref();
        let is_other = move |node: &&Node| own.is_some_and(|own| own.node != node.id);
        self.nodes.values().filter(is_other).filter(|node| node.is_alive && !node.profile.is_draining)
    }

    fn successors(&self) -> Successors<'_> {
        let mut counts = BTreeMap::<&NodeId, usize>::new();
        for holder in self.claims.values() {
            let count = counts.entry(&holder.node).or_default();
            *count = count.saturating_add(1);
        }
        Successors(self.others().map(|node| (node, counts.get(&node.id).copied().unwrap_or(0))).collect())
    }

    /// Hands the ids of this node's sources over to other nodes that accept them. An id is skipped if the directory
    /// does not know this node's claim yet.
    pub(in crate::control) fn hand_over(
        &mut self,
        pulls: impl Iterator<Item = PullId>,
        takes: impl Fn(&NodeId, &StreamKey) -> bool,
    ) {
        if !self.has_successor() {
            return;
        }
        let mut successors = self.successors();
        let held = pulls.filter_map(|pull| self.held.get(self.of_sources.get(&pull)?));
        let known = held.filter(|held| held.token > 0);
        let requests: Vec<Request> = known
            .filter_map(|Held { key, token }| {
                Some(Request::HandOver {
                    key: key.clone(),
                    token: *token,
                    to: successors.next(|node| takes(node, key))?,
                })
            })
            .collect();
        self.requests.extend(requests);
    }

    /// Passes on an id that this node received but does not use, to another node that accepts it. Returns false if
    /// no node accepts it.
    pub(in crate::control) fn pass_on(&mut self, key: &StreamKey, takes: impl Fn(&NodeId) -> bool) -> bool {
        let Some(to) = self.successors().next(takes) else { return false };
        self.give(key, to)
    }

    /// Returns a received id to the draining node that gave the id away; that node then continues to run the source.
    /// Returns false if that node is gone or not draining.
    pub(in crate::control) fn hand_back(&mut self, key: &StreamKey, giver: &Holder) -> bool {
        let Some(node) = self.node_of(giver).filter(|node| node.profile.is_draining) else { return false };
        let to = (node.id.clone(), node.incarnation);
        self.give(key, to)
    }

    fn give(&mut self, key: &StreamKey, to: (NodeId, u64)) -> bool {
        let Some(holder) = self.claims.get(key).filter(|holder| self.is_own(holder)) else { return false };
        let token = holder.token;
        self.requests.push_back(Request::HandOver { key: key.clone(), token, to });
        true
    }

    /// Releases an id that this node received, unless it is in use here.
    pub(in crate::control) fn release_unused(&mut self, key: &StreamKey) {
        let own = self.claims.get(key).filter(|holder| self.is_own(holder)).map(|holder| holder.token);
        if let Some(token) = own.filter(|_| !self.is_claimed_here(key)) {
            self.requests.push_back(Request::Release { key: key.clone(), token });
        }
    }
}
