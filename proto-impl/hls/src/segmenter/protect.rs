//! Encryption of samples by the scheme `cbcs` of ISO/IEC 23001-7 §10.4, which playlists call `SAMPLE-AES`. Key
//! and vector are the same for all samples of a run.
//!
//! - H.264 and H.265: slices are encrypted after their headers, one block in ten. Each slice starts a new
//!   cipher chain.
//! - Audio: all complete blocks of a frame are encrypted, in one chain.
//!
//! The bytes after the last complete block of a protected part stay clear (§9.7).

use std::fmt;

use bytes::{Bytes, BytesMut};
use crypto::AesCbcSealer;
use fmp4::{Protection, SUBSAMPLES_MAX, Subsample};
use media::codec::slice::SliceHeaders;
use media::nal::Nals;
use media::{AccessUnit, Codec, Track, TrackId, TrackKind};

const BLOCK: usize = 16;
/// Number of blocks in the pattern for video. The first block is encrypted, the others are clear.
const PATTERN_BLOCKS: usize = 10;
/// Size of the length field before a NAL unit, in bytes.
const LENGTH_BYTES: usize = 4;
/// Number of clear bytes of a slice whose header cannot be parsed. Nearly all headers are smaller.
const HEADER_BYTES: usize = 128;

/// True if samples of a codec can be encrypted. AV1 and VP9 have their own rules for clear bytes, which are not
/// implemented.
#[must_use]
pub const fn is_protectable(codec: Codec) -> bool {
    match codec {
        Codec::H264 | Codec::H265 => true,
        Codec::Aac | Codec::Opus | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => true,
        Codec::Av1 | Codec::Vp9 | Codec::Vp8 | Codec::G711(_) => false,
    }
}

/// Encrypts the samples of the tracks of one playlist.
pub(super) struct Protector {
    key: [u8; BLOCK],
    protection: Protection,
    tracks: Vec<(TrackId, Form)>,
}

/// Never prints the key.
impl fmt::Debug for Protector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protector(..)")
    }
}

/// Form of a track's samples.
#[derive(Debug)]
enum Form {
    /// NAL units, of which only slices are encrypted.
    Slices(Box<SliceHeaders>),
    Whole,
}

impl Protector {
    /// Creates the encryption with this key. The key id is a digest of the key, so it does not reveal the key.
    pub(super) fn new(key: [u8; BLOCK], vector: [u8; BLOCK]) -> Self {
        let digest = crypto::sha256(&[b"key id of samples", &key]);
        let key_id = digest.first_chunk().copied().unwrap_or_default();
        Self { key, protection: Protection { key_id, vector }, tracks: Vec::new() }
    }

    pub(super) const fn protection(&self) -> Protection {
        self.protection
    }

    /// Sets the tracks of the following samples. Samples of tracks that cannot be encrypted are dropped.
    pub(super) fn set_tracks(&mut self, tracks: &[Track]) {
        let form = |track: &Track| match SliceHeaders::of(&track.config) {
            Some(headers) => Some((track.id, Form::Slices(Box::new(headers)))),
            None => is_protectable(track.config.codec())
                .then_some(Form::Whole)
                .filter(|_| track.kind() == TrackKind::Audio)
                .map(|form| (track.id, form)),
        };
        self.tracks = tracks.iter().filter_map(form).collect();
    }

    /// Encrypts a unit. Returns its payload and the payload's subsamples. `None`: the unit cannot be encrypted
    /// and must not be passed on.
    pub(super) fn protect(&mut self, unit: &AccessUnit) -> Option<(Bytes, Vec<Subsample>)> {
        let (_, form) = self.tracks.iter_mut().find(|(track, _)| *track == unit.track)?;
        let mut payload = BytesMut::from(&unit.payload[..]);
        let subsamples = match form {
            Form::Slices(headers) => parts(headers, &unit.payload)?,
            Form::Whole => Vec::new(),
        };
        if subsamples.is_empty() {
            self.seal(&mut payload, 1)?;
        }
        let mut at = 0usize;
        for part in &subsamples {
            let begin = at.checked_add(usize::from(part.clear))?;
            at = begin.checked_add(usize::try_from(part.protected).ok()?)?;
            self.seal(payload.get_mut(begin..at)?, PATTERN_BLOCKS)?;
        }
        Some((payload.freeze(), subsamples))
    }

    /// Encrypts every `step`-th block, starting with the first, in one chain. The blocks are gathered so that
    /// the cipher is called only once.
    fn seal(&self, bytes: &mut [u8], step: usize) -> Option<()> {
        let mut cipher = AesCbcSealer::new(&self.key, self.protection.vector)?;
        let (blocks, _) = bytes.as_chunks_mut::<BLOCK>();
        if step == 1 {
            return cipher.seal(blocks.as_flattened_mut()).then_some(());
        }
        let mut gathered: Vec<[u8; BLOCK]> = blocks.iter().step_by(step).copied().collect();
        if !cipher.seal(gathered.as_flattened_mut()) {
            return None;
        }
        blocks.iter_mut().step_by(step).zip(gathered).for_each(|(block, sealed)| *block = sealed);
        Some(())
    }
}

/// The subsamples of a payload that consists of NAL units. `None` if the NAL units' lengths are invalid, or if
/// there are too many clear bytes for the list of subsamples.
fn parts(headers: &mut SliceHeaders, payload: &[u8]) -> Option<Vec<Subsample>> {
    let mut parts = Vec::new();
    let (mut clear, mut at) = (0usize, 0usize);
    for nal in Nals::new(payload, 4) {
        let nal = nal.ok()?;
        at = at.checked_add(LENGTH_BYTES)?.checked_add(nal.len())?;
        clear = clear.checked_add(LENGTH_BYTES)?;
        if !headers.is_slice(nal) {
            headers.note(nal);
            clear = clear.checked_add(nal.len())?;
            continue;
        }
        let head = headers.length(nal).unwrap_or(HEADER_BYTES).min(nal.len());
        clear = clear.checked_add(head)?;
        let mut protected = nal.len().saturating_sub(head);
        // If there are too many slices, a single subsample covers the rest of the unit from this slice on.
        let is_last = parts.len() >= SUBSAMPLES_MAX.saturating_sub(2);
        if is_last {
            protected = protected.checked_add(payload.len().checked_sub(at)?)?;
        }
        push(&mut parts, std::mem::take(&mut clear), protected)?;
        if is_last {
            return (parts.len() <= SUBSAMPLES_MAX).then_some(parts);
        }
    }
    if clear > 0 || parts.is_empty() {
        push(&mut parts, clear, 0)?;
    }
    (parts.len() <= SUBSAMPLES_MAX).then_some(parts)
}

/// Adds a subsample. Clear bytes beyond the maximum of one subsample go to additional ones before it.
fn push(parts: &mut Vec<Subsample>, mut clear: usize, protected: usize) -> Option<()> {
    while clear > usize::from(u16::MAX) && parts.len() <= SUBSAMPLES_MAX {
        parts.push(Subsample { clear: u16::MAX, protected: 0 });
        clear = clear.saturating_sub(u16::MAX.into());
    }
    let (clear, protected) = (u16::try_from(clear).ok()?, u32::try_from(protected).ok()?);
    parts.push(Subsample { clear, protected });
    Some(())
}

#[cfg(test)]
mod tests;
