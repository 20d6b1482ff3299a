//! What a media playlist says (RFC 8216 §4.3.2, §4.3.3).

use std::sync::Arc;
use std::time::Duration;

/// Segments of one rendition (RFC 8216 §4.3.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MediaPlaylist {
    /// `EXT-X-VERSION`; 1 without the tag.
    pub version: u32,
    /// `EXT-X-TARGETDURATION` in whole seconds, rounded up; without the tag the longest segment's.
    pub target_duration: Duration,
    /// The sequence number of the first of [`segments`](Self::segments).
    pub media_sequence: u64,
    /// The discontinuities before the first of [`segments`](Self::segments).
    pub discontinuity_sequence: u64,
    /// `EXT-X-PLAYLIST-TYPE`.
    pub kind: Option<Kind>,
    /// `EXT-X-ENDLIST`: nothing will be added.
    pub ended: bool,
    /// `EXT-X-INDEPENDENT-SEGMENTS`: each segment can be decoded alone.
    pub independent_segments: bool,
    /// The segments, the last [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX) of them.
    pub segments: Vec<Segment>,
}

/// `EXT-X-PLAYLIST-TYPE` (RFC 8216 §4.3.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Segments are only added.
    Event,
    /// Nothing changes.
    Vod,
}

/// A segment, with everything that earlier lines say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// The URI as the playlist has it: relative to the playlist's, and not checked.
    pub uri: String,
    /// How long it plays.
    pub duration: Duration,
    /// What follows the duration; often empty.
    pub title: String,
    /// The part of the resource that it is; the whole without.
    pub byte_range: Option<ByteRange>,
    /// Whether encoding or timestamps change before it (§4.3.2.3).
    pub discontinuity: bool,
    /// What it is encrypted with.
    pub key: Option<Arc<Key>>,
    /// The initialization section that it needs.
    pub map: Option<Arc<Map>>,
    /// `EXT-X-PROGRAM-DATE-TIME` in milliseconds of Unix time.
    pub program_date_time: Option<i64>,
    /// `EXT-X-GAP`: it is not there.
    pub gap: bool,
}

/// A part of a resource (RFC 8216 §4.3.2.2). Its end fits 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Bytes.
    pub length: u64,
    /// The first byte.
    pub offset: u64,
}

/// `EXT-X-KEY` (RFC 8216 §4.3.2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// How the segment is encrypted.
    pub method: Method,
    /// Where the key is, relative to the playlist; not checked.
    pub uri: String,
    /// The initialization vector; without, the segment's sequence number.
    pub iv: Option<[u8; 16]>,
    /// `KEYFORMAT`, when it is not `identity`: then the key is not at its URI.
    pub format: Option<String>,
}

/// How a segment is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// The whole segment: AES-128 in CBC mode with PKCS #7 padding.
    Aes128,
    /// Samples within the segment.
    SampleAes,
    /// Another method, by its name.
    Other(String),
}

impl Method {
    /// The name in the playlist.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Aes128 => "AES-128",
            Self::SampleAes => "SAMPLE-AES",
            Self::Other(name) => name,
        }
    }
}

/// `EXT-X-MAP`: the initialization section of segments (RFC 8216 §4.3.2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Where it is, relative to the playlist; not checked.
    pub uri: String,
    /// The part of the resource that it is.
    pub byte_range: Option<ByteRange>,
    /// What it is encrypted with.
    pub key: Option<Arc<Key>>,
}
