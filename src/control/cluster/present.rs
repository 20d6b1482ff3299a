//! Connections of subscribers at all nodes, for limits that apply across nodes.
//!
//! Each node reports changes of its own connections to the directory. A node's connections count while the node is
//! alive. Two nodes that admit a connection at the same moment may exceed a limit by one.

use std::collections::BTreeMap;

use super::Cluster;
use crate::directory::{Holder, Node, Presence, Request, Subscribed};
use crate::types::{NodeId, StreamKey};

/// A subscriber of a stream.
type Who = (StreamKey, String);

/// Connections of subscribers.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Numbers of connections at this node, as last reported to the directory.
    pub(super) told: BTreeMap<Who, u32>,
    /// For each subscriber and node, this node included: run of the node's process, and number of connections
    /// there.
    nodes: BTreeMap<Who, BTreeMap<NodeId, (u64, u32)>>,
}

impl Present {
    /// Forgets connections to earlier runs of nodes that have restarted.
    pub(super) fn forget_earlier(&mut self, nodes: &BTreeMap<NodeId, Node>) {
        let is_earlier = |id: &NodeId, of: u64| nodes.get(id).is_some_and(|node| of < node.incarnation);
        self.nodes.retain(|_, at| {
            at.retain(|id, (of, _)| !is_earlier(id, *of));
            !at.is_empty()
        });
    }
}

impl Cluster {
    /// Notes how many connections a subscriber has at this node.
    pub(in crate::control) fn note_present(&mut self, who: &Who, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.own.is_none() || self.present.told.get(who).copied().unwrap_or(0) == count {
            return;
        }
        if count == 0 {
            self.present.told.remove(who);
        } else {
            self.present.told.insert(who.clone(), count);
        }
        self.tell_present(who, count);
    }

    fn tell_present(&mut self, (key, subscriber): &Who, count: u32) {
        let (key, subscriber) = (key.clone(), subscriber.clone());
        self.requests.push_back(Request::Present(Subscribed { key, subscriber, count }));
    }

    /// Number of connections of a subscriber at live other nodes.
    pub(in crate::control) fn present_elsewhere(&self, key: &StreamKey, id: &str) -> usize {
        let nodes = self.present.nodes.get(&(key.clone(), id.to_owned()));
        let is_there = |node: &NodeId, incarnation: u64| {
            self.node_of(&Holder { token: 0, incarnation, node: node.clone() }).is_some()
        };
        let there = nodes.into_iter().flatten().filter(|(node, (of, _))| is_there(node, *of));
        let counts = there.map(|(_, (_, count))| usize::try_from(*count).unwrap_or(usize::MAX));
        counts.fold(0, usize::saturating_add)
    }

    /// Sets the connections of a subscriber at a node, as reported by the directory.
    pub(super) fn present_told(&mut self, presence: Presence) {
        let Presence { node, incarnation, subscribed: Subscribed { key, subscriber, count } } = presence;
        let who = (key, subscriber);
        let nodes = self.present.nodes.entry(who.clone()).or_default();
        if count == 0 {
            nodes.remove(&node);
        } else {
            nodes.insert(node, (incarnation, count));
        }
        if nodes.is_empty() {
            self.present.nodes.remove(&who);
        }
    }

    /// Sets the connections of all subscribers, as reported by the directory. Reports those of this node that the
    /// directory lacks.
    pub(super) fn presences_told(&mut self, all: Vec<Presence>) {
        self.present.nodes.clear();
        all.into_iter().for_each(|presence| self.present_told(presence));
        let Some(own) = &self.own else { return };
        let heard = |nodes: &BTreeMap<NodeId, (u64, u32)>| {
            let (incarnation, count) = nodes.get(&own.node).copied()?;
            (incarnation == own.incarnation).then_some(count)
        };
        let heard = self.present.nodes.iter().filter_map(|(who, nodes)| Some((who, heard(nodes)?)));
        let heard: BTreeMap<&Who, u32> = heard.collect();
        let told = &self.present.told;
        let missing = told.iter().filter(|(who, count)| heard.get(who) != Some(count));
        let over = heard.keys().filter(|who| !told.contains_key(**who)).map(|who| (*who, &0));
        let again = missing.chain(over).map(|(who, count)| (who.clone(), *count));
        for (who, count) in again.collect::<Vec<_>>() {
            self.tell_present(&who, count);
        }
    }
}
