//! Limits on the number of keys that a worker derives from passphrases (PBKDF2, 0.3 to 0.6 ms each): per turn, per
//! second and per address, regardless of the number of callers. A packet whose key cannot be derived now is dropped
//! as if lost; the peer sends it again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crypto::Seed;

use crate::auth::network;

/// Maximum derivations per second: at most a tenth of a worker's time.
const PER_SECOND: u64 = 200;
/// Maximum derivations per second for one address.
const PER_SECOND_AND_ADDRESS: u64 = 20;
/// Maximum derivations in a burst, of one address or of all addresses; therefore also the maximum of one turn.
const BURST: u64 = 4;
/// Number of address counters. Two addresses that share a counter share its allowance.
const BUCKETS: usize = 1024;
const SECOND_US: u64 = 1_000_000;

/// A rate limit, stored as the time in microseconds up to which the allowance is used (GCRA).
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    fn take(&self, now: u64, per_second: u64) -> bool {
        let step = |used: u64| Self::next(used, now, per_second);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).is_ok()
    }

    /// True if the allowance is not used up.
    fn has(&self, now: u64, per_second: u64) -> bool {
        Self::next(self.0.load(Ordering::Relaxed), now, per_second).is_some()
    }

    fn next(used: u64, now: u64, per_second: u64) -> Option<u64> {
        let interval = SECOND_US.checked_div(per_second).unwrap_or(SECOND_US);
        let next = used.max(now).saturating_add(interval);
        (next <= now.saturating_add(interval.saturating_mul(BURST))).then_some(next)
    }
}

/// The allowance of one worker, shared by its port and its sessions.
#[derive(Debug)]
pub(super) struct Derivations {
    began: Instant,
    /// Secret that keeps outsiders from finding addresses that share a counter.
    secret: u64,
    all: Rate,
    of_addresses: Box<[Rate]>,
}

impl Derivations {
    pub(super) fn new(now: Instant, seed: &Seed) -> Self {
        let of_addresses = (0..BUCKETS).map(|_| Rate::default()).collect();
        Self { began: now, secret: seed.random().u64(), all: Rate::default(), of_addresses }
    }

    /// Counts a derivation for an address. Returns false if none is allowed now.
    pub(super) fn take(&self, now: Instant, address: IpAddr) -> bool {
        let now = now.saturating_duration_since(self.began).as_micros();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let mut hasher = DefaultHasher::new();
        (self.secret, network(address)).hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % (BUCKETS as u64)).unwrap_or(0);
        let Some(of_address) = self.of_addresses.get(index) else { return false };
        // If the common allowance is used up, the address is not charged.
        of_address.has(now, PER_SECOND_AND_ADDRESS)
            && self.all.take(now, PER_SECOND)
            && of_address.take(now, PER_SECOND_AND_ADDRESS)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(net: u8, host: usize) -> IpAddr {
        IpAddr::from([10, net, u8::try_from(host / 256).unwrap(), u8::try_from(host % 256).unwrap()])
    }

    #[test]
    fn s_28_a_turn_derives_few_keys_and_a_second_not_many_more() {
        let began = Instant::now();
        let derivations = Derivations::new(began, &Seed::from_number(1));
        let turn = |at: u64| {
            let now = began + Duration::from_millis(at);
            (0..1000).filter(|n| derivations.take(now, address(1, *n))).count()
        };
        assert_eq!((turn(0), turn(0), turn(1)), (4, 0, 0));
        assert_eq!((turn(5), turn(100)), (1, 4));
        let of_second: usize = (0..1000).map(|ms| turn(1000 + ms)).sum();
        assert!((200..=204).contains(&of_second), "{of_second}");
        let of_one = |ms: &u64| derivations.take(began + Duration::from_millis(3000 + *ms), address(2, 1));
        assert!((20..=24).contains(&(0..1000).filter(|ms| of_one(ms)).count()));
    }

    /// Callers ask again four times a second and give up after three seconds.
    #[test]
    fn s_28_callers_are_served_beside_a_flood_of_key_requests() {
        let served = |flood: usize| {
            let began = Instant::now();
            let derivations = Derivations::new(began, &Seed::from_number(1));
            let mut waiting = [true; 28];
            for ms in 0..3000u64 {
                let now = began + Duration::from_millis(ms);
                (0..flood).for_each(|n| {
                    derivations.take(now, address(1, n));
                });
                for (n, waits) in waiting.iter_mut().enumerate() {
                    if *waits && ms % 250 == (n as u64 * 9) % 250 {
                        *waits = !derivations.take(now, address(2, n));
                    }
                }
            }
            waiting.iter().filter(|waits| !**waits).count()
        };
        let (during, without) = (served(8), served(0));
        println!(
            "8 addresses with 1 000 key requests a second each: callers served {during}, else {without}, of 28"
        );
        assert_eq!(without, 28);
        // Up to two of the callers may share their counter with an address of the flood.
        assert!(during >= 26, "{during}");
    }
}
