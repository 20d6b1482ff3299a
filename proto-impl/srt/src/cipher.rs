//! Keys of a connection: encryption and decryption of payload with AES-CTR, and the key refresh
//! (draft-sharabayko-srt-01 §6.1.6, §6.2, §6.3).
//!
//! 1. The caller draws a salt and the even key and sends both in its conclusion. The listener sends them back. From
//!    then on both directions use this key, as in libsrt. So two sides that both send media use the same key stream
//!    until each has refreshed its key. (Live media is sent in one direction only.)
//! 2. `key_announce_packets` packets before a key is used up, the sender draws the next key. It announces both keys in
//!    a message, which it repeats until the peer sends it back.
//! 3. When a key is used up, the sender changes to the next key. If the peer has not confirmed that key yet, the sender
//!    waits for the confirmation.
//! 4. Retransmitted packets keep their key, so the key after the next is drawn only when no packet encrypted with the
//!    old key is left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{AesCtr, Random};

use crate::config::{KeyLength, Passphrase};
use crate::km::{self, Kek, KeyMaterial, Keys, KmError, Parity, SALT_BYTES, Sek};
use crate::packet::KeyFlag;
use crate::seq::Seq;

/// Minimum time between two key derivations for one peer, because a key message with a new salt costs a millisecond of
/// work.
const DERIVATION_PAUSE: Duration = Duration::from_secs(1);
/// Number of replaced keys that are remembered. With the default settings they cover more than a day, at a thousand
/// packets per second.
const RETIRED_MAX: usize = 8;

/// A key that is expanded on first use: a connection that only sends never expands its receive keys.
#[derive(Debug)]
struct Key {
    sek: Sek,
    cipher: Option<AesCtr>,
}

impl Key {
    const fn new(sek: Sek) -> Self {
        Self { sek, cipher: None }
    }

    fn apply(&mut self, counter: [u8; 16], in_out: &mut [u8]) -> bool {
        if self.cipher.is_none() {
            self.cipher = AesCtr::new(self.sek.bytes());
        }
        let Some(cipher) = &self.cipher else { return false };
        cipher.apply(counter, in_out);
        true
    }
}

/// The keys of one direction.
#[derive(Debug)]
struct Direction {
    salt: [u8; SALT_BYTES],
    kek: Kek,
    even: Option<Key>,
    odd: Option<Key>,
}

impl Direction {
    fn new(salt: [u8; SALT_BYTES], kek: Kek, keys: Keys) -> Self {
        Self { salt, kek, even: keys.even.map(Key::new), odd: keys.odd.map(Key::new) }
    }

    const fn key(&mut self, parity: Parity) -> &mut Option<Key> {
        match parity {
            Parity::Even => &mut self.even,
            Parity::Odd => &mut self.odd,
        }
    }

    /// The counter block: the salt's first 112 bits, with the packet's sequence number XORed over the last 32 of them,
    /// and then a counter of blocks (§6.2.2).
    fn counter(&self, seq: Seq) -> [u8; 16] {
        let salt = u128::from_be_bytes(self.salt) & !0xffff;
        (salt ^ (u128::from(seq.value()) << 16)).to_be_bytes()
    }

    fn apply(&mut self, parity: Parity, seq: Seq, in_out: &mut [u8]) -> bool {
        let counter = self.counter(seq);
        self.key(parity).as_mut().is_some_and(|key| key.apply(counter, in_out))
    }

    fn keys(&self) -> Keys {
        let sek = |key: &Option<Key>| key.as_ref().map(|key| key.sek.clone());
        Keys { even: sek(&self.even), odd: sek(&self.odd) }
    }
}

/// The next sending key, which is announced to the peer before its first use.
#[derive(Debug)]
struct Successor {
    message: Bytes,
    told_at: Option<Instant>,
    known: bool,
}

/// Schedule of key changes, counted in packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refresh {
    pub(crate) packets: u64,
    pub(crate) announce: u64,
}

/// The keys of both directions.
#[derive(Debug)]
pub(crate) struct SessionKeys {
    length: KeyLength,
    passphrase: Passphrase,
    send: Direction,
    receive: Direction,
    current: Parity,
    packets: u64,
    successor: Option<Successor>,
    refreshes: u64,
    random: Random,
    derived_at: Option<Instant>,
    /// Keys of the peer that were replaced. They are remembered so that a replayed key message cannot bring them back.
    retired: VecDeque<Sek>,
}

impl SessionKeys {
    /// Creates a caller's keys: a fresh salt and a fresh key.
    pub(crate) fn draw(passphrase: &Passphrase, length: KeyLength, mut random: Random) -> Self {
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt);
        let keys = Keys { even: Some(Sek::draw(&mut random, length)), odd: None };
        Self::new(passphrase, length, salt, Kek::derive(passphrase, &salt, length), keys, random)
    }

    /// Creates a listener's keys from the caller's key material message. Fails if the passphrase does not open it.
    pub(crate) fn open(passphrase: &Passphrase, message: &[u8], random: Random) -> Result<Self, KmError> {
        let km = KeyMaterial::read(message)?;
        let kek = Kek::derive(passphrase, km.salt(), km.key_length());
        let keys = km.unwrap(&kek)?;
        Ok(Self::new(passphrase, km.key_length(), *km.salt(), kek, keys, random))
    }

    fn new(
        passphrase: &Passphrase,
        length: KeyLength,
        salt: [u8; SALT_BYTES],
        kek: Kek,
        keys: Keys,
        random: Random,
    ) -> Self {
        let current = if keys.even.is_some() { Parity::Even } else { Parity::Odd };
        Self {
            length,
            passphrase: passphrase.clone(),
            send: Direction::new(salt, kek.clone(), keys.clone()),
            receive: Direction::new(salt, kek, keys),
            current,
            packets: 0,
            successor: None,
            refreshes: 0,
            random,
            derived_at: None,
            retired: VecDeque::new(),
        }
    }

    pub(crate) const fn length(&self) -> KeyLength {
        self.length
    }

    /// The number of times the sending key has changed.
    pub(crate) const fn refreshes(&self) -> u64 {
        self.refreshes
    }

    /// The key material message with the sending keys.
    pub(crate) fn message(&self) -> Vec<u8> {
        km::write(&self.send.kek, &self.send.salt, &self.send.keys()).unwrap_or_default()
    }

    /// Encrypts the payload and appends it to `out`. Uses the `Even` or `Odd` key if `key` names one, otherwise the
    /// current key. Returns the key used.
    pub(crate) fn seal(&mut self, key: KeyFlag, seq: Seq, payload: &[u8], out: &mut Vec<u8>) -> KeyFlag {
        let parity = match key {
            KeyFlag::Even => Parity::Even,
            KeyFlag::Odd => Parity::Odd,
            KeyFlag::Clear | KeyFlag::Both => self.current,
        };
        let from = out.len();
        out.extend_from_slice(payload);
        let body = out.get_mut(from..).unwrap_or_default();
        if !self.send.apply(parity, seq, body) {
            body.fill(0);
        }
        flag(parity)
    }

    /// Returns the key that encrypts packets sent for the first time.
    pub(crate) const fn current(&self) -> KeyFlag {
        flag(self.current)
    }

    /// Counts a packet sent for the first time, which may start or complete a change of keys. `oldest` is the key of
    /// the oldest packet that may still be retransmitted.
    pub(crate) fn count(&mut self, refresh: Refresh, oldest: KeyFlag) {
        self.packets = self.packets.saturating_add(1);
        match &self.successor {
            None if self.packets.saturating_add(refresh.announce) >= refresh.packets
                && oldest == flag(self.current) =>
            {
                self.announce();
            }
            Some(successor) if successor.known && self.packets >= refresh.packets => {
                self.current = self.current.other();
                self.packets = 0;
                self.refreshes = self.refreshes.saturating_add(1);
                self.successor = None;
            }
            _ => {}
        }
    }

    fn announce(&mut self) {
        let sek = Sek::draw(&mut self.random, self.length);
        *self.send.key(self.current.other()) = Some(Key::new(sek));
        self.successor = Some(Successor { message: self.message().into(), told_at: None, known: false });
    }

    /// True if the next key was drawn but not announced to the peer yet.
    pub(crate) fn is_untold(&self) -> bool {
        self.successor.as_ref().is_some_and(|successor| successor.told_at.is_none())
    }

    /// Returns the time at which the next key must be announced again.
    pub(crate) fn tell_at(&self, now: Instant, pause: Duration) -> Option<Instant> {
        let successor = self.successor.as_ref().filter(|successor| !successor.known)?;
        Some(successor.told_at.map_or(now, |at| at + pause))
    }

    /// Returns the message that announces the next key, if it is time to send the message.
    pub(crate) fn tell(&mut self, now: Instant, pause: Duration) -> Option<Bytes> {
        self.tell_at(now, pause).filter(|at| *at <= now)?;
        let successor = self.successor.as_mut()?;
        successor.told_at = Some(now);
        Some(successor.message.clone())
    }

    /// Handles the peer's confirmation of an announced key. Every other answer is ignored, in particular a forged
    /// "unsecured" (CVE-2026-55868).
    pub(crate) fn handle_response(&mut self, body: &[u8]) -> bool {
        let Some(successor) = &mut self.successor else { return false };
        let same = successor.message.as_ref() == body;
        successor.known |= same;
        same
    }

    /// True if [`Self::handle_request`] would derive a key for this message.
    pub(crate) fn derives(&self, now: Instant, body: &[u8]) -> bool {
        KeyMaterial::read(body).is_ok_and(|km| self.is_foreign(&km)) && !self.has_derived(now)
    }

    /// True if a new wrapping key must be derived to open this key material, because its salt or its key length differs
    /// from those of the known wrapping key.
    fn is_foreign(&self, km: &KeyMaterial<'_>) -> bool {
        *km.salt() != self.receive.salt || km.key_length() != self.length
    }

    fn has_derived(&self, now: Instant) -> bool {
        self.derived_at.is_some_and(|at| now < at + DERIVATION_PAUSE)
    }

    /// Handles a key material message of the peer. On success, the same message must be sent back as the reply.
    pub(crate) fn handle_request(&mut self, now: Instant, body: &[u8]) -> Result<(), KmError> {
        let km = KeyMaterial::read(body)?;
        if self.is_foreign(&km) {
            if self.has_derived(now) {
                return Err(KmError::Secret);
            }
            self.derived_at = Some(now);
            let kek = Kek::derive(&self.passphrase, km.salt(), km.key_length());
            self.receive = Direction::new(*km.salt(), kek.clone(), km.unwrap(&kek)?);
            return Ok(());
        }
        let keys = km.unwrap(&self.receive.kek)?;
        for (parity, sek) in [(Parity::Even, keys.even), (Parity::Odd, keys.odd)] {
            let place = self.receive.key(parity);
            let is_known =
                |sek: &Sek| place.as_ref().is_some_and(|key| key.sek == *sek) || self.retired.contains(sek);
            let Some(sek) = sek.filter(|sek| !is_known(sek)) else { continue };
            if let Some(old) = place.replace(Key::new(sek)) {
                if self.retired.len() >= RETIRED_MAX {
                    self.retired.pop_front();
                }
                self.retired.push_back(old.sek);
            }
        }
        Ok(())
    }

    /// Decrypts a payload in place. Returns false when the key is unknown.
    pub(crate) fn unseal(&mut self, key: KeyFlag, seq: Seq, in_out: &mut [u8]) -> bool {
        match key {
            KeyFlag::Even => self.receive.apply(Parity::Even, seq, in_out),
            KeyFlag::Odd => self.receive.apply(Parity::Odd, seq, in_out),
            KeyFlag::Clear | KeyFlag::Both => false,
        }
    }
}

const fn flag(parity: Parity) -> KeyFlag {
    match parity {
        Parity::Even => KeyFlag::Even,
        Parity::Odd => KeyFlag::Odd,
    }
}

#[cfg(test)]
mod tests {
    use crypto::Seed;
    use netsim::{Clock, ms, secs};

    use super::*;

    const REFRESH: Refresh = Refresh { packets: 100, announce: 10 };

    fn pair(length: KeyLength) -> (SessionKeys, SessionKeys) {
        let passphrase = Passphrase::new("0123456789").unwrap();
        let caller = SessionKeys::draw(&passphrase, length, Seed::from_number(1).random());
        let listener =
            SessionKeys::open(&passphrase, &caller.message(), Seed::from_number(2).random()).unwrap();
        (caller, listener)
    }

    fn pass(from: &mut SessionKeys, to: &mut SessionKeys, seq: u32) -> bool {
        let mut out = Vec::new();
        let key = from.seal(KeyFlag::Clear, Seq::new(seq), b"payload", &mut out);
        assert_ne!(out, b"payload");
        to.unseal(key, Seq::new(seq), &mut out) && out == b"payload"
    }

    #[test]
    fn both_directions_work_with_each_length() {
        for length in [KeyLength::Bytes16, KeyLength::Bytes24, KeyLength::Bytes32] {
            let (mut caller, mut listener) = pair(length);
            assert!(pass(&mut caller, &mut listener, 7) && pass(&mut listener, &mut caller, 9));
            assert!(!listener.unseal(KeyFlag::Odd, Seq::new(7), &mut [0; 4]));
        }
    }

    #[test]
    fn s_25_the_sender_changes_over_when_the_peer_knows_the_key_and_not_before() {
        let (clock, pause) = (Clock::new(), ms(50));
        let (mut caller, mut listener) = pair(KeyLength::Bytes16);
        for n in 0..300 {
            assert!(pass(&mut caller, &mut listener, n));
            let oldest = caller.current();
            caller.count(REFRESH, oldest);
        }
        let message = caller.tell(clock.now(), pause).unwrap();
        assert_eq!((caller.current(), caller.tell(clock.now(), pause)), (KeyFlag::Even, None));
        assert_eq!(caller.tell(clock.at(pause), pause), Some(message.clone()), "told again");
        for forged in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 3], &message[1..]] {
            assert!(!caller.handle_response(forged));
        }
        listener.handle_request(clock.now(), &message).unwrap();
        assert!(caller.handle_response(&message));
        let oldest = caller.current();
        caller.count(REFRESH, oldest);
        assert_eq!((caller.current(), caller.refreshes()), (KeyFlag::Odd, 1));
        assert!(pass(&mut caller, &mut listener, 301));
        // A retransmitted packet that is encrypted with the old key can still be decrypted.
        let mut out = Vec::new();
        assert_eq!(caller.seal(KeyFlag::Even, Seq::new(5), b"x", &mut out), KeyFlag::Even);
        assert!(listener.unseal(KeyFlag::Even, Seq::new(5), &mut out) && out == b"x");
    }

    #[test]
    fn s_20_a_message_of_former_times_brings_no_key_back() {
        let (clock, pause) = (Clock::new(), ms(50));
        let (mut caller, mut listener) = pair(KeyLength::Bytes16);
        let mut messages = vec![Bytes::from(caller.message())];
        let mut seq = 0;
        for refreshes in 1..=20 {
            while caller.refreshes() < refreshes {
                assert!(pass(&mut caller, &mut listener, seq));
                let oldest = caller.current();
                caller.count(REFRESH, oldest);
                if let Some(message) = caller.tell(clock.now(), pause) {
                    listener.handle_request(clock.now(), &message).unwrap();
                    caller.handle_response(&message);
                    messages.push(message);
                }
                seq += 1;
            }
            for old in messages.iter().rev().take(RETIRED_MAX) {
                listener.handle_request(clock.now(), old).unwrap();
            }
            assert!(pass(&mut caller, &mut listener, seq) && listener.retired.len() <= RETIRED_MAX);
        }
    }

    #[test]
    fn s_20_requests_after_the_handshake_change_nothing_unless_they_open() {
        let clock = Clock::new();
        let (mut caller, mut listener) = pair(KeyLength::Bytes32);
        let other = Passphrase::new("another one").unwrap();
        let foreign = SessionKeys::draw(&other, KeyLength::Bytes32, Seed::from_number(9).random());
        for body in [&[][..], &[0; 4], &[0x5a; 1400], &foreign.message()] {
            assert!(listener.handle_request(clock.now(), body).is_err());
        }
        // A second key derivation within a second is refused, even if the message is valid.
        let fresh = SessionKeys::draw(
            &Passphrase::new("0123456789").unwrap(),
            KeyLength::Bytes32,
            Seed::from_number(10).random(),
        );
        assert!(listener.handle_request(clock.at(ms(10)), &fresh.message()).is_err());
        assert!(pass(&mut caller, &mut listener, 1));
        // `derives` predicts whether a message would cause a key derivation.
        assert!(listener.derives(clock.at(secs(2)), &fresh.message()));
        assert!(!listener.derives(clock.at(ms(10)), &fresh.message()));
        assert!(!listener.derives(clock.at(secs(2)), &caller.message()));
        assert!(!listener.derives(clock.at(secs(2)), &[0x5a; 1400]));
        assert!(listener.handle_request(clock.at(secs(2)), &fresh.message()).is_ok());
    }
}
