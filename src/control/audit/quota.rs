//! The quota of strangers in the audit log. Without a quota, requesters known only by an address could write so many
//! lines that the lines of others are removed from the log.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::auth::network;

/// Limit per address: maximum lines in a burst, and the interval after which one more is allowed.
const OF_ADDRESS: Rate = Rate { burst: 100, interval: Duration::from_secs(10) };
/// Limit of all strangers together. At this rate, two lines per second, a log of 500 MiB lasts for ten days.
const OF_ALL: Rate = Rate { burst: 2000, interval: Duration::from_millis(500) };
/// Maximum number of addresses that are counted. Lines of further addresses count only towards the total.
const ADDRESSES_MAX: usize = 10_000;
/// Interval at which the number of omitted lines is logged.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of lines in a burst, and the interval after which one more is allowed.
#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    interval: Duration,
}

/// The used part of a quota, as the time at which the whole quota is available again if no more lines are written.
#[derive(Debug, Clone, Copy)]
struct Used(Instant);

impl Used {
    fn has_room(self, now: Instant, rate: Rate) -> bool {
        self.0.saturating_duration_since(now).saturating_add(rate.interval)
            <= rate.interval.saturating_mul(rate.burst)
    }

    fn with_one(self, now: Instant, rate: Rate) -> Self {
        let from = self.0.max(now);
        Self(from.checked_add(rate.interval).unwrap_or(from))
    }
}

/// The quota of strangers.
#[derive(Debug, Default)]
pub(super) struct Quota {
    now: Option<Instant>,
    addresses: BTreeMap<IpAddr, Used>,
    all: Option<Used>,
    left_out: u64,
    told: Option<Instant>,
}

impl Quota {
    pub(super) const fn note_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns true if a line about this address may be written. Also returns, at intervals, the number of omitted
    /// lines.
    pub(super) fn take(&mut self, from: Option<IpAddr>) -> (bool, Option<u64>) {
        let Some(now) = self.now else { return (true, None) };
        let all = self.all.unwrap_or(Used(now));
        let address = from.map(network);
        let used = address.map(|address| self.addresses.get(&address).copied().unwrap_or(Used(now)));
        if !all.has_room(now, OF_ALL) || used.is_some_and(|used| !used.has_room(now, OF_ADDRESS)) {
            self.left_out = self.left_out.saturating_add(1);
            return (false, self.poll_left_out(now));
        }
        self.all = Some(all.with_one(now, OF_ALL));
        if let (Some(address), Some(used)) = (address, used) {
            self.remember(now, address, used.with_one(now, OF_ADDRESS));
        }
        (true, self.poll_left_out(now))
    }

    fn remember(&mut self, now: Instant, address: IpAddr, used: Used) {
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, used| used.0 > now);
        }
        if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&address) {
            self.addresses.insert(address, used);
        }
    }

    fn poll_left_out(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_EVERY);
        if self.left_out == 0 || !is_due {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> Option<IpAddr> {
        Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + (n << 8)).into())
    }

    #[test]
    fn each_address_has_a_share_and_all_have_a_sum() {
        let (mut quota, began) = (Quota::default(), Instant::now());
        quota.note_time(began);
        let taken = |quota: &mut Quota, of: u32, count: u32| {
            u32::try_from((0..count).filter(|_| quota.take(address(of)).0).count()).unwrap()
        };
        assert_eq!(taken(&mut quota, 1, 1000), 100);
        assert_eq!(taken(&mut quota, 2, 50), 50, "others have theirs");
        let rest: u32 = (3..100).map(|of| taken(&mut quota, of, 100)).sum();
        assert_eq!(rest, 2000 - 150, "and all together have a sum");
        quota.note_time(began + Duration::from_secs(20));
        assert_eq!(taken(&mut quota, 1, 10), 2);
        assert_eq!(taken(&mut quota, 2, 100), 38, "forty a second later, of all");
        quota.note_time(began + Duration::from_secs(3600));
        assert_eq!(taken(&mut quota, 1, 1000), 100);
        assert!(quota.addresses.len() < ADDRESSES_MAX);
    }

    #[test]
    fn what_is_left_out_is_counted_and_told_once_a_minute() {
        let (mut quota, began) = (Quota::default(), Instant::now());
        quota.note_time(began);
        let told: Vec<u64> = (0..500).filter_map(|_| quota.take(address(1)).1).collect();
        assert_eq!(told, [1], "the first at once");
        quota.note_time(began + Duration::from_secs(61));
        assert_eq!(quota.take(address(1)), (true, Some(399)));
        assert_eq!(quota.take(address(2)), (true, None));
    }

    #[test]
    fn a_table_that_is_full_of_addresses_takes_new_ones_when_old_ones_are_over() {
        let (mut quota, began) = (Quota::default(), Instant::now());
        for n in 0..30_000 {
            quota.note_time(began + Duration::from_millis(600) * n);
            assert!(quota.take(address(n)).0, "{n}");
            assert!(quota.addresses.len() <= ADDRESSES_MAX);
        }
    }
}
