//! Limits on the peers that may connect: in total, per address, and by rate. No lock is needed, because workers share
//! atomic counters.
//!
//! A peer is unauthenticated until it has proved its permission (by a login, a valid token, or as an accepted
//! publisher) or is sent a stream. A peer whose requests were merely answered is still unauthenticated. Each address is
//! mapped to a counter in a table of fixed size, by a hash with a key of this process. If two addresses share a
//! counter, they share its limit, which makes the limit stricter and never wider.
//!
//! Some connections are reserved for loopback, and others for listeners of publishers. Viewers may use neither. A
//! crowded server still admits new peers and closes unauthenticated connections to make room, beginning with those of
//! the address that has the most ([`GiveWay`]).

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::auth::CidrList;
use crate::config::Limits;
use crate::protocol::Listener;
use crate::stats::Refused;

/// Number of address counters; a power of two.
const BUCKETS: usize = 8192;
/// Divisor of the limit of unauthenticated peers. If more of them are connected than the result, some are closed to
/// make room.
const CROWDED_FROM: u32 = 2;
/// Divisor of the number of unreserved connections. If fewer connections are free than the result, unauthenticated
/// peers are closed to make room.
const FULL_SHARE: usize = 16;
/// Divisor of all connections that gives the number reserved for loopback, so that the operator can always connect.
const LOOPBACK_SHARE: usize = 64;
/// Minimum number of connections reserved for loopback.
const LOOPBACK_MIN: usize = 2;
/// Divisor of all connections that gives the number reserved for listeners of publishers.
const PUBLISHERS_SHARE: usize = 16;
/// An address with more unauthenticated connections than this counts as loud. A smaller count may be the sum of several
/// addresses that share the counter.
const QUIET_MAX: u32 = 8;
/// Divisor of all connections that gives the maximum number of authenticated connections of one address, if the
/// settings give no number. The address of a whole network, or of a cache, may have thousands of viewers, but must not
/// use up all connections.
const AUTHENTICATED_SHARE: usize = 4;
/// Divisor of an address's unauthenticated connections that gives how many of them are closed at a time, so that the
/// next new peers find room.
const GIVE_WAY_SHARE: usize = 16;

/// Maximum number of simultaneous TLS handshakes on one listener (docs/robustness.md). A handshake counts from the
/// moment when its ClientHello is complete.
const HANDSHAKES_MAX: u32 = 256;
/// Maximum number of simultaneous TLS handshakes of one address.
const HANDSHAKES_PER_ADDRESS: u32 = 32;

#[derive(Debug, Default)]
struct Bucket {
    unauthenticated: AtomicU32,
    authenticated: AtomicU32,
    handshakes: AtomicU32,
    /// Time up to which the allowance of new connections is used up (GCRA), in microseconds since the start.
    used_until: AtomicU64,
}

/// The unauthenticated connections to close to make room, the oldest ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GiveWay {
    /// Counter of the address with the most connections; `None` if no address is loud.
    bucket: Option<usize>,
    /// Number of connections to close.
    pub(super) connections: usize,
}

/// The standing of the peer that holds a permit. By it, the permit counts for its address as
/// unauthenticated, as authenticated, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Not counted for its address.
    Exempt,
    Unauthenticated(usize),
    Authenticated(usize),
}

/// The limits and counters, shared by all workers.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    trusted: CidrList,
    began: Instant,
    hasher: RandomState,
    buckets: Box<[Bucket]>,
    unauthenticated: AtomicU32,
    connections: AtomicU32,
    /// Number of TLS handshakes in progress, by listener.
    handshakes: Box<[(&'static str, AtomicU32)]>,
}

/// The reason why a TLS handshake may not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// Too many handshakes with the peer's address are in progress.
    Address,
    /// Too many handshakes of the listener are in progress.
    Listener,
}

/// A connection's share of the limits; released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    standing: Standing,
    /// Time of issue, in microseconds since the start.
    since: u64,
    /// Index of the listener for which a TLS handshake is counted; `None` if none is.
    handshake: Option<usize>,
}

impl Budget {
    pub(super) fn new(mut limits: Limits, trusted: CidrList, now: Instant) -> Arc<Self> {
        if limits.authenticated_per_address == 0 {
            limits.authenticated_per_address = (limits.connections / AUTHENTICATED_SHARE).max(1);
        }
        Arc::new(Self {
            limits,
            trusted,
            began: now,
            hasher: RandomState::new(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            unauthenticated: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            handshakes: Listener::all().map(|listener| (listener.name, AtomicU32::new(0))).collect(),
        })
    }

    /// Issues the permit of a new connection; `publishers` is true for listeners that publishers use.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        publishers: bool,
        now: Instant,
    ) -> Result<Permit, Refused> {
        let connections = self.connections.fetch_add(1, Ordering::AcqRel);
        // From here on, dropping the permit also releases what was counted so far.
        let mut permit = Permit {
            budget: Arc::clone(self),
            standing: Standing::Exempt,
            since: self.micros(now),
            handshake: None,
        };
        let is_loopback = self.limits.exempt_loopback && peer.ip().to_canonical().is_loopback();
        let room = match (is_loopback, publishers) {
            (true, _) => self.limits.connections,
            (false, true) => self.for_publishers(),
            (false, false) => self.for_all(),
        };
        if usize_of(connections) >= room {
            return Err(Refused::Connections);
        }
        if is_loopback || self.trusted.contains(peer.ip()) {
            return Ok(permit);
        }
        let index = self.bucket_of(peer.ip());
        let Some(bucket) = self.buckets.get(index) else { return Ok(permit) };
        if !self.take_rate(bucket, now) {
            return Err(Refused::Rate);
        }
        permit.standing = Standing::Unauthenticated(index);
        let of_address = bucket.unauthenticated.fetch_add(1, Ordering::AcqRel);
        let unauthenticated = self.unauthenticated.fetch_add(1, Ordering::AcqRel);
        if usize_of(of_address) >= self.limits.connections_per_address {
            return Err(Refused::Address);
        }
        if usize_of(unauthenticated) >= self.limits.unauthenticated {
            return Err(Refused::Unauthenticated);
        }
        Ok(permit)
    }

    /// Returns the connections to close to make room, after a new peer was admitted; `None` if there is enough room.
    pub(super) fn give_way(&self) -> Option<GiveWay> {
        let unauthenticated = self.unauthenticated.load(Ordering::Acquire);
        let limit = u32::try_from(self.limits.unauthenticated).unwrap_or(u32::MAX);
        let for_all = self.for_all();
        let is_crowded = unauthenticated > limit / CROWDED_FROM
            || usize_of(self.connections.load(Ordering::Acquire)) > for_all - for_all / FULL_SHARE;
        if !is_crowded || unauthenticated == 0 {
            return None;
        }
        let counts = self.buckets.iter().map(|bucket| bucket.unauthenticated.load(Ordering::Relaxed));
        let (index, most) = counts.enumerate().max_by_key(|(_, count)| *count)?;
        let connections = usize_of(most) / GIVE_WAY_SHARE + 1;
        Some(GiveWay { bucket: (most > QUIET_MAX).then_some(index), connections })
    }

    /// Number of connections that are not reserved for loopback.
    const fn for_publishers(&self) -> usize {
        let kept = self.limits.connections / LOOPBACK_SHARE;
        // Some connections are reserved for loopback even if the limit is small, but none if the limit is one.
        let few = if self.limits.connections / 2 < LOOPBACK_MIN {
            self.limits.connections / 2
        } else {
            LOOPBACK_MIN
        };
        self.limits.connections - if kept < few { few } else { kept }
    }

    /// Number of connections that are reserved neither for loopback nor for publishers.
    const fn for_all(&self) -> usize {
        self.for_publishers() - self.limits.connections / PUBLISHERS_SHARE
    }

    fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the index of the counter of an address: IPv4 by address, IPv6 by /64.
    fn bucket_of(&self, address: IpAddr) -> usize {
        let hash = match address.to_canonical() {
            IpAddr::V4(v4) => self.hasher.hash_one(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => self.hasher.hash_one((v6.to_bits() >> 64, 6u8)),
        };
        usize::try_from(hash % (BUCKETS as u64)).unwrap_or(0)
    }

    /// Applies the generic cell rate algorithm: each connection uses up one interval of time, and up to `burst`
    /// intervals may be used in advance. Returns true if the connection is allowed.
    fn take_rate(&self, bucket: &Bucket, now: Instant) -> bool {
        let interval = 1_000_000 / u64::from(self.limits.new_connections_per_second.max(1));
        let ahead = interval.saturating_mul(u64::from(self.limits.new_connections_burst));
        let now = self.micros(now);
        let step = |used: u64| {
            let next = used.max(now).saturating_add(interval);
            (next <= now.saturating_add(ahead)).then_some(next)
        };
        bucket.used_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).is_ok()
    }
}

impl Permit {
    /// Marks the peer as authenticated, as a publisher or not. Fails if its address has too many authenticated
    /// connections, or if only connections reserved for publishers are left.
    pub(super) fn authenticated(&mut self, publishes: bool) -> Result<(), Refused> {
        let connections = usize_of(self.budget.connections.load(Ordering::Acquire));
        let Standing::Unauthenticated(index) = self.standing else { return Ok(()) };
        self.release();
        let Some(bucket) = self.budget.buckets.get(index) else { return Ok(()) };
        let of_address = bucket.authenticated.fetch_add(1, Ordering::AcqRel);
        self.standing = Standing::Authenticated(index);
        if usize_of(of_address) >= self.budget.limits.authenticated_per_address {
            return Err(Refused::Authenticated);
        }
        if !publishes && connections > self.budget.for_all() {
            return Err(Refused::Connections);
        }
        Ok(())
    }

    /// Returns the permit's time of issue if the connection is one of those that must be closed to make room.
    pub(super) fn gives_way(&self, way: GiveWay) -> Option<u64> {
        let Standing::Unauthenticated(index) = self.standing else { return None };
        way.bucket.is_none_or(|bucket| bucket == index).then_some(self.since)
    }

    /// Counts a TLS handshake on a listener, unless the permit already counts one.
    pub(super) fn begin_handshake(&mut self, listener: &'static str) -> Result<(), Busy> {
        if self.handshake.is_some() {
            return Ok(());
        }
        let budget = Arc::clone(&self.budget);
        let mut listeners = budget.handshakes.iter().enumerate();
        let Some((index, (_, running))) = listeners.find(|(_, (name, _))| *name == listener) else {
            return Ok(());
        };
        self.handshake = Some(index);
        let running = running.fetch_add(1, Ordering::AcqRel);
        let of_address = self.bucket().map_or(0, |bucket| bucket.handshakes.fetch_add(1, Ordering::AcqRel));
        let busy = match (of_address >= HANDSHAKES_PER_ADDRESS, running >= HANDSHAKES_MAX) {
            (true, _) => Busy::Address,
            (false, true) => Busy::Listener,
            (false, false) => return Ok(()),
        };
        self.end_handshake();
        Err(busy)
    }

    /// True if the permit counts a TLS handshake.
    pub(super) const fn is_handshaking(&self) -> bool {
        self.handshake.is_some()
    }

    /// Ends the TLS handshake that the permit counts.
    pub(super) fn end_handshake(&mut self) {
        if let Some(index) = self.handshake.take() {
            if let Some((_, running)) = self.budget.handshakes.get(index) {
                running.fetch_sub(1, Ordering::AcqRel);
            }
            if let Some(bucket) = self.bucket() {
                bucket.handshakes.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Ends counting the permit for its address.
    fn release(&mut self) {
        let standing = std::mem::replace(&mut self.standing, Standing::Exempt);
        let budget = &self.budget;
        match standing {
            Standing::Exempt => {}
            Standing::Unauthenticated(index) => {
                budget.unauthenticated.fetch_sub(1, Ordering::AcqRel);
                if let Some(bucket) = budget.buckets.get(index) {
                    bucket.unauthenticated.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Standing::Authenticated(index) => {
                if let Some(bucket) = budget.buckets.get(index) {
                    bucket.authenticated.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
    }

    fn bucket(&self) -> Option<&Bucket> {
        match self.standing {
            Standing::Exempt => None,
            Standing::Unauthenticated(index) | Standing::Authenticated(index) => {
                self.budget.buckets.get(index)
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end_handshake();
        self.release();
        self.budget.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn usize_of(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn budget(per_address: usize, unauthenticated: usize, burst: u32) -> (Arc<Budget>, Instant) {
        let now = Instant::now();
        (Budget::new(limits(per_address, unauthenticated, burst), CidrList::default(), now), now)
    }

    fn limits(per_address: usize, unauthenticated: usize, burst: u32) -> Limits {
        Limits {
            broadcasts: 0,
            pulls: 0,
            endpoints: 0,
            connections: 20_000,
            connections_per_address: per_address,
            authenticated_per_address: 5000,
            publishers_per_address: 500,
            ring_memory: 0,
            segment_memory: 0,
            unauthenticated,
            new_connections_per_second: 100,
            new_connections_burst: burst,
            exempt_loopback: true,
        }
    }

    fn admit(budget: &Arc<Budget>, peer: &str, now: Instant) -> Result<Permit, Refused> {
        budget.admit(peer.parse().unwrap(), false, now)
    }

    /// Returns a different address for each number.
    fn nth(n: u32) -> SocketAddr {
        SocketAddr::new(IpAddr::from((0x0a00_0000 | n).to_be_bytes()), 1)
    }

    #[test]
    fn h_23_one_address_is_limited_and_another_still_served() {
        let (budget, now) = budget(10, 4096, 10_000);
        let held: Vec<_> = (0..5000).filter_map(|_| admit(&budget, "10.0.0.1:1", now).ok()).collect();
        assert_eq!(held.len(), 10);
        assert_eq!(admit(&budget, "10.0.0.1:2", now).unwrap_err(), Refused::Address);
        assert!(admit(&budget, "10.0.0.2:1", now).is_ok());
    }

    #[test]
    fn h_23_loopback_is_exempt_where_the_setting_says_so_and_trusted_addresses_are_always() {
        let held = |exempt_loopback: bool, peer: &str| {
            let mut limits = limits(10, 4096, 20);
            limits.exempt_loopback = exempt_loopback;
            let trusted = crate::auth::cidr::parse("192.0.2.0/24").unwrap();
            let now = Instant::now();
            let budget = Budget::new(limits, trusted, now);
            let all: Vec<_> = (0..50).filter_map(|_| admit(&budget, peer, now).ok()).collect();
            all.len()
        };
        assert_eq!(
            (held(true, "127.0.0.1:1"), held(true, "[::1]:1"), held(true, "10.0.0.1:1")),
            (50, 50, 10)
        );
        assert_eq!(
            (held(false, "127.0.0.1:1"), held(false, "[::1]:1"), held(false, "192.0.2.1:1")),
            (10, 10, 50)
        );
    }

    #[test]
    fn h_29_handshakes_are_limited_for_each_listener_and_address_and_released() {
        let (budget, now) = budget(1000, 4096, u32::MAX);
        let begin_at = |listener, address: &str| {
            let mut permit = admit(&budget, address, now).unwrap();
            permit.begin_handshake(listener).map(|()| permit)
        };
        let begin = |address: &str| begin_at("https", address);
        let of_one: Vec<_> = (0..300).filter_map(|_| begin("10.0.0.1:1").ok()).collect();
        assert_eq!(of_one.len(), 32);
        assert_eq!(begin("10.0.0.1:1").unwrap_err(), Busy::Address);
        let others: Vec<_> = (2..=255).filter_map(|n| begin(&format!("10.0.0.{n}:1")).ok()).collect();
        assert_eq!(others.len(), 256 - 32);
        assert_eq!(begin("127.0.0.1:1").unwrap_err(), Busy::Listener);
        assert!(begin_at("rtmps", "127.0.0.1:1").is_ok(), "another listener");
        drop(of_one);
        let exempt: Vec<_> = (0..40).filter_map(|_| begin("127.0.0.1:1").ok()).collect();
        assert_eq!(exempt.len(), 32, "what is free");
        drop(exempt);
        let mut permit = begin("10.0.0.1:1").unwrap();
        permit.begin_handshake("https").unwrap();
        permit.end_handshake();
        permit.end_handshake();
        drop((permit, others));
        assert!(budget.handshakes.iter().all(|(_, running)| running.load(Ordering::Relaxed) == 0));
        assert!(budget.buckets.iter().all(|bucket| bucket.handshakes.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn ipv6_counts_by_64_and_mapped_as_v4() {
        let (budget, now) = budget(2, 4096, 10_000);
        let _a = admit(&budget, "[2001:db8::1]:1", now).unwrap();
        let _b = admit(&budget, "[2001:db8::2]:1", now).unwrap();
        assert!(admit(&budget, "[2001:db8::ffff:ffff:ffff:ffff]:1", now).is_err());
        assert!(admit(&budget, "[2001:db8:0:1::1]:1", now).is_ok(), "another network");
        assert!(admit(&budget, "[::ffff:127.0.0.1]:1", now).is_ok());
    }

    #[test]
    fn new_connections_are_paced() {
        let (budget, now) = budget(100_000, 100_000, 20);
        let admitted = |at| (0..100).filter(|_| admit(&budget, "10.0.0.1:1", at).is_ok()).count();
        assert_eq!((admitted(now), admitted(now + Duration::from_millis(100))), (20, 10));
        assert_eq!(admitted(now + Duration::from_secs(3600)), 20, "an hour without any saves nothing up");
    }

    #[test]
    fn q_05_every_counter_is_back_at_zero_after_a_million_connections() {
        let (budget, now) = budget(1000, 4096, u32::MAX);
        for n in 0..1_000_000u32 {
            let address = IpAddr::from((0x0a00_0000 | (n % 5000)).to_be_bytes());
            let permit =
                budget.admit(SocketAddr::new(address, 1), false, now + Duration::from_millis(u64::from(n)));
            if n % 3 == 0
                && let Ok(mut permit) = permit
            {
                permit.authenticated(false).unwrap();
                permit.authenticated(true).unwrap();
            }
        }
        assert_eq!(
            (budget.unauthenticated.load(Ordering::SeqCst), budget.connections.load(Ordering::SeqCst)),
            (0, 0)
        );
        let is_zero = |count: &AtomicU32| count.load(Ordering::SeqCst) == 0;
        let mut buckets = budget.buckets.iter();
        assert!(buckets.all(|bucket| is_zero(&bucket.unauthenticated) && is_zero(&bucket.authenticated)));
    }

    #[test]
    fn h_28_from_half_of_the_limit_on_the_address_with_most_gives_way() {
        let (budget, now) = budget(100_000, 1000, u32::MAX);
        let quiet: Vec<_> = (0..200).map(|n| budget.admit(nth(n), false, now).unwrap()).collect();
        let loud: Vec<_> = (0..300).map(|_| budget.admit(nth(7), false, now).unwrap()).collect();
        assert_eq!(budget.give_way(), None);
        let _one_more = budget.admit(nth(1000), false, now).unwrap();
        let way = budget.give_way().unwrap();
        assert_eq!(way.connections, 19);
        assert!(loud.iter().all(|permit| permit.gives_way(way).is_some()));
        assert!(quiet.iter().filter(|permit| permit.gives_way(way).is_some()).count() < 8, "its own");
        drop((quiet, loud));
        // If no address is loud, the oldest of all unauthenticated peers is closed.
        let later = now + Duration::from_secs(1);
        let crowd: Vec<_> = (0..1000).filter_map(|n| budget.admit(nth(n), false, later).ok()).collect();
        assert_eq!((crowd.len(), budget.give_way().unwrap().bucket), (999, None));
        let last = budget.admit(nth(5000), false, later).unwrap_err();
        assert_eq!(last, Refused::Unauthenticated);
        let ages: Vec<_> = crowd.iter().filter_map(|one| one.gives_way(budget.give_way()?)).collect();
        assert_eq!(ages, [1_000_000; 999]);
    }

    #[test]
    fn h_28_places_are_kept_for_loopback_and_for_publishers() {
        let (mut limits, now) = (limits(100_000, 100_000, u32::MAX), Instant::now());
        limits.connections = 640;
        let budget = Budget::new(limits, CidrList::default(), now);
        let admit = |publishers: bool, from: SocketAddr| budget.admit(from, publishers, now);
        let viewers: Vec<_> = (0..640).map_while(|n| admit(false, nth(n)).ok()).collect();
        assert_eq!(viewers.len(), 640 - 10 - 40);
        let way = budget.give_way().expect("it is full");
        assert!(viewers.iter().all(|permit| permit.gives_way(way).is_some()));
        let mut publishers: Vec<_> = (0..100).map_while(|n| admit(true, nth(1000 + n)).ok()).collect();
        assert_eq!(publishers.len(), 40);
        // A peer on a publishers' listener may not use a reserved connection if it turns out to be a viewer.
        assert_eq!(publishers[0].authenticated(false), Err(Refused::Connections));
        assert_eq!(publishers[1].authenticated(true), Ok(()));
        let local: Vec<_> =
            (0..100).map_while(|_| admit(false, "127.0.0.1:1".parse().unwrap()).ok()).collect();
        assert_eq!(local.len(), 10);
    }

    #[test]
    fn h_28_an_address_has_a_share_of_authenticated_peers_too() {
        let (mut limits, now) = (limits(1000, 100_000, u32::MAX), Instant::now());
        limits.authenticated_per_address = 20;
        let budget = Budget::new(limits, CidrList::default(), now);
        let mut held: Vec<_> = (0..30).map(|_| budget.admit(nth(1), false, now).unwrap()).collect();
        let granted = held.iter_mut().filter_map(|permit| permit.authenticated(false).ok()).count();
        assert_eq!(granted, 20);
        assert_eq!(budget.admit(nth(2), false, now).unwrap().authenticated(false), Ok(()));
        drop(held);
        assert_eq!(budget.admit(nth(1), false, now).unwrap().authenticated(false), Ok(()));
        // Without a number in the settings, an address may have a quarter of all connections.
        (limits.authenticated_per_address, limits.connections) = (0, 200);
        let budget = Budget::new(limits, CidrList::default(), now);
        assert_eq!(budget.limits.authenticated_per_address, 50);
    }
}
