//! The state cookie (RFC 9260 §5.1.3), which is sent in `INIT ACK` so that the server need not keep state.
//!
//! The cookie contains the results of the handshake, and their `HMAC-SHA256` with a key of the association.

use std::time::{Duration, Instant};

use crypto::{Seed, constant_time_eq, hmac_sha256};
use wire::{Reader, Writer};

use crate::init::{Extensions, Init};

const MAC_BYTES: usize = 32;

/// Negotiated parameters of the peer's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) tag: u32,
    pub(crate) tsn: u32,
    pub(crate) window: u32,
    /// Number of streams that the peer accepts from us.
    pub(crate) streams: u16,
    pub(crate) extensions: Extensions,
}

impl Agreed {
    pub(crate) const fn of(init: &Init<'_>) -> Self {
        Self {
            tag: init.tag,
            tsn: init.tsn,
            window: init.window,
            streams: init.incoming,
            extensions: init.extensions,
        }
    }
}

/// Result of checking a returned cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Good(Agreed),
    /// The cookie is authentic, but expired this long ago.
    Stale(Duration),
    Forged,
}

/// Makes and checks cookies.
#[derive(Debug, Clone)]
pub(crate) struct Cookies {
    key: [u8; 32],
    epoch: Instant,
}

impl Cookies {
    pub(crate) fn new(epoch: Instant, seed: &Seed) -> Self {
        let mut key = [0; 32];
        seed.derive("sctp cookie", 0).random().fill(&mut key);
        Self { key, epoch }
    }

    pub(crate) fn make(&self, now: Instant, agreed: &Agreed) -> Vec<u8> {
        let age = now.saturating_duration_since(self.epoch).as_millis();
        let mut writer = Writer::new();
        writer.u64(u64::try_from(age).unwrap_or(u64::MAX));
        writer.u32(agreed.tag).u32(agreed.tsn).u32(agreed.window).u16(agreed.streams);
        writer.u8(u8::from(agreed.extensions.forward_tsn)).u8(u8::from(agreed.extensions.reset));
        let mut cookie = writer.take().to_vec();
        let mac = hmac_sha256(&self.key, &[&cookie]);
        cookie.extend_from_slice(&mac);
        cookie
    }

    pub(crate) fn check(&self, now: Instant, lifetime: Duration, cookie: &[u8]) -> Checked {
        let content = cookie.len().checked_sub(MAC_BYTES).and_then(|length| cookie.split_at_checked(length));
        let Some((content, mac)) = content else { return Checked::Forged };
        if !constant_time_eq(&hmac_sha256(&self.key, &[content]), mac) {
            return Checked::Forged;
        }
        let Some((made, agreed)) = read(content) else { return Checked::Forged };
        let age = now.saturating_duration_since(self.epoch).saturating_sub(made);
        if age > lifetime { Checked::Stale(age.saturating_sub(lifetime)) } else { Checked::Good(agreed) }
    }
}

fn read(content: &[u8]) -> Option<(Duration, Agreed)> {
    let mut reader = Reader::new(content);
    let made = Duration::from_millis(reader.u64().ok()?);
    let agreed = Agreed {
        tag: reader.u32().ok()?,
        tsn: reader.u32().ok()?,
        window: reader.u32().ok()?,
        streams: reader.u16().ok()?,
        extensions: Extensions { forward_tsn: reader.u8().ok()? == 1, reset: reader.u8().ok()? == 1 },
    };
    Some((made, agreed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netsim::{Clock, secs};

    #[test]
    fn a_cookie_is_taken_back_whole_in_time_and_by_its_maker() {
        let clock = Clock::new();
        let cookies = Cookies::new(clock.now(), &Seed::from_number(1));
        let extensions = Extensions { forward_tsn: true, reset: false };
        let agreed = Agreed { tag: 1, tsn: 2, window: 3, streams: 4, extensions };
        let cookie = cookies.make(clock.at(secs(5)), &agreed);
        let check = |at, cookie: &[u8]| cookies.check(clock.at(secs(at)), secs(60), cookie);
        assert_eq!(check(5, &cookie), Checked::Good(agreed));
        assert_eq!(check(65, &cookie), Checked::Good(agreed));
        assert_eq!(check(66, &cookie), Checked::Stale(secs(1)));
        for at in 0..cookie.len() * 8 {
            let mut turned = cookie.clone();
            turned[at / 8] ^= 1 << (at % 8);
            assert_eq!(check(5, &turned), Checked::Forged, "{at}");
        }
        for length in 0..cookie.len() {
            assert_eq!(check(5, &cookie[..length]), Checked::Forged, "{length}");
        }
        let other = Cookies::new(clock.now(), &Seed::from_number(2));
        assert_eq!(other.check(clock.now(), secs(60), &cookie), Checked::Forged);
    }
}
