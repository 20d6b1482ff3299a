//! How many unauthenticated peers may connect: in total, per address, and how fast. Without a lock: workers share counters.
//!
//! A peer is unauthenticated until its session has been granted something (a publish, a play, an answered request).
//! Addresses are hashed into a fixed table of counters with a key of this process; two addresses that share a
//! counter share its limit, which makes the limit stricter and never wider.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::auth::CidrList;
use crate::config::Limits;
use crate::stats::Refused;

/// Counters for addresses; a power of two.
const BUCKETS: usize = 8192;
/// From this share of the limit on unauthenticated peers on, new ones are refused at random: early drop, as OpenSSH does.
const EARLY_DROP_FROM: u32 = 2;

/// TLS handshakes that run at a time (docs/robustness.md).
const HANDSHAKES_MAX: u32 = 256;
/// The most of them for one address.
const HANDSHAKES_PER_ADDRESS: u32 = 32;

#[derive(Debug, Default)]
struct Bucket {
    unauthenticated: AtomicU32,
    handshakes: AtomicU32,
    /// The time, in microseconds since the start, up to which the allowance of new connections is used (GCRA).
    used_until: AtomicU64,
}

/// Shared by all workers.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    trusted: CidrList,
    began: Instant,
    hasher: RandomState,
    buckets: Box<[Bucket]>,
    unauthenticated: AtomicU32,
    connections: AtomicU32,
    drops: AtomicU32,
    handshakes: AtomicU32,
}

/// A connection's share of the limits; released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    /// The counters of its address. `None`: no limit per address holds for it.
    bucket: Option<usize>,
    /// It counts as an unauthenticated peer.
    is_unauthenticated: bool,
    /// It counts as a TLS handshake.
    is_handshaking: bool,
}

impl Budget {
    pub(super) fn new(limits: Limits, trusted: CidrList, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            limits,
            trusted,
            began: now,
            hasher: RandomState::new(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            unauthenticated: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            drops: AtomicU32::new(0),
            handshakes: AtomicU32::new(0),
        })
    }

    /// Issues the permit of a new connection.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr, now: Instant) -> Result<Permit, Refused> {
        let connections = self.connections.fetch_add(1, Ordering::AcqRel);
        // From here on dropping the permit releases what was taken.
        let mut permit = Permit {
            budget: Arc::clone(self),
            bucket: None,
            is_unauthenticated: false,
            is_handshaking: false,
        };
        if usize_of(connections) >= self.limits.connections {
            return Err(Refused::Connections);
        }
        if self.is_exempt(peer.ip()) {
            return Ok(permit);
        }
        let index = self.bucket_of(peer.ip());
        let Some(bucket) = self.buckets.get(index) else { return Ok(permit) };
        if !self.take_rate(bucket, now) {
            return Err(Refused::Rate);
        }
        (permit.bucket, permit.is_unauthenticated) = (Some(index), true);
        let of_address = bucket.unauthenticated.fetch_add(1, Ordering::AcqRel);
        let unauthenticated = self.unauthenticated.fetch_add(1, Ordering::AcqRel);
        if usize_of(of_address) >= self.limits.connections_per_address {
            return Err(Refused::Address);
        }
        if self.drops_early(unauthenticated) { Err(Refused::Unauthenticated) } else { Ok(permit) }
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        (self.limits.exempt_loopback && address.to_canonical().is_loopback())
            || self.trusted.contains(address)
    }

    /// IPv4 by address, IPv6 by /64.
    fn bucket_of(&self, address: IpAddr) -> usize {
        let hash = match address.to_canonical() {
            IpAddr::V4(v4) => self.hasher.hash_one(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => self.hasher.hash_one((v6.to_bits() >> 64, 6u8)),
        };
        usize::try_from(hash % (BUCKETS as u64)).unwrap_or(0)
    }

    /// The generic cell rate algorithm: each connection costs its interval, and up to `burst` may be ahead.
    fn take_rate(&self, bucket: &Bucket, now: Instant) -> bool {
        let interval = 1_000_000 / u64::from(self.limits.new_connections_per_second.max(1));
        let ahead = interval.saturating_mul(u64::from(self.limits.new_connections_burst));
        let now = u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX);
        let step = |used: u64| {
            let next = used.max(now).saturating_add(interval);
            (next <= now.saturating_add(ahead)).then_some(next)
        };
        bucket.used_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).is_ok()
    }

    /// Refuses all at the limit and an evenly rising share from half of it on.
    fn drops_early(&self, unauthenticated: u32) -> bool {
        let limit = u32::try_from(self.limits.unauthenticated).unwrap_or(u32::MAX);
        let from = limit / EARLY_DROP_FROM;
        if unauthenticated < from {
            return false;
        }
        let over = u64::from(unauthenticated - from).saturating_mul(100);
        let percent = over.checked_div(u64::from(limit.saturating_sub(from).max(1))).unwrap_or(100);
        u64::from(self.drops.fetch_add(37, Ordering::Relaxed) % 100) < percent
    }
}

impl Permit {
    /// The peer is authenticated from now on.
    pub(super) fn known(&mut self) {
        if std::mem::replace(&mut self.is_unauthenticated, false)
            && let Some(bucket) = self.bucket()
        {
            bucket.unauthenticated.fetch_sub(1, Ordering::AcqRel);
            self.budget.unauthenticated.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Takes one of the TLS handshakes that run at a time, unless it has one.
    pub(super) fn begin_handshake(&mut self) -> Result<(), Refused> {
        if std::mem::replace(&mut self.is_handshaking, true) {
            return Ok(());
        }
        let running = self.budget.handshakes.fetch_add(1, Ordering::AcqRel);
        let of_address = self.bucket().map_or(0, |bucket| bucket.handshakes.fetch_add(1, Ordering::AcqRel));
        if running >= HANDSHAKES_MAX || of_address >= HANDSHAKES_PER_ADDRESS {
            self.end_handshake();
            return Err(Refused::Handshakes);
        }
        Ok(())
    }

    /// The TLS handshake is over.
    pub(super) fn end_handshake(&mut self) {
        if std::mem::replace(&mut self.is_handshaking, false) {
            self.budget.handshakes.fetch_sub(1, Ordering::AcqRel);
            if let Some(bucket) = self.bucket() {
                bucket.handshakes.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn bucket(&self) -> Option<&Bucket> {
        self.budget.buckets.get(self.bucket?)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.known();
        self.end_handshake();
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
        let limits = Limits {
            broadcasts: 0,
            pulls: 0,
            endpoints: 0,
            connections: 20_000,
            connections_per_address: per_address,
            unauthenticated,
            new_connections_per_second: 100,
            new_connections_burst: burst,
            exempt_loopback: true,
        };
        (Budget::new(limits, CidrList::default(), now), now)
    }

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn h_23_one_address_is_limited_and_another_still_served() {
        let (budget, now) = budget(10, 4096, 10_000);
        let held: Vec<_> = (0..5000).filter_map(|_| budget.admit(peer("10.0.0.1:1"), now).ok()).collect();
        assert_eq!(held.len(), 10);
        assert_eq!(budget.admit(peer("10.0.0.1:2"), now).unwrap_err(), Refused::Address);
        assert!(budget.admit(peer("10.0.0.2:1"), now).is_ok());
        assert!((0..5000).all(|_| budget.admit(peer("127.0.0.1:1"), now).is_ok()), "loopback is exempt");
    }

    #[test]
    fn handshakes_are_limited_in_total_and_per_address_and_released() {
        let (budget, now) = budget(1000, 4096, u32::MAX);
        let begin = |address: String| {
            let mut permit = budget.admit(peer(&address), now).unwrap();
            permit.begin_handshake().map(|()| permit)
        };
        let of_one: Vec<_> = (0..300).filter_map(|_| begin("10.0.0.1:1".into()).ok()).collect();
        assert_eq!(of_one.len(), 32);
        assert_eq!(begin("10.0.0.1:1".into()).unwrap_err(), Refused::Handshakes);
        let others: Vec<_> = (2..=255).filter_map(|n| begin(format!("10.0.0.{n}:1")).ok()).collect();
        assert_eq!(others.len(), 256 - 32);
        assert_eq!(begin("127.0.0.1:1".into()).unwrap_err(), Refused::Handshakes);
        drop(of_one);
        let exempt: Vec<_> = (0..40).filter_map(|_| begin("127.0.0.1:1".into()).ok()).collect();
        assert_eq!(exempt.len(), 32, "what is free");
        drop(exempt);
        let mut permit = begin("10.0.0.1:1".into()).unwrap();
        permit.begin_handshake().unwrap();
        permit.end_handshake();
        permit.end_handshake();
        drop((permit, others));
        assert_eq!(budget.handshakes.load(Ordering::Relaxed), 0);
        assert!(budget.buckets.iter().all(|bucket| bucket.handshakes.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn ipv6_counts_by_64_and_mapped_as_v4() {
        let (budget, now) = budget(2, 4096, 10_000);
        let _a = budget.admit(peer("[2001:db8::1]:1"), now).unwrap();
        let _b = budget.admit(peer("[2001:db8::2]:1"), now).unwrap();
        assert!(budget.admit(peer("[2001:db8::3]:1"), now).is_err());
        assert!(budget.admit(peer("[::ffff:127.0.0.1]:1"), now).is_ok());
    }

    #[test]
    fn new_connections_are_paced() {
        let (budget, now) = budget(100_000, 100_000, 20);
        let admitted = |at| (0..100).filter(|_| budget.admit(peer("10.0.0.1:1"), at).is_ok()).count();
        assert_eq!((admitted(now), admitted(now + Duration::from_millis(100))), (20, 10));
    }

    #[test]
    fn q_05_every_counter_is_back_at_zero_after_a_million_connections() {
        let (budget, now) = budget(1000, 4096, u32::MAX);
        for n in 0..1_000_000u32 {
            let address = IpAddr::from((0x0a00_0000 | (n % 5000)).to_be_bytes());
            let permit = budget.admit(SocketAddr::new(address, 1), now + Duration::from_millis(u64::from(n)));
            if n % 3 == 0
                && let Ok(mut permit) = permit
            {
                permit.known();
                permit.known();
            }
        }
        assert_eq!(
            (budget.unauthenticated.load(Ordering::SeqCst), budget.connections.load(Ordering::SeqCst)),
            (0, 0)
        );
        assert!(budget.buckets.iter().all(|bucket| bucket.unauthenticated.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn unauthenticated_peers_are_dropped_early_and_then_all() {
        let (budget, now) = budget(100_000, 1000, u32::MAX);
        let addresses =
            (0..4000u32).map(|n| SocketAddr::new(IpAddr::from((0x0a00_0000 | n).to_be_bytes()), 1));
        let held: Vec<_> = addresses.filter_map(|peer| budget.admit(peer, now).ok()).collect();
        assert!((600..=1000).contains(&held.len()), "{}", held.len());
    }
}
