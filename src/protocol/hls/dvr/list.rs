//! A viewer's playlist of the segments to which the viewer can rewind: from a chosen beginning (`start`), up to an
//! end, or as a delta update.
//!
//! All viewers share the text of [`super::reach`]. The beginning is found by binary search over the comments in front
//! of chunks, and the text from there on is sent unchanged. The cost of a request therefore depends on the bytes that
//! are sent, not on the length of the window.

use std::ops::Range;

use bytes::Bytes;
use hls::Playlist;
use hls::limits::DATE_RANGES_MAX;
use hls::playlist::{Date, Segment, SegmentLines};

use super::edge::CONTROLS;
use super::reach::{KEY, MARK, Mark, RANGE, RANGED};

/// Delta updates leave out segments further than this many target durations from the end (RFC 8216bis §4.4.3.8).
pub(super) const SKIP_TARGETS: u64 = 6;
/// The version of a playlist with `EXT-X-SKIP` (RFC 8216bis §8).
const SKIP_VERSION: u32 = 9;
/// Beginnings of lines.
const MAP: &str = "#EXT-X-MAP:";
const DATE: &str = "#EXT-X-PROGRAM-DATE-TIME:";
const LENGTH: &str = "#EXTINF:";
const STEP: &str = "#EXT-X-DISCONTINUITY";
const END: &str = "#EXT-X-ENDLIST\n";

/// The part of a stream that a viewer has chosen; times are in milliseconds of Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::protocol::hls) struct Choice {
    /// The time at which the playlist begins.
    pub(in crate::protocol::hls) start_ms: Option<i64>,
    /// True if the beginning advances with the clock, because `start` is relative to now.
    pub(in crate::protocol::hls) is_sliding: bool,
    /// The time at which the playlist ends, as that of a recording does; `None` if the playlist continues with the
    /// stream.
    pub(in crate::protocol::hls) end_ms: Option<i64>,
    /// True if the viewer has a recent playlist, so that a delta update suffices.
    pub(in crate::protocol::hls) has_rest: bool,
}

/// The place of a segment in the text of all segments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found<'t> {
    /// Position of the first byte of its lines.
    at: usize,
    number: u64,
    discontinuities: u64,
    date_ms: i64,
    /// Preceding lines that apply to the segment: initialization section and key.
    held: Vec<&'t str>,
    is_dated: bool,
}

/// Returns the lines of a viewer's playlist.
pub(in crate::protocol::hls) fn select(bytes: &Bytes, choice: Choice) -> Option<Vec<Bytes>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let first = next_mark(text, 0..text.len())?;
    let head = text.get(..first.0)?;
    let (behind, is_ended) = match text.strip_suffix(END) {
        Some(before) => (before.len(), true),
        None => (text.len(), false),
    };
    let begin = match choice.start_ms {
        // From one reload to the next, the lines of a listed segment must stay the same (RFC 8216 §6.2.2), but the
        // first segment of a playlist needs a date, and not every segment has one. A playlist with a sliding
        // beginning therefore begins with a chunk, whose first segment has a date.
        Some(start_ms) if choice.is_sliding && choice.end_ms.is_none() => {
            found(last_chunk(text, first.0..behind, |mark| mark.begin_ms <= start_ms)?)
        }
        Some(start_ms) => segment_at(text, first.0..behind, start_ms)?,
        None => found(first),
    };
    let end = match choice.end_ms {
        Some(end_ms) => end_of(text, begin.at..behind, begin.date_ms, end_ms),
        None => behind,
    };
    let skip = skipped(text, begin.at..behind, head)
        .filter(|(_, mark)| choice.has_rest && choice.end_ms.is_none() && mark.number > begin.number);
    let mut lines = String::new();
    for line in head.split_inclusive('\n') {
        match skip {
            _ if choice.end_ms.is_some() && CONTROLS.iter().any(|start| line.starts_with(start)) => {}
            Some(_) if line.starts_with("#EXT-X-VERSION:") => {
                lines.push_str(&format!("#EXT-X-VERSION:{SKIP_VERSION}\n"));
            }
            Some(_) | None => lines.push_str(line),
        }
    }
    lines.push_str(&format!("#EXT-X-MEDIA-SEQUENCE:{}\n", begin.number));
    lines.push_str(&format!("#EXT-X-DISCONTINUITY-SEQUENCE:{}\n", begin.discontinuities));
    match (choice.end_ms, choice.start_ms) {
        (Some(_), _) => lines.push_str("#EXT-X-PLAYLIST-TYPE:VOD\n"),
        (None, Some(start_ms)) => {
            let offset_ms = start_ms.saturating_sub(begin.date_ms).clamp(0, 3_600_000);
            lines.push_str(&format!(
                "#EXT-X-START:TIME-OFFSET={}.{:03},PRECISE=YES\n",
                offset_ms / 1000,
                offset_ms % 1000
            ));
        }
        (None, None) => {}
    }
    let from = match skip {
        Some((at, mark)) => {
            let skipped = mark.number.saturating_sub(begin.number);
            lines.push_str(&format!("#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}\n"));
            // Date ranges are listed even for skipped segments (RFC 8216bis §4.4.5.2).
            let ranges = text.get(begin.at..at).into_iter().flat_map(ranges);
            ranges.for_each(|line| lines.push_str(line));
            at
        }
        None => {
            lines.push_str(&going_on(text, head, first.0..begin.at, begin.date_ms).unwrap_or_default());
            begin.held.iter().for_each(|line| lines.push_str(line));
            if !begin.is_dated {
                lines.push_str(&format!("{DATE}{}\n", Date(begin.date_ms)));
            }
            begin.at
        }
    };
    let ending = if is_ended || choice.end_ms.is_some() { END } else { "" };
    let ending = Bytes::from_static(ending.as_bytes());
    Some(vec![Bytes::from(lines), bytes.slice(from..end.max(from)), ending])
}

/// Returns the lines of date ranges that began before a date and are still open at that date.
fn going_on(text: &str, head: &str, before: Range<usize>, date_ms: i64) -> Option<String> {
    if before.is_empty() || !head.contains(RANGED) {
        return None;
    }
    // The newest lines count, because older ranges are more likely to have ended, and the reader has a limit.
    let text = text.get(before)?;
    let newest = text.rmatch_indices(RANGE).take(DATE_RANGES_MAX).last().map_or(text.len(), |(at, _)| at);
    let gone: String = ranges(text.get(newest..)?).collect();
    let list = format!("{head}{gone}{DATE}{}\n{LENGTH}1,\nx\n", Date(date_ms));
    let Ok(Playlist::Media(mut list)) = Playlist::read(list.as_bytes()) else { return None };
    let gone = std::mem::take(&mut list.segments.first_mut()?.date_ranges);
    list.carry(gone);
    let date_ranges = std::mem::take(&mut list.segments.first_mut()?.date_ranges);
    let segments = [Segment { date_ranges, ..Segment::default() }];
    let lines = SegmentLines { behind: None, segments: &segments }.to_string();
    Some(ranges(&lines).collect())
}

/// Returns the lines of date ranges.
fn ranges(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(RANGE).filter_map(|(at, _)| text.get(at..)?.split_inclusive('\n').next())
}

/// Returns the first chunk that begins in a range of bytes.
fn next_mark(text: &str, range: Range<usize>) -> Option<(usize, Mark)> {
    let at = range.start.saturating_add(text.get(range.start..)?.find(MARK)?);
    if at >= range.end {
        return None;
    }
    Some((at, Mark::read(text.get(at..)?.lines().next()?)?))
}

/// Returns the first segment of a chunk.
const fn found<'t>((at, mark): (usize, Mark)) -> Found<'t> {
    Found {
        at,
        number: mark.number,
        discontinuities: mark.discontinuities,
        date_ms: mark.begin_ms,
        held: Vec::new(),
        is_dated: true,
    }
}

/// Returns the last chunk that fits, or the first one if none does. The chunks that fit must precede all others,
/// because the search is binary.
fn last_chunk(text: &str, range: Range<usize>, fits: impl Fn(&Mark) -> bool) -> Option<(usize, Mark)> {
    let mut last = next_mark(text, range.clone())?;
    let (mut from, mut to) = (last.0.saturating_add(1), range.end);
    while from < to {
        let mut middle = from.saturating_add(to.saturating_sub(from) / 2);
        while !text.is_char_boundary(middle) {
            middle = middle.saturating_add(1);
        }
        match next_mark(text, middle.min(to)..to) {
            Some((at, mark)) if fits(&mark) => {
                last = (at, mark);
                from = at.saturating_add(1);
            }
            // No chunk begins in the second half, or none that fits.
            Some(_) | None => to = middle.min(to.saturating_sub(1)),
        }
    }
    Some(last)
}

/// Returns the segment that is shown at a date; the first one if the date is before all segments, the last one if it
/// is after all.
fn segment_at(text: &str, range: Range<usize>, start_ms: i64) -> Option<Found<'_>> {
    let mut segment = found(last_chunk(text, range.clone(), |mark| mark.begin_ms <= start_ms)?);
    let (mut begin, mut passed, mut discontinuities) =
        (segment.at, segment.discontinuities, segment.discontinuities);
    let (mut number, mut date_ms, mut length_ms, mut is_dated) = (segment.number, segment.date_ms, 0, true);
    let mut at = begin;
    let (mut held, mut before): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in text.get(begin..range.end)?.split_inclusive('\n') {
        at = at.saturating_add(line.len());
        if line.starts_with(MAP) || line.starts_with(KEY) {
            let kind = line.split(':').next().unwrap_or_default();
            held.retain(|other| !other.starts_with(kind));
            held.push(line);
        } else if line.starts_with(STEP) {
            discontinuities = discontinuities.saturating_add(1);
        } else if let Some(date) = line.strip_prefix(DATE) {
            date_ms = Date::read(date.trim_end()).map_or(date_ms, |Date(ms)| ms);
            is_dated = true;
        } else if let Some(length) = line.strip_prefix(LENGTH) {
            length_ms = milliseconds(length);
        } else if !line.starts_with('#') {
            let held_before = before.clone();
            segment =
                Found { at: begin, number, discontinuities: passed, date_ms, is_dated, held: held_before };
            if date_ms.saturating_add(length_ms) > start_ms {
                break;
            }
            (begin, passed, is_dated) = (at, discontinuities, false);
            before.clone_from(&held);
            number = number.saturating_add(1);
            date_ms = date_ms.saturating_add(length_ms);
        }
    }
    Some(segment)
}

/// Returns the position after the last segment that begins before a date.
fn end_of(text: &str, range: Range<usize>, first_ms: i64, end_ms: i64) -> usize {
    let chunk = last_chunk(text, range.clone(), |mark| mark.begin_ms < end_ms);
    // Segments before the first chunk in the range belong to the chunk in which the range begins.
    let chunk = chunk.filter(|(_, mark)| mark.begin_ms < end_ms);
    let (mut at, mut date_ms) = chunk.map_or((range.start, first_ms), |(at, mark)| (at, mark.begin_ms));
    let (mut end, mut length_ms) = (at, 0);
    for line in text.get(at..range.end).unwrap_or_default().split_inclusive('\n') {
        at = at.saturating_add(line.len());
        if let Some(date) = line.strip_prefix(DATE) {
            date_ms = Date::read(date.trim_end()).map_or(date_ms, |Date(ms)| ms);
        } else if let Some(length) = line.strip_prefix(LENGTH) {
            length_ms = milliseconds(length);
        } else if !line.starts_with('#') {
            if date_ms >= end_ms {
                break;
            }
            end = at;
            date_ms = date_ms.saturating_add(length_ms);
        }
    }
    end
}

/// Returns the first chunk that a delta update includes.
fn skipped(text: &str, range: Range<usize>, head: &str) -> Option<(usize, Mark)> {
    let target = head.lines().find_map(|line| line.strip_prefix("#EXT-X-TARGETDURATION:"))?;
    let near_ms = target.parse::<i64>().ok()?.checked_mul(i64::try_from(SKIP_TARGETS).ok()?)?;
    let near_ms = near_ms.checked_mul(1000)?;
    let (_, last) = last_chunk(text, range.clone(), |_| true)?;
    let boundary_ms = last.end_ms.saturating_sub(near_ms);
    last_chunk(text, range, |mark| mark.begin_ms <= boundary_ms)
        .filter(|(_, mark)| mark.begin_ms <= boundary_ms)
}

/// Reads a duration in seconds, and returns it in milliseconds.
fn milliseconds(text: &str) -> i64 {
    let seconds = text.split(',').next().unwrap_or_default();
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let whole = whole.trim().parse::<i64>().unwrap_or(0);
    whole.saturating_mul(1000).saturating_add(part.parse().unwrap_or(0))
}
