//! Reads a media playlist.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::attributes::{Attributes, Fault};
use super::date_range::DateRange;
use super::media::{ByteRange, Key, Kind, LowLatency, Map, MediaPlaylist, Method, Part, Report, Segment};
use super::{BLANKS, Line, date, lines, number};
use crate::limits::{DATE_RANGES_MAX, PARTS_MAX, REPORTS_MAX, SEGMENTS_MAX};
use crate::{Error, Limit, Violation};

pub(super) fn read(text: &str) -> Result<MediaPlaylist, Error> {
    let mut reader =
        Reader { playlist: MediaPlaylist { version: 1, ..MediaPlaylist::default() }, ..Reader::default() };
    for (line, item) in lines(text) {
        let done = match item? {
            Line::Tag(name, value) => reader.tag(name, value),
            Line::Uri(uri) => reader.segment(uri).map_err(Fault::Violation),
        };
        done.map_err(|fault| fault.at(line))?;
    }
    Ok(reader.finish())
}

/// A byte range whose offset may not have been read or computed yet.
#[derive(Debug, Clone, Copy)]
struct Range {
    length: u64,
    offset: Option<u64>,
}

/// Numbers of parts and date ranges read so far.
#[derive(Debug, Default)]
struct Counts {
    parts: usize,
    ranges: usize,
}

/// State after the lines read so far.
#[derive(Debug, Default)]
struct Reader {
    playlist: MediaPlaylist,
    target: Option<Duration>,
    longest: Duration,
    segments: VecDeque<Segment>,
    /// Number of segments dropped because there were too many.
    dropped: u64,
    /// Number of discontinuities among the dropped segments.
    dropped_discontinuities: u64,
    /// The next segment, with the attributes of the tags read so far.
    next: Segment,
    duration: Option<Duration>,
    range: Option<Range>,
    /// The key with the format `identity`, and a key of another format. A segment may have both; either one
    /// decrypts it.
    identity: Option<Arc<Key>>,
    other: Option<Arc<Key>>,
    map: Option<Arc<Map>>,
    /// URI of the last byte range's resource, and the offset at which that range ended.
    end: Option<(String, u64)>,
    low: Option<LowLatency>,
    counts: Counts,
}

impl Reader {
    fn tag(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let playlist = &mut self.playlist;
        match name {
            "EXT-X-VERSION" => playlist.version = number::integer(value)?,
            "EXT-X-TARGETDURATION" => self.target = Some(number::duration(value)?),
            "EXT-X-MEDIA-SEQUENCE" => playlist.media_sequence = number::integer(value)?,
            "EXT-X-DISCONTINUITY-SEQUENCE" => playlist.discontinuity_sequence = number::integer(value)?,
            "EXT-X-PLAYLIST-TYPE" if value == "VOD" => playlist.kind = Some(Kind::Vod),
            "EXT-X-PLAYLIST-TYPE" if value == "EVENT" => playlist.kind = Some(Kind::Event),
            "EXT-X-ENDLIST" => playlist.ended = true,
            "EXT-X-INDEPENDENT-SEGMENTS" => playlist.independent_segments = true,
            "EXT-X-DEFINE" => return Err(Fault::Variables),
            "EXTINF" => {
                let (seconds, title) = value.split_once(',').unwrap_or((value, ""));
                self.duration = Some(number::duration(seconds.trim_matches(BLANKS))?);
                title.trim_matches(BLANKS).clone_into(&mut self.next.title);
            }
            "EXT-X-BYTERANGE" => self.range = Some(range(value)?),
            "EXT-X-DISCONTINUITY" => self.next.discontinuity = true,
            "EXT-X-GAP" => self.next.gap = true,
            "EXT-X-PROGRAM-DATE-TIME" => self.next.program_date_time = date::read(value),
            "EXT-X-KEY" => self.key(value)?,
            "EXT-X-MAP" => self.map(value)?,
            "EXT-X-SKIP" => {
                playlist.skipped = number::integer(Attributes::read(value)?.required("SKIPPED-SEGMENTS")?)?;
            }
            "EXT-X-DATERANGE" if self.counts.ranges < DATE_RANGES_MAX => {
                let parts_before = self.next.parts.len();
                let range = DateRange::read(value).map(|range| DateRange { parts_before, ..range });
                self.counts.ranges = self.counts.ranges.saturating_add(usize::from(range.is_some()));
                self.next.date_ranges.extend(range);
            }
            "EXT-X-PART" => self.part(value)?,
            "EXT-X-SERVER-CONTROL" | "EXT-X-PART-INF" | "EXT-X-PRELOAD-HINT" | "EXT-X-RENDITION-REPORT" => {
                self.low_latency(name, value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a part. Parts that are byte ranges or gaps are skipped; a player gets their media with the whole
    /// segment.
    fn part(&mut self, value: &str) -> Result<(), Fault> {
        let attributes = Attributes::read(value)?;
        self.counts.parts = self.counts.parts.saturating_add(1);
        if self.counts.parts > PARTS_MAX {
            return Err(Fault::Limit(Limit::Parts));
        }
        let part = Part {
            uri: attributes.required("URI")?.to_owned(),
            duration: number::duration(attributes.required("DURATION")?)?,
            independent: attributes.is_yes("INDEPENDENT"),
        };
        if attributes.get("BYTERANGE").is_none() && !attributes.is_yes("GAP") {
            self.next.parts.push(part);
        }
        Ok(())
    }

    fn low_latency(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let attributes = Attributes::read(value)?;
        let low = self.low.get_or_insert_default();
        match name {
            "EXT-X-SERVER-CONTROL" => {
                low.can_block_reload = attributes.is_yes("CAN-BLOCK-RELOAD");
                low.skip_until = attributes.parsed("CAN-SKIP-UNTIL", number::duration)?;
                low.part_hold_back =
                    attributes.parsed("PART-HOLD-BACK", number::duration)?.unwrap_or_default();
            }
            "EXT-X-PART-INF" => low.part_target = number::duration(attributes.required("PART-TARGET")?)?,
            "EXT-X-PRELOAD-HINT" if attributes.get("TYPE") == Some("PART") => {
                low.hint = Some(attributes.required("URI")?.to_owned());
            }
            "EXT-X-RENDITION-REPORT" => {
                if low.reports.len() >= REPORTS_MAX {
                    return Err(Fault::Limit(Limit::Reports));
                }
                low.reports.push(Report {
                    uri: attributes.required("URI")?.to_owned(),
                    last_segment: attributes.parsed("LAST-MSN", number::integer)?.unwrap_or_default(),
                    last_part: attributes.parsed("LAST-PART", number::integer)?,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn key(&mut self, value: &str) -> Result<(), Fault> {
        let attributes = Attributes::read(value)?;
        let method = match attributes.required("METHOD")? {
            "NONE" => {
                (self.identity, self.other) = (None, None);
                return Ok(());
            }
            "AES-128" => Method::Aes128,
            "SAMPLE-AES" => Method::SampleAes,
            name => Method::Other(name.to_owned()),
        };
        let format = attributes.text("KEYFORMAT").filter(|format| format != "identity");
        let uri = attributes.required("URI")?.to_owned();
        let is_identity = format.is_none();
        let key = Some(Arc::new(Key { method, uri, iv: attributes.parsed("IV", initial)?, format }));
        if is_identity {
            self.identity = key
        } else {
            self.other = key
        }
        Ok(())
    }

    fn current_key(&self) -> Option<Arc<Key>> {
        self.identity.as_ref().or(self.other.as_ref()).cloned()
    }

    fn map(&mut self, value: &str) -> Result<(), Fault> {
        let attributes = Attributes::read(value)?;
        let byte_range = attributes.parsed("BYTERANGE", range)?.map(|range| ByteRange {
            length: range.length,
            // A range without an offset starts at the first byte, because there is no earlier range to
            // continue.
            offset: range.offset.unwrap_or_default(),
        });
        let uri = attributes.required("URI")?.to_owned();
        self.map = Some(Arc::new(Map { uri, byte_range, key: self.current_key() }));
        Ok(())
    }

    fn segment(&mut self, uri: &str) -> Result<(), Violation> {
        let mut segment = std::mem::take(&mut self.next);
        segment.duration = self.duration.take().ok_or(Violation::NoDuration)?;
        segment.byte_range = match self.range.take() {
            Some(Range { length, offset }) => {
                Some(ByteRange { length, offset: self.offset(uri, length, offset)? })
            }
            None => None,
        };
        self.end =
            segment.byte_range.map(|range| (uri.to_owned(), range.offset.saturating_add(range.length)));
        uri.clone_into(&mut segment.uri);
        segment.key = self.current_key();
        segment.map.clone_from(&self.map);
        self.longest = self.longest.max(segment.duration);
        self.segments.push_back(segment);
        if self.segments.len() > SEGMENTS_MAX {
            let oldest = self.segments.pop_front();
            // The sequence numbers are corrected at the end, because their tags may follow the segments.
            self.dropped = self.dropped.saturating_add(1);
            if oldest.is_some_and(|segment| segment.discontinuity) {
                self.dropped_discontinuities = self.dropped_discontinuities.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Offset at which a byte range begins. A range without an explicit offset begins where the previous range
    /// of the same resource ended.
    fn offset(&self, uri: &str, length: u64, offset: Option<u64>) -> Result<u64, Violation> {
        let continued = || self.end.as_ref().filter(|(before, _)| before == uri).map(|(_, end)| *end);
        let offset = offset.or_else(continued).ok_or(Violation::ByteRange)?;
        offset.checked_add(length).map(|_| offset).ok_or(Violation::Number)
    }

    fn finish(self) -> MediaPlaylist {
        let target = self.target.unwrap_or(self.longest);
        let seconds = target.as_secs().saturating_add(u64::from(target.subsec_nanos() > 0));
        // A low-latency playlist must have a part target; without it, the low-latency tags are ignored.
        let open = Segment { map: self.map.filter(|_| !self.next.parts.is_empty()), ..self.next };
        let low_latency = self.low.filter(|low| !low.part_target.is_zero());
        MediaPlaylist {
            low_latency: low_latency.map(|low| Box::new(LowLatency { open, ..low })),
            target_duration: Duration::from_secs(seconds),
            media_sequence: self.playlist.media_sequence.saturating_add(self.dropped),
            discontinuity_sequence: (self.playlist.discontinuity_sequence)
                .saturating_add(self.dropped_discontinuities),
            segments: self.segments.into(),
            ..self.playlist
        }
    }
}

/// Reads `length` or `length@offset`.
fn range(value: &str) -> Result<Range, Violation> {
    let (length, offset) = match value.split_once('@') {
        Some((length, offset)) => (length, Some(number::integer(offset)?)),
        None => (value, None),
    };
    let length = number::integer(length)?;
    if length == 0 || offset.is_some_and(|offset: u64| offset.checked_add(length).is_none()) {
        return Err(Violation::Number);
    }
    Ok(Range { length, offset })
}

/// Reads an initialization vector: `0x` and up to 32 hexadecimal digits.
fn initial(value: &str) -> Result<[u8; 16], Violation> {
    let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")).ok_or(Violation::Number)?;
    if digits.is_empty() || digits.len() > 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Violation::Number);
    }
    u128::from_str_radix(digits, 16).map(u128::to_be_bytes).map_err(|_| Violation::Number)
}
