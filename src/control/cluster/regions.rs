//! The way to a stream of another region: through a relay of this node's region, so that the stream enters the region
//! once, however many of the region's nodes have viewers of it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Cluster, Location};
use crate::directory::Node;
use crate::types::{NodeId, StreamKey};

/// Maximum number of relays that are tried before the stream's own node.
const RELAYS_MAX: usize = 2;
/// A relay whose workers are busy for this share of the time, in percent, is tried after less busy ones.
const BUSY_PERCENT: u8 = 90;

/// A live relay of a region: its name, process and address, and whether it is draining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relay {
    node: NodeId,
    incarnation: u64,
    address: Arc<str>,
    is_draining: bool,
}

impl Relay {
    fn of(node: &Node) -> Self {
        Self {
            node: node.id.clone(),
            incarnation: node.incarnation,
            address: Arc::clone(&node.profile.relay),
            is_draining: node.profile.is_draining,
        }
    }
}

impl Cluster {
    /// True if the relays of this node's region have changed since the last call, so that streams of other regions may
    /// have to be fetched through another relay. False while it is unknown which nodes are alive.
    pub(in crate::control) fn have_relays_changed(&mut self) -> bool {
        let is_known = !self.is_away && self.settles_until.is_none();
        let own = self.own.as_ref().and_then(|own| self.nodes.get(&own.node)).filter(|_| is_known);
        let Some(region) = own.map(|own| Arc::clone(&own.profile.region)) else { return false };
        let is_relay = |node: &&Node| node.is_alive && node.profile.is_regional_relay;
        let there = self.nodes.values().filter(is_relay).filter(|node| node.profile.region == region);
        let relays: Vec<Relay> = there.map(Relay::of).collect();
        self.own.as_mut().is_some_and(|own| std::mem::replace(&mut own.relays, relays.clone()) != relays)
    }

    /// Returns the nodes from which this node may fetch a stream of another node, in the order in which they are
    /// tried. The last one is the node that has the stream. Relays of this node's region come before it if the stream
    /// is in another region and this node is no relay itself. As a relay never fetches from a relay, there are no
    /// loops.
    pub(in crate::control) fn route_to(&self, key: &StreamKey) -> Vec<Location> {
        let Some(origin) = self.elsewhere(key) else { return Vec::new() };
        let mut route: Vec<_> = self.relays_towards(origin, key).filter_map(Location::of).collect();
        route.truncate(RELAYS_MAX);
        route.extend(Location::of(origin));
        route
    }

    /// Returns the relays through which a stream of `origin` is fetched, the best first. All nodes of a region compute
    /// the same order, so they fetch a stream through the same relay; the streams are distributed over the relays.
    fn relays_towards(&self, origin: &Node, key: &StreamKey) -> impl Iterator<Item = &Node> {
        let own = self.own.as_ref().and_then(|own| self.nodes.get(&own.node)).map(|own| &own.profile);
        let region =
            own.filter(|own| !own.region.is_empty() && !own.is_regional_relay).map(|own| &own.region);
        let region = region.filter(|region| **region != origin.profile.region);
        let is_relay = |node: &&Node| node.is_alive && node.profile.is_regional_relay;
        let there = self.nodes.values().filter(move |node| region == Some(&node.profile.region));
        let mut relays: Vec<_> = there.filter(is_relay).collect();
        relays.sort_by_cached_key(|node| {
            let is_last = node.profile.is_draining || node.profile.cpu_percent >= BUSY_PERCENT;
            (is_last, Reverse(weight(node, key)))
        });
        relays.into_iter()
    }
}

/// Returns the weight of a relay for a stream (rendezvous hashing): if a relay is added or removed, only the streams that
/// it gets or had change their relay. Nodes of different versions must compute the same weight.
fn weight(node: &Node, key: &StreamKey) -> [u8; 32] {
    crypto::sha256(&[node.id.as_str().as_bytes(), b"/", key.app.as_bytes(), b"/", key.id.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Holder, Profile};

    /// A row of the table: name, region, whether the node is a relay, and its load in percent.
    type Row = (&'static str, &'static str, bool, u8);

    fn node((name, region, is_regional_relay, cpu_percent): Row) -> Node {
        let relay = format!("{name}.example:5000").into();
        let profile =
            Profile { relay, region: region.into(), is_regional_relay, cpu_percent, ..Profile::default() };
        Node { id: NodeId::new(name).unwrap(), incarnation: 1, is_alive: true, profile, silent_ms: 0 }
    }

    const ROWS: [Row; 7] = [
        ("origin", "us", false, 10),
        ("far", "us", true, 10),
        ("near-1", "eu", true, 10),
        ("near-2", "eu", true, 10),
        ("near-3", "eu", true, 10),
        ("edge", "eu", false, 10),
        ("nowhere", "", false, 10),
    ];

    /// The cluster as seen by a node; each of `streams` is published at `origin`.
    fn seen_by(name: &str, rows: &[Row], streams: &[StreamKey]) -> Cluster {
        let holder = Holder { token: 1, incarnation: 1, node: NodeId::new("origin").unwrap() };
        let membership = super::super::Membership {
            node: NodeId::new(name).unwrap(),
            incarnation: 1,
            lease: std::time::Duration::from_secs(5),
            without_directory: crate::config::WithoutDirectory::Accept,
            nodes: rows.iter().copied().map(node).collect(),
            claims: streams.iter().map(|key| (key.clone(), holder.clone())).collect(),
            is_pair: false,
        };
        Cluster::new(Some(membership))
    }

    fn route(cluster: &Cluster, key: &StreamKey) -> Vec<String> {
        cluster.route_to(key).iter().map(|place| place.node.to_string()).collect()
    }

    fn streams() -> Vec<StreamKey> {
        (0..300).map(|number| StreamKey::new("live", &format!("s{number}"))).collect()
    }

    #[test]
    fn only_a_stream_of_another_region_is_fetched_through_a_relay() {
        let streams = streams();
        for (name, relays) in [("edge", 2), ("near-1", 0), ("far", 0), ("nowhere", 0)] {
            let cluster = seen_by(name, &ROWS, &streams);
            for key in &streams {
                let route = route(&cluster, key);
                assert_eq!((route.len(), &*route[relays]), (relays + 1, "origin"), "{name}: {route:?}");
                assert!(route[..relays].iter().all(|relay| relay.starts_with("near-")), "{route:?}");
            }
        }
        assert!(route(&seen_by("origin", &ROWS, &streams), &streams[0]).is_empty(), "it is here");
    }

    #[test]
    fn streams_are_distributed_over_relays_and_stay_when_another_relay_leaves() {
        let streams = streams();
        let first = |rows: &[Row]| -> Vec<String> {
            let cluster = seen_by("edge", rows, &streams);
            streams.iter().map(|key| route(&cluster, key).remove(0)).collect()
        };
        let before = first(&ROWS);
        for name in ["near-1", "near-2", "near-3"] {
            let count = before.iter().filter(|relay| *relay == name).count();
            assert!((70..=130).contains(&count), "{name} relays {count} of 300");
        }
        let left: Vec<Row> = ROWS.into_iter().filter(|row| row.0 != "near-2").collect();
        for (was, is) in before.iter().zip(first(&left)) {
            assert!(was == "near-2" || *was == is, "{was} became {is}");
        }
        let busy = ROWS.map(|row| if row.0 == "near-2" { (row.0, row.1, row.2, BUSY_PERCENT) } else { row });
        assert!(first(&busy).iter().all(|relay| relay != "near-2"), "a busy relay comes after the others");
    }

    #[test]
    fn dead_relays_and_relays_of_other_regions_are_no_way() {
        let streams = streams();
        let mut cluster = seen_by("edge", &ROWS, &streams);
        for relay in ["near-1", "near-2", "near-3"] {
            cluster.nodes.get_mut(&NodeId::new(relay).unwrap()).unwrap().is_alive = false;
        }
        assert_eq!(route(&cluster, &streams[0]), ["origin"]);
    }
}
