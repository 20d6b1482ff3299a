//! The record layer (RFC 6347 §4.1): headers, the protection in epoch 1, and the replay window.
//!
//! ```text
//!  0      1 .. 2     3 .. 4   5 .. 10     11 .. 12
//! +------+---------+---------+-----------+--------+---------
//! | type | version |  epoch  | sequence  | length | fragment
//! +------+---------+---------+-----------+--------+---------
//! ```
//!
//! With GCM, a fragment begins with eight bytes of nonce (RFC 5288 §3): the epoch and the sequence number,
//! since a counter cannot repeat (RFC 9325 §7.2.1).

use crypto::{AEAD_NONCE_BYTES, AEAD_TAG_BYTES, Aead, AeadAlgorithm};
use wire::{Reader, Truncated};

use crate::put;

/// DTLS 1.3.
pub(crate) const VERSION_1_3: u16 = 0xfefc;
/// DTLS 1.2.
pub(crate) const VERSION_1_2: u16 = 0xfefd;
/// DTLS 1.0. The record of a `ClientHello` may have this version (RFC 6347 §4.1), and that of a
/// `HelloVerifyRequest` has it (§4.2.1).
pub(crate) const VERSION_1_0: u16 = 0xfeff;
/// Length of a header.
pub(crate) const HEAD_BYTES: usize = 13;
/// Maximum size of an unencrypted fragment (RFC 5246 §6.2.1).
pub(crate) const FRAGMENT_BYTES_MAX: usize = 1 << 14;
/// Length of the explicit nonce with GCM.
const EXPLICIT_BYTES: usize = 8;
/// Maximum number of bytes that protection adds to a record.
pub(crate) const PROTECTION_BYTES: usize = EXPLICIT_BYTES + AEAD_TAG_BYTES;
/// Last sequence number. It is never used, because the next one would wrap around (RFC 6347 §4.1).
pub(crate) const SEQUENCE_LAST: u64 = (1 << 48) - 1;
/// Size of the replay window: a record may be late by less than this many sequence numbers (RFC 6347 §4.1.2.6).
const WINDOW: u64 = 64;

/// The content type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentType(pub(crate) u8);

impl ContentType {
    pub(crate) const CHANGE_CIPHER_SPEC: Self = Self(20);
    pub(crate) const ALERT: Self = Self(21);
    pub(crate) const HANDSHAKE: Self = Self(22);
    pub(crate) const APPLICATION_DATA: Self = Self(23);
    /// Acknowledgement (RFC 9147 §7).
    pub(crate) const ACK: Self = Self(26);
}

/// Header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) kind: ContentType,
    pub(crate) version: u16,
    pub(crate) epoch: u16,
    /// Sequence number, 48 bits.
    pub(crate) sequence: u64,
    pub(crate) length: usize,
}

impl RecordHead {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let (kind, version, epoch) = (ContentType(r.u8()?), r.u16()?, r.u16()?);
        let [a, b, c, d, e, f] = r.array()?;
        let sequence = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Ok(Self { kind, version, epoch, sequence, length: usize::from(r.u16()?) })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        put::u16(out, self.version);
        put::u16(out, self.epoch);
        put::u48(out, self.sequence);
        put::u16(out, u16::try_from(self.length).unwrap_or(0));
    }

    /// Returns epoch and sequence number as a single number, for the authenticated data and the nonce.
    fn number(&self) -> u64 {
        u64::from(self.epoch) << 48 | self.sequence
    }

    /// Returns the additional authenticated data of a fragment (RFC 5246 §6.2.3.3).
    fn associated(&self, clear_bytes: usize) -> [u8; HEAD_BYTES] {
        let mut associated = [0; HEAD_BYTES];
        let [v, w] = self.version.to_be_bytes();
        let [l, m] = u16::try_from(clear_bytes).unwrap_or(0).to_be_bytes();
        let tail = [self.kind.0, v, w, l, m];
        let number = self.number().to_be_bytes();
        for (to, from) in associated.iter_mut().zip(number.into_iter().chain(tail)) {
            *to = from;
        }
        associated
    }
}

/// Keys of one direction.
#[derive(Debug)]
pub(crate) struct Cipher {
    aead: Aead,
    algorithm: AeadAlgorithm,
    /// Implicit part of the nonce: its first four bytes (GCM), or twelve bytes that are XORed with the nonce
    /// (`ChaCha20`).
    iv: [u8; AEAD_NONCE_BYTES],
}

impl Cipher {
    /// Length of the implicit part of the nonce (RFC 5288 §3, RFC 7905 §2).
    pub(crate) const fn iv_bytes(algorithm: AeadAlgorithm) -> usize {
        match algorithm {
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => 4,
            AeadAlgorithm::ChaCha20Poly1305 => 12,
        }
    }

    /// Creates a cipher; `None` if a length does not fit the algorithm.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], iv: &[u8]) -> Option<Self> {
        if iv.len() != Self::iv_bytes(algorithm) {
            return None;
        }
        let mut padded = [0; AEAD_NONCE_BYTES];
        for (to, from) in padded.iter_mut().zip(iv) {
            *to = *from;
        }
        Some(Self { aead: Aead::new(algorithm, key)?, algorithm, iv: padded })
    }

    const fn is_explicit(&self) -> bool {
        !matches!(self.algorithm, AeadAlgorithm::ChaCha20Poly1305)
    }

    fn nonce(&self, explicit: [u8; EXPLICIT_BYTES]) -> [u8; AEAD_NONCE_BYTES] {
        // For GCM, the last eight bytes of `iv` are zero, so XOR amounts to concatenation.
        let mut nonce = self.iv;
        for (to, from) in nonce.iter_mut().skip(AEAD_NONCE_BYTES - EXPLICIT_BYTES).zip(explicit) {
            *to ^= from;
        }
        nonce
    }

    fn seal(&self, mut head: RecordHead, clear: &[u8], out: &mut Vec<u8>) {
        let explicit = head.number().to_be_bytes();
        let associated = head.associated(clear.len());
        let nonce_bytes = if self.is_explicit() { EXPLICIT_BYTES } else { 0 };
        head.length = clear.len().saturating_add(nonce_bytes).saturating_add(AEAD_TAG_BYTES);
        head.write(out);
        out.extend_from_slice(explicit.get(..nonce_bytes).unwrap_or_default());
        let start = out.len();
        out.extend_from_slice(clear);
        let tag = self.aead.seal(self.nonce(explicit), &associated, out.get_mut(start..).unwrap_or_default());
        out.extend_from_slice(&tag);
    }

    /// Decrypts a fragment in place; `None` if it is not authentic.
    fn open<'a>(&self, head: &RecordHead, fragment: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (explicit, rest) = if self.is_explicit() {
            let (explicit, rest) = fragment.split_first_chunk_mut::<EXPLICIT_BYTES>()?;
            (*explicit, rest)
        } else {
            (head.number().to_be_bytes(), fragment)
        };
        let clear_bytes = rest.len().checked_sub(AEAD_TAG_BYTES)?;
        let (clear, tag) = rest.split_at_mut_checked(clear_bytes)?;
        self.aead.open(self.nonce(explicit), &head.associated(clear_bytes), tag, clear).ok()?;
        Some(clear)
    }
}

/// Detects replayed records.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplayWindow {
    /// Sequence number after the highest received.
    next: u64,
    /// Bit n is set if `next - 1 - n` was received.
    seen: u64,
}

impl ReplayWindow {
    /// Sequence number after the highest received.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_fresh(&self, sequence: u64) -> bool {
        match self.next.checked_sub(sequence.saturating_add(1)) {
            None => true,
            Some(age) => age < WINDOW && self.seen & (1 << age) == 0,
        }
    }

    /// Marks a sequence number as received. Must only be called for authenticated records.
    pub(crate) fn insert(&mut self, sequence: u64) {
        let after = sequence.saturating_add(1);
        match self.next.checked_sub(after) {
            Some(age) if age < WINDOW => self.seen |= 1 << age,
            Some(_) => {}
            None => {
                let step = after.saturating_sub(self.next);
                self.seen = if step < WINDOW { self.seen << step | 1 } else { 1 };
                self.next = after;
            }
        }
    }
}

/// Reason why a record could not be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// There are no keys for the record's epoch, or the record is unprotected although there are keys.
    Epoch,
    /// The record was received before.
    Replayed,
    /// The record is not authentic.
    Forged,
    /// The record is longer than allowed.
    TooLong,
    /// The inner plaintext of DTLS 1.3 consists only of zeros, without a content type (RFC 8446 §5.4).
    Typeless,
    /// Too many records with these keys were not authentic: the keys must not be used any longer.
    Worn,
}

/// Error: the sequence numbers of an epoch are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Record protection for both directions. Epoch 0 is unprotected, epoch 1 is protected; without renegotiation
/// there are no further epochs.
#[derive(Debug, Default)]
pub(crate) struct RecordLayer {
    /// Next sequence numbers of epoch 0 and of epoch 1.
    next: [u64; 2],
    write: Option<Cipher>,
    read: Option<Cipher>,
    window: ReplayWindow,
}

impl RecordLayer {
    pub(crate) fn set_write(&mut self, cipher: Cipher) {
        self.write = Some(cipher);
    }

    pub(crate) fn set_read(&mut self, cipher: Cipher) {
        self.read = Some(cipher);
    }

    pub(crate) const fn reads_protected(&self) -> bool {
        self.read.is_some()
    }

    pub(crate) const fn writes_protected(&self) -> bool {
        self.write.is_some()
    }

    /// Numbers our records from the client's `sequence` on. A stateless server has already answered under the
    /// client's numbers, and lower ones would look like replays (RFC 6347 §4.2.1).
    pub(crate) fn follow(&mut self, sequence: u64) {
        let [clear, _] = &mut self.next;
        *clear = (*clear).max(sequence.min(SEQUENCE_LAST / 2));
    }

    /// Continues after the records sent before the version was negotiated.
    pub(crate) const fn go_on_at(&mut self, sequence: u64) {
        let [clear, _] = &mut self.next;
        *clear = sequence;
    }

    /// Appends a record.
    pub(crate) fn write(
        &mut self,
        protected: bool,
        kind: ContentType,
        version: u16,
        clear: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted> {
        let [next_clear, next_protected] = &mut self.next;
        let next = if protected { next_protected } else { next_clear };
        if *next >= SEQUENCE_LAST {
            return Err(Exhausted);
        }
        let sequence = *next;
        *next = next.saturating_add(1);
        let head = RecordHead { kind, version, epoch: u16::from(protected), sequence, length: clear.len() };
        match (&self.write, protected) {
            (Some(cipher), true) => cipher.seal(head, clear, out),
            (_, false) => {
                head.write(out);
                out.extend_from_slice(clear);
            }
            // Protected data must not be written before there are keys.
            (None, true) => return Err(Exhausted),
        }
        Ok(())
    }

    /// Returns the plaintext of a fragment: decrypted in epoch 1, unchanged in epoch 0.
    pub(crate) fn open<'a>(
        &mut self,
        head: &RecordHead,
        fragment: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotOpened> {
        let clear = match (head.epoch, &self.read) {
            (0, _) => fragment,
            (1, Some(cipher)) => {
                if !self.window.is_fresh(head.sequence) {
                    return Err(NotOpened::Replayed);
                }
                let clear = cipher.open(head, fragment).ok_or(NotOpened::Forged)?;
                self.window.insert(head.sequence);
                clear
            }
            _ => return Err(NotOpened::Epoch),
        };
        if clear.len() > FRAGMENT_BYTES_MAX {
            return Err(NotOpened::TooLong);
        }
        Ok(clear)
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        self.next[1] = sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(algorithm: AeadAlgorithm) -> Cipher {
        let key = vec![7; algorithm.key_bytes()];
        Cipher::new(algorithm, &key, &[9; 12][..Cipher::iv_bytes(algorithm)]).unwrap()
    }

    fn both(algorithm: AeadAlgorithm) -> RecordLayer {
        let mut layer = RecordLayer::default();
        layer.set_write(cipher(algorithm));
        layer.set_read(cipher(algorithm));
        layer
    }

    fn open(layer: &mut RecordLayer, record: &[u8]) -> Result<Vec<u8>, NotOpened> {
        let mut record = record.to_vec();
        let (head, fragment) = record.split_at_mut(HEAD_BYTES);
        let head = RecordHead::read(&mut Reader::new(head)).unwrap();
        layer.open(&head, fragment).map(|clear| clear.to_vec())
    }

    const DATA: ContentType = ContentType::APPLICATION_DATA;
    const ALGORITHMS: [AeadAlgorithm; 3] =
        [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305];

    #[test]
    fn heads_are_read_as_written() {
        let head = RecordHead {
            kind: ContentType::ALERT,
            version: VERSION_1_0,
            epoch: 0x0102,
            sequence: 0x0304_0506_0708,
            length: 0x0910,
        };
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(out, [21, 0xfe, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10]);
        assert_eq!(RecordHead::read(&mut Reader::new(&out)), Ok(head));
    }

    #[test]
    fn what_is_sealed_is_opened_and_any_damage_is_noticed() {
        for algorithm in ALGORITHMS {
            let mut layer = both(algorithm);
            let mut out = Vec::new();
            layer.write(true, DATA, VERSION_1_2, b"payload", &mut out).unwrap();
            for at in (0..out.len()).filter(|at| !(11..13).contains(at)) {
                let mut damaged = out.clone();
                damaged[at] ^= 1;
                assert!(open(&mut layer, &damaged).is_err() || damaged[4] == 0, "{algorithm:?} {at}");
            }
            for length in HEAD_BYTES..out.len() {
                assert_eq!(open(&mut layer, &out[..length]), Err(NotOpened::Forged));
            }
            assert_eq!(open(&mut layer, &out), Ok(b"payload".to_vec()));
        }
    }

    #[test]
    fn d_12_a_record_opens_once() {
        let mut layer = both(AeadAlgorithm::Aes128Gcm);
        let mut records = Vec::new();
        for number in 0..200u8 {
            let mut out = Vec::new();
            layer.write(true, DATA, VERSION_1_2, &[number], &mut out).unwrap();
            records.push(out);
        }
        for order in [(0..70).rev().collect::<Vec<usize>>(), vec![199, 136, 135, 199, 150, 136]] {
            let mut read = both(AeadAlgorithm::Aes128Gcm);
            let mut seen = Vec::new();
            let highest = *order.first().unwrap();
            for number in order {
                let fresh = !seen.contains(&number) && highest - number < 64;
                assert_eq!(open(&mut read, &records[number]).is_ok(), fresh, "{number}");
                seen.push(number);
            }
        }
    }

    #[test]
    fn d_12_the_sequence_ends_below_2_48() {
        let mut layer = both(AeadAlgorithm::Aes128Gcm);
        layer.skip_to(SEQUENCE_LAST - 2);
        let mut out = Vec::new();
        for expected in [true, true, false, false] {
            assert_eq!(layer.write(true, DATA, VERSION_1_2, b"", &mut out).is_ok(), expected);
        }
        assert!(RecordLayer::default().write(true, DATA, VERSION_1_2, b"", &mut out).is_err());
    }

    #[test]
    fn d_14_a_million_nonces_are_the_sequence_numbers() {
        let mut layer = both(AeadAlgorithm::Aes128Gcm);
        let mut out = Vec::new();
        for number in 0..1_000_000u64 {
            out.clear();
            layer.write(true, DATA, VERSION_1_2, b"", &mut out).unwrap();
            let explicit = u64::from_be_bytes(out[HEAD_BYTES..HEAD_BYTES + 8].try_into().unwrap());
            assert_eq!(explicit, 1 << 48 | number);
            assert_eq!(explicit.to_be_bytes(), out[3..11]);
        }
    }

    #[test]
    fn a_fragment_has_16_kib_at_most() {
        let mut layer = both(AeadAlgorithm::Aes128Gcm);
        for (length, result) in [(FRAGMENT_BYTES_MAX, true), (FRAGMENT_BYTES_MAX + 1, false)] {
            let mut out = Vec::new();
            layer.write(true, DATA, VERSION_1_2, &vec![0; length], &mut out).unwrap();
            assert_eq!(open(&mut layer, &out).is_ok(), result);
        }
    }
}
