//! The record layer of DTLS 1.3 (RFC 9147 §4). Epoch 0 uses the old header; all others use a short header with
//! an encrypted sequence number.
//!
//! ```text
//!  0 0 1 C S L E E     C: a connection id follows, which is never negotiated here
//! +-+-+-+-+-+-+-+-+    S: the sequence number has 16 bits, else 8
//! |  8 or 16 bits   |  L: there is a length, else the record ends with the datagram
//! |  length, if L   |  EE: the low bits of the epoch
//! +-----------------+
//! |  ciphertext     |  content, its type, zeros; then the tag
//! ```

use std::time::{Duration, Instant};

use crypto::{AEAD_NONCE_BYTES, AEAD_TAG_BYTES, Aead, AeadAlgorithm, HEADER_SAMPLE_BYTES, HeaderKey};
use wire::Reader;

use super::ack::RecordNumber;
use crate::record::{
    self, ContentType, Exhausted, FRAGMENT_BYTES_MAX, NotOpened, RecordHead, ReplayWindow, SEQUENCE_LAST,
    VERSION_1_0, VERSION_1_2,
};

/// Maximum overhead of a protected record, in bytes.
pub(crate) const OVERHEAD_BYTES: usize = HEAD_BYTES + 1 + AEAD_TAG_BYTES;
/// Length of the headers we write, with a 16-bit sequence number and a length.
const HEAD_BYTES: usize = 5;
/// Value of the three bits that identify a short header.
const FORM: u8 = 0b0010_0000;
const FORM_BITS: u8 = 0b1110_0000;
const HAS_CONNECTION_ID: u8 = 0b0001_0000;
const HAS_LONG_SEQUENCE: u8 = 0b0000_1000;
const HAS_LENGTH: u8 = 0b0000_0100;
const EPOCH_BITS: u8 = 0b0000_0011;

/// Maximum number of records per AES-GCM key, below the limit of 2^24.5 (RFC 9147 §4.5.3). With `ChaCha20`,
/// the number of records is limited only by the sequence numbers.
const SEALED_MAX_GCM: u64 = 1 << 24;
/// Maximum number of unauthentic records per key (RFC 9147 §4.5.3).
const FORGED_MAX: u64 = 1 << 36;
/// Maximum number of epochs readable at the same time: the current one, the previous one for late records, and
/// the next one.
const READ_MAX: usize = 3;
/// Time for which the previous keys are kept for late records: twice the maximum segment lifetime (RFC 9147
/// §4.2.1).
const LATE_MAX: Duration = Duration::from_secs(240);

/// Keys for one direction and epoch.
#[derive(Debug)]
pub(crate) struct Keys {
    aead: Aead,
    iv: [u8; AEAD_NONCE_BYTES],
    mask: HeaderKey,
    /// Maximum number of records that may be encrypted.
    most: u64,
}

impl Keys {
    /// Creates the keys; `None` if a length does not match the algorithm.
    pub(crate) fn new(
        algorithm: AeadAlgorithm,
        key: &[u8],
        iv: [u8; AEAD_NONCE_BYTES],
        mask: &[u8],
    ) -> Option<Self> {
        let most = match algorithm {
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => SEALED_MAX_GCM,
            AeadAlgorithm::ChaCha20Poly1305 => SEQUENCE_LAST,
        };
        Some(Self { aead: Aead::new(algorithm, key)?, iv, mask: HeaderKey::new(algorithm, mask)?, most })
    }

    /// Returns the nonce, derived from the sequence number without the epoch (RFC 9147 §4).
    fn nonce(&self, sequence: u64) -> [u8; AEAD_NONCE_BYTES] {
        let mut nonce = self.iv;
        for (to, from) in nonce.iter_mut().rev().zip(sequence.to_be_bytes().into_iter().rev()) {
            *to ^= from;
        }
        nonce
    }

    /// Encrypts or decrypts the bytes of a sequence number. Returns false if the ciphertext is too short to
    /// take a sample from.
    fn mask(&self, ciphertext: &[u8], sequence: &mut [u8]) -> bool {
        let sample = ciphertext.first_chunk::<HEADER_SAMPLE_BYTES>();
        let Some(mask) = sample.and_then(|sample| self.mask.mask(sample)) else { return false };
        sequence.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        true
    }
}

#[derive(Debug)]
struct WriteEpoch {
    epoch: u16,
    keys: Keys,
    next: u64,
}

impl WriteEpoch {
    fn seal(
        &mut self,
        kind: ContentType,
        clear: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<RecordNumber, Exhausted> {
        if self.next >= self.keys.most {
            return Err(Exhausted);
        }
        let sequence = self.next;
        self.next = self.next.saturating_add(1);
        let [.., low] = self.epoch.to_be_bytes();
        let length = clear.len().saturating_add(1 + AEAD_TAG_BYTES);
        let [.., a, b] = sequence.to_be_bytes();
        let [c, d] = u16::try_from(length).map_err(|_| Exhausted)?.to_be_bytes();
        let head = [FORM | HAS_LONG_SEQUENCE | HAS_LENGTH | low & EPOCH_BITS, a, b, c, d];
        let start = out.len();
        out.extend_from_slice(&head);
        out.extend_from_slice(clear);
        out.push(kind.0);
        let body = start.saturating_add(HEAD_BYTES);
        let tag =
            self.keys.aead.seal(self.keys.nonce(sequence), &head, out.get_mut(body..).unwrap_or_default());
        out.extend_from_slice(&tag);
        let record = out.get_mut(start..).unwrap_or_default();
        let (head, ciphertext) = record.split_at_mut_checked(HEAD_BYTES).ok_or(Exhausted)?;
        let number = head.get_mut(1..3).ok_or(Exhausted)?;
        if !self.keys.mask(ciphertext, number) {
            return Err(Exhausted);
        }
        Ok(RecordNumber { epoch: self.epoch.into(), sequence })
    }
}

#[derive(Debug)]
struct ReadEpoch {
    epoch: u16,
    keys: Keys,
    window: ReplayWindow,
    /// Number of unauthentic records received.
    forged: u64,
    /// Time at which these keys are dropped; set when a record of a later epoch arrives.
    expires: Option<Instant>,
}

impl ReadEpoch {
    /// Returns the sequence number with these low bits that is closest to the next expected number (RFC 9147
    /// §4.2.2).
    fn sequence(&self, low: u64, bits: u32) -> u64 {
        let range = 1u64 << bits;
        let expected = self.window.next();
        let ahead = low.wrapping_sub(expected) & (range - 1);
        let forward = expected.saturating_add(ahead);
        if ahead < range / 2 { forward } else { forward.checked_sub(range).unwrap_or(forward) }
    }

    fn open<'a>(
        &mut self,
        head: &mut [u8],
        long: bool,
        body: &'a mut [u8],
    ) -> Result<(u64, ContentType, &'a [u8]), NotOpened> {
        let range = if long { 1..3 } else { 1..2 };
        let number = head.get_mut(range).ok_or(NotOpened::Forged)?;
        if !self.keys.mask(body, number) {
            return Err(NotOpened::Forged);
        }
        let low = number.iter().fold(0, |low, byte| low << 8 | u64::from(*byte));
        let sequence = self.sequence(low, if long { 16 } else { 8 });
        if sequence > SEQUENCE_LAST || !self.window.is_fresh(sequence) {
            return Err(NotOpened::Replayed);
        }
        let clear_bytes = body.len().checked_sub(AEAD_TAG_BYTES).ok_or(NotOpened::Forged)?;
        let (clear, tag) = body.split_at_mut_checked(clear_bytes).ok_or(NotOpened::Forged)?;
        if self.keys.aead.open(self.keys.nonce(sequence), head, tag, clear).is_err() {
            self.forged = self.forged.saturating_add(1);
            return Err(if self.forged >= FORGED_MAX { NotOpened::Worn } else { NotOpened::Forged });
        }
        self.window.insert(sequence);
        // The content type is the last byte that is not zero (RFC 8446 §5.4).
        let end = clear.iter().rposition(|byte| *byte != 0).ok_or(NotOpened::Typeless)?;
        let (content, rest) = clear.split_at_checked(end).ok_or(NotOpened::Typeless)?;
        let kind = rest.first().map(|kind| ContentType(*kind)).ok_or(NotOpened::Typeless)?;
        if content.len() > FRAGMENT_BYTES_MAX {
            return Err(NotOpened::TooLong);
        }
        Ok((sequence, kind, content))
    }
}

/// A decrypted record.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) number: RecordNumber,
    pub(crate) kind: ContentType,
    pub(crate) clear: &'a [u8],
}

/// Record protection for both directions.
#[derive(Debug)]
pub(crate) struct Records {
    /// Next sequence number of epoch 0.
    clear_next: u64,
    /// Version in the headers of epoch 0.
    clear_version: u16,
    /// Epochs for sending in ascending order; new data uses the last one.
    write: Vec<WriteEpoch>,
    /// Epochs for receiving in ascending order.
    read: Vec<ReadEpoch>,
}

impl Records {
    /// Creates the state with epoch 0 only. The record of a first hello has an old version number.
    pub(crate) const fn new() -> Self {
        Self { clear_next: 0, clear_version: VERSION_1_0, write: Vec::new(), read: Vec::new() }
    }

    /// Sets the version of record headers, once it is negotiated.
    pub(crate) const fn settle(&mut self) {
        self.clear_version = VERSION_1_2;
    }

    /// Next sequence number of epoch 0, at which DTLS 1.2 continues after a fallback.
    pub(crate) const fn clear_next(&self) -> u64 {
        self.clear_next
    }

    /// Numbers our records from the client's `sequence` on, because a stateless server has already answered under the
    /// client's numbers.
    pub(crate) fn follow(&mut self, sequence: u64) {
        self.clear_next = self.clear_next.max(sequence.min(SEQUENCE_LAST / 2));
    }

    /// Returns the epoch used for sending new data; 0 without keys.
    pub(crate) fn write_epoch(&self) -> u16 {
        self.write.last().map_or(0, |last| last.epoch)
    }

    /// Returns the peer's latest epoch; 0 without keys.
    pub(crate) fn read_epoch(&self) -> u16 {
        self.read.last().map_or(0, |last| last.epoch)
    }

    pub(crate) fn add_write(&mut self, epoch: u16, keys: Keys) {
        self.write.reserve_exact(1);
        self.write.push(WriteEpoch { epoch, keys, next: 0 });
    }

    pub(crate) fn add_read(&mut self, epoch: u16, keys: Keys) {
        if self.read.len() >= READ_MAX {
            self.read.remove(0);
        }
        let window = ReplayWindow::default();
        self.read.reserve_exact(1);
        self.read.push(ReadEpoch { epoch, keys, window, forged: 0, expires: None });
    }

    /// Drops old keys that were only needed for flights, because the last flight has arrived.
    pub(crate) fn drop_old_write(&mut self) {
        let behind = self.write.len().saturating_sub(1);
        self.write.drain(..behind);
        self.write.shrink_to_fit();
    }

    /// True if half of the records allowed for the current keys have been written, so that the keys should be
    /// changed.
    pub(crate) fn are_wearing(&self) -> bool {
        self.write.last().is_some_and(|last| last.next >= last.keys.most / 2)
    }

    /// Appends a record. Fails if there are no keys for the epoch.
    pub(crate) fn write(
        &mut self,
        epoch: u16,
        kind: ContentType,
        clear: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<RecordNumber, Exhausted> {
        if epoch > 0 {
            let write = self.write.iter_mut().find(|write| write.epoch == epoch).ok_or(Exhausted)?;
            return write.seal(kind, clear, out);
        }
        if self.clear_next >= SEQUENCE_LAST {
            return Err(Exhausted);
        }
        let sequence = self.clear_next;
        self.clear_next = sequence.saturating_add(1);
        RecordHead { kind, version: self.clear_version, epoch, sequence, length: clear.len() }.write(out);
        out.extend_from_slice(clear);
        Ok(RecordNumber { epoch: 0, sequence })
    }

    /// Decrypts the first record of a datagram in place, and returns it with the rest of the datagram. `None`
    /// if there is no record.
    #[allow(clippy::type_complexity, reason = "a record or why not, and the rest")]
    pub(crate) fn take<'a>(
        &mut self,
        now: Instant,
        datagram: &'a mut [u8],
    ) -> Option<(Result<Opened<'a>, NotOpened>, &'a mut [u8])> {
        let first = *datagram.first()?;
        if first & FORM_BITS != FORM {
            return self.take_clear(datagram);
        }
        if first & HAS_CONNECTION_ID != 0 {
            return None;
        }
        let long = first & HAS_LONG_SEQUENCE != 0;
        let at = if long { 3 } else { 2 };
        let with_length = first & HAS_LENGTH != 0;
        let head_bytes = if with_length { at + 2 } else { at };
        let (head, rest) = datagram.split_at_mut_checked(head_bytes)?;
        let length =
            if with_length { usize::from(Reader::new(head.get(at..)?).u16().ok()?) } else { rest.len() };
        let (body, tail) = rest.split_at_mut_checked(length)?;
        self.read.retain(|read| read.expires.is_none_or(|at| at > now));
        let Some(read) = self.read.iter_mut().rev().find(|read| {
            let [.., low] = read.epoch.to_be_bytes();
            (low ^ first) & EPOCH_BITS == 0
        }) else {
            return Some((Err(NotOpened::Epoch), tail));
        };
        let epoch = read.epoch;
        let opened = read.open(head, long, body).map(|(sequence, kind, clear)| Opened {
            number: RecordNumber { epoch: epoch.into(), sequence },
            kind,
            clear,
        });
        if opened.is_ok() {
            self.expire_before(now, epoch);
        }
        Some((opened, tail))
    }

    fn take_clear<'a>(
        &self,
        datagram: &'a mut [u8],
    ) -> Option<(Result<Opened<'a>, NotOpened>, &'a mut [u8])> {
        let (head, rest) = datagram.split_at_mut_checked(record::HEAD_BYTES)?;
        let head = RecordHead::read(&mut Reader::new(head)).ok()?;
        let (clear, tail) = rest.split_at_mut_checked(head.length)?;
        let opened = if head.version >> 8 != VERSION_1_2 >> 8 {
            return None;
        } else if head.epoch > 0 || !self.read.is_empty() {
            // Unprotected records are ignored once there are keys.
            Err(NotOpened::Epoch)
        } else if clear.len() > FRAGMENT_BYTES_MAX {
            Err(NotOpened::TooLong)
        } else {
            let number = RecordNumber { epoch: 0, sequence: head.sequence };
            Ok(Opened { number, kind: head.kind, clear })
        };
        Some((opened, tail))
    }

    /// Handles the arrival of a record of `epoch`: the keys of earlier epochs are dropped after a while.
    fn expire_before(&mut self, now: Instant, epoch: u16) {
        let expires = now.checked_add(LATE_MAX);
        for read in self.read.iter_mut().filter(|read| read.epoch < epoch && read.expires.is_none()) {
            read.expires = expires;
        }
    }

    /// Bytes of memory held, except inside cryptographic keys.
    pub(crate) fn held_bytes(&self) -> usize {
        let write = self.write.capacity().saturating_mul(size_of::<WriteEpoch>());
        let read = self.read.capacity().saturating_mul(size_of::<ReadEpoch>());
        write.saturating_add(read)
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        if let Some(last) = self.write.last_mut() {
            last.next = sequence;
        }
    }

    #[cfg(test)]
    pub(crate) fn expect(&mut self, sequence: u64) {
        if let Some(last) = self.read.last_mut() {
            last.window.insert(sequence - 1);
        }
    }
}

#[cfg(test)]
mod tests;
