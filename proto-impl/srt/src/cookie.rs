//! Cookies for a port that accepts connections. A cookie proves that a caller can receive at its source address. The
//! port keeps no state for a caller before this proof.
//!
//! `HMAC-SHA256(secret; address, port, minute)`, cut to 32 bits. (libsrt hashes host, port and minute with MD5 and without
//! a secret, so an attacker who spoofs an address can compute the cookie.)

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crypto::{Seed, hmac_sha256};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes and checks cookies.
#[derive(Debug, Clone)]
pub(crate) struct Cookies {
    secret: [u8; 32],
    epoch: Instant,
}

impl Cookies {
    /// Creates a maker of cookies. Makers with the same secret and epoch accept each other's cookies.
    pub(crate) fn new(epoch: Instant, secret: &Seed) -> Self {
        let mut key = [0; 32];
        secret.derive("srt cookie", 0).random().fill(&mut key);
        Self { secret: key, epoch }
    }

    /// Returns the cookie of an address at `now`.
    pub(crate) fn make(&self, now: Instant, from: SocketAddr) -> u32 {
        self.of_minute(self.minute(now), from)
    }

    /// True if the cookie was made for this address in the current minute or the previous one. So a cookie is valid for
    /// one to two minutes.
    pub(crate) fn check(&self, now: Instant, from: SocketAddr, cookie: u32) -> bool {
        let minute = self.minute(now);
        self.of_minute(minute, from) == cookie
            || minute.checked_sub(1).is_some_and(|before| self.of_minute(before, from) == cookie)
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_secs() / MINUTE.as_secs()
    }

    fn of_minute(&self, minute: u64, from: SocketAddr) -> u32 {
        let address = match from.ip().to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let hash = hmac_sha256(&self.secret, &[&address, &from.port().to_be_bytes(), &minute.to_be_bytes()]);
        let [a, b, c, d, ..] = hash;
        // The result must not be zero, which is the cookie of an induction request.
        u32::from_be_bytes([a, b, c, d]).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netsim::{Clock, secs};

    #[test]
    fn s_03_a_cookie_is_for_one_address_and_two_minutes() {
        let clock = Clock::new();
        let cookies = Cookies::new(clock.now(), &Seed::from_number(1));
        let from: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let cookie = cookies.make(clock.at(secs(30)), from);
        for (at, good) in [(0, true), (59, true), (60, true), (119, true), (120, false), (6000, false)] {
            assert_eq!(cookies.check(clock.at(secs(at)), from, cookie), good, "{at}");
        }
        for other in ["192.0.2.1:5001", "192.0.2.2:5000", "[2001:db8::1]:5000"] {
            assert!(!cookies.check(clock.now(), other.parse().unwrap(), cookie), "{other}");
        }
        assert!(cookies.check(clock.now(), "[::ffff:192.0.2.1]:5000".parse().unwrap(), cookie));
        let other = Cookies::new(clock.now(), &Seed::from_number(2));
        assert_ne!(other.make(clock.now(), from), cookie);
        assert!(Cookies::new(clock.now(), &Seed::from_number(1)).check(clock.now(), from, cookie));
    }
}
