//! Failed logins: per address and e-mail, so that nobody can lock somebody else out, and ten tries a second for
//! everybody together (docs/robustness.md R-36).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Failures that lock.
const FAILURES: u32 = 3;
/// The duration of a lock.
const LOCKED: Duration = Duration::from_secs(300);
/// Tries per second, and how many may come at once.
const TRIES_PER_SECOND: u32 = 10;
/// Pairs that are remembered.
const PAIRS_MAX: usize = 10_000;
/// Bytes of an e-mail that is worth remembering.
const EMAIL_BYTES_MAX: usize = 254;

/// The verdict on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) enum Try {
    /// Check the password.
    Go,
    /// Locked.
    Locked,
    /// Too many of everybody's.
    TooMany,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    locked: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Lockout {
    pairs: BTreeMap<(IpAddr, Box<str>), Failures>,
    tries: u32,
    since: Option<Instant>,
}

impl Lockout {
    /// Asks before a password is checked.
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
            (self.since, self.tries) = (Some(now), 0);
        }
        if self.tries >= TRIES_PER_SECOND {
            return Try::TooMany;
        }
        self.tries += 1;
        Try::Go
    }

    /// Whether the pair was locked meanwhile: tries that run at the same time do not get more than their number.
    pub(in crate::control) fn is_locked(&self, client: IpAddr, email: &str) -> bool {
        self.pairs.get(&key(client, email)).is_some_and(|failures| failures.locked.is_some())
    }

    /// The password was wrong.
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

    /// The password was right.
    pub(in crate::control) fn succeeded(&mut self, client: IpAddr, email: &str) {
        self.pairs.remove(&key(client, email));
    }

    /// Makes room in a full table; at ten attempts a second it is older than any lock in it.
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

/// An IPv6 host has a whole /64 to ask from.
fn key(client: IpAddr, email: &str) -> (IpAddr, Box<str>) {
    let client = match client.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    };
    (client, email.into())
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
        assert_eq!((lockout.begin(start, b, "x"), lockout.begin(start, a, "y")), (Try::Go, Try::Go));
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
    fn r_36_ten_tries_a_second_for_all() {
        let (mut lockout, start) = (Lockout::default(), Instant::now());
        let client = |n: u8| IpAddr::from([192, 0, 2, n]);
        let tries = (0..100).filter(|n| lockout.begin(start, client(*n), "x") == Try::Go).count();
        assert_eq!(tries, 10);
        assert_eq!(lockout.begin(start + Duration::from_secs(1), client(1), "x"), Try::Go);
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
