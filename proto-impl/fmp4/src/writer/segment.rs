//! Boxes that may precede the fragments of a segment: `styp`, `sidx`, `prft`.

use alloc::vec::Vec;

use bytes::Bytes;

use super::out::Out;

/// starts_with_SAP and SAP_type 1 (ISO/IEC 14496-12 §8.16.3.3): the referenced data begins with a key frame.
const BEGINS_WITH_SAP: u32 = 0x9000_0000;
/// Largest size of a reference. The bit above the size is reference_type.
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
    /// True if the first fragment begins with a key frame.
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
    /// Returns the `sidx` box, in version 1.
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

/// Scheme of ID3 tags in `emsg` boxes (AOMedia, "Carriage of ID3 Timed Metadata in the Common Media
/// Application Format").
pub const ID3_SCHEME: &str = "https://aomedia.org/emsg/ID3";

/// Scheme of splice information in `emsg` boxes (ANSI/SCTE 214-3 §8.3.3). The data is a splice_info_section.
pub const SPLICE_SCHEME: &str = "urn:scte:scte35:2013:bin";

/// An event message (`emsg` of version 1, ISO/IEC 23009-1 §5.10.3.3).
#[derive(Debug, Clone, Copy)]
pub struct EventMessage<'a> {
    /// Scheme of the data: [`ID3_SCHEME`] or [`SPLICE_SCHEME`]. The `value` field of the box stays empty.
    pub scheme: &'a str,
    /// Id that distinguishes events of the same scheme.
    pub id: u32,
    /// Time of the event on the timeline of decode times, in milliseconds.
    pub time_ms: u64,
    /// Duration in milliseconds; `None` if unknown.
    pub duration_ms: Option<u32>,
    /// Data of the event.
    pub data: &'a [u8],
}

impl EventMessage<'_> {
    /// Returns the `emsg` box.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = Out::new();
        out.full(b"emsg", 1, 0, |out| {
            out.u32(1000).u64(self.time_ms).u32(self.duration_ms.unwrap_or(u32::MAX)).u32(self.id);
            out.bytes(self.scheme.as_bytes()).bytes(&[0, 0]).bytes(self.data);
        });
        out.into_bytes()
    }
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
