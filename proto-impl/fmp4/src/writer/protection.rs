//! Common encryption of samples (ISO/IEC 23001-7) by the scheme `cbcs`: AES in cipher block chaining with a constant
//! initialization vector. Video is protected in a pattern of one block in ten, other media as a whole.
//!
//! Written are the boxes alone: whoever makes the samples encrypts them.

use super::out::Out;
use super::{Description, FragmentSample};
use media::TrackKind;

/// Subsamples of a sample, at most: the size of their list is one byte (ISO/IEC 14496-12 §8.7.8).
pub const SUBSAMPLES_MAX: usize = 42;
/// Version 1.0 of the scheme (ISO/IEC 23001-7 §4.1).
const VERSION: u32 = 0x0001_0000;
/// Protected and clear blocks of the pattern of video (§10.4).
const VIDEO_PATTERN: u8 = 0x19;
/// Flags of `senc`: it has subsamples (§7.2.2).
const HAS_SUBSAMPLES: u32 = 2;
/// Bytes of a subsample in `senc`, and of their number.
const SUBSAMPLE_BYTES: usize = 6;
const COUNT_BYTES: usize = 2;

/// Encryption of a track by the scheme `cbcs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// Identifier of the key (default_KID).
    pub key_id: [u8; 16],
    /// Initialization vector of all subsamples.
    pub vector: [u8; 16],
}

/// A part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subsample {
    /// Bytes in the clear.
    pub clear: u16,
    /// Bytes behind them that are protected.
    pub protected: u32,
}

/// The type of the sample entry of a track whose unprotected one is `kind` (ISO/IEC 14496-12 §8.12).
pub(super) fn entry_kind(track: &Description, kind: [u8; 4]) -> [u8; 4] {
    match (track.protection, track.config.codec().kind()) {
        (None, _) => kind,
        (Some(_), TrackKind::Video) => *b"encv",
        (Some(_), TrackKind::Audio | TrackKind::Data) => *b"enca",
    }
}

/// Writes the `sinf` of a protected track, whose unprotected sample entry is `kind`.
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
            // Version 1 has the pattern; protected, without vectors of single samples (§8.2).
            out.full(b"tenc", 1, 0, |out| {
                out.u8(0).u8(if is_video { VIDEO_PATTERN } else { 0 }).u8(1).u8(0).bytes(key_id);
                out.u8(16).bytes(vector);
            });
        });
    });
}

/// Writes the subsamples of a fragment: `saiz`, `saio` and `senc`. Nothing where samples are protected as a whole, or not.
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
    // Counted from the beginning of the `moof`, which is that of the output.
    out.set_u32(offset_at, u32::try_from(begin).unwrap_or(u32::MAX));
}
