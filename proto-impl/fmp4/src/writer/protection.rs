//! Common encryption of samples (ISO/IEC 23001-7) by the scheme `cbcs`: AES in cipher block chaining with a
//! constant initialization vector. In video, one block in ten is encrypted; other media is encrypted as a
//! whole.
//!
//! Only the boxes are written here. The caller encrypts the samples.

use super::out::Out;
use super::{Description, FragmentSample};
use media::TrackKind;

/// Maximum number of subsamples in a sample. More do not fit, because the size of their list is stored in one
/// byte (ISO/IEC 14496-12 §8.7.8).
pub const SUBSAMPLES_MAX: usize = 42;
/// Version 1.0 of the scheme (ISO/IEC 23001-7 §4.1).
const VERSION: u32 = 0x0001_0000;
/// Pattern for video: 1 protected block, then 9 clear ones, each number in four bits (§10.4).
const VIDEO_PATTERN: u8 = 0x19;
/// Flag of `senc`: the box contains subsamples (§7.2.2).
const HAS_SUBSAMPLES: u32 = 2;
/// Size of a subsample in `senc`, and size of the field with the number of subsamples, in bytes.
const SUBSAMPLE_BYTES: usize = 6;
const COUNT_BYTES: usize = 2;

/// Encryption of a track with the scheme `cbcs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// Identifier of the key (default_KID).
    pub key_id: [u8; 16],
    /// Initialization vector of every subsample.
    pub vector: [u8; 16],
}

/// A range of a sample: clear bytes, followed by protected ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subsample {
    /// Bytes in the clear.
    pub clear: u16,
    /// Number of protected bytes after the clear ones.
    pub protected: u32,
}

/// Returns the type of a track's sample entry: `kind`, or `encv` or `enca` if the track is protected (ISO/IEC
/// 14496-12 §8.12).
pub(super) fn entry_kind(track: &Description, kind: [u8; 4]) -> [u8; 4] {
    match (track.protection, track.config.codec().kind()) {
        (None, _) => kind,
        (Some(_), TrackKind::Video) => *b"encv",
        (Some(_), TrackKind::Audio | TrackKind::Data) => *b"enca",
    }
}

/// Writes the `sinf` of a protected track. `kind` is the type that its sample entry would have if it were
/// unprotected.
pub(super) fn write_entry(out: &mut Out, track: &Description, kind: [u8; 4]) {
    let Some(Protection { key_id, vector }) = &track.protection else { return };
    let is_video = track.config.codec().kind() == TrackKind::Video;
    out.boxed(b"sinf", |out| {
        out.boxed(b"frma", |out| {
            out.bytes(&kind);
        });
        out.full(b"schm", 0, 0, |out| {
            out.bytes(b"cbcs").u32(VERSION);
        });
        out.boxed(b"schi", |out| {
            // Version 1 of the box contains the pattern. The track is protected, and its samples have no
            // vectors of their own (§8.2).
            out.full(b"tenc", 1, 0, |out| {
                out.u8(0).u8(if is_video { VIDEO_PATTERN } else { 0 }).u8(1).u8(0).bytes(key_id);
                out.u8(16).bytes(vector);
            });
        });
    });
}

/// Writes the subsamples of a fragment: `saiz`, `saio` and `senc`. Writes nothing if the samples are
/// encrypted as a whole or not at all.
pub(super) fn write_samples(out: &mut Out, samples: &[FragmentSample]) {
    if samples.iter().all(|sample| sample.subsamples.is_empty()) {
        return;
    }
    let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    out.full(b"saiz", 0, 0, |out| {
        out.u8(0).u32(count);
        for sample in samples {
            let bytes = sample.subsamples.len().saturating_mul(SUBSAMPLE_BYTES).saturating_add(COUNT_BYTES);
            out.u8(u8::try_from(bytes).unwrap_or(u8::MAX));
        }
    });
    let mut offset_at = 0;
    out.full(b"saio", 0, 0, |out| {
        out.u32(1);
        offset_at = out.len();
        out.u32(0);
    });
    let mut begin = 0;
    out.full(b"senc", 0, HAS_SUBSAMPLES, |out| {
        out.u32(count);
        begin = out.len();
        for sample in samples {
            out.u16(u16::try_from(sample.subsamples.len()).unwrap_or(u16::MAX));
            for subsample in &sample.subsamples {
                out.u16(subsample.clear).u32(subsample.protected);
            }
        }
    });
    // The offset counts from the start of the `moof`, which is the start of `out`.
    out.set_u32(offset_at, u32::try_from(begin).unwrap_or(u32::MAX));
}
