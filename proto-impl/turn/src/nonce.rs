//! Stateless nonces: an expiry time, and a MAC of that time and the client's address.

use std::net::{IpAddr, SocketAddr};

use crypto::{Seed, constant_time_eq};

use crate::limits::NONCE_LIFETIME;

/// Length of the expiry time, in characters.
const TIME_CHARS: usize = 10;
/// Length of the MAC, in bytes.
const MAC_BYTES: usize = 8;

/// Makes and verifies nonces.
#[derive(Clone)]
pub(crate) struct Nonces {
    key: [u8; 32],
}

impl Nonces {
    pub(crate) fn new(seed: &Seed) -> Self {
        let mut key = [0; 32];
        seed.derive("TURN nonces", 0).random().fill(&mut key);
        Self { key }
    }

    /// Makes a nonce for a client; the current time is in seconds since 1970.
    pub(crate) fn make(&self, unix: u64, client: SocketAddr) -> String {
        self.until(unix.saturating_add(NONCE_LIFETIME.as_secs()), client)
    }

    /// True if a nonce was made for the client and has not expired.
    pub(crate) fn is_fresh(&self, nonce: &[u8], unix: u64, client: SocketAddr) -> bool {
        let until = nonce.get(..TIME_CHARS).and_then(|time| std::str::from_utf8(time).ok());
        let Some(until) = until.and_then(|time| u64::from_str_radix(time, 16).ok()) else { return false };
        until > unix && constant_time_eq(self.until(until, client).as_bytes(), nonce)
    }

    fn until(&self, until: u64, client: SocketAddr) -> String {
        let time = format!("{until:0TIME_CHARS$x}");
        let address = match client.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let parts: [&[u8]; 3] = [time.as_bytes(), &address, &client.port().to_be_bytes()];
        let mac = crypto::hmac_sha256(&self.key, &parts);
        mac.iter().take(MAC_BYTES).fold(time, |text, byte| format!("{text}{byte:02x}"))
    }
}

/// Never prints the key.
impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonces(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v_05_a_nonce_is_of_one_address_and_one_hour() {
        let (one, other) = ("192.0.2.1:5000".parse().unwrap(), "192.0.2.1:5001".parse().unwrap());
        let nonces = Nonces::new(&Seed::from_number(1));
        let nonce = nonces.make(1000, one);
        assert!(nonces.is_fresh(nonce.as_bytes(), 1000, one) && nonces.is_fresh(nonce.as_bytes(), 4599, one));
        assert!(!nonces.is_fresh(nonce.as_bytes(), 4600, one), "an old one");
        assert!(!nonces.is_fresh(nonce.as_bytes(), 1000, other), "of another address");
        assert!(!Nonces::new(&Seed::from_number(2)).is_fresh(nonce.as_bytes(), 1000, one), "of another key");
        for at in 0..nonce.len() {
            let mut changed = nonce.clone().into_bytes();
            changed[at] ^= 1;
            assert!(!nonces.is_fresh(&changed, 1000, one), "byte {at}");
        }
        for bad in ["", "0", "00000000zz0123456789abcdef", &nonce[1..], &format!("{nonce}0")] {
            assert!(!nonces.is_fresh(bad.as_bytes(), 1000, one), "{bad}");
        }
    }
}
