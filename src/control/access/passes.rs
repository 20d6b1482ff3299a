//! Passes of admitted polling viewers, which watch by separate requests. Each request renews the pass. Without
//! requests the pass expires, and the viewer is checked again. A one-time token is therefore used up only once, and a
//! time code needs to be valid only at the first request.
//!
//! The table is bounded, in total and per address. When it is full, a newcomer takes a place of the application that has
//! most passes, or of the network that has most passes of its own application. One peer or application thus cannot keep
//! others out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::auth::network;
use crate::types::StreamKey;

/// Time for which a pass lasts after a request. Workers ask control again before the pass expires.
const LASTS: Duration = Duration::from_secs(30);
/// Maximum number of passes in total, and of one network.
const PASSES_MAX: usize = 100_000;
const PASSES_OF_ADDRESS_MAX: usize = 10_000;

/// Stream, protocol and viewer of a pass.
type Holder = (StreamKey, &'static str, String);

#[derive(Debug)]
struct Pass {
    until: Instant,
    address: IpAddr,
    /// The `subscriberId` that the viewer presented.
    subscriber: Option<String>,
}

/// The passes of a stream and a protocol, or of an application, by the network to which each was given.
#[derive(Debug)]
struct Viewers<W> {
    count: u32,
    networks: BTreeMap<IpAddr, BTreeSet<(Instant, W)>>,
    /// Number of passes of each network, in ascending order.
    sizes: BTreeSet<(usize, IpAddr)>,
}

impl<W> Default for Viewers<W> {
    fn default() -> Self {
        Self { count: 0, networks: BTreeMap::new(), sizes: BTreeSet::new() }
    }
}

impl<W: Ord> Viewers<W> {
    fn insert(&mut self, network: IpAddr, until: Instant, who: W) {
        let passes = self.networks.entry(network).or_default();
        self.sizes.remove(&(passes.len(), network));
        if passes.insert((until, who)) {
            self.count = self.count.saturating_add(1);
        }
        self.sizes.insert((passes.len(), network));
    }

    fn remove(&mut self, network: IpAddr, until: Instant, who: W) {
        let Some(passes) = self.networks.get_mut(&network) else { return };
        self.sizes.remove(&(passes.len(), network));
        if passes.remove(&(until, who)) {
            self.count = self.count.saturating_sub(1);
        }
        if passes.is_empty() {
            self.networks.remove(&network);
        } else {
            self.sizes.insert((passes.len(), network));
        }
    }

    /// Returns the pass to end for a newcomer: of the network with most passes, the pass that expires first. `None`
    /// unless that network has at least two passes more than the newcomer's network.
    fn excess(&self, newcomer: IpAddr) -> Option<&W> {
        let own = self.networks.get(&newcomer).map_or(0, BTreeSet::len);
        let (most, _) = self.sizes.last()?;
        self.of_largest().filter(|_| *most > own.saturating_add(1))
    }

    /// Returns the pass that expires first of the network with most passes.
    fn of_largest(&self) -> Option<&W> {
        let (_, network) = self.sizes.last()?;
        self.networks.get(network)?.first().map(|(_, who)| who)
    }
}

/// The passes of all viewers.
#[derive(Debug, Default)]
pub(in crate::control) struct Passes {
    passes: BTreeMap<Holder, Pass>,
    ends: BTreeSet<(Instant, Holder)>,
    addresses: BTreeMap<IpAddr, usize>,
    viewers: BTreeMap<(StreamKey, &'static str), Viewers<String>>,
    apps: BTreeMap<Arc<str>, Viewers<Holder>>,
    subscribers: BTreeMap<(StreamKey, String), BTreeSet<Holder>>,
}

impl Passes {
    /// Renews a viewer's pass. Returns false if the viewer has no pass from this network.
    pub(super) fn renew(
        &mut self,
        now: Instant,
        key: &StreamKey,
        egress: &'static str,
        who: &str,
        address: IpAddr,
    ) -> bool {
        self.end_old(now);
        let holder = (key.clone(), egress, who.to_owned());
        let network = network(address);
        let Some(pass) = self.passes.get_mut(&holder).filter(|pass| pass.address == network) else {
            return false;
        };
        let until = now.checked_add(LASTS).unwrap_or(now);
        let before = std::mem::replace(&mut pass.until, until);
        if let Some(viewers) = self.viewers.get_mut(&(key.clone(), egress)) {
            viewers.remove(network, before, who.to_owned());
            viewers.insert(network, until, who.to_owned());
        }
        if let Some(viewers) = self.apps.get_mut(&key.app) {
            viewers.remove(network, before, holder.clone());
            viewers.insert(network, until, holder.clone());
        }
        self.ends.remove(&(before, holder.clone()));
        self.ends.insert((until, holder));
        true
    }

    /// Moves a viewer's pass to the viewer's new identity, taken from a cookie. Does nothing if the new identity
    /// already has a pass.
    pub(super) fn rename(
        &mut self,
        now: Instant,
        (key, egress): (&StreamKey, &'static str),
        (former, who): (&str, &str),
        address: IpAddr,
    ) {
        self.end_old(now);
        let holder = |name: &str| (key.clone(), egress, name.to_owned());
        let has_own = self.passes.contains_key(&holder(who));
        let Some(pass) = self.passes.get(&holder(former)).filter(|pass| pass.address == network(address))
        else {
            return;
        };
        if !has_own {
            let subscriber = pass.subscriber.clone();
            self.end(&holder(former));
            self.give(now, (key, egress, who), address, subscriber.as_deref());
        }
    }

    /// Gives a viewer a pass. Returns false if there are too many passes.
    pub(super) fn give(
        &mut self,
        now: Instant,
        (key, egress, who): (&StreamKey, &'static str, &str),
        address: IpAddr,
        subscriber: Option<&str>,
    ) -> bool {
        self.end_old(now);
        let holder = (key.clone(), egress, who.to_owned());
        self.end(&holder);
        let address = network(address);
        if self.addresses.get(&address).is_some_and(|count| *count >= PASSES_OF_ADDRESS_MAX) {
            return false;
        }
        if self.passes.len() >= PASSES_MAX {
            let Some(excess) = self.excess(&key.app, address).cloned() else { return false };
            self.end(&excess);
        }
        let of_address = self.addresses.get(&address).copied().unwrap_or(0);
        let until = now.checked_add(LASTS).unwrap_or(now);
        self.addresses.insert(address, of_address.saturating_add(1));
        self.viewers.entry((key.clone(), egress)).or_default().insert(address, until, who.to_owned());
        self.apps.entry(Arc::clone(&key.app)).or_default().insert(address, until, holder.clone());
        if let Some(subscriber) = subscriber {
            let of = self.subscribers.entry((key.clone(), subscriber.to_owned())).or_default();
            of.insert(holder.clone());
        }
        self.ends.insert((until, holder.clone()));
        self.passes.insert(holder, Pass { until, address, subscriber: subscriber.map(str::to_owned) });
        true
    }

    /// Returns the pass to end for a newcomer while the table is full: a pass of the application with most passes if it
    /// has at least two more than the newcomer's application, else a pass of the newcomer's application, from a network
    /// with at least two more than the newcomer's network.
    fn excess(&self, app: &Arc<str>, newcomer: IpAddr) -> Option<&Holder> {
        let own = self.apps.get(app);
        let largest = self.apps.values().max_by_key(|passes| passes.count)?;
        if largest.count > own.map_or(0, |passes| passes.count).saturating_add(1) {
            return largest.of_largest();
        }
        own?.excess(newcomer)
    }

    /// Number of viewers that have a pass for a stream over a protocol.
    pub(super) fn count(&self, key: &StreamKey, egress: &'static str) -> u32 {
        self.viewers.get(&(key.clone(), egress)).map_or(0, |viewers| viewers.count)
    }

    /// True if a viewer can be removed to make room for this newcomer, because another network has at least two viewers
    /// more than the newcomer's network.
    pub(in crate::control) fn gives_way(
        &self,
        key: &StreamKey,
        egress: &'static str,
        newcomer: IpAddr,
    ) -> bool {
        let viewers = self.viewers.get(&(key.clone(), egress));
        viewers.is_some_and(|viewers| viewers.excess(network(newcomer)).is_some())
    }

    /// Ends one pass to a stream, to make room for a newcomer: a pass of the network that has most passes to that
    /// stream.
    pub(super) fn make_room(&mut self, key: &StreamKey, egress: &'static str, newcomer: IpAddr) {
        let viewers = self.viewers.get(&(key.clone(), egress));
        let who = viewers.and_then(|viewers| viewers.excess(network(newcomer))).cloned();
        if let Some(who) = who {
            self.end(&(key.clone(), egress, who));
        }
    }

    /// Number of the subscriber's passes from other networks. Passes from the same network are left out, since a
    /// restarted player may have another name.
    pub(super) fn elsewhere(&self, key: &StreamKey, subscriber: &str, address: IpAddr) -> usize {
        let network = network(address);
        let is_elsewhere =
            |holder: &&Holder| self.passes.get(*holder).is_some_and(|pass| pass.address != network);
        let of = self.subscribers.get(&(key.clone(), subscriber.to_owned()));
        of.map_or(0, |holders| holders.iter().filter(is_elsewhere).count())
    }

    /// Revokes a subscriber's passes to a stream.
    pub(super) fn end_subscriber(&mut self, key: &StreamKey, subscriber: &str) {
        let of = self.subscribers.get(&(key.clone(), subscriber.to_owned())).cloned().unwrap_or_default();
        of.iter().for_each(|holder| self.end(holder));
    }

    /// Ends the subscriber's passes from this network except for the newest `most`, because the subscriber starts
    /// playing from this network again.
    pub(super) fn limit_here(&mut self, key: &StreamKey, subscriber: &str, address: IpAddr, most: usize) {
        let network = network(address);
        let of = self.subscribers.get(&(key.clone(), subscriber.to_owned()));
        let here = of.into_iter().flatten().filter_map(|holder| {
            let pass = self.passes.get(holder).filter(|pass| pass.address == network)?;
            Some((pass.until, holder.clone()))
        });
        let mut here: Vec<(Instant, Holder)> = here.collect();
        here.sort_unstable();
        let excess = here.len().saturating_sub(most);
        here.iter().take(excess).for_each(|(_, holder)| self.end(holder));
    }

    fn end_old(&mut self, now: Instant) {
        while let Some((_, holder)) = self.ends.first().filter(|(until, _)| *until <= now).cloned() {
            self.end(&holder);
        }
    }

    fn end(&mut self, holder: &Holder) {
        let Some(pass) = self.passes.remove(holder) else { return };
        self.ends.remove(&(pass.until, holder.clone()));
        let (key, egress, who) = holder;
        lower(&mut self.addresses, pass.address);
        let of = (key.clone(), *egress);
        if let Some(viewers) = self.viewers.get_mut(&of) {
            viewers.remove(pass.address, pass.until, who.clone());
            if viewers.count == 0 {
                self.viewers.remove(&of);
            }
        }
        if let Some(viewers) = self.apps.get_mut(&key.app) {
            viewers.remove(pass.address, pass.until, holder.clone());
            if viewers.count == 0 {
                self.apps.remove(&key.app);
            }
        }
        if let Some(subscriber) = pass.subscriber.map(|subscriber| (key.clone(), subscriber))
            && let Some(holders) = self.subscribers.get_mut(&subscriber)
        {
            holders.remove(holder);
            if holders.is_empty() {
                self.subscribers.remove(&subscriber);
            }
        }
    }
}

/// Decreases a count, and removes the entry when the count becomes zero.
fn lower<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    match counts.get_mut(&key) {
        Some(count) if *count > 1 => *count = count.saturating_sub(1),
        Some(_) => drop(counts.remove(&key)),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xc000_0200 + last).into()
    }

    #[test]
    fn a_pass_lasts_while_it_is_renewed_from_its_network() {
        let mut passes = Passes::default();
        let (key, now) = (StreamKey::new("live", "s"), Instant::now());
        let give =
            |passes: &mut Passes, who: &str| passes.give(now, (&key, "hls", who), address(1), Some("alice"));
        assert!(give(&mut passes, "a") && give(&mut passes, "b") && give(&mut passes, "b"));
        assert_eq!((passes.count(&key, "hls"), passes.count(&key, "dash")), (2, 0));
        let later = now + LASTS - Duration::from_millis(1);
        assert!(!passes.renew(later, &key, "hls", "a", address(7 << 8)), "another network");
        assert!(passes.renew(later, &key, "hls", "a", address(1)));
        assert!(!passes.renew(now + LASTS, &key, "hls", "b", address(1)), "nobody has asked");
        assert_eq!(passes.count(&key, "hls"), 1);
        passes.end_subscriber(&key, "bob");
        assert_eq!(passes.count(&key, "hls"), 1);
        passes.end_subscriber(&key, "alice");
        assert!(passes.passes.is_empty() && passes.ends.is_empty() && passes.addresses.is_empty());
        assert!(passes.viewers.is_empty() && passes.subscribers.is_empty() && passes.apps.is_empty());
    }

    #[test]
    fn t_10_no_address_has_all_of_them() {
        let mut passes = Passes::default();
        let (key, now) = (StreamKey::new("live", "s"), Instant::now());
        let mut give =
            |n: usize, address: IpAddr| passes.give(now, (&key, "hls", &n.to_string()), address, None);
        let given = (0..PASSES_OF_ADDRESS_MAX + 50).filter(|n| give(*n, address(1))).count();
        assert_eq!(given, PASSES_OF_ADDRESS_MAX);
        assert!(give(0, address(1)), "who has one keeps it");
        assert!(give(1_000_000, address(2)), "others get one");
        let all = (0..PASSES_MAX * 2)
            .filter(|n| give(2_000_000 + n, address(u32::try_from(n / 100).unwrap() + 10)))
            .count();
        assert!(all >= PASSES_MAX - 102, "{all}");
        assert_eq!(passes.passes.len(), PASSES_MAX);
        let left = passes.addresses[&network(address(1))];
        assert!(left <= 102, "{left} of the network that had a tenth");
    }

    #[test]
    fn t_10_an_application_gives_its_places_up_to_others() {
        let (mut passes, now) = (Passes::default(), Instant::now());
        let mut give = |app: &str, n: usize, from: u32| {
            passes.give(now, (&StreamKey::new(app, "s"), "hls", &n.to_string()), address(from), None)
        };
        let of_strangers = (0..PASSES_MAX).filter(|n| give("open", *n, u32::try_from(n / 10_000).unwrap()));
        assert_eq!(of_strangers.count(), PASSES_MAX);
        assert!((0..5000).all(|n| give("checked", n, 100)), "another application's viewers are let in");
        assert!(give("open", PASSES_MAX, 200), "from a network with few");
        assert_eq!(passes.passes.len(), PASSES_MAX);
        assert_eq!(passes.apps[&Arc::from("checked")].count, 5000);
    }

    #[test]
    fn t_10_one_network_gives_its_places_up_to_others() {
        let (mut passes, key, now) = (Passes::default(), StreamKey::new("live", "s"), Instant::now());
        let limit = 20;
        let mut ask = |n: usize, from: IpAddr| {
            if passes.count(&key, "hls") >= limit {
                if !passes.gives_way(&key, "hls", from) {
                    return None;
                }
                passes.make_room(&key, "hls", from);
            }
            assert!(passes.give(now, (&key, "hls", &n.to_string()), from, None));
            Some(passes.count(&key, "hls"))
        };
        let of_one = (0..200).filter_map(|n| ask(n, address(1)));
        assert_eq!(of_one.count(), 20, "one network may have all of them");
        for other in 2..6 {
            let of_other =
                (0..200).filter_map(|n| ask(other * 1000 + n, address(u32::try_from(other).unwrap())));
            assert!(of_other.inspect(|count| assert!(*count <= limit)).count() >= 3, "{other}");
        }
        let sizes = passes.viewers[&(key, "hls")].networks.values().map(BTreeSet::len);
        assert!(sizes.clone().all(|size| (3..=5).contains(&size)), "{:?}", sizes.collect::<Vec<_>>());
    }

    #[test]
    fn who_shows_its_cookie_takes_its_own_place() {
        let (mut passes, key, now) = (Passes::default(), StreamKey::new("live", "s"), Instant::now());
        assert!(passes.give(now, (&key, "hls", "a:1"), address(1), None));
        passes.rename(now, (&key, "hls"), ("a:1", "c:1"), address(1 << 8));
        assert!(!passes.renew(now, &key, "hls", "c:1", address(1)), "of another network");
        passes.rename(now, (&key, "hls"), ("a:1", "c:1"), address(1));
        assert!(passes.renew(now, &key, "hls", "c:1", address(1)));
        assert_eq!(passes.count(&key, "hls"), 1);
        // Another viewer with the same player on the same network also has the name `a:1` until it shows a cookie. It
        // gets a pass of its own; the first viewer keeps its pass.
        passes.rename(now, (&key, "hls"), ("a:1", "c:2"), address(1));
        assert!(!passes.renew(now, &key, "hls", "c:2", address(1)));
        assert!(passes.give(now, (&key, "hls", "a:1"), address(1), None));
        passes.rename(now, (&key, "hls"), ("a:1", "c:1"), address(1));
        assert_eq!(passes.count(&key, "hls"), 2, "it has one already");
    }

    #[test]
    fn a_subscriber_that_plays_anew_takes_its_own_place() {
        let (mut passes, key, now) = (Passes::default(), StreamKey::new("live", "s"), Instant::now());
        let give =
            |passes: &mut Passes, who: &str, from| passes.give(now, (&key, "hls", who), from, Some("alice"));
        give(&mut passes, "a", address(1));
        give(&mut passes, "b", address(1 << 8));
        assert_eq!(passes.elsewhere(&key, "alice", address(1)), 1);
        passes.limit_here(&key, "alice", address(1), 1);
        assert_eq!(passes.count(&key, "hls"), 2);
        passes.limit_here(&key, "alice", address(1), 0);
        assert_eq!((passes.count(&key, "hls"), passes.elsewhere(&key, "alice", address(1))), (1, 1));
    }
}
