//! Limits on logins. Failures are counted per address and e-mail, so that nobody can lock out a user at another
//! address. In total, ten attempts per second are checked (docs/robustness.md R-36). Each address gets only a share of
//! these attempts, and some are reserved for addresses from which a login has succeeded.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::auth::network;

/// Number of failed logins that lock a pair of address and e-mail.
const FAILURES: u32 = 3;
/// Duration of a lock.
const LOCKED: Duration = Duration::from_secs(300);
/// Maximum number of attempts per second in total. All of them may come in one burst.
const TRIES_PER_SECOND: u32 = 10;
/// Maximum attempts per second from one address. Requests from this machine are exempt, because local users have easier
/// ways to attack.
const TRIES_OF_ADDRESS: u32 = 3;
/// Attempts per second reserved for addresses from which a login has succeeded.
const TRIES_KEPT: u32 = 4;
/// Maximum number of addresses remembered for a successful login; the oldest is evicted.
const KNOWN_MAX: usize = 1000;
/// Maximum number of pairs of address and e-mail.
const PAIRS_MAX: usize = 10_000;
/// Maximum length of an e-mail for which failures are counted.
const EMAIL_BYTES_MAX: usize = 254;

/// The verdict on a login attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) enum Try {
    /// The password may be checked.
    Go,
    /// The pair of address and e-mail is locked.
    Locked,
    /// The limit of attempts per second is reached.
    TooMany,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    locked: Option<Instant>,
}

/// The failures and attempts so far.
#[derive(Debug, Default)]
pub(in crate::control) struct Lockout {
    pairs: BTreeMap<(IpAddr, Box<str>), Failures>,
    /// Addresses from which a login has succeeded, newest last.
    known: VecDeque<IpAddr>,
    /// Attempts of each address in the current second, and the time at which that second began.
    tries: BTreeMap<IpAddr, u32>,
    since: Option<Instant>,
}

impl Lockout {
    /// Returns whether a password may be checked.
    pub(in crate::control) fn begin(&mut self, now: Instant, client: IpAddr, email: &str) -> Try {
        let key = key(client, email);
        if let Some(failures) = self.pairs.get(&key)
            && let Some(locked) = failures.locked
        {
            if now.saturating_duration_since(locked) <= LOCKED {
                return Try::Locked;
            }
            self.pairs.remove(&key);
        }
        let second = Duration::from_secs(1);
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= second) {
            self.since = Some(now);
            self.tries.clear();
        }
        let client = network(client);
        let kept = if self.known.contains(&client) { 0 } else { TRIES_KEPT };
        let tries: u32 = self.tries.values().sum();
        let of_address = self.tries.get(&client).copied().unwrap_or(0);
        let share = if client.is_loopback() { TRIES_PER_SECOND } else { TRIES_OF_ADDRESS };
        if tries.saturating_add(kept) >= TRIES_PER_SECOND || of_address >= share {
            return Try::TooMany;
        }
        self.tries.insert(client, of_address.saturating_add(1));
        Try::Go
    }

    /// True if the pair of address and e-mail was locked by concurrent attempts while this one was being checked.
    pub(in crate::control) fn is_locked(&self, client: IpAddr, email: &str) -> bool {
        self.pairs.get(&key(client, email)).is_some_and(|failures| failures.locked.is_some())
    }

    /// Notes a wrong password.
    pub(in crate::control) fn failed(&mut self, now: Instant, client: IpAddr, email: &str) {
        if email.len() > EMAIL_BYTES_MAX {
            return;
        }
        self.make_room(now);
        let failures = self.pairs.entry(key(client, email)).or_insert_with(|| Failures {
            count: 0,
            last: now,
            locked: None,
        });
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        if failures.count >= FAILURES && failures.locked.is_none() {
            failures.locked = Some(now);
        }
    }

    /// Notes a correct password.
    pub(in crate::control) fn succeeded(&mut self, client: IpAddr, email: &str) {
        self.pairs.remove(&key(client, email));
        let client = network(client);
        self.known.retain(|known| *known != client);
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(client);
    }

    /// Makes room in a full table: removes failures that are older than a lock lasts, or else the oldest one.
    fn make_room(&mut self, now: Instant) {
        if self.pairs.len() < PAIRS_MAX {
            return;
        }
        self.pairs.retain(|_, failures| now.saturating_duration_since(failures.last) <= LOCKED);
        if self.pairs.len() >= PAIRS_MAX
            && let Some(oldest) =
                self.pairs.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| key.clone())
        {
            self.pairs.remove(&oldest);
        }
    }
}

fn key(client: IpAddr, email: &str) -> (IpAddr, Box<str>) {
    (network(client), email.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_36_three_failures_lock_the_pair_and_nobody_else() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        for n in 0..3 {
            assert_eq!(lockout.begin(start, a, "x"), Try::Go, "{n}");
            lockout.failed(start, a, "x");
        }
        assert_eq!(lockout.begin(start, a, "x"), Try::Locked);
        let next = start + Duration::from_secs(1);
        assert_eq!((lockout.begin(next, b, "x"), lockout.begin(next, a, "y")), (Try::Go, Try::Go));
        assert!(lockout.is_locked(a, "x") && !lockout.is_locked(b, "x"));
        assert_eq!(lockout.begin(start + Duration::from_secs(300), a, "x"), Try::Locked);
        assert!(lockout.is_locked(a, "x"), "until the next try");
        assert_eq!(lockout.begin(start + Duration::from_secs(301), a, "x"), Try::Go);
        assert!(!lockout.is_locked(a, "x"));
    }

    #[test]
    fn r_36_a_success_forgets_and_a_network_is_one_client() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        let [a, b]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::ffff:2"].map(|text| text.parse().unwrap());
        lockout.failed(start, a, "x");
        lockout.failed(start, b, "x");
        lockout.succeeded(a, "x");
        lockout.failed(start, a, "x");
        assert!(!lockout.is_locked(a, "x"));
        lockout.failed(start, a, "x");
        lockout.failed(start, b, "x");
        assert!(lockout.is_locked(a, "x"));
    }

    #[test]
    fn r_36_ten_tries_a_second_for_all_with_shares_of_addresses() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        let client = |n: u8| IpAddr::from([192, 0, 2, n]);
        lockout.succeeded(client(200), "x");
        lockout.succeeded(client(201), "x");
        let mut tries =
            |from: u8| (0..100).filter(|_| lockout.begin(start, client(from), "x") == Try::Go).count();
        assert_eq!((tries(1), tries(2), tries(3)), (3, 3, 0), "shares, and what is kept");
        assert_eq!((tries(200), tries(201)), (3, 1), "it is for those who have logged in before");
        assert_eq!(lockout.begin(start + Duration::from_secs(1), client(1), "x"), Try::Go);
    }

    #[test]
    fn r_36_this_machine_has_all_tries_but_those_that_are_kept() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let tries = |lockout: &mut Lockout, second| {
            let now = start + Duration::from_secs(second);
            (0..100).filter(|_| lockout.begin(now, local, "x") == Try::Go).count()
        };
        assert_eq!(tries(&mut lockout, 0), 6);
        lockout.succeeded(local, "x");
        assert_eq!(tries(&mut lockout, 1), 10, "somebody has logged in from it");
    }

    #[test]
    fn r_36_a_flood_of_tries_from_one_address_keeps_no_administrator_out() {
        // Returns how many of an administrator's logins are let through: two a second for seven seconds, during a flood
        // of attempts from another address. With `known`, a login from the administrator's address has succeeded
        // before.
        let logins = |flood: u32, known: bool| {
            let (mut lockout, start) = (Lockout::default(), Instant::now());
            let [loud, admin]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
            if known {
                lockout.succeeded(admin, "a");
            }
            let mut served = 0;
            for n in 0..7 * 60 {
                let now = start + Duration::from_micros(n * 1_000_000 / 60);
                for try_ in 0..flood {
                    lockout.begin(now, loud, &format!("{n} {try_}"));
                }
                // Two attempts a second, each after those of the flood.
                if n % 30 == 29 {
                    served += u32::from(lockout.begin(now, admin, "a") == Try::Go);
                }
            }
            served
        };
        println!(
            "one address at 60 logins a second: served during the flood {} of 14, without it {}",
            logins(1, false),
            logins(0, false)
        );
        assert_eq!((logins(1, false), logins(1, true), logins(50, true)), (14, 14, 14));
    }

    #[test]
    fn known_addresses_are_bounded_and_the_last_ones_stay() {
        let mut lockout = Lockout::default();
        for n in 0..u32::try_from(KNOWN_MAX).unwrap() + 50 {
            lockout.succeeded(IpAddr::from(n.to_be_bytes()), "x");
            lockout.succeeded(IpAddr::from([9, 9, 9, 9]), "x");
        }
        assert_eq!(lockout.known.len(), KNOWN_MAX);
        assert!(lockout.known.contains(&IpAddr::from([9, 9, 9, 9])));
    }

    #[test]
    fn the_table_is_bounded() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        for n in 0..PAIRS_MAX as u64 + 50 {
            lockout.failed(start + Duration::from_millis(n), IpAddr::from([1, 2, 3, 4]), &n.to_string());
        }
        assert_eq!(lockout.pairs.len(), PAIRS_MAX);
        lockout.failed(start, IpAddr::from([1, 2, 3, 4]), &"x".repeat(255));
        assert_eq!(lockout.pairs.len(), PAIRS_MAX);
    }
}
