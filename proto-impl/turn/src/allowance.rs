//! Limits answers to clients whose addresses are not verified, with a table of fixed size.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crypto::Seed;

use crate::limits::{UNPROVED_ANSWERS, UNPROVED_ANSWERS_TOTAL, UNPROVED_BURST, UNPROVED_NETWORKS};

/// The generic cell rate algorithm (ITU-T I.371). Stores the time until which the usage so far is paid for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    paid_at: Instant,
}

impl Rate {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { paid_at: now }
    }

    /// Charges something that costs `price` of time. Returns false, and charges nothing, if the debt would
    /// exceed `burst`.
    pub(crate) fn take(&mut self, now: Instant, price: Duration, burst: Duration) -> bool {
        let from = self.paid_at.max(now);
        let Some(paid_at) = from.checked_add(price) else { return false };
        let has_room = paid_at.saturating_duration_since(now) <= burst;
        if has_room {
            self.paid_at = paid_at;
        }
        has_room
    }
}

/// Returns the network of an address, the unit to which limits apply: the address itself, or the first 64 bits
/// of an IPv6 address.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[derive(Debug)]
pub(crate) struct Allowance {
    key: [u8; 32],
    networks: Vec<Rate>,
    total: Rate,
}

impl Allowance {
    pub(crate) fn new(now: Instant, seed: &Seed) -> Self {
        let mut key = [0; 32];
        seed.derive("TURN networks", 0).random().fill(&mut key);
        Self { key, networks: vec![Rate::new(now); UNPROVED_NETWORKS], total: Rate::new(now) }
    }

    /// Returns true if a client at this address may be answered now, and counts the answer. Loopback addresses
    /// are exempt.
    pub(crate) fn take(&mut self, now: Instant, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        let octets = match network(ip) {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let [a, b, c, d, ..] = crypto::hmac_sha256(&self.key, &[&octets]);
        let slots = u32::try_from(self.networks.len()).unwrap_or(u32::MAX);
        let slot = u32::from_be_bytes([a, b, c, d]).checked_rem(slots).unwrap_or(0);
        let Some(of_network) = usize::try_from(slot).ok().and_then(|at| self.networks.get_mut(at)) else {
            return false;
        };
        let price = Duration::from_secs(1) / UNPROVED_ANSWERS;
        of_network.take(now, price, price * UNPROVED_BURST)
            && self.total.take(now, Duration::from_secs(1) / UNPROVED_ANSWERS_TOTAL, Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v_02_a_network_is_answered_so_often_and_all_of_them_so_often() {
        let mut clock = netsim::Clock::new();
        let mut allowance = Allowance::new(clock.now(), &Seed::from_number(1));
        let taken = |allowance: &mut Allowance, now, ip: &str, count: u32| {
            let ip = ip.parse().unwrap();
            (0..count).filter(|_| allowance.take(now, ip)).count()
        };
        assert_eq!(taken(&mut allowance, clock.now(), "192.0.2.1", 1000), 100);
        assert_eq!(taken(&mut allowance, clock.now(), "192.0.2.2", 50), 50, "another address");
        assert_eq!(taken(&mut allowance, clock.now(), "2001:db8::1", 1000), 100);
        assert_eq!(taken(&mut allowance, clock.now(), "2001:db8::2", 10), 0, "the same /64");
        assert_eq!(taken(&mut allowance, clock.now(), "127.0.0.1", 1000), 1000, "this machine");
        clock.advance(Duration::from_secs(1));
        assert_eq!(taken(&mut allowance, clock.now(), "192.0.2.1", 1000), 20);
        // Forged source addresses, each in another network.
        let mut total = 0;
        for n in 0..100_000u32 {
            total += usize::from(allowance.take(clock.now(), IpAddr::from((0x0a00_0000 + n).to_be_bytes())));
        }
        assert_eq!(total, 1980);
        assert_eq!(allowance.networks.len(), UNPROVED_NETWORKS);
    }
}
