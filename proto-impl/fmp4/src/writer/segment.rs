//! The boxes that may stand before the fragments of a segment: `styp`, `sidx`, `prft`.

use bytes::Bytes;

use super::out::Out;

/// starts_with_SAP, and SAP_type 1 (ISO/IEC 14496-12 §8.16.3.3): every reference begins with a key frame.
const BEGINS_WITH_SAP: u32 = 0x9000_0000;
/// reference_type, above the size.
const SIZE_MAX: u32 = 0x7fff_ffff;

/// The `styp` of a media segment (ISO/IEC 14496-12 §8.16.2): of DASH (`msdh`), of a CMAF segment (`cmfs`), which is a CMAF
/// fragment (`cmff`) when it has one (ISO/IEC 23000-19 §7).
#[must_use]
pub fn styp() -> Bytes {
    let mut out = Out::new();
    out.boxed(b"styp", |out| {
        out.bytes(b"msdh").u32(0).bytes(b"msdhmsixcmfscmff");
    });
    out.into_bytes()
}

/// A fragment, or several, that a [`Sidx`] points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Its bytes, below 2^31.
    pub bytes: u32,
    /// Its duration in ticks.
    pub duration: u32,
    /// Whether it begins with a key frame.
    pub key_frame: bool,
}

/// An index of the fragments that follow (ISO/IEC 14496-12 §8.16.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidx {
    /// track_ID of the track that it is for.
    pub track: u32,
    /// Ticks per second.
    pub timescale: u32,
    /// The first presentation time, in ticks.
    pub presentation_time: u64,
    /// Bytes between the box and the first fragment.
    pub offset: u64,
    /// The fragments, at most 65535.
    pub references: Vec<Reference>,
}

impl Sidx {
    /// The box, of version 1.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = Out::new();
        out.full(b"sidx", 1, 0, |out| {
            out.u32(self.track).u32(self.timescale).u64(self.presentation_time).u64(self.offset);
            let count = u16::try_from(self.references.len()).unwrap_or(u16::MAX);
            out.u16(0).u16(count);
            for reference in self.references.iter().take(count.into()) {
                out.u32(reference.bytes.min(SIZE_MAX)).u32(reference.duration);
                out.u32(if reference.key_frame { BEGINS_WITH_SAP } else { 0 });
            }
        });
        out.into_bytes()
    }
}

/// The time at which the fragment that follows was made (`prft`, ISO/IEC 14496-12 §8.16.5): `ntp` is the wall clock in the
/// format of NTP at the time that the sample with this decode time entered the encoder (flags 0).
#[must_use]
pub fn prft(track: u32, ntp: u64, decode_time: u64) -> Bytes {
    let mut out = Out::new();
    out.full(b"prft", 1, 0, |out| {
        out.u32(track).u64(ntp).u64(decode_time);
    });
    out.into_bytes()
}
