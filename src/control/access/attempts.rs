//! Failed time codes: six digits are quickly guessed if attempts are unlimited.
//!
//! Wrong codes are counted for a minute, in three ways: per address and subscriber, so that nobody can lock out a
//! subscriber at another address; per address, because a client could otherwise make up a new subscriber for each
//! guess; and per stream. A client that has reached a limit is refused without checking or counting its code. A stream
//! that many addresses are attacking still accepts codes from addresses without a wrong one.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::auth::access::{Credentials, Params};
use crate::auth::network;
use crate::types::{Now, StreamKey};

/// Maximum wrong codes of one address for one subscriber.
const OF_SUBSCRIBER_MAX: u32 = 10;
/// Maximum wrong codes of one address, which many viewers may share, within [`WINDOW`]. Guessing one of a million codes
/// at this rate takes days.
const OF_ADDRESS_MAX: u32 = 60;
/// Maximum wrong codes of one IPv6 site (/48), which contains 65 536 networks of hosts (/64).
const OF_SITE_MAX: u32 = 600;
/// Once a stream has this many wrong codes, addresses with at least one wrong code are refused.
const OF_STREAM_MAX: u32 = 1000;
/// Time over which wrong codes are counted, from the first one.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum entries of each table; the oldest is evicted.
const REMEMBERED_MAX: usize = 10_000;
/// Prefix length of an IPv6 site (RFC 6177).
const SITE_BITS: u32 = 48;

/// Counts of wrong codes.
#[derive(Debug, Default)]
pub(in crate::control) struct CodeAttempts {
    subscribers: Counts<(StreamKey, Box<str>, IpAddr)>,
    addresses: Counts<IpAddr>,
    sites: Counts<IpAddr>,
    streams: Counts<StreamKey>,
}

impl CodeAttempts {
    /// True if the limit of this address, or of this stream, is reached.
    pub(super) fn is_over(&self, now: Now, key: &StreamKey, subscriber: Option<&str>, peer: IpAddr) -> bool {
        let now = now.mono;
        let host = network(peer);
        let of_address = self.addresses.count(now, &host);
        of_address >= OF_ADDRESS_MAX
            || site(peer).is_some_and(|site| self.sites.count(now, &site) >= OF_SITE_MAX)
            || (of_address > 0 && self.streams.count(now, key) >= OF_STREAM_MAX)
            || subscriber.is_some_and(|subscriber| {
                self.subscribers.count(now, &(key.clone(), subscriber.into(), host)) >= OF_SUBSCRIBER_MAX
            })
    }

    /// Counts a wrong code, unless its client has reached a limit.
    pub(in crate::control) fn note(&mut self, now: Now, key: &StreamKey, params: &Params, peer: IpAddr) {
        let Some(subscriber) = Credentials::of(params).subscriber else { return };
        if self.is_over(now, key, Some(subscriber), peer) {
            return;
        }
        let (now, host) = (now.mono, network(peer));
        self.subscribers.add(now, (key.clone(), subscriber.into(), host));
        self.addresses.add(now, host);
        if let Some(site) = site(peer) {
            self.sites.add(now, site);
        }
        self.streams.add(now, key.clone());
    }
}

/// Returns the site of an IPv6 address; `None` for IPv4.
fn site(peer: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = peer.to_canonical() else { return None };
    let others = Ipv6Addr::BITS - SITE_BITS;
    Some(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> others << others)))
}

#[derive(Debug)]
struct Wrong {
    since: Instant,
    count: u32,
}

/// Counts of wrong codes, each under a key: an address, a site, or an address with a subscriber.
#[derive(Debug)]
struct Counts<K> {
    wrong: BTreeMap<K, Wrong>,
    /// Keys in the order in which their counts began. Each key occurs once.
    order: VecDeque<K>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { wrong: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone> Counts<K> {
    fn count(&self, now: Instant, who: &K) -> u32 {
        let wrong = self.wrong.get(who).filter(|wrong| wrong.counts(now));
        wrong.map_or(0, |wrong| wrong.count)
    }

    fn add(&mut self, now: Instant, who: K) {
        while let Some(oldest) = self.order.front()
            && (self.wrong.len() >= REMEMBERED_MAX
                || self.wrong.get(oldest).is_none_or(|wrong| !wrong.counts(now)))
        {
            self.wrong.remove(oldest);
            self.order.pop_front();
        }
        if !self.wrong.contains_key(&who) {
            self.order.push_back(who.clone());
        }
        let wrong = self.wrong.entry(who).or_insert(Wrong { since: now, count: 0 });
        wrong.count = wrong.count.saturating_add(1);
    }
}

impl Wrong {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        attempts: CodeAttempts,
        now: Now,
    }

    impl Rig {
        fn new() -> Self {
            Self { attempts: CodeAttempts::default(), now: Now { mono: Instant::now(), wall_ms: 0 } }
        }

        fn is_over(&self, stream: &str, subscriber: &str, peer: &str) -> bool {
            let key = StreamKey::new("live", stream);
            self.attempts.is_over(self.now, &key, Some(subscriber), peer.parse().unwrap())
        }

        /// Makes guesses, and returns how many of them were checked.
        fn guess(&mut self, times: u32, who: impl Fn(u32) -> (String, String, String)) -> u32 {
            (0..times).fold(0, |looked_at, n| {
                let (stream, subscriber, peer) = who(n);
                let refused = self.is_over(&stream, &subscriber, &peer);
                let params = vec![("subscriberId".to_owned(), subscriber)];
                let key = StreamKey::new("live", &stream);
                self.attempts.note(self.now, &key, &params, peer.parse().unwrap());
                looked_at + u32::from(!refused)
            })
        }
    }

    fn who(stream: &str, subscriber: &str, peer: &str) -> (String, String, String) {
        (stream.to_owned(), subscriber.to_owned(), peer.to_owned())
    }

    #[test]
    fn ids_that_are_made_up_bring_no_new_attempts() {
        let mut rig = Rig::new();
        assert_eq!(rig.guess(20_000, |n| who("s", &format!("made-up-{n}"), "192.0.2.1")), OF_ADDRESS_MAX);
        assert!(rig.is_over("s", "alice", "192.0.2.1") && rig.is_over("other", "alice", "192.0.2.1"));
        assert!(!rig.is_over("s", "alice", "192.0.2.2"), "others are not kept out");
        rig.now.mono += WINDOW;
        assert!(!rig.is_over("s", "alice", "192.0.2.1"), "a minute later it may try again");
    }

    #[test]
    fn nothing_washes_a_refusal_away() {
        let mut rig = Rig::new();
        rig.guess(OF_SUBSCRIBER_MAX, |_| who("s", "alice", "192.0.2.1"));
        assert!(rig.is_over("s", "alice", "192.0.2.1"));
        // Refused guesses must not displace the locked client's entry: another address makes up more subscribers than
        // the table holds, and the locked client itself guesses on.
        rig.guess(20_000, |n| who("s", &format!("made-up-{n}"), "192.0.2.7"));
        rig.guess(20_000, |_| who("s", "alice", "192.0.2.1"));
        assert!(rig.is_over("s", "alice", "192.0.2.1"));
        // Entries are evicted in the order in which they began. The entry of the locked client stays as long as the
        // table is not full of newer entries.
        let addresses = u32::try_from(REMEMBERED_MAX).unwrap() - 100;
        rig.guess(addresses, |n| who(&format!("s{n}"), "x", &format!("10.{}.{}.1", n >> 8, n & 255)));
        assert!(rig.is_over("s", "alice", "192.0.2.1"));
        assert!(rig.attempts.addresses.wrong.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn an_ipv6_host_is_its_prefix_and_a_site_has_a_limit() {
        let mut rig = Rig::new();
        let host = |n: u32| who("s", &n.to_string(), &format!("2001:db8:0:1::{n:x}"));
        assert_eq!(rig.guess(1000, host), OF_ADDRESS_MAX);
        let site = |n: u32| who(&n.to_string(), "x", &format!("2001:db8:7:{n:x}::1"));
        assert_eq!(rig.guess(2000, site), OF_SITE_MAX);
        assert!(!rig.is_over("s", "x", "2001:db8:8::1"));
        let mapped = |n: u32| who("s", &n.to_string(), "::ffff:192.0.2.9");
        rig.guess(OF_ADDRESS_MAX, mapped);
        assert!(rig.is_over("s", "x", "192.0.2.9") && !rig.is_over("s", "x", "192.0.2.10"));
    }

    #[test]
    fn a_stream_that_many_guess_at_takes_codes_of_those_who_did_not() {
        let mut rig = Rig::new();
        let many = |n: u32| who("s", "alice", &format!("10.0.{}.{}", (n / 9) >> 8, (n / 9) & 255));
        assert_eq!(rig.guess(OF_STREAM_MAX, many), OF_STREAM_MAX, "nine of each address");
        assert!(rig.is_over("s", "alice", "10.0.0.0"), "one with a wrong code");
        assert!(!rig.is_over("s", "alice", "192.0.2.1") && !rig.is_over("t", "alice", "10.0.0.0"));
    }
}
