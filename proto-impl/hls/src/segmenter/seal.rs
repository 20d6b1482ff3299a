//! AES-128 encryption of segments (RFC 8216 §4.3.2.4). Each segment is encrypted as a whole, while it grows,
//! with its own vector. A key is used for a number of segments. Keys are random. Viewers that may have the
//! playlist may also have its keys.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::protect::Protector;
use crate::playlist::{Key, Method};
use bytes::{Bytes, BytesMut};
use crypto::{AesCbcSealer, Random, Seed};

const BLOCK: usize = 16;
/// Suffix of the names of keys.
const ENDING: &str = ".key";

/// Rules for encrypting media.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealing {
    /// The part of the media to encrypt; `None` for nothing.
    pub scope: Option<Scope>,
    /// True if the owner supplies the keys ([`Sealer::set_key`]). Media cannot be encrypted before the first
    /// key.
    pub is_given: bool,
    /// Number of segments that share a key; `None`: all of them.
    pub segments: Option<u64>,
    /// URI prefix of keys in playlists; the name of the key follows.
    pub prefix: String,
}

/// The part of the media to encrypt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Segments as a whole (AES-128, RFC 8216 §4.3.2.4).
    Segments,
    /// Samples within segments of fragmented MP4 (SAMPLE-AES; `cbcs` of ISO/IEC 23001-7), with one key and
    /// vector for a whole run.
    Samples,
}

/// A key supplied by the owner, and the URI at which players fetch it.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// The key.
    pub key: [u8; BLOCK],
    /// URI of the key in playlists.
    pub uri: String,
    /// The vector for all segments; `None`: each segment has a random one.
    pub vector: Option<[u8; BLOCK]>,
}

/// Never prints the key.
impl fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenKey(..)")
    }
}

/// The key in use.
struct Current {
    key: [u8; BLOCK],
    /// URI and vector of a key supplied by the owner.
    given: Option<(String, Option<[u8; BLOCK]>)>,
    /// Number of segments that the key may still encrypt; `None`: all of them.
    left: Option<u64>,
    /// Number of the first segment encrypted with the key. It is part of the key's name, so that no name is
    /// used for two keys.
    first: Option<u64>,
}

/// The growing segment.
struct Open {
    cipher: AesCbcSealer,
    vector: [u8; BLOCK],
    /// Number of bytes encrypted so far.
    sealed: usize,
}

/// Encrypts the segments of one stream.
pub struct Sealer {
    random: Random,
    sealing: Sealing,
    current: Option<Current>,
    /// The key to use from the next segment on.
    next: Option<GivenKey>,
    open: Option<Open>,
    /// Names of listed keys, each with the number of the newest segment that needs the key.
    shown: VecDeque<(String, u64)>,
}

/// Never prints a key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// The tag of a segment's key in playlists. `new` is the key itself, if this is the first segment that uses
/// it.
pub(super) struct Sealed {
    pub(super) tag: Arc<Key>,
    pub(super) new: Option<(String, Bytes)>,
}

impl Sealer {
    /// Creates the sealer of a stream. Keys and vectors are derived from the seed. `None` if segments are not
    /// encrypted.
    #[must_use]
    pub fn of(sealing: &Sealing, seed: &Seed) -> Option<Self> {
        sealing.scope.map(|_| Self {
            random: seed.derive("hls keys", 0).random(),
            sealing: sealing.clone(),
            current: None,
            next: None,
            open: None,
            shown: VecDeque::new(),
        })
    }

    /// Sets the key to use from the next segment on.
    pub fn set_key(&mut self, key: GivenKey) {
        self.next = Some(key);
    }

    /// Encrypts the part of a segment that was received so far, up to its last complete block.
    pub(super) fn seal(&mut self, segment: &mut BytesMut) {
        self.begin();
        let Some(open) = &mut self.open else { return segment.clear() };
        let Some(rest) = segment.get_mut(open.sealed..) else { return };
        let whole = rest.len() / BLOCK * BLOCK;
        if let Some(blocks) = rest.get_mut(..whole)
            && open.cipher.seal(blocks)
        {
            open.sealed = open.sealed.saturating_add(whole);
        }
    }

    /// Ends a segment: encrypts its rest, padded to a whole block (RFC 5652 §6.3). `number` is the segment's
    /// number, and `base` the common prefix of names.
    pub(super) fn finish(&mut self, segment: &mut BytesMut, base: &str, number: u64) -> Option<Sealed> {
        self.seal(segment);
        let sealed = self.open.as_ref()?.sealed;
        let padding = BLOCK.saturating_sub(segment.len().saturating_sub(sealed));
        let byte = u8::try_from(padding).unwrap_or(0);
        segment.resize(segment.len().saturating_add(padding), byte);
        self.seal(segment);
        let vector = self.open.take()?.vector;
        let current = self.current.as_mut()?;
        current.left = current.left.map(|left| left.saturating_sub(1));
        let is_new = current.first.is_none();
        let first = *current.first.get_or_insert(number);
        let tag = |uri| Arc::new(Key { method: Method::Aes128, uri, iv: Some(vector), format: None });
        if let Some((uri, _)) = &current.given {
            return Some(Sealed { tag: tag(uri.clone()), new: None });
        }
        let name = format!("{base}_{first}{ENDING}");
        let new = is_new.then(|| (name.clone(), Bytes::copy_from_slice(&current.key)));
        match self.shown.back_mut().filter(|_| !is_new) {
            Some((_, last)) => *last = number,
            None => self.shown.push_back((name.clone(), number)),
        }
        Some(Sealed { tag: tag(format!("{}{name}", self.sealing.prefix)), new })
    }

    /// Drops the cipher of the growing segment, which is discarded.
    pub(super) fn abandon(&mut self) {
        self.open = None;
    }

    /// True if samples are encrypted instead of whole segments.
    pub(super) fn is_of_samples(&self) -> bool {
        self.sealing.scope == Some(Scope::Samples)
    }

    /// Makes the key for samples, and the [`Protector`] that encrypts with it. `None` if the key comes from
    /// the owner and has not arrived yet.
    pub(super) fn protector(&mut self) -> Option<Protector> {
        self.begin();
        let vector = self.open.take()?.vector;
        let current = self.current.as_ref()?;
        Some(Protector::new(current.key, vector))
    }

    /// Names the key that encrypts samples with this vector. The name consists of `base` and `number`.
    pub(super) fn name(&self, vector: [u8; BLOCK], base: &str, number: u64) -> Option<Sealed> {
        let current = self.current.as_ref()?;
        let (uri, new) = match &current.given {
            Some((uri, _)) => (uri.clone(), None),
            None => {
                let name = format!("{base}_{number}{ENDING}");
                let key = Bytes::copy_from_slice(&current.key);
                (format!("{}{name}", self.sealing.prefix), Some((name, key)))
            }
        };
        let tag = Key { method: Method::SampleAes, uri, iv: Some(vector), format: None };
        Some(Sealed { tag: Arc::new(tag), new })
    }

    /// Takes the names of keys that no segment from number `first` on needs.
    pub(super) fn take_left(&mut self, first: u64) -> Vec<String> {
        let mut left = Vec::new();
        while self.shown.len() > 1 && self.shown.front().is_some_and(|(_, last)| *last < first) {
            left.extend(self.shown.pop_front().map(|(name, _)| name));
        }
        left
    }

    fn begin(&mut self) {
        if self.open.is_some() {
            return;
        }
        if let Some(GivenKey { key, uri, vector }) = self.next.take() {
            let given = Some((uri, vector));
            self.current = Some(Current { key, given, left: None, first: None });
        } else if !self.sealing.is_given
            && self.current.as_ref().is_none_or(|current| current.left == Some(0))
        {
            let mut key = [0; BLOCK];
            self.random.fill(&mut key);
            let left = self.sealing.segments;
            self.current = Some(Current { key, given: None, left, first: None });
        }
        let Some(current) = &self.current else { return };
        let told = current.given.as_ref().and_then(|(_, vector)| *vector);
        let vector = told.unwrap_or_else(|| {
            let mut vector = [0; BLOCK];
            self.random.fill(&mut vector);
            vector
        });
        let cipher = AesCbcSealer::new(&current.key, vector);
        self.open = cipher.map(|cipher| Open { cipher, vector, sealed: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::AesCbcOpener;

    fn sealer(segments: Option<u64>, prefix: &str) -> Sealer {
        let scope = Some(Scope::Segments);
        let sealing = Sealing { scope, is_given: false, segments, prefix: prefix.to_owned() };
        Sealer::of(&sealing, &Seed::from_number(7)).unwrap()
    }

    fn opened(sealed: &[u8], key: &[u8], tag: &Key) -> Vec<u8> {
        let mut bytes = sealed.to_vec();
        let mut opener = AesCbcOpener::new(key, tag.iv.unwrap()).unwrap();
        assert!(opener.open(&mut bytes));
        let padding = usize::from(*bytes.last().unwrap());
        assert!(
            (1..=16).contains(&padding)
                && bytes[bytes.len() - padding..].iter().all(|b| usize::from(*b) == padding)
        );
        bytes.truncate(bytes.len() - padding);
        bytes
    }

    #[test]
    fn what_is_sealed_in_pieces_is_opened_whole() {
        for length in 0..100usize {
            for step in [1, 7, 16, 33] {
                let plain: Vec<u8> = (0..length).map(|n| n.to_le_bytes()[0]).collect();
                let mut sealer = sealer(None, "");
                let mut segment = BytesMut::new();
                for piece in plain.chunks(step) {
                    segment.extend_from_slice(piece);
                    sealer.seal(&mut segment);
                }
                let sealed = sealer.finish(&mut segment, "cam", 1).unwrap();
                let (name, key) = sealed.new.unwrap();
                assert_eq!((name.as_str(), sealed.tag.uri.as_str()), ("cam_1.key", "cam_1.key"));
                assert_eq!(opened(&segment, &key, &sealed.tag), plain);
                assert!(!format!("{sealer:?}").contains(&format!("{:?}", &key[..])));
            }
        }
    }

    #[test]
    fn a_key_is_for_so_many_segments_and_leaves_with_the_last_of_them() {
        let mut sealer = sealer(Some(3), "https://keys.example/");
        let (mut keys, mut vectors) = (Vec::new(), Vec::new());
        for number in 10..20 {
            let mut segment = BytesMut::from(&b"media"[..]);
            sealer.seal(&mut segment);
            let sealed = sealer.finish(&mut segment, "cam", number).unwrap();
            vectors.push(sealed.tag.iv.unwrap());
            let of = number - (number - 10) % 3;
            assert_eq!(sealed.tag.uri, format!("https://keys.example/cam_{of}.key"));
            keys.extend(sealed.new);
        }
        let names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cam_10.key", "cam_13.key", "cam_16.key", "cam_19.key"]);
        keys.sort_by(|a, b| a.1.cmp(&b.1));
        keys.dedup_by(|a, b| a.1 == b.1);
        vectors.sort_unstable();
        vectors.dedup();
        assert_eq!((keys.len(), vectors.len()), (4, 10), "none is used again");
        assert!(sealer.take_left(12).is_empty(), "the segment 12 needs the first");
        assert_eq!(sealer.take_left(13), ["cam_10.key"]);
        assert_eq!(sealer.take_left(100), ["cam_13.key", "cam_16.key"], "the last one is in use");
    }

    #[test]
    fn a_given_key_is_for_the_segments_behind_it_and_is_never_handed_out() {
        let sealing = Sealing { scope: Some(Scope::Segments), is_given: true, ..Sealing::default() };
        let mut sealer = Sealer::of(&sealing, &Seed::from_number(7)).unwrap();
        let mut segment = BytesMut::from(&b"media"[..]);
        sealer.seal(&mut segment);
        assert!(segment.is_empty(), "nothing leaves before there is a key");
        assert!(sealer.finish(&mut segment, "cam", 1).is_none());
        let given = |byte, vector| GivenKey { key: [byte; 16], uri: format!("https://k/{byte}"), vector };
        sealer.set_key(given(1, None));
        assert!(!format!("{:?}", given(1, None)).contains("1, 1"));
        let mut vectors = Vec::new();
        for number in 1..7u8 {
            let mut segment = BytesMut::from(&b"media and more media"[..]);
            sealer.seal(&mut segment);
            if number == 3 {
                sealer.set_key(given(2, Some([9; 16])));
            }
            let sealed = sealer.finish(&mut segment, "cam", number.into()).unwrap();
            let key = if number <= 3 { 1 } else { 2 };
            assert_eq!((sealed.new, &*sealed.tag.uri), (None, &*format!("https://k/{key}")));
            assert_eq!(opened(&segment, &[key; 16], &sealed.tag), b"media and more media");
            vectors.push(sealed.tag.iv.unwrap());
        }
        assert_eq!(vectors[3..], [[9; 16]; 3], "the vector of the file");
        assert!(vectors[0] != vectors[1] && vectors[1] != vectors[2], "or one of its own");
        assert!(sealer.take_left(100).is_empty());
    }
}
