//! Boxes that may precede the fragments of a segment: `styp`, `sidx`, `prft`.

use bytes::Bytes;

use super::out::Out;

/// starts_with_SAP and SAP_type 1 (ISO/IEC 14496-12 §8.16.3.3): the reference begins with a key frame.
const BEGINS_WITH_SAP: u32 = 0x9000_0000;
/// Largest size of a reference; reference_type is the bit above.
const SIZE_MAX: u32 = 0x7fff_ffff;

/// Returns the `styp` of a media segment (ISO/IEC 14496-12 §8.16.2) with the brands of DASH (`msdh`), a CMAF segment
/// (`cmfs`), and a CMAF fragment (`cmff`) (ISO/IEC 23000-19 §7).
#[must_use]
pub fn styp() -> Bytes {
    let mut out = Out::new();
    out.boxed(b"styp", |out| {
        out.bytes(b"msdh").u32(0).bytes(b"msdhmsixcmfscmff");
    });
    out.into_bytes()
}

/// A reference of a [`Sidx`] to one or more fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Size of the fragments in bytes, below 2^31.
    pub bytes: u32,
    /// Duration of the fragments, in ticks.
    pub duration: u32,
    /// The first fragment begins with a key frame.
    pub key_frame: bool,
}

/// An index of the following fragments (ISO/IEC 14496-12 §8.16.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidx {
    /// track_ID of the indexed track.
    pub track: u32,
    /// Ticks per second.
    pub timescale: u32,
    /// First presentation time, in ticks.
    pub presentation_time: u64,
    /// Bytes between the box and the first fragment.
    pub offset: u64,
    /// References to the fragments, at most 65535.
    pub references: Vec<Reference>,
}

impl Sidx {
    /// Returns the box, of version 1.
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

/// The scheme of ID3 tags in `emsg` boxes (AOMedia, "Carriage of ID3 Timed Metadata in the Common Media Application Format").
pub const ID3_SCHEME: &str = "https://aomedia.org/emsg/ID3";

/// Returns an event message (`emsg` of version 1, ISO/IEC 23009-1 §5.10.3.3) with ID3 tags, for this time on the timeline of decode times
/// in milliseconds. Its duration is unknown; `id` tells events of one time apart.
#[must_use]
pub fn id3_event(id: u32, presentation_time_ms: u64, tags: &[u8]) -> Bytes {
    let mut out = Out::new();
    out.full(b"emsg", 1, 0, |out| {
        out.u32(1000).u64(presentation_time_ms).u32(u32::MAX).u32(id);
        // The scheme has no values.
        out.bytes(ID3_SCHEME.as_bytes()).bytes(&[0, 0]).bytes(tags);
    });
    out.into_bytes()
}

/// Returns the producer reference time of the following fragment (`prft`, ISO/IEC 14496-12 §8.16.5). `ntp` is the
/// wall-clock time, in NTP format, at which the sample with this decode time entered the encoder (flags 0).
#[must_use]
pub fn prft(track: u32, ntp: u64, decode_time: u64) -> Bytes {
    let mut out = Out::new();
    out.full(b"prft", 1, 0, |out| {
        out.u32(track).u64(ntp).u64(decode_time);
    });
    out.into_bytes()
}
