//! Media playlists (RFC 8216 §4.3.2, §4.3.3).

use std::sync::Arc;
use std::time::Duration;

use super::date_range::DateRange;

/// Segments of one rendition (RFC 8216 §4.3.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MediaPlaylist {
    /// `EXT-X-VERSION`; 1 without the tag.
    pub version: u32,
    /// `EXT-X-TARGETDURATION` in whole seconds, rounded up. Without the tag, the duration of the longest
    /// segment.
    pub target_duration: Duration,
    /// Sequence number of the first segment of [`segments`](Self::segments).
    pub media_sequence: u64,
    /// Number of discontinuities before the first segment of [`segments`](Self::segments).
    pub discontinuity_sequence: u64,
    /// `EXT-X-PLAYLIST-TYPE`.
    pub kind: Option<Kind>,
    /// `EXT-X-ENDLIST`: no more segments will be added.
    pub ended: bool,
    /// `EXT-X-INDEPENDENT-SEGMENTS`: each segment can be decoded alone.
    pub independent_segments: bool,
    /// `EXT-X-SKIP`: number of segments before [`segments`](Self::segments) that a delta update omits. They are
    /// included in [`media_sequence`](Self::media_sequence) (RFC 8216bis §4.4.5.2).
    pub skipped: u64,
    /// The segments; at most the last [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX).
    pub segments: Vec<Segment>,
    /// Contents of the low-latency tags.
    pub low_latency: Option<Box<LowLatency>>,
}

/// Low latency (RFC 8216bis §6.2.2): a segment is announced part by part while it grows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LowLatency {
    /// `PART-TARGET` of `EXT-X-PART-INF`: maximum duration of a part.
    pub part_target: Duration,
    /// `PART-HOLD-BACK`: distance from the end of the playlist at which players should play; at least three times
    /// [`part_target`](Self::part_target).
    pub part_hold_back: Duration,
    /// `CAN-SKIP-UNTIL`: delta updates omit segments that are further than this from the end; at least six
    /// target durations.
    pub skip_until: Option<Duration>,
    /// `CAN-BLOCK-RELOAD`: the server holds a request for a segment or part that does not exist yet until it
    /// does.
    pub can_block_reload: bool,
    /// The segment that is growing: its parts and its tags so far. It has no duration and no URI yet.
    pub open: Segment,
    /// URI of the next part, from `EXT-X-PRELOAD-HINT`.
    pub hint: Option<String>,
    /// `EXT-X-RENDITION-REPORT`.
    pub reports: Vec<Report>,
}

/// A part of a segment (`EXT-X-PART`, RFC 8216bis §4.4.4.9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// URI as written in the playlist: relative to the playlist, and not checked.
    pub uri: String,
    /// Playback duration.
    pub duration: Duration,
    /// `INDEPENDENT`: the part begins with a key frame.
    pub independent: bool,
}

/// The progress of another rendition (`EXT-X-RENDITION-REPORT`, RFC 8216bis §4.4.5.4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// URI of the other rendition's playlist, relative to this one.
    pub uri: String,
    /// Number of the other rendition's newest segment: its growing one, if that already has parts.
    pub last_segment: u64,
    /// Number of the newest part of that segment.
    pub last_part: Option<u64>,
}

impl MediaPlaylist {
    /// Index of the segment at which to start playing a live stream: three target durations before its end (RFC
    /// 8216 §6.3.3).
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

    /// Adds the date ranges of omitted segments, `gone`, to the first listed segment. Skips tags that the
    /// playlist already contains, and ranges that have ended before that segment begins.
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

    /// A delta update (RFC 8216bis §6.2.5.1): the playlist without the segments that a player already has if it
    /// last loaded the playlist at most half of `CAN-SKIP-UNTIL` ago. `None` if there is nothing to omit.
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
        // A delta update must contain all date ranges, so those of the omitted segments are added
        // to it (§4.4.5.2).
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
    /// Segments may be added, but not removed.
    Event,
    /// The playlist does not change.
    Vod,
}

/// A segment, with the attributes that earlier lines give it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// URI as written in the playlist: relative to the playlist, and not checked.
    pub uri: String,
    /// Playback duration.
    pub duration: Duration,
    /// Text after the duration; often empty.
    pub title: String,
    /// Part of the resource that contains the segment; `None` for the whole resource.
    pub byte_range: Option<ByteRange>,
    /// True if encoding or timestamps change at the start of the segment (§4.3.2.3).
    pub discontinuity: bool,
    /// Key with which the segment is encrypted.
    pub key: Option<Arc<Key>>,
    /// Initialization section that the segment needs.
    pub map: Option<Arc<Map>>,
    /// `EXT-X-PROGRAM-DATE-TIME` in milliseconds of Unix time.
    pub program_date_time: Option<i64>,
    /// `EXT-X-GAP`: the segment's media is missing.
    pub gap: bool,
    /// Parts of the segment. Only the newest segments list theirs.
    pub parts: Vec<Part>,
    /// `EXT-X-DATERANGE` tags before the segment; at most [`DATE_RANGES_MAX`](crate::limits::DATE_RANGES_MAX)
    /// per playlist.
    pub date_ranges: Vec<DateRange>,
}

/// A part of a resource (RFC 8216 §4.3.2.2). Its end fits 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Length in bytes.
    pub length: u64,
    /// Offset of the first byte.
    pub offset: u64,
}

/// `EXT-X-KEY` (RFC 8216 §4.3.2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Encryption method of the segment.
    pub method: Method,
    /// The URI of the key, relative to the playlist; not checked.
    pub uri: String,
    /// Initialization vector. `None`: the segment's sequence number is used.
    pub iv: Option<[u8; 16]>,
    /// `KEYFORMAT`; `None` if it is `identity`. With another format, the URI does not return the raw key.
    pub format: Option<String>,
}

/// Encryption method of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// The whole segment, by AES-128 in CBC mode with PKCS #7 padding.
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
    /// Part of the resource that contains the section; `None` for the whole resource.
    pub byte_range: Option<ByteRange>,
    /// Key with which the section is encrypted.
    pub key: Option<Arc<Key>>,
}
