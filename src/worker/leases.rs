//! Viewers without a connection. A viewer that watches by separate requests (HLS) counts while its lease lasts. Each of
//! its requests renews the lease. When the ledger is full, a new lease evicts the oldest lease of the same address, so
//! that a client cannot raise the count further by inventing session ids.
//!
//! Renewing, ending and expiring take logarithmic time in the number of leases.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mail::LeaseNews;
use crate::types::StreamId;

/// Maximum number of leases of one worker. At some 300 bytes each, they take 30 MB.
pub const LEASES_MAX: usize = 100_000;
/// Default duration of a lease after a request.
pub const LEASE: Duration = Duration::from_secs(10);
/// Maximum length of a viewer's name in bytes; longer names are cut.
pub const VIEWER_BYTES_MAX: usize = 128;
/// Maximum number of leases that one call ends. If more are due, the deadline stays in the past, so that another call
/// follows.
const EXPIRED_MAX: usize = 1000;
/// Mask of the network bits of an IPv6 address.
const NETWORK: u128 = !0 << 64;

/// Stream, protocol and viewer of a lease, in index order, so that all leases of a stream are adjacent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    stream: StreamId,
    protocol: &'static str,
    viewer: Arc<str>,
}

#[derive(Debug)]
struct Lease {
    key: Key,
    /// The client's address, or its /64 network if it is an IPv6 address.
    address: IpAddr,
    /// Address of the latest request.
    client: IpAddr,
    began: Instant,
    until: Instant,
    /// News that control is sent when the lease ends.
    news: Option<Box<LeaseNews>>,
}

/// The result of renewing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// A known viewer continues.
    Again,
    /// A new viewer.
    New,
    /// The ledger is full, and no lease of this address could be evicted. The viewer is served but not counted.
    Full,
}

/// A viewer that has a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased<'a> {
    /// Number of the lease, unique on its worker.
    pub number: u64,
    /// Protocol that the viewer counts under.
    pub protocol: &'static str,
    /// Identity of the viewer.
    pub viewer: &'a Arc<str>,
    /// Address of the viewer's latest request.
    pub client: IpAddr,
    /// Time of the viewer's first request.
    pub began: Instant,
}

/// A lease that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// The stream that was watched.
    pub stream: StreamId,
    /// Protocol that the viewer counted under.
    pub protocol: &'static str,
    /// Address of the viewer's latest request.
    pub client: IpAddr,
    /// Time of the viewer's first request.
    pub began: Instant,
    /// The reason of the end, in words.
    pub reason: &'static str,
    /// News for control.
    pub news: Option<Box<LeaseNews>>,
}

/// The leases of a worker.
#[derive(Debug)]
pub struct Ledger {
    max: usize,
    /// Leases begun so far; also the number of the next lease.
    begun: u64,
    leases: BTreeMap<u64, Lease>,
    index: BTreeMap<Key, u64>,
    /// Leases by expiry time.
    ends: BTreeSet<(Instant, u64)>,
    /// Leases by address, then by expiry time.
    addresses: BTreeMap<IpAddr, BTreeSet<(Instant, u64)>>,
    counts: BTreeMap<(StreamId, &'static str), u32>,
    /// Leases that have ended.
    ended: Vec<Ended>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::with_room(LEASES_MAX)
    }
}

impl Ledger {
    /// Creates a table for at most `max` leases.
    #[must_use]
    pub const fn with_room(max: usize) -> Self {
        Self {
            max,
            begun: 0,
            leases: BTreeMap::new(),
            index: BTreeMap::new(),
            ends: BTreeSet::new(),
            addresses: BTreeMap::new(),
            counts: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Renews the lease of a viewer that has made a request, or begins a lease if the viewer has none. `viewer`
    /// identifies the viewer: its session token or its address.
    pub fn renew(
        &mut self,
        now: Instant,
        (stream, protocol, viewer): (StreamId, &'static str, &str),
        address: IpAddr,
        lease: Duration,
    ) -> Renewed {
        let key = Key { stream, protocol, viewer: Arc::from(cut(viewer)) };
        let until = now.checked_add(lease).unwrap_or(now);
        if let Some(&number) = self.index.get(&key) {
            self.move_to(number, address, until);
            return Renewed::Again;
        }
        let (client, address) = (address, network(address));
        if self.leases.len() >= self.max && !self.give_way(address) {
            return Renewed::Full;
        }
        let number = self.begun;
        self.begun = number.saturating_add(1);
        let count = self.counts.entry((stream, protocol)).or_default();
        *count = count.saturating_add(1);
        self.index.insert(key.clone(), number);
        self.ends.insert((until, number));
        self.addresses.entry(address).or_default().insert((until, number));
        self.leases.insert(number, Lease { key, address, client, began: now, until, news: None });
        Renewed::New
    }

    /// Stores news that control gets when the lease of a viewer ends.
    pub fn note(&mut self, viewer: (StreamId, &'static str, &str), news: Box<LeaseNews>) {
        let number = self.number_of(viewer);
        if let Some(lease) = number.and_then(|number| self.leases.get_mut(&number)) {
            lease.news = Some(news);
        }
    }

    /// Ends the lease of a viewer that has been given a new name. The viewer's end will be reported under the new name
    /// only. Returns false if the viewer has no lease.
    pub fn end_viewer(&mut self, viewer: (StreamId, &'static str, &str)) -> bool {
        self.number_of(viewer).and_then(|number| self.forget(number)).is_some()
    }

    /// Ends the lease of a viewer that is no longer served, if the viewer has one.
    pub fn drop_viewer(&mut self, viewer: (StreamId, &'static str, &str), reason: &'static str) {
        if let Some(number) = self.number_of(viewer) {
            self.end(number, reason);
        }
    }

    /// Returns the viewers of a stream.
    pub fn of_stream(&self, stream: StreamId) -> impl Iterator<Item = Leased<'_>> {
        let first = Key { stream, protocol: "", viewer: Arc::from("") };
        let of_stream = self.index.range(first..).take_while(move |(key, _)| key.stream == stream);
        of_stream.filter_map(|(key, number)| {
            let lease = self.leases.get(number)?;
            let Key { protocol, ref viewer, .. } = *key;
            Some(Leased { number: *number, protocol, viewer, client: lease.client, began: lease.began })
        })
    }

    /// Returns the stream, the protocol and the name of each viewer.
    pub fn all(&self) -> impl Iterator<Item = (StreamId, &'static str, &str)> {
        self.index.keys().map(|key| (key.stream, key.protocol, &*key.viewer))
    }

    /// Returns the leases that have ended since the last call. Those of viewers with a new name are not among them.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    fn number_of(&self, (stream, protocol, viewer): (StreamId, &'static str, &str)) -> Option<u64> {
        self.index.get(&Key { stream, protocol, viewer: Arc::from(cut(viewer)) }).copied()
    }

    /// Ends the leases that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..EXPIRED_MAX {
            match self.ends.first() {
                Some(&(until, number)) if until <= now => self.end(number, "no request for 10 s"),
                Some(_) | None => return,
            }
        }
    }

    /// Ends all leases of a stream that has ended.
    pub fn end_stream(&mut self, stream: StreamId) {
        let first = Key { stream, protocol: "", viewer: Arc::from("") };
        let of_stream = self.index.range(first..).take_while(|(key, _)| key.stream == stream);
        let numbers: Vec<u64> = of_stream.map(|(_, number)| *number).collect();
        numbers.into_iter().for_each(|number| self.end(number, "the stream has ended"));
    }

    /// Returns the number of viewers by stream and protocol.
    pub fn counts(&self) -> impl Iterator<Item = (StreamId, &'static str, u32)> {
        self.counts.iter().map(|(&(stream, protocol), &count)| (stream, protocol, count))
    }

    /// Returns the time at which the next lease expires.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Number of leases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// True if there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Renews a lease, moving it to the address of the request.
    fn move_to(&mut self, number: u64, client: IpAddr, until: Instant) {
        let Some(lease) = self.leases.get_mut(&number) else { return };
        let address = network(client);
        lease.client = client;
        let former = (lease.until, number);
        let former_address = std::mem::replace(&mut lease.address, address);
        lease.until = until;
        self.ends.remove(&former);
        self.ends.insert((until, number));
        self.leave(former_address, former);
        self.addresses.entry(address).or_default().insert((until, number));
    }

    /// Ends the oldest lease of an address. Returns false if the address has no lease.
    fn give_way(&mut self, address: IpAddr) -> bool {
        let oldest = self.addresses.get(&address).and_then(|leases| leases.first());
        let Some(&(_, number)) = oldest else { return false };
        self.end(number, "its place is needed for a newer viewer of its address");
        true
    }

    fn end(&mut self, number: u64, reason: &'static str) {
        let Some(Lease { key, client, began, news, .. }) = self.forget(number) else { return };
        let Key { stream, protocol, .. } = key;
        self.ended.push(Ended { stream, protocol, client, began, reason, news });
    }

    fn forget(&mut self, number: u64) -> Option<Lease> {
        let lease = self.leases.remove(&number)?;
        let Lease { ref key, address, until, .. } = lease;
        self.ends.remove(&(until, number));
        self.leave(address, (until, number));
        if let Some(count) = self.counts.get_mut(&(key.stream, key.protocol)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&(key.stream, key.protocol));
            }
        }
        self.index.remove(key);
        Some(lease)
    }

    fn leave(&mut self, address: IpAddr, entry: (Instant, u64)) {
        if let Some(leases) = self.addresses.get_mut(&address) {
            leases.remove(&entry);
            if leases.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }
}

/// Returns a viewer's name cut to [`VIEWER_BYTES_MAX`].
pub(super) fn cut(viewer: &str) -> &str {
    viewer.get(..viewer.floor_char_boundary(VIEWER_BYTES_MAX)).unwrap_or_default()
}

/// Returns the address by which leases are counted: for IPv6 the /64 network, because one host can use all of its
/// addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: StreamId = StreamId(1);
    const B: StreamId = StreamId(2);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn counts(ledger: &Ledger) -> Vec<(StreamId, &'static str, u32)> {
        ledger.counts().collect()
    }

    #[test]
    fn a_lease_lasts_from_request_to_request_and_ends_by_time() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ask = |second, viewer| ledger.renew(at(second), (A, "hls", viewer), address(1), LEASE);
        assert_eq!((ask(0, "x"), ask(0, "y"), ask(9, "x")), (Renewed::New, Renewed::New, Renewed::Again));
        assert_eq!((counts(&ledger), ledger.poll_timeout()), (vec![(A, "hls", 2)], Some(at(10))));
        ledger.handle_timeout(at(10));
        assert_eq!((counts(&ledger), ledger.poll_timeout()), (vec![(A, "hls", 1)], Some(at(19))));
        // Early and double timeouts are harmless.
        ledger.handle_timeout(at(10));
        ledger.handle_timeout(at(19));
        assert_eq!((counts(&ledger), ledger.poll_timeout(), ledger.is_empty()), (vec![], None, true));
        assert_eq!(ledger.renew(at(20), (A, "hls", "x"), address(1), LEASE), Renewed::New);
    }

    #[test]
    fn each_end_is_told_with_its_reason_but_not_that_of_a_former_name() {
        let (mut ledger, start) = (Ledger::with_room(2), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut told = |act: &mut dyn FnMut(&mut Ledger)| {
            act(&mut ledger);
            let ended = ledger.take_ended();
            ended.into_iter().map(|one| (one.client, one.began, one.reason)).collect::<Vec<_>>()
        };
        let ask = |ledger: &mut Ledger, second, viewer| {
            ledger.renew(at(second), (A, "hls", viewer), address(1), LEASE);
        };
        assert_eq!(told(&mut |ledger| ask(ledger, 0, "x")), []);
        let expired = (address(1), at(0), "no request for 10 s");
        assert_eq!(told(&mut |ledger| ledger.handle_timeout(at(10))), [expired]);
        assert_eq!(told(&mut |ledger| ask(ledger, 11, "former")), []);
        assert_eq!(told(&mut |ledger| assert!(ledger.end_viewer((A, "hls", "former")))), []);
        for viewer in ["a", "b"] {
            assert_eq!(told(&mut |ledger| ask(ledger, 12, viewer)), []);
        }
        let gave_way = "its place is needed for a newer viewer of its address";
        assert_eq!(told(&mut |ledger| ask(ledger, 13, "c")), [(address(1), at(12), gave_way)]);
        let dropped = (address(1), at(12), "ended by a call");
        assert_eq!(told(&mut |ledger| ledger.drop_viewer((A, "hls", "b"), "ended by a call")), [dropped]);
        assert_eq!(told(&mut |ledger| ledger.end_stream(A)), [(address(1), at(13), "the stream has ended")]);
    }

    #[test]
    fn streams_and_protocols_are_counted_apart_and_a_stream_takes_its_viewers_along() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for (stream, protocol, viewer) in
            [(A, "hls", "x"), (A, "dash", "x"), (B, "hls", "x"), (B, "hls", "y")]
        {
            assert_eq!(ledger.renew(now, (stream, protocol, viewer), address(1), LEASE), Renewed::New);
        }
        assert_eq!(counts(&ledger), [(A, "dash", 1), (A, "hls", 1), (B, "hls", 2)]);
        ledger.end_stream(B);
        assert_eq!(counts(&ledger), [(A, "dash", 1), (A, "hls", 1)]);
        ledger.end_stream(A);
        assert!(ledger.is_empty() && ledger.ends.is_empty() && ledger.addresses.is_empty());
    }

    #[test]
    fn t_10_at_the_cap_the_oldest_lease_of_the_same_address_gives_way() {
        let (mut ledger, start) = (Ledger::with_room(3), Instant::now());
        let mut ask = |ms, viewer: &str, from| {
            ledger.renew(start + Duration::from_millis(ms), (A, "hls", viewer), from, LEASE)
        };
        assert_eq!((ask(0, "x", address(1)), ask(1, "y", address(2))), (Renewed::New, Renewed::New));
        assert_eq!((ask(2, "z", address(2)), ask(3, "y", address(2))), (Renewed::New, Renewed::Again));
        // The ledger is full, and `z` now has the oldest lease of its address. A viewer from a new address finds no
        // room and evicts no other viewer.
        assert_eq!(ask(4, "v", address(3)), Renewed::Full);
        assert_eq!(ask(5, "w", address(2)), Renewed::New);
        assert_eq!((ask(6, "x", address(1)), ask(7, "y", address(2))), (Renewed::Again, Renewed::Again));
        assert_eq!((ledger.len(), counts(&ledger)), (3, vec![(A, "hls", 3)]));
        // A million viewer names from one network get no more leases than there is room for.
        let v6 = |host: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001 << 112 | u128::from(host)));
        ledger.end_stream(A);
        for host in 0..1_000_000u64 {
            ledger.renew(start, (A, "hls", &host.to_string()), v6(host), LEASE);
        }
        assert_eq!((ledger.len(), ledger.addresses.len()), (3, 1));
        let long = "é".repeat(1000);
        ledger.renew(start, (A, "hls", &long), v6(0), LEASE);
        assert!(ledger.index.keys().all(|key| key.viewer.len() <= VIEWER_BYTES_MAX));
    }

    #[test]
    fn a_call_ends_a_bounded_number_and_leaves_the_deadline_for_the_others() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        for viewer in 0..EXPIRED_MAX + 1 {
            ledger.renew(start, (A, "hls", &viewer.to_string()), address(1), LEASE);
        }
        ledger.handle_timeout(start + LEASE);
        assert_eq!((ledger.len(), ledger.poll_timeout()), (1, Some(start + LEASE)));
        ledger.handle_timeout(start + LEASE);
        assert_eq!((ledger.len(), ledger.poll_timeout()), (0, None));
    }

    proptest! {
        /// The indexes are consistent with each other after any sequence of events.
        #[test]
        fn the_indexes_agree(steps in prop::collection::vec((0u64..12, 0u8..6, 0u8..3, 0u64..5000), 1..200)) {
            let (mut ledger, mut now) = (Ledger::with_room(8), Instant::now());
            for (what, viewer, from, pause) in steps {
                now += Duration::from_millis(pause);
                match what {
                    0 => ledger.end_stream(A),
                    1 | 2 => ledger.handle_timeout(now),
                    _ => {
                        let stream = if what % 2 == 0 { A } else { B };
                        ledger.renew(now, (stream, "hls", &viewer.to_string()), address(from), LEASE);
                    }
                }
                let of_addresses: usize = ledger.addresses.values().map(BTreeSet::len).sum();
                let counted: u32 = ledger.counts().map(|(_, _, count)| count).sum();
                let sizes = [ledger.index.len(), ledger.ends.len(), of_addresses, counted as usize];
                prop_assert_eq!(sizes, [ledger.len(); 4]);
                prop_assert!(ledger.len() <= 8);
                prop_assert!(ledger.addresses.values().all(|leases| !leases.is_empty()));
            }
        }
    }
}
