//! The files of a segmenter, and descriptions of its segments.

use std::sync::Arc;

use bytes::Bytes;
use media::{Timescale, TrackKind};

/// File that a player can fetch: an init segment, a segment or a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Name of the file, relative to the playlist.
    pub name: String,
    /// Content of the file.
    pub bytes: Bytes,
    /// True for an init segment or a key. The segments that need it cannot be played without it.
    pub is_init: bool,
}

/// Position of a segment on the time axis of its track, for DASH manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Number of the segment.
    pub number: u64,
    /// Decode time of the first sample of the segment, in ticks.
    pub time: u64,
    /// Duration of the segment, in ticks.
    pub ticks: u64,
}

/// Description of an init segment, for manifests of DASH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// URI of the init segment, relative to the playlist.
    pub uri: String,
    /// The codecs of all tracks (RFC 6381).
    pub codecs: Vec<String>,
    /// The kind of the first track.
    pub kind: TrackKind,
    /// The timescale of the first track.
    pub timescale: Timescale,
    /// Width and height of the video, in pixels.
    pub size: Option<(u32, u32)>,
    /// Frame rate in frames per 1000 seconds, measured over at least the first second.
    pub frame_rate_milli: Option<u64>,
    /// Sampling rate and number of channels.
    pub sound: Option<(u32, u8)>,
    /// Language of the audio.
    pub language: Option<Arc<str>>,
    /// Identifier of the key for samples, if they are encrypted.
    pub key_id: Option<[u8; 16]>,
}

/// A segment with its description.
#[derive(Debug, Clone, Copy)]
pub struct Spanned<'a> {
    /// Position of the segment on the time axis of its track.
    pub span: Span,
    /// Description of the init segment.
    pub described: &'a Described,
    /// True if a period of a manifest begins with the segment.
    pub begins_period: bool,
}

impl Spanned<'_> {
    /// Beginning of the segment on the time axis of the segments, in milliseconds.
    #[must_use]
    pub fn begin_ms(&self) -> u64 {
        self.span.time.saturating_mul(1000) / u64::from(self.described.timescale.ticks()).max(1)
    }

    /// End of the segment on the time axis of the segments, in milliseconds.
    #[must_use]
    pub fn end_ms(&self) -> u64 {
        let end = self.span.time.saturating_add(self.span.ticks);
        end.saturating_mul(1000) / u64::from(self.described.timescale.ticks()).max(1)
    }

    /// Middle of the segment on the time axis of the segments, in milliseconds. It decides to which period
    /// the segment belongs, because segments of other tracks may begin slightly before their period.
    #[must_use]
    pub fn middle_ms(&self) -> u64 {
        let middle = self.span.time.saturating_add(self.span.ticks / 2);
        middle.saturating_mul(1000) / u64::from(self.described.timescale.ticks()).max(1)
    }
}
