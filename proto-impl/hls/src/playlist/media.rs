//! Media playlists (RFC 8216 §4.3.2, §4.3.3).

use std::sync::Arc;
use std::time::Duration;

use super::date_range::DateRange;

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
    /// `EXT-X-SKIP`: segments before the first of [`segments`](Self::segments) that are left out of a delta update; they count
    /// in [`media_sequence`](Self::media_sequence) (RFC 8216bis §4.4.5.2).
    pub skipped: u64,
    /// The segments, the last [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX) of them.
    pub segments: Vec<Segment>,
    /// The tags of low latency.
    pub low_latency: Option<Box<LowLatency>>,
}

/// Low latency (RFC 8216bis §6.2.2): segments are announced part by part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LowLatency {
    /// `PART-TARGET` of `EXT-X-PART-INF`: no part is longer.
    pub part_target: Duration,
    /// `PART-HOLD-BACK`: how far from the end players play; at least three times [`part_target`](Self::part_target).
    pub part_hold_back: Duration,
    /// `CAN-SKIP-UNTIL`: delta updates leave out segments further from the end; at least six target durations.
    pub skip_until: Option<Duration>,
    /// `CAN-BLOCK-RELOAD`: a request may wait for a segment or part that does not exist yet.
    pub can_block_reload: bool,
    /// The segment that is growing: its parts, and what its other tags will say. It has no duration and no URI yet.
    pub open: Segment,
    /// `EXT-X-PRELOAD-HINT` of a part: the URI of the next one.
    pub hint: Option<String>,
    /// `EXT-X-RENDITION-REPORT`.
    pub reports: Vec<Report>,
}

/// A part of a segment (`EXT-X-PART`, RFC 8216bis §4.4.4.9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The URI, relative to the playlist's, and not checked.
    pub uri: String,
    /// The duration of its playback.
    pub duration: Duration,
    /// `INDEPENDENT`: it begins with a key frame.
    pub independent: bool,
}

/// The progress of another rendition (`EXT-X-RENDITION-REPORT`, RFC 8216bis §4.4.5.4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Its playlist, relative to this one.
    pub uri: String,
    /// The number of its last segment, or of the one that is growing if it has parts.
    pub last_segment: u64,
    /// The number of its last part in that segment.
    pub last_part: Option<u64>,
}

impl MediaPlaylist {
    /// The index of the segment that a live stream is begun with: three target durations before its end (RFC 8216
    /// §6.3.3).
    #[must_use]
    pub fn live_start(&self, target: Duration) -> usize {
        let wanted = target.saturating_mul(3);
        let mut length = Duration::ZERO;
        let from_end = self.segments.iter().rev().take_while(|segment| {
            let is_wanted = length < wanted;
            length = length.saturating_add(segment.duration);
            is_wanted
        });
        self.segments.len().saturating_sub(from_end.count().max(1))
    }

    /// Puts date ranges of segments that are left out before the first one that is there: of those that go on there the tags that the playlist
    /// does not have.
    pub fn carry(&mut self, gone: Vec<DateRange>) {
        let Some(first) = self.segments.first() else { return };
        let begin_ms = first.program_date_time.unwrap_or(i64::MIN);
        let segments = self.segments.iter().chain(self.low_latency.as_ref().map(|low| &low.open));
        let there: Vec<&DateRange> = segments.flat_map(|segment| &segment.date_ranges).collect();
        let goes_on = |tag: &DateRange| {
            let of_range = gone.iter().chain(there.iter().copied()).filter(|other| other.id == tag.id);
            DateRange::end_ms(of_range).is_none_or(|end_ms| end_ms > begin_ms)
        };
        let mut carried: Vec<DateRange> = Vec::new();
        for tag in &gone {
            let is_there = there.iter().copied().chain(&carried).any(|other| other.is_same(tag));
            if !is_there && goes_on(tag) {
                carried.push(DateRange { parts_before: 0, ..tag.clone() });
            }
        }
        if let Some(first) = self.segments.first_mut() {
            carried.append(&mut first.date_ranges);
            first.date_ranges = carried;
        }
    }

    /// The playlist without what a player has that was here no longer than half of `CAN-SKIP-UNTIL` ago (RFC 8216bis §6.2.5.1). `None`
    /// where nothing is to be left out.
    #[must_use]
    pub fn delta(&self) -> Option<Self> {
        let skip_until = self.low_latency.as_ref()?.skip_until?;
        let parts = |segment: &Segment| segment.parts.iter().map(|part| part.duration).sum::<Duration>();
        let mut from_end = self.low_latency.as_ref().map(|low| parts(&low.open)).unwrap_or_default();
        let is_near = |segment: &&Segment| {
            from_end = from_end.saturating_add(segment.duration);
            from_end <= skip_until
        };
        let near = self.segments.iter().rev().take_while(is_near).count();
        let skipped = self.segments.len().saturating_sub(near);
        let mut low_latency = self.low_latency.clone();
        let mut segments = self.segments.get(skipped..)?.to_vec();
        // A delta update has all date ranges (§4.4.5.2).
        let ranges = self.segments.iter().take(skipped).flat_map(|segment| segment.date_ranges.clone());
        let mut ranges: Vec<DateRange> = ranges.collect();
        let first = segments.first_mut().or_else(|| low_latency.as_mut().map(|low| &mut low.open));
        if let Some(first) = first {
            ranges.iter_mut().for_each(|range| range.parts_before = 0);
            ranges.append(&mut first.date_ranges);
            first.date_ranges = ranges;
        }
        (skipped > 0).then(|| Self {
            skipped: u64::try_from(skipped).unwrap_or(u64::MAX),
            segments,
            low_latency,
            ..*self
        })
    }
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
    /// The duration of its playback.
    pub duration: Duration,
    /// The text behind the duration; often empty.
    pub title: String,
    /// The part of the resource that it is; the whole without.
    pub byte_range: Option<ByteRange>,
    /// True if encoding or timestamps change before it (§4.3.2.3).
    pub discontinuity: bool,
    /// The key that it is encrypted with.
    pub key: Option<Arc<Key>>,
    /// The initialization section that it needs.
    pub map: Option<Arc<Map>>,
    /// `EXT-X-PROGRAM-DATE-TIME` in milliseconds of Unix time.
    pub program_date_time: Option<i64>,
    /// `EXT-X-GAP`: it is not there.
    pub gap: bool,
    /// Its parts, of one of the newest.
    pub parts: Vec<Part>,
    /// `EXT-X-DATERANGE` tags before it, at most [`DATE_RANGES_MAX`](crate::limits::DATE_RANGES_MAX) of a playlist.
    pub date_ranges: Vec<DateRange>,
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
    /// The method by which the segment is encrypted.
    pub method: Method,
    /// The URI of the key, relative to the playlist; not checked.
    pub uri: String,
    /// The initialization vector; without, the segment's sequence number.
    pub iv: Option<[u8; 16]>,
    /// `KEYFORMAT`, when it is not `identity`: then the key is not at its URI.
    pub format: Option<String>,
}

/// The method by which a segment is encrypted.
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
    /// The URI of the section, relative to the playlist; not checked.
    pub uri: String,
    /// The part of the resource that it is.
    pub byte_range: Option<ByteRange>,
    /// The key that it is encrypted with.
    pub key: Option<Arc<Key>>,
}
