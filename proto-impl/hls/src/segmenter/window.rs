//! The list of segments, and the playlist of the newest ones (RFC 8216).
//!
//! A segment ends at the first key frame of the leading video track after [`Rules::segment_ms`]; without video,
//! it may end at any unit. Durations are measured in the leading track, since units of other tracks may arrive
//! earlier or later. The segments of the first playlist end only at key frames, up to [`FIRST_MS_MAX`], and
//! determine the target duration. The target duration must not change (§6.2.1), and no later segment may exceed
//! it when rounded (§4.3.3.1), so a later segment is cut without a key frame if none arrives in time. If a
//! segment does not begin with a key frame, the playlist no longer has `EXT-X-INDEPENDENT-SEGMENTS`.

use std::sync::Arc;
use std::time::Duration;

use super::Rules;
use super::cues::{Cue, Cues};
use super::left::Left;
use crate::playlist::{Map, MediaPlaylist, Part, Segment};

/// Maximum duration of a segment before the target duration is known, if no key frame arrives. It rounds to 20
/// s.
const FIRST_MS_MAX: i64 = 20_390;
/// Added to the longest of the first segments before it is rounded to the target duration. Segments of other
/// renditions, whose frames begin at other times, may be slightly longer.
const ROUNDING_MS: u64 = 600;
/// Missing time between two units that makes a discontinuity. A shorter gap makes one if the growing segment
/// would exceed its maximum duration.
const GAP_MS: i64 = 5000;
/// Version of playlists with gap segments (RFC 8216bis §8).
const GAP_VERSION: u32 = 8;
/// The leading track counts as paused if it lags by this much more than usual. Its segments then end by the
/// times of the other tracks. The usual lag is the largest after which the track continued, in this segment and
/// the last one.
pub(super) const SILENT_MS: i64 = 300;
/// Upper bound of the usual lag.
const LAG_MS_MAX: i64 = 1000;
/// A segment ends when it has reached this size; only its last unit may exceed it.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Maximum total size of the listed segments. At a high bit rate, fewer segments are listed.
pub const PLAYLIST_BYTES_MAX: usize = 44 << 20;
/// A playlist is not shown until it has this many segments, or this much media: players begin three segments
/// before its end (§6.3.3), and some cannot play a playlist with fewer.
const FIRST_SEGMENTS: u64 = 3;
const FIRST_DURATION: Duration = Duration::from_secs(6);
/// Assumed duration of a unit whose successor is not known.
const STEP_MS: i64 = 20;

/// Maximum number of gaps listed at the end of another rendition's segment. Each is at most as long as a
/// segment may be.
pub(super) const GAPS_AT_ONCE_MAX: usize = 8;

/// Segment numbers are counted from this time, the beginning of 2026, in milliseconds of Unix time.
pub const NUMBERS_FROM_MS: u64 = 1_767_225_600_000;
/// Segment numbers count quarters of a second. Segments are made less often than that, so numbers do not run
/// ahead of the clock; they have at most nine digits for eight years.
const NUMBER_MS: u64 = 250;

/// Discontinuity numbers wrap around at this value. They are small because hls.js keeps a list as long as the
/// number, and iterates over it for each fragment: a number of nine digits blocks the viewer's page for
/// seconds.
const DISCONTINUITIES: u64 = 1 << 16;

/// First numbers of a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The number of the first segment.
    pub number: u64,
    /// Number of discontinuities before the first segment.
    pub discontinuities: u64,
}

impl Start {
    /// The start of a stream that begins at this time, in milliseconds of Unix time. Its numbers are derived
    /// from the wall clock and exceed all numbers that earlier streams of the same name have used. So the media
    /// sequence never decreases when the stream or the server restarts (RFC 8216 §6.2.2), and no name is reused
    /// for other content, which would confuse caches. The discontinuity number changes as well, so that players
    /// expect other timestamps; it wraps around every 4.5 hours.
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
    /// True if a segment may begin with the unit, because it is a key frame or needs none.
    pub(super) begins: bool,
    /// Number of changes of the tracks before the unit.
    pub(super) epoch: u32,
    /// True if the unit is of the leading track, in which the duration of segments is measured.
    pub(super) leads: bool,
}

/// The last unit of the leading track, or the last unit of all other tracks.
#[derive(Debug, Clone, Copy)]
struct Last {
    dts_ms: i64,
    /// Time since the previous unit, in milliseconds.
    step_ms: i64,
    /// True if a segment may begin with the unit.
    begins: bool,
}

impl Last {
    /// Records a unit that follows `before`. If `changed`, the time between the two is not its duration and is
    /// ignored.
    fn next(before: Option<Self>, unit: &Unit, changed: bool) -> Self {
        let (dts_ms, begins) = (unit.dts_ms, unit.begins);
        let step_ms = before.map_or(STEP_MS, |last| dts_ms.saturating_sub(last.dts_ms).max(0));
        Self { dts_ms, step_ms: if changed { STEP_MS } else { step_ms }, begins }
    }

    const fn end_ms(&self) -> i64 {
        self.dts_ms.saturating_add(self.step_ms)
    }
}

/// The point before a unit at which the growing segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// DTS at which the segment ends, in milliseconds.
    pub(super) at_ms: i64,
    /// True if the tracks change at this point, or if media is missing there.
    pub(super) changed: bool,
}

/// The beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the segment.
    pub number: u64,
    /// Number of discontinuities up to and including the one at the start of the segment.
    pub discontinuities: u64,
    /// DTS at which the segment begins, in milliseconds.
    pub begin_ms: i64,
}

/// The segment that is growing.
#[derive(Debug)]
struct Open {
    begin_ms: i64,
    date_ms: i64,
    discontinuity: bool,
    /// True if the first unit of the leading track may begin a segment; `None` before that unit.
    begins: Option<bool>,
}

/// Numbers of segments.
#[derive(Debug)]
struct Numbers {
    /// The number of the first segment.
    first: u64,
    /// Number of segments so far.
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
    /// The last unit of the leading track.
    last: Option<Last>,
    /// The last unit of all other tracks together.
    beside: Option<Last>,
    /// Largest lag of the leading track after which it continued, in milliseconds: in the last segment and in
    /// the growing one. At most [`LAG_MS_MAX`].
    lags_ms: [i64; 2],
    /// Distance from DTS to date in milliseconds, at the beginning of the newest segment.
    offset_ms: Option<i64>,
    playlist: MediaPlaylist,
    /// Size and place of each segment of the playlist.
    extents: Vec<Extent>,
    numbers: Numbers,
    /// If set, the growing segment ends at the first key frame from this DTS on, regardless of its duration.
    due_ms: Option<i64>,
    /// True once the stream has ended.
    is_over: bool,
    left: Left,
    cues: Cues,
}

/// Size and place of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    /// Begin and end of the segment, in milliseconds of DTS.
    pub(super) begin_ms: i64,
    pub(super) end_ms: i64,
}

impl Window {
    /// Creates the window for a playlist with this version.
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
            extents: Vec::new(),
            numbers: Numbers { first: start.number, cut: 0 },
            due_ms: None,
            is_over: false,
            left: Left::default(),
            cues: Cues::default(),
        }
    }

    /// The number of the growing segment.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.numbers.first.saturating_add(self.numbers.cut)
    }

    /// True if at least one segment has ended.
    #[must_use]
    pub const fn has_cut(&self) -> bool {
        self.numbers.cut > 0
    }

    /// The numbers with which a second playlist starts if its first segment is made in parallel
    /// with this one's next segment.
    #[must_use]
    pub fn start_beside(&self) -> Start {
        let shown = self.playlist.segments.iter().filter(|segment| segment.discontinuity).count() as u64;
        let discontinuities = self.playlist.discontinuity_sequence.saturating_add(shown);
        Start { number: self.number(), discontinuities }
    }

    /// Sets the numbers with which the playlist starts. Does nothing once a segment has ended.
    pub const fn begin_at(&mut self, start: Start) {
        if self.numbers.cut == 0 {
            self.numbers.first = start.number;
            self.playlist.media_sequence = start.number;
            self.playlist.discontinuity_sequence = start.discontinuities;
        }
    }

    /// Makes the growing segment end at the first key frame from this DTS on.
    pub const fn end_from(&mut self, due_ms: i64) {
        self.due_ms = Some(due_ms);
    }

    /// The beginning of the growing segment.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let open = self.open.as_ref()?;
        let Start { number, discontinuities } = self.start_beside();
        let discontinuities = discontinuities.saturating_add(u64::from(open.discontinuity));
        Some(Mark { number, discontinuities, begin_ms: open.begin_ms })
    }

    /// DTS at which the growing segment began, in milliseconds.
    #[must_use]
    pub fn begin_ms(&self) -> Option<i64> {
        self.open.as_ref().map(|open| open.begin_ms)
    }

    /// The playlist as of now.
    #[must_use]
    pub const fn playlist(&self) -> &MediaPlaylist {
        &self.playlist
    }

    /// The segments of the playlist, with their numbers and places.
    pub(super) fn listed(&self) -> impl Iterator<Item = (u64, &Segment, Extent)> {
        let numbered = (self.playlist.media_sequence..).zip(&self.playlist.segments);
        numbered.zip(&self.extents).map(|((number, segment), extent)| (number, segment, *extent))
    }

    /// Ends the stream. If `is_told`, the playlist tells players that the stream has ended.
    pub(super) const fn finish(&mut self, is_told: bool) {
        self.is_over = true;
        self.playlist.ended = is_told;
    }

    /// True once the stream has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The playlist, for changes of its attributes.
    pub(super) const fn playlist_mut(&mut self) -> &mut MediaPlaylist {
        &mut self.playlist
    }

    /// Highest bit rate of a segment, in bits per second.
    #[must_use]
    pub fn peak_bits(&self) -> u64 {
        let bits = |(segment, extent): (&Segment, &Extent)| {
            let ms = u64::try_from(segment.duration.as_millis()).unwrap_or(u64::MAX).max(1);
            (extent.bytes as u64).saturating_mul(8000) / ms
        };
        self.playlist.segments.iter().zip(&self.extents).map(bits).max().unwrap_or(0)
    }

    /// Average bit rate of the playlist's segments, in bits per second.
    #[must_use]
    pub fn average_bits(&self) -> u64 {
        let bytes = self.extents.iter().fold(0u64, |sum, one| sum.saturating_add(one.bytes as u64));
        let length: Duration = self.playlist.segments.iter().map(|segment| segment.duration).sum();
        bytes.saturating_mul(8000) / u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Takes the names of files that the playlist no longer lists and that players no longer fetch.
    pub(super) fn take_gone(&mut self) -> Vec<String> {
        self.left.take_gone()
    }

    /// Takes the names of files that the playlist has stopped listing since the last call.
    pub(super) fn take_left(&mut self) -> Vec<String> {
        self.left.take_new()
    }

    /// Drops a file, such as an init segment, that listed segments no longer need. The file stays available for
    /// as long as those of segments that leave the playlist now.
    pub(super) fn leave(&mut self, name: String) {
        self.left.add(name, self.playlist.target_duration);
    }

    /// True if the target duration is known and the playlist has enough segments to be shown.
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

    /// Sets the target duration, once there are enough segments for a first playlist.
    pub(super) fn settle(&mut self) {
        if self.has_enough() {
            self.adopt(self.wanted_target());
        }
    }

    /// True if the target duration can be set: it is not set yet, and there are enough segments for a first
    /// playlist.
    #[must_use]
    pub fn is_ripe(&self) -> bool {
        !self.has_target() && self.has_enough()
    }

    /// True if the segments' total duration exceeds the time for which a single segment may wait for a key
    /// frame.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        let longest = Duration::from_millis(FIRST_MS_MAX.unsigned_abs());
        self.playlist.segments.iter().map(|segment| segment.duration).sum::<Duration>() >= longest
    }

    /// Target duration required by the segments so far, including the growing one.
    #[must_use]
    pub fn wanted_target(&self) -> Duration {
        let growing = self.begin_ms().map_or(0, |begin_ms| self.end_ms().saturating_sub(begin_ms).max(0));
        let growing = Duration::from_millis(growing.unsigned_abs());
        let longest =
            self.playlist.segments.iter().map(|segment| segment.duration).fold(growing, Duration::max);
        let rounded = longest.saturating_add(Duration::from_millis(ROUNDING_MS)).as_secs();
        Duration::from_secs(rounded).max(Duration::from_millis(self.segment_ms.unsigned_abs()))
    }

    /// Sets the target duration; later calls do nothing. It has to be the same for all renditions (RFC 8216
    /// §6.2.4).
    pub const fn adopt(&mut self, target: Duration) {
        if !self.has_target() {
            self.playlist.target_duration = target;
        }
    }

    /// Returns the end of the growing segment, which has `bytes` bytes, if it ends before this unit.
    pub(super) fn ends_before(&self, unit: &Unit, bytes: usize) -> Option<End> {
        let changed = self.epoch.is_some_and(|epoch| epoch != unit.epoch) || self.is_behind_a_gap(unit);
        if changed {
            return Some(End { at_ms: self.end_ms(), changed });
        }
        // After a pause of the leading track, its next unit may be later than the maximum duration allows.
        let latest_ms =
            self.begin_ms().map_or(unit.dts_ms, |begin_ms| begin_ms.saturating_add(self.longest_ms()));
        self.is_due(unit, bytes).then(|| End { at_ms: unit.dts_ms.min(latest_ms), changed })
    }

    /// Like [`Self::ends_before`], for a segment whose end is determined by another window: it ends before this
    /// unit only if it must.
    pub(super) fn must_end_before(&self, unit: &Unit, bytes: usize) -> Option<End> {
        let end = self.ends_before(unit, bytes);
        end.filter(|end| end.changed || self.would_be_too_long(unit, bytes))
    }

    /// Records a unit that was added to the growing segment. If `end` is set, the unit is the first one after that
    /// end.
    pub(super) fn note(&mut self, unit: &Unit, end: Option<End>) {
        let changed = end.is_some_and(|end| end.changed);
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
        *last = Some(Last::next(*last, unit, changed));
        if let Some(open) = &mut self.open {
            open.begins = open.begins.or_else(|| unit.leads.then_some(unit.begins));
            return;
        }
        let offset_ms = unit.date_ms.saturating_sub(unit.dts_ms);
        let jumps = self.offset_ms.replace(offset_ms).is_some_and(|before| before != offset_ms);
        let discontinuity = changed || jumps;
        let begins = unit.leads.then_some(unit.begins);
        // Without a discontinuity, no time is missing between two segments: this one begins where the last one ended.
        let begin_ms = end.filter(|_| !changed).map_or(unit.dts_ms, |end| end.at_ms.min(unit.dts_ms));
        let date_ms = begin_ms.saturating_add(offset_ms);
        self.open = Some(Open { begin_ms, date_ms, discontinuity, begins });
    }

    /// The growing segment begins with the last unit of the leading track, which was not complete when the segment
    /// before it ended.
    pub(super) fn begins_with_last(&mut self) {
        if let (Some(open), Some(last)) = (&mut self.open, self.last) {
            open.begins.get_or_insert(last.begins);
        }
    }

    /// Handles splice information. Its tags precede the growing segment. Returns true if the information is
    /// new.
    pub(super) fn cue(&mut self, cue: &Cue) -> bool {
        self.cue_behind(cue, 0)
    }

    /// Like [`Self::cue`], but the tags are placed after the first `parts` parts of the growing segment.
    pub(super) fn cue_behind(&mut self, cue: &Cue, parts: usize) -> bool {
        self.cues.take(cue, parts, &mut self.playlist.segments)
    }

    /// Adds `by_ms` to all dates. Must only be called before the playlist is first shown, because
    /// dates that players know must not change.
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

    /// The growing segment with its tags.
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

    /// Ends the growing segment. Returns false if there is none.
    pub(super) fn close(&mut self, end_ms: i64, uri: &str, bytes: usize, segment: Segment) -> bool {
        let Some(open) = self.open.take() else { return false };
        self.cues.end_segment();
        let [_, largest_ms] = self.lags_ms;
        self.lags_ms = [largest_ms, 0];
        self.due_ms = None;
        let duration = Duration::from_millis(end_ms.saturating_sub(open.begin_ms).max(1).unsigned_abs());
        self.playlist.independent_segments &= open.begins != Some(false);
        self.numbers.cut = self.numbers.cut.saturating_add(1);
        let end_ms = end_ms.max(open.begin_ms.saturating_add(1));
        self.extents.push(Extent { bytes, begin_ms: open.begin_ms, end_ms });
        self.playlist.segments.push(Segment { uri: uri.to_owned(), duration, ..segment });
        self.left.note_segment(duration);
        self.forget_oldest();
        self.left.note_listed(&self.playlist.segments);
        true
    }

    /// Adds a gap segment (RFC 8216bis §4.4.4.7) that begins at the end of the last segment and ends at
    /// `end_ms`, or earlier if it would be longer than a segment may be. Returns false if no time is missing,
    /// or if no segment precedes the gap. `dated` returns the date of a DTS.
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
        // Splits the missing time into equal gaps: as few as possible without one exceeding the maximum
        // duration.
        let gaps = missing_ms.saturating_sub(1) / self.longest_ms().max(1) + 1;
        let end_ms = begin_ms.saturating_add(missing_ms / gaps);
        let date_ms = dated(begin_ms);
        let offset_ms = date_ms.saturating_sub(begin_ms);
        let discontinuity = self.offset_ms.replace(offset_ms).is_some_and(|before| before != offset_ms);
        self.open = Some(Open { begin_ms, date_ms, discontinuity, begins: None });
        self.playlist.version = self.playlist.version.max(GAP_VERSION);
        let gap = Segment { gap: true, ..self.open_segment(map, &[]) };
        self.last = Some(Last { dts_ms: end_ms, step_ms: 0, begins: true });
        self.close(end_ms, uri, 0, gap)
    }

    /// Maximum duration of a segment in milliseconds. A segment of this duration still rounds to the target duration,
    /// even if the duration of its last frame is unknown and only assumed.
    pub(super) fn longest_ms(&self) -> i64 {
        match i64::try_from(self.playlist.target_duration.as_millis()) {
            Ok(0) => FIRST_MS_MAX,
            target_ms => target_ms.unwrap_or(i64::MAX).saturating_add(498),
        }
    }

    /// True if this unit shows how long the growing segment is: it is a unit of the leading track, or that
    /// track is paused.
    fn is_measure(&self, unit: &Unit) -> bool {
        let lead = self.last.map_or_else(|| self.begin_ms().unwrap_or(unit.dts_ms), |last| last.dts_ms);
        unit.leads || unit.dts_ms.saturating_sub(lead) > self.silent_ms()
    }

    /// Lag of the leading track at which it counts as paused, in milliseconds.
    fn silent_ms(&self) -> i64 {
        let [before_ms, largest_ms] = self.lags_ms;
        before_ms.max(largest_ms).saturating_add(SILENT_MS)
    }

    /// True if so much time is missing before this unit that the growing segment must end where the media
    /// stopped.
    fn is_behind_a_gap(&self, unit: &Unit) -> bool {
        let is_longer = |open: &Open| unit.dts_ms.saturating_sub(open.begin_ms) > self.longest_ms();
        let since = |last: Last| unit.dts_ms.saturating_sub(last.dts_ms);
        // If other tracks continue while the leading one is paused, nothing is missing.
        if !unit.leads && self.beside.is_some_and(|beside| since(beside) <= SILENT_MS) {
            return false;
        }
        let is_missing = self.last.into_iter().chain(self.beside).all(|last| since(last) > GAP_MS);
        self.open.as_ref().is_some_and(|open| is_missing || is_longer(open)) && self.is_measure(unit)
    }

    /// Time between a unit and the previous unit of the leading track, or of the other tracks if it belongs to
    /// one of those.
    fn step_to(&self, unit: &Unit) -> i64 {
        let last = if unit.leads { self.last } else { self.beside };
        last.map_or(0, |last| unit.dts_ms.saturating_sub(last.dts_ms))
    }

    /// True if the growing segment ends before this unit.
    fn is_due(&self, unit: &Unit, bytes: usize) -> bool {
        let is_long_enough = |begin_ms: i64| match self.due_ms {
            Some(due_ms) => unit.dts_ms >= due_ms,
            None => unit.dts_ms.saturating_sub(begin_ms) >= self.segment_ms,
        };
        unit.begins && self.begin_ms().is_some_and(is_long_enough) || self.would_be_too_long(unit, bytes)
    }

    /// True if the growing segment has reached its maximum size, or would be too long with another unit of this
    /// duration.
    fn would_be_too_long(&self, unit: &Unit, bytes: usize) -> bool {
        let Some(begin_ms) = self.begin_ms() else { return false };
        let elapsed = unit.dts_ms.saturating_sub(begin_ms);
        let is_too_long = elapsed.saturating_add(self.step_to(unit)) > self.longest_ms();
        is_too_long && self.is_measure(unit) || bytes >= SEGMENT_BYTES_MAX
    }

    /// Removes the oldest segments until the playlist is within its limits.
    fn forget_oldest(&mut self) {
        while self.playlist.segments.len() > 1
            && (self.playlist.segments.len() > self.list_size && self.has_rest()
                || self.extents.iter().map(|one| one.bytes).sum::<usize>() > PLAYLIST_BYTES_MAX)
        {
            self.forget_first();
        }
    }

    /// True if the playlist remains as long as three target durations without its first segment. A server must not
    /// remove a segment otherwise (RFC 8216 §6.2.2).
    fn has_rest(&self) -> bool {
        let rest = self.playlist.segments.iter().skip(1).map(|segment| segment.duration).sum::<Duration>();
        rest >= self.playlist.target_duration.saturating_mul(3)
    }

    fn forget_first(&mut self) {
        self.extents.remove(0);
        let gone = self.playlist.segments.remove(0);
        self.playlist.media_sequence = self.playlist.media_sequence.saturating_add(1);
        if let Some(next) = self.playlist.segments.first_mut() {
            let mut lasting = self.cues.lasting(gone.date_ranges, next);
            lasting.append(&mut next.date_ranges);
            next.date_ranges = lasting;
        }
        // A discontinuity is added to the sequence when its segment is removed (§4.3.3.3).
        let discontinuity = u64::from(gone.discontinuity);
        self.playlist.discontinuity_sequence =
            self.playlist.discontinuity_sequence.saturating_add(discontinuity);
        self.left.add(gone.uri, gone.duration);
    }
}

#[cfg(test)]
mod tests;
