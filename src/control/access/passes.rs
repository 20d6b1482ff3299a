//! Passes: viewers that watch by separate requests, and were let in. Each request renews its pass; without one it ends, and the
//! viewer is checked anew. So a one-time token is used up once, and a time code has to be right once.
//!
//! The table is bounded, in all and for each address, so that one peer cannot keep others out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::auth::network;
use crate::types::StreamKey;

/// How long a pass lasts after a request. Workers ask again sooner.
const LASTS: Duration = Duration::from_secs(30);
/// Passes in all, and of one network.
const PASSES_MAX: usize = 100_000;
const PASSES_OF_ADDRESS_MAX: usize = 10_000;

/// Whom a pass is for.
type Holder = (StreamKey, &'static str, String);

#[derive(Debug)]
struct Pass {
    until: Instant,
    address: IpAddr,
    /// The `subscriberId` that was shown.
    subscriber: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Passes {
    passes: BTreeMap<Holder, Pass>,
    ends: BTreeSet<(Instant, Holder)>,
    addresses: BTreeMap<IpAddr, usize>,
    counts: BTreeMap<(StreamKey, &'static str), u32>,
}

impl Passes {
    /// Whether a viewer has a pass, which now lasts longer.
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
        let Some(pass) = self.passes.get_mut(&holder).filter(|pass| pass.address == network(address)) else {
            return false;
        };
        let until = now.checked_add(LASTS).unwrap_or(now);
        self.ends.remove(&(std::mem::replace(&mut pass.until, until), holder.clone()));
        self.ends.insert((until, holder));
        true
    }

    /// Gives a pass. False when there are too many.
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
        let of_address = self.addresses.get(&address).copied().unwrap_or(0);
        if self.passes.len() >= PASSES_MAX || of_address >= PASSES_OF_ADDRESS_MAX {
            return false;
        }
        let until = now.checked_add(LASTS).unwrap_or(now);
        self.addresses.insert(address, of_address.saturating_add(1));
        let count = self.counts.entry((key.clone(), egress)).or_default();
        *count = count.saturating_add(1);
        self.ends.insert((until, holder.clone()));
        self.passes.insert(holder, Pass { until, address, subscriber: subscriber.map(str::to_owned) });
        true
    }

    /// Viewers of a stream by a protocol that have a pass.
    pub(super) fn count(&self, key: &StreamKey, egress: &'static str) -> u32 {
        self.counts.get(&(key.clone(), egress)).copied().unwrap_or(0)
    }

    /// A subscriber of a stream is let in no more.
    pub(super) fn end_subscriber(&mut self, key: &StreamKey, subscriber: &str) {
        let is_of = |(holder, pass): &(&Holder, &Pass)| {
            holder.0 == *key && pass.subscriber.as_deref() == Some(subscriber)
        };
        let of: Vec<Holder> = self.passes.iter().filter(is_of).map(|(holder, _)| holder.clone()).collect();
        of.iter().for_each(|holder| self.end(holder));
    }

    fn end_old(&mut self, now: Instant) {
        while let Some((_, holder)) = self.ends.first().filter(|(until, _)| *until <= now).cloned() {
            self.end(&holder);
        }
    }

    fn end(&mut self, holder: &Holder) {
        let Some(pass) = self.passes.remove(holder) else { return };
        self.ends.remove(&(pass.until, holder.clone()));
        let (key, egress, _) = holder;
        lower(&mut self.addresses, pass.address, 1);
        lower(&mut self.counts, (key.clone(), *egress), 1);
    }
}

/// Takes from a count, which goes when nothing is left.
fn lower<K: Ord, N: Copy + Ord + From<u8> + std::ops::Sub<Output = N>>(
    counts: &mut BTreeMap<K, N>,
    key: K,
    by: N,
) {
    match counts.get_mut(&key) {
        Some(count) if *count > by => *count = *count - by,
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
        assert!(passes.passes.is_empty() && passes.ends.is_empty());
        assert!(passes.addresses.is_empty() && passes.counts.is_empty());
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
        assert_eq!(all, PASSES_MAX - PASSES_OF_ADDRESS_MAX - 1);
    }
}
