//! The list of segments, and the playlist of the newest ones (RFC 8216).
//!
//! A segment ends at the first key frame of the leading video track after [`Rules::segment_ms`]; sound alone is cut anywhere. Lengths are
//! measured in that track, since units of others may come earlier or later. The segments of the first playlist end at key frames
//! alone, up to [`FIRST_MS_MAX`], and set the target duration, which must not change (§6.2.1) and which no segment may exceed when
//! rounded (§4.3.3.1): a later one without a key frame in time is cut where it would. So the segments of a publisher with unsteady
//! key frames do not all begin with one, and from the first of those on they are not said to (`EXT-X-INDEPENDENT-SEGMENTS`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Rules;
use super::cues::{Cue, Cues};
use crate::playlist::{Map, MediaPlaylist, Part, Segment};

/// The longest segment before the target duration is known, when no key frame comes: 20 s when rounded.
const FIRST_MS_MAX: i64 = 20_390;
/// Added to the longest of the first segments when it is rounded to the target duration: segments of other renditions, whose frames
/// are not cut at the same times, are a little longer.
const ROUNDING_MS: u64 = 600;
/// Time between two units that is missing, where segments may be longer.
const GAP_MS: i64 = 5000;
/// Lag, beyond its usual one, of a leading track that has paused: its segments end by the time of the others. The usual
/// lag is the largest one of this segment and the last at which the track went on.
pub(super) const SILENT_MS: i64 = 300;
/// Largest lag that is a usual one.
const LAG_MS_MAX: i64 = 1000;
/// Bytes of one segment, but for its last unit: with so many it ends.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of the segments that a playlist names: of a stream with a high rate there are few.
pub const PLAYLIST_BYTES_MAX: usize = 44 << 20;
/// A playlist is not shown with less than so many segments, or so much of them: players begin three from its end (§6.3.3),
/// and some cannot when there are fewer.
const FIRST_SEGMENTS: u64 = 3;
const FIRST_DURATION: Duration = Duration::from_secs(6);
/// The duration of what stands alone behind the last time that is known.
const STEP_MS: i64 = 20;

/// Gaps that are listed at once, at most: a longer pause of the other renditions is one of all. One at a time is no longer than a segment
/// may be.
pub(super) const GAPS_AT_ONCE_MAX: usize = 8;

/// Milliseconds of Unix time from which numbers count: the beginning of 2026.
pub const NUMBERS_FROM_MS: u64 = 1_767_225_600_000;
/// Numbers grow by four a second, faster than segments come, and have nine digits for eight years.
const NUMBER_MS: u64 = 250;

/// Numbers of discontinuities before they begin anew. Small, because hls.js keeps a list as long as the number, and goes through it
/// with each fragment: over a number of nine digits the page of a viewer stands still for seconds.
const DISCONTINUITIES: u64 = 1 << 16;

/// First numbers of a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The number of the first segment.
    pub number: u64,
    /// The discontinuities before it.
    pub discontinuities: u64,
}

impl Start {
    /// The start of a stream now, in milliseconds of Unix time. Its numbers follow from the wall clock and are larger than all that a stream of its name has had: over
    /// a stop and a start, and a restart of the server, the media sequence does not fall (RFC 8216 §6.2.2), and no name comes to
    /// have another content, which caches would confuse. Another discontinuity tells players that the timestamps are others; its number
    /// begins anew every 4.5 hours.
    #[must_use]
    pub const fn at_unix_ms(now_ms: u64) -> Self {
        let number = now_ms.saturating_sub(NUMBERS_FROM_MS) / NUMBER_MS + 1;
        Self { number, discontinuities: number % DISCONTINUITIES }
    }
}

/// The properties of a unit that a window uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    /// DTS in milliseconds.
    pub(super) dts_ms: i64,
    /// Date of the unit, in milliseconds of Unix time.
    pub(super) date_ms: i64,
    /// True if a segment may begin with the unit.
    pub(super) begins: bool,
    /// Number of changes of the tracks so far.
    pub(super) epoch: u32,
    /// True if the unit is of the leading track, by which the length of segments is measured.
    pub(super) leads: bool,
}

/// The last unit of a track, or of several.
#[derive(Debug, Clone, Copy)]
struct Last {
    dts_ms: i64,
    /// Distance from the one before.
    step_ms: i64,
}

impl Last {
    /// Behind `before`, in another stretch of time if it has `changed`.
    fn next(before: Option<Self>, dts_ms: i64, changed: bool) -> Self {
        let step_ms = before.map_or(STEP_MS, |last| dts_ms.saturating_sub(last.dts_ms).max(0));
        Self { dts_ms, step_ms: if changed { STEP_MS } else { step_ms } }
    }

    const fn end_ms(&self) -> i64 {
        self.dts_ms.saturating_add(self.step_ms)
    }
}

/// The end of the growing segment before a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// DTS at which the segment ends, in milliseconds.
    pub(super) at_ms: i64,
    /// True if the tracks change there, or time is missing.
    pub(super) changed: bool,
}

/// The beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the segment.
    pub number: u64,
    /// Number of discontinuities up to and including that of the segment.
    pub discontinuities: u64,
    /// DTS at which the segment begins, in milliseconds.
    pub begin_ms: i64,
}

/// The segment that grows.
#[derive(Debug)]
struct Open {
    begin_ms: i64,
    date_ms: i64,
    discontinuity: bool,
    /// True if a segment may begin with the first unit of the leading track; `None` before that unit.
    begins: Option<bool>,
}

/// Numbers of segments.
#[derive(Debug)]
struct Numbers {
    /// The number of the first segment.
    first: u64,
    /// Segments so far.
    cut: u64,
}

/// The segments of one playlist.
#[derive(Debug)]
pub struct Window {
    segment_ms: i64,
    list_size: usize,
    open: Option<Open>,
    /// The epoch of the last unit.
    epoch: Option<u32>,
    /// The last unit of the leading track, and of all others.
    last: Option<Last>,
    beside: Option<Last>,
    /// Largest lag of the leading track behind the others after which it went on, in milliseconds: in the last segment and
    /// in this one. At most [`LAG_MS_MAX`].
    lags_ms: [i64; 2],
    /// Milliseconds from DTS to the date, in the last segment that began.
    offset_ms: Option<i64>,
    playlist: MediaPlaylist,
    /// Bytes of each segment of the playlist.
    sizes: Vec<usize>,
    numbers: Numbers,
    /// The segment that grows ends at the first key frame from this time on, and not by its length.
    due_ms: Option<i64>,
    /// Nothing more comes.
    is_over: bool,
    left: Left,
    cues: Cues,
}

/// Names that the playlist no longer has. They can be fetched for as long as their segment plays, and the longest playlist that had
/// it (RFC 8216 §6.2.2), measured in segments that have come.
#[derive(Debug, Default)]
struct Left {
    /// The names, each with the time until which it stays.
    names: VecDeque<(Duration, String)>,
    /// Names that have just left.
    new: Vec<String>,
    /// Length of all segments so far, and of the longest playlist.
    passed: Duration,
    longest: Duration,
}

impl Left {
    /// Takes the name of something that has left, and that belongs to a segment of this length.
    fn add(&mut self, name: String, length: Duration) {
        let until = self.passed.saturating_add(length).saturating_add(self.longest);
        self.new.push(name.clone());
        self.names.push_back((until, name));
    }
}

impl Window {
    /// Of a playlist with this version.
    pub(super) fn new(rules: &Rules, version: u32, start: Start) -> Self {
        let playlist = MediaPlaylist {
            version,
            media_sequence: start.number,
            discontinuity_sequence: start.discontinuities,
            independent_segments: true,
            ..MediaPlaylist::default()
        };
        Self {
            segment_ms: rules.segment_ms,
            list_size: rules.list_size,
            open: None,
            epoch: None,
            last: None,
            beside: None,
            lags_ms: [0; 2],
            offset_ms: None,
            playlist,
            sizes: Vec::new(),
            numbers: Numbers { first: start.number, cut: 0 },
            due_ms: None,
            is_over: false,
            left: Left::default(),
            cues: Cues::default(),
        }
    }

    /// The number of the segment that grows.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.numbers.first.saturating_add(self.numbers.cut)
    }

    /// True if there was a segment.
    #[must_use]
    pub const fn has_cut(&self) -> bool {
        self.numbers.cut > 0
    }

    /// First numbers of a playlist that runs beside this one from the next segment on.
    #[must_use]
    pub fn start_beside(&self) -> Start {
        let shown = self.playlist.segments.iter().filter(|segment| segment.discontinuity).count() as u64;
        let discontinuities = self.playlist.discontinuity_sequence.saturating_add(shown);
        Start { number: self.number(), discontinuities }
    }

    /// Gives the first numbers, as long as there is no segment.
    pub const fn begin_at(&mut self, start: Start) {
        if self.numbers.cut == 0 {
            self.numbers.first = start.number;
            self.playlist.media_sequence = start.number;
            self.playlist.discontinuity_sequence = start.discontinuities;
        }
    }

    /// The segment that grows is to end at the first key frame from this time on.
    pub const fn end_from(&mut self, due_ms: i64) {
        self.due_ms = Some(due_ms);
    }

    /// The beginning of the segment that grows.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let open = self.open.as_ref()?;
        let Start { number, discontinuities } = self.start_beside();
        let discontinuities = discontinuities.saturating_add(u64::from(open.discontinuity));
        Some(Mark { number, discontinuities, begin_ms: open.begin_ms })
    }

    /// The time at which the segment that grows began, in milliseconds of DTS.
    #[must_use]
    pub fn begin_ms(&self) -> Option<i64> {
        self.open.as_ref().map(|open| open.begin_ms)
    }

    /// The playlist as of now.
    #[must_use]
    pub const fn playlist(&self) -> &MediaPlaylist {
        &self.playlist
    }

    /// Nothing more comes, which the playlist tells or does not.
    pub(super) const fn finish(&mut self, is_told: bool) {
        self.is_over = true;
        self.playlist.ended = is_told;
    }

    /// True if nothing more comes.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The playlist, to change attributes of the whole.
    pub(super) const fn playlist_mut(&mut self) -> &mut MediaPlaylist {
        &mut self.playlist
    }

    /// Bytes of the largest segment by its milliseconds, times 8000: bits per second.
    #[must_use]
    pub fn peak_bits(&self) -> u64 {
        let bits = |(segment, bytes): (&Segment, &usize)| {
            let ms = u64::try_from(segment.duration.as_millis()).unwrap_or(u64::MAX).max(1);
            (*bytes as u64).saturating_mul(8000) / ms
        };
        self.playlist.segments.iter().zip(&self.sizes).map(bits).max().unwrap_or(0)
    }

    /// Bytes of all segments of the playlist by their time, in bits per second.
    #[must_use]
    pub fn average_bits(&self) -> u64 {
        let bytes = self.sizes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes as u64));
        let length: Duration = self.playlist.segments.iter().map(|segment| segment.duration).sum();
        bytes.saturating_mul(8000) / u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Names that the playlist had, and nobody fetches any more, since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<String> {
        let stays = |(until, _): &(Duration, String)| *until > self.left.passed;
        let gone = self.left.names.iter().position(stays).unwrap_or(self.left.names.len());
        self.left.names.drain(..gone).map(|(_, name)| name).collect()
    }

    /// Names that the playlist has had until now, since the last call.
    pub(super) fn take_left(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left.new)
    }

    /// Something is needed no more by segments of the playlist, and by those that have left it as long as they stay.
    pub(super) fn leave(&mut self, name: String) {
        self.left.add(name, self.playlist.target_duration);
    }

    /// True if a playlist would name enough to begin with, and its target duration is known.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.has_target() && self.has_enough()
    }

    const fn has_target(&self) -> bool {
        !self.playlist.target_duration.is_zero()
    }

    fn has_enough(&self) -> bool {
        let duration = || self.playlist.segments.iter().map(|segment| segment.duration).sum::<Duration>();
        let is_enough = self.numbers.cut >= FIRST_SEGMENTS || self.is_over || duration() >= FIRST_DURATION;
        is_enough && self.numbers.cut > 0
    }

    /// Sets the target duration when all segments for a first playlist are there.
    pub(super) fn settle(&mut self) {
        if self.has_enough() {
            self.adopt(self.wanted_target());
        }
    }

    /// True if the target duration can be set: it is not yet, and all segments for a first playlist are there.
    #[must_use]
    pub fn is_ripe(&self) -> bool {
        !self.has_target() && self.has_enough()
    }

    /// True if there are segments of more time than one has that waits for a key frame.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        let longest = Duration::from_millis(FIRST_MS_MAX.unsigned_abs());
        self.playlist.segments.iter().map(|segment| segment.duration).sum::<Duration>() >= longest
    }

    /// The target duration that the segments so far need, and the one that grows as far as it has come.
    #[must_use]
    pub fn wanted_target(&self) -> Duration {
        let growing = self.begin_ms().map_or(0, |begin_ms| self.end_ms().saturating_sub(begin_ms).max(0));
        let growing = Duration::from_millis(growing.unsigned_abs());
        let longest =
            self.playlist.segments.iter().map(|segment| segment.duration).fold(growing, Duration::max);
        let rounded = longest.saturating_add(Duration::from_millis(ROUNDING_MS)).as_secs();
        Duration::from_secs(rounded).max(Duration::from_millis(self.segment_ms.unsigned_abs()))
    }

    /// Sets the target duration, once: that of all renditions has to be the same (RFC 8216 §6.2.4).
    pub const fn adopt(&mut self, target: Duration) {
        if !self.has_target() {
            self.playlist.target_duration = target;
        }
    }

    /// True if the segment that grows, which has so many bytes, ends before this unit.
    pub(super) fn ends_before(&self, unit: &Unit, bytes: usize) -> Option<End> {
        let changed = self.epoch.is_some_and(|epoch| epoch != unit.epoch) || self.is_behind_a_gap(unit);
        if changed {
            return Some(End { at_ms: self.end_ms(), changed });
        }
        // A unit that reveals a pause of the leading track may lie beyond the longest duration.
        let latest_ms =
            self.begin_ms().map_or(unit.dts_ms, |begin_ms| begin_ms.saturating_add(self.longest_ms()));
        self.is_due(unit, bytes).then(|| End { at_ms: unit.dts_ms.min(latest_ms), changed })
    }

    /// As [`Self::ends_before`], for a segment that ends where another window's does, and here only where it must.
    pub(super) fn must_end_before(&self, unit: &Unit, bytes: usize) -> Option<End> {
        let end = self.ends_before(unit, bytes);
        end.filter(|end| end.changed || self.would_be_too_long(unit, bytes))
    }

    /// Takes note of a unit that was added.
    pub(super) fn note(&mut self, unit: &Unit, changed: bool) {
        self.epoch = Some(unit.epoch);
        if changed {
            (self.last, self.beside) = (None, None);
        }
        if unit.leads
            && let (Some(last), Some(beside)) = (self.last, self.beside)
        {
            let lag_ms = beside.dts_ms.saturating_sub(last.dts_ms).min(LAG_MS_MAX);
            let [_, largest_ms] = &mut self.lags_ms;
            *largest_ms = lag_ms.max(*largest_ms);
        }
        let last = if unit.leads { &mut self.last } else { &mut self.beside };
        *last = Some(Last::next(*last, unit.dts_ms, changed));
        if let Some(open) = &mut self.open {
            open.begins = open.begins.or_else(|| unit.leads.then_some(unit.begins));
            return;
        }
        let offset_ms = unit.date_ms.saturating_sub(unit.dts_ms);
        let jumps = self.offset_ms.replace(offset_ms).is_some_and(|before| before != offset_ms);
        let discontinuity = changed || jumps;
        let begins = unit.leads.then_some(unit.begins);
        self.open = Some(Open { begin_ms: unit.dts_ms, date_ms: unit.date_ms, discontinuity, begins });
    }

    /// Takes splice information, and returns true if it says anything new: its tags stand before the segment that grows.
    pub(super) fn cue(&mut self, cue: &Cue) -> bool {
        self.cue_behind(cue, 0)
    }

    /// As [`Self::cue`], behind so many parts of the segment that grows.
    pub(super) fn cue_behind(&mut self, cue: &Cue, parts: usize) -> bool {
        self.cues.take(cue, parts, &mut self.playlist.segments)
    }

    /// Adds so much to all dates, of which none was shown.
    pub(super) fn move_dates(&mut self, by_ms: i64) {
        let open = self.open.as_mut().map(|open| &mut open.date_ms);
        let ranges = self.playlist.segments.iter_mut().flat_map(|one| &mut one.date_ranges);
        ranges.for_each(|range| range.start_ms = range.start_ms.saturating_add(by_ms));
        self.cues.move_dates(by_ms);
        let segments = self.playlist.segments.iter_mut().filter_map(|one| one.program_date_time.as_mut());
        for date in segments.chain(open).chain(&mut self.offset_ms) {
            *date = date.saturating_add(by_ms);
        }
    }

    /// The end of the media received so far.
    #[must_use]
    pub fn end_ms(&self) -> i64 {
        let end_ms = |last: Option<Last>| last.map(|last| last.end_ms());
        let (lead, beside) = (end_ms(self.last), end_ms(self.beside));
        let paused =
            beside.filter(|beside| lead.is_none_or(|lead| beside.saturating_sub(lead) > self.silent_ms()));
        paused.or(lead).unwrap_or(0)
    }

    /// Tags of the segment that grows.
    pub(super) fn open_segment(&self, map: Option<&Arc<Map>>, parts: &[Part]) -> Segment {
        self.open.as_ref().map_or_else(Segment::default, |open| Segment {
            discontinuity: open.discontinuity,
            program_date_time: Some(open.date_ms),
            map: map.cloned(),
            parts: parts.to_vec(),
            date_ranges: self.cues.growing().to_vec(),
            ..Segment::default()
        })
    }

    /// Ends the segment that grows. False when there is none.
    pub(super) fn close(&mut self, end_ms: i64, uri: &str, bytes: usize, segment: Segment) -> bool {
        let Some(open) = self.open.take() else { return false };
        self.cues.end_segment();
        let [_, largest_ms] = self.lags_ms;
        self.lags_ms = [largest_ms, 0];
        self.due_ms = None;
        let duration = Duration::from_millis(end_ms.saturating_sub(open.begin_ms).max(1).unsigned_abs());
        self.playlist.independent_segments &= open.begins != Some(false);
        self.numbers.cut = self.numbers.cut.saturating_add(1);
        self.sizes.push(bytes);
        self.playlist.segments.push(Segment { uri: uri.to_owned(), duration, ..segment });
        self.left.passed = self.left.passed.saturating_add(duration);
        self.forget_oldest();
        let listed = self.playlist.segments.iter().map(|segment| segment.duration).sum();
        self.left.longest = self.left.longest.max(listed);
        true
    }

    /// Adds a segment of which nothing is there (RFC 8216bis §4.4.4.7), from the end of the last one until `end_ms`, and no longer than
    /// one may be. False when there is no time for one, or nothing to go on from. `dated` gives the date of its beginning.
    pub(super) fn add_gap(
        &mut self,
        end_ms: i64,
        dated: impl Fn(i64) -> i64,
        (uri, map): (&str, Option<&Arc<Map>>),
    ) -> bool {
        let begin_ms = self.end_ms();
        let missing_ms = end_ms.saturating_sub(begin_ms);
        if self.open.is_some() || self.numbers.cut == 0 || self.epoch.is_none() || missing_ms <= 0 {
            return false;
        }
        // As many of one length as it takes.
        let gaps = missing_ms.saturating_sub(1) / self.longest_ms().max(1) + 1;
        let end_ms = begin_ms.saturating_add(missing_ms / gaps);
        self.open = Some(Open { begin_ms, date_ms: dated(begin_ms), discontinuity: false, begins: None });
        let gap = Segment { gap: true, ..self.open_segment(map, &[]) };
        self.last = Some(Last { dts_ms: end_ms, step_ms: 0 });
        self.close(end_ms, uri, 0, gap)
    }

    /// The longest duration of a segment, in milliseconds: rounded it is the target, also if its last frame has no duration and is
    /// given one.
    fn longest_ms(&self) -> i64 {
        match i64::try_from(self.playlist.target_duration.as_millis()) {
            Ok(0) => FIRST_MS_MAX,
            target_ms => target_ms.unwrap_or(i64::MAX).saturating_add(498),
        }
    }

    /// True if a unit tells how long the open segment is: one of the leading track, or any while that has paused.
    fn is_measure(&self, unit: &Unit) -> bool {
        let lead = self.last.map_or_else(|| self.begin_ms().unwrap_or(unit.dts_ms), |last| last.dts_ms);
        unit.leads || unit.dts_ms.saturating_sub(lead) > self.silent_ms()
    }

    /// Lag of the leading track from which on it has paused, in milliseconds.
    fn silent_ms(&self) -> i64 {
        let [before_ms, largest_ms] = self.lags_ms;
        before_ms.max(largest_ms).saturating_add(SILENT_MS)
    }

    /// True if so much is missing before this unit that the open segment does not last until it.
    fn is_behind_a_gap(&self, unit: &Unit) -> bool {
        let is_longer = |open: &Open| unit.dts_ms.saturating_sub(open.begin_ms) > self.longest_ms();
        let since = |last: Last| unit.dts_ms.saturating_sub(last.dts_ms);
        // The other tracks go on where the leading one pauses: nothing is missing.
        if !unit.leads && self.beside.is_some_and(|beside| since(beside) <= SILENT_MS) {
            return false;
        }
        let is_missing = self.last.into_iter().chain(self.beside).all(|last| since(last) > GAP_MS);
        self.open.as_ref().is_some_and(|open| is_missing || is_longer(open)) && self.is_measure(unit)
    }

    /// Distance of a unit from the one before it.
    fn step_to(&self, unit: &Unit) -> i64 {
        let last = if unit.leads { self.last } else { self.beside };
        last.map_or(0, |last| unit.dts_ms.saturating_sub(last.dts_ms))
    }

    /// True if the open segment ends before this unit.
    fn is_due(&self, unit: &Unit, bytes: usize) -> bool {
        let is_long_enough = |begin_ms: i64| match self.due_ms {
            Some(due_ms) => unit.dts_ms >= due_ms,
            None => unit.dts_ms.saturating_sub(begin_ms) >= self.segment_ms,
        };
        unit.begins && self.begin_ms().is_some_and(is_long_enough) || self.would_be_too_long(unit, bytes)
    }

    /// True if the open segment is larger than one may be, or longer with one more unit like this.
    fn would_be_too_long(&self, unit: &Unit, bytes: usize) -> bool {
        let Some(begin_ms) = self.begin_ms() else { return false };
        let elapsed = unit.dts_ms.saturating_sub(begin_ms);
        let is_too_long = elapsed.saturating_add(self.step_to(unit)) > self.longest_ms();
        is_too_long && self.is_measure(unit) || bytes >= SEGMENT_BYTES_MAX
    }

    /// Keeps the playlist within its bounds.
    fn forget_oldest(&mut self) {
        while self.playlist.segments.len() > 1
            && (self.playlist.segments.len() > self.list_size
                || self.sizes.iter().sum::<usize>() > PLAYLIST_BYTES_MAX)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        self.sizes.remove(0);
        let gone = self.playlist.segments.remove(0);
        self.playlist.media_sequence = self.playlist.media_sequence.saturating_add(1);
        if let Some(next) = self.playlist.segments.first_mut() {
            let mut lasting = self.cues.lasting(gone.date_ranges, next);
            lasting.append(&mut next.date_ranges);
            next.date_ranges = lasting;
        }
        // A discontinuity counts when its segment is gone (§4.3.3.3).
        let discontinuity = u64::from(gone.discontinuity);
        self.playlist.discontinuity_sequence =
            self.playlist.discontinuity_sequence.saturating_add(discontinuity);
        self.left.add(gone.uri, gone.duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Start = Start { number: 1, discontinuities: 0 };

    fn window() -> Window {
        Window::new(&Rules::DEFAULT, 3, START)
    }

    /// Takes a unit of the leading track, or of another one, and ends the segment where it is to end.
    fn feed(window: &mut Window, dts_ms: i64, key: bool, leads: bool) {
        let unit = Unit { dts_ms, date_ms: dts_ms, begins: key && leads, epoch: 1, leads };
        let end = window.ends_before(&unit, 1);
        if let Some(end) = end {
            let open = window.open_segment(None, &[]);
            assert!(window.close(end.at_ms, "segment", 1, open));
            window.settle();
        }
        window.note(&unit, end.is_some_and(|end| end.changed));
    }

    fn lengths(window: &Window) -> Vec<u128> {
        window.playlist().segments.iter().map(|segment| segment.duration.as_millis()).collect()
    }

    #[test]
    fn key_frames_that_are_further_apart_than_the_target_end_all_segments() {
        // Key frames 10.4, 12 and 20 s apart; frames of a stream of 24 a second.
        for (frames, target) in [(250, 11), (288, 12), (480, 20)] {
            let mut window = window();
            (0..frames * 6).for_each(|n| feed(&mut window, n * 1000 / 24, n % frames == 0, true));
            let playlist = window.playlist();
            assert_eq!((playlist.target_duration.as_secs(), playlist.segments.len()), (target, 5));
            assert!(playlist.independent_segments, "{:?}", lengths(&window));
            assert!(playlist.segments.iter().all(|one| !one.discontinuity));
        }
    }

    #[test]
    fn key_frames_beyond_the_cap_leave_segments_that_are_not_said_to_begin_with_one() {
        let mut window = window();
        (0..24 * 70).for_each(|n| feed(&mut window, n * 1000 / 24, n % (24 * 30) == 0, true));
        let playlist = window.playlist();
        assert_eq!((playlist.target_duration.as_secs(), playlist.independent_segments), (20, false));
        assert!(lengths(&window).iter().all(|ms| *ms < 20_500), "{:?}", lengths(&window));
    }

    #[test]
    fn lengths_are_those_of_the_leading_track_however_far_others_are_apart() {
        for apart_ms in [-3000, -2000, -700, 700, 900] {
            let mut window = window();
            for ms in 0..60_000i64 {
                if ms % 40 == 0 {
                    feed(&mut window, ms, ms % 2000 == 0, true);
                }
                if ms % 23 == 0 {
                    feed(&mut window, ms + apart_ms, false, false);
                }
            }
            assert_eq!(lengths(&window), vec![2000; 15], "{apart_ms} ms");
            assert!(window.playlist().independent_segments);
        }
    }

    #[test]
    fn a_leading_track_that_pauses_leaves_lengths_to_the_others() {
        let mut window = window();
        for ms in 0..60_000i64 {
            if ms % 40 == 0 && !(20_500..30_700).contains(&ms) {
                feed(&mut window, ms, ms % 2000 == 0, true);
            }
            if ms % 23 == 0 {
                feed(&mut window, ms, false, false);
            }
        }
        let lengths = lengths(&window);
        assert!(lengths.iter().all(|ms| (100..2500).contains(ms)), "{lengths:?}");
    }

    /// Pictures and sound until a time. Pictures of a time that is held come together when it is over.
    fn run(window: &mut Window, until: i64, held: impl Fn(i64) -> bool) {
        let mut next = 0;
        for ms in (0..until).step_by(20) {
            while next <= ms && !held(ms) {
                feed(window, next, next % 2000 == 0, true);
                next += 40;
            }
            feed(window, ms, false, false);
        }
    }

    #[test]
    fn a_key_frame_that_is_late_is_no_pause_where_the_one_before_was_late_too() {
        let mut window = window();
        // Each other key frame comes a second late, with what follows it by then.
        let held = |ms: i64| (ms + 20) / 2000 % 2 == 1 && (ms + 20) % 2000 < 980;
        run(&mut window, 60_000, held);
        assert_eq!(lengths(&window), vec![2000; 15]);
    }

    #[test]
    fn pictures_in_bursts_end_where_they_do_and_not_where_the_sound_does() {
        let mut window = window();
        run(&mut window, 10_480, |ms| ms % 600 != 0);
        assert_eq!(window.end_ms(), 10_240, "with the last picture, 280 ms before the sound");
        let mut window = self::window();
        run(&mut window, 10_780, |ms| ms % 600 != 0);
        assert_eq!(window.end_ms(), 10_240, "further behind than without bursts");
    }

    #[test]
    fn what_has_left_stays_for_its_own_length_and_that_of_the_longest_playlist() {
        let mut window = Window::new(&Rules { list_size: 4, ..Rules::DEFAULT }, 3, START);
        let (mut left, mut gone) = (Vec::new(), Vec::new());
        for n in 0..600i64 {
            let unit = Unit { dts_ms: n * 100, date_ms: 0, begins: n % 20 == 0, epoch: 1, leads: true };
            if let Some(end) = window.ends_before(&unit, 1) {
                let open = window.open_segment(None, &[]);
                let number = window.number();
                assert!(window.close(end.at_ms, &number.to_string(), 1, open));
                left.extend(window.take_left().into_iter().map(|name| (number, name)));
                gone.extend(window.take_gone().into_iter().map(|name| (number, name)));
            }
            window.note(&unit, false);
        }
        // Segments of 2 s, four in the playlist: one that has left stays for 10 s, which are five more.
        let number = |name: &String| name.parse::<u64>().unwrap();
        assert!(left.iter().all(|(at, name)| *at == number(name) + 4), "{left:?}");
        assert!(gone.len() > 10 && gone.iter().all(|(at, name)| *at == number(name) + 9), "{gone:?}");
    }

    #[test]
    fn numbers_of_discontinuities_are_small_and_differ_between_runs() {
        // The beginning of 2026, a day of it, and the end of 2033.
        for now_ms in [NUMBERS_FROM_MS, 1_795_806_797_674, 2_019_600_000_000] {
            let runs: Vec<Start> = (0..4).map(|n| Start::at_unix_ms(now_ms + n * NUMBER_MS)).collect();
            assert!(runs.iter().all(|run| run.discontinuities < 65_536), "{runs:?}");
            for pair in runs.windows(2) {
                assert!(pair[0].number < pair[1].number, "{pair:?}");
                assert_ne!(pair[0].discontinuities, pair[1].discontinuities, "{pair:?}");
            }
        }
    }
}
