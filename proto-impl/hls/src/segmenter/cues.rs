//! Splice information in a playlist: `EXT-X-DATERANGE` (RFC 8216bis §4.4.5.1). Each range is announced once,
//! however often the encoder repeats its message.
//!
//! 1. A break or another event begins a range. The range's tag precedes the growing segment, after those of the
//!    segment's parts that are already listed, because a playlist may only be appended to (§6.2.1).
//! 2. A return ends the range of its break with a second tag of the same id; a cancellation does so with a tag
//!    of zero duration. If the return has an id of its own, it ends the newest break without an announced end.
//! 3. If a break without an announced end is announced again at another time, it is a new break: the encoder
//!    has restarted, and will not end the former one. If a break with an announced end is repeated with the
//!    remaining time, it stays one range.
//! 4. When a segment leaves the playlist, the tags of ranges that continue beyond it move to the next segment;
//!    other tags are dropped.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use media::scte35::{self, Event, Kind, Splice, TICKS_PER_SECOND};

use crate::playlist::{DateRange, Segment, SpliceKind};

/// Maximum number of tags with splice information in a playlist, and of their bytes. Beyond either, the oldest
/// ranges are dropped.
const TAGS_MAX: usize = 64;
const TAGS_BYTES_MAX: usize = 32 << 10;
/// Bytes of a tag without its section. The section adds two hexadecimal digits per byte.
const TAG_BYTES: usize = 160;
/// Maximum size of a section in a tag, in bytes. The tag of a larger section omits the section. A typical
/// section has 100 bytes.
const SECTION_SHOWN_MAX: usize = 2048;
/// Maximum number of ranges remembered.
const KNOWN_MAX: usize = 64;
/// Assumed length of a break whose duration is not announced, unless a return ends the break earlier.
const OPEN_MAX: Duration = Duration::from_hours(24);
/// Maximum difference between the splice times of repeated messages about one event, in milliseconds.
const SAME_MS: i64 = 1000;

/// Maximum time between repetitions of a section that has no splice time, in milliseconds. Encrypted and
/// immediate sections have no splice time.
const REPEAT_MS: i64 = 30_000;

/// Splice information and its position in the time of the playlist.
#[derive(Debug, Clone)]
pub struct Cue {
    /// Time of the splice in milliseconds.
    pub at_ms: i64,
    /// Date of the splice, in milliseconds of Unix time.
    pub date_ms: i64,
    /// Events of the section.
    pub splice: Splice,
    /// The section as received.
    pub section: Bytes,
}

impl Cue {
    /// Announced duration of the first event that has one, in milliseconds.
    #[must_use]
    pub fn duration_ms(&self) -> Option<u32> {
        let duration = self.splice.events.iter().find_map(|event| event.duration)?;
        u32::try_from(duration_of(duration).as_millis()).ok()
    }
}

fn duration_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000) / u64::from(TICKS_PER_SECOND))
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The attribute for a cue's section; `None` if the section is too large.
fn shown(kind: SpliceKind, cue: &Cue) -> Option<(SpliceKind, Bytes)> {
    (cue.section.len() <= SECTION_SHOWN_MAX).then(|| (kind, cue.section.clone()))
}

/// Estimated bytes of a tag in a playlist.
fn bytes_of(tag: &DateRange) -> usize {
    let section = tag.splice.as_ref().map_or(0, |(_, section)| section.len());
    section.saturating_mul(2).saturating_add(TAG_BYTES)
}

/// A date range for which a tag was made.
#[derive(Debug)]
struct Known {
    event: u32,
    kind: Kind,
    at_ms: i64,
    /// `ID` and `START-DATE` of the range's tags.
    id: String,
    start_ms: i64,
    /// Date at which the range ends. A break without an announced end is assumed to last for [`OPEN_MAX`].
    end_ms: i64,
    /// True for a break without an announced end.
    is_endless: bool,
    state: State,
    /// Checksum of the section, if the section has no splice time.
    checksum: Option<u32>,
    /// Time at which the section was last received, in milliseconds.
    seen_ms: i64,
}

/// State of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not ended by a second tag.
    Open,
    Ended,
    Cancelled,
}

/// Effect of an event on the known ranges. The numbers are indices into `Cues::known`.
#[derive(Debug, Clone, Copy)]
enum Effect {
    /// There is no range to cancel.
    None,
    /// The event repeats a known one.
    Repeats(usize),
    Begins,
    /// A new break replaces a break that was never ended.
    Replaces(usize),
    Ends(usize),
    /// A return whose event id is not that of the break ends this break.
    EndsOther(usize),
    Cancels(usize),
}

/// Date ranges of one playlist.
#[derive(Debug, Default)]
pub(super) struct Cues {
    known: VecDeque<Known>,
    /// Tags to place before the growing segment.
    growing: Vec<DateRange>,
}

impl Cues {
    /// Handles the events of a cue. Returns true if any is new. If the tags of `segments` and of the growing
    /// segment become too many, the oldest ranges are dropped. `parts_before` is the number of parts of the
    /// growing segment that are already listed.
    pub(super) fn take(&mut self, cue: &Cue, parts_before: usize, segments: &mut [Segment]) -> bool {
        let checksum = cue.splice.pts.is_none().then(|| scte35::checksum(&cue.section));
        let mut is_new = false;
        for event in &cue.splice.events {
            for tag in self.tags(cue, event, checksum) {
                self.make_room(&tag, cue.date_ms, segments);
                self.growing.push(DateRange { parts_before, ..tag });
                is_new = true;
            }
        }
        is_new
    }

    /// Drops ranges until there is room for `tag`. Ranges that are over are dropped first, then other ranges,
    /// and finally those with tags before the growing segment; among equals, the oldest first. The range of
    /// `tag` itself is kept.
    fn make_room(&mut self, tag: &DateRange, now_ms: i64, segments: &mut [Segment]) {
        let listed = segments.iter().flat_map(|segment| &segment.date_ranges).chain(&self.growing);
        let mut count = listed.clone().count().saturating_add(1);
        let mut bytes = listed.chain([tag]).fold(0, |sum: usize, tag| sum.saturating_add(bytes_of(tag)));
        while count > TAGS_MAX || bytes > TAGS_BYTES_MAX || self.known.len() > KNOWN_MAX {
            let is_growing = |known: &Known| self.growing.iter().any(|tag| tag.id == known.id);
            let others = self.known.iter().enumerate().filter(|(_, known)| known.id != tag.id);
            // The oldest range among those that are to be dropped first.
            let oldest = others.min_by_key(|(_, known)| (is_growing(known), !known.is_over(now_ms)));
            let Some(gone) = oldest.map(|(at, _)| at).and_then(|at| self.known.remove(at)) else { return };
            let lists = segments.iter_mut().map(|segment| &mut segment.date_ranges);
            for list in lists.chain([&mut self.growing]) {
                list.retain(|tag| {
                    let stays = tag.id != gone.id;
                    if !stays {
                        count = count.saturating_sub(1);
                        bytes = bytes.saturating_sub(bytes_of(tag));
                    }
                    stays
                });
            }
        }
    }

    /// Makes the tags for an event; none if the event is not new.
    fn tags(&mut self, cue: &Cue, event: &Event, checksum: Option<u32>) -> Vec<DateRange> {
        let effect = self.effect(cue, event, checksum);
        let mut close = |at: usize, state, splice| {
            self.known.get_mut(at).map(|known| known.close(cue.date_ms, state, splice))
        };
        let closed = match effect {
            Effect::None => return Vec::new(),
            Effect::Repeats(at) => {
                if let Some(known) = self.known.get_mut(at) {
                    known.seen_ms = cue.at_ms;
                }
                return Vec::new();
            }
            Effect::Begins => None,
            Effect::Replaces(at) => close(at, State::Ended, None),
            Effect::Ends(at) | Effect::EndsOther(at) => close(at, State::Ended, shown(SpliceKind::In, cue)),
            Effect::Cancels(at) => close(at, State::Cancelled, shown(SpliceKind::Command, cue)),
        };
        if let (Effect::EndsOther(_), Some(tag)) = (effect, &closed) {
            // The event id of the return is not that of its break. Remember the return, so that its
            // repetitions are recognized.
            let id = tag.id.clone();
            self.known.push_back(Known { state: State::Ended, ..Known::of(cue, event, checksum, id) });
        }
        let begins = matches!(effect, Effect::Begins | Effect::Replaces(_));
        let begun = begins.then(|| self.begin(cue, event, checksum));
        closed.into_iter().chain(begun).collect()
    }

    fn effect(&self, cue: &Cue, event: &Event, checksum: Option<u32>) -> Effect {
        let last = self.known.iter().enumerate().rev().find(|(_, known)| known.event == event.id);
        let repeats = |known: &Known| known.is_at(cue) || known.is_section(cue, checksum);
        match (event.kind, last) {
            (Kind::Out, Some((at, known))) if known.kind == Kind::Out && known.state != State::Cancelled => {
                let is_open = !known.is_over(cue.date_ms);
                if known.is_at(cue) || is_open && (!known.is_endless || known.is_section(cue, checksum)) {
                    Effect::Repeats(at)
                } else if is_open {
                    Effect::Replaces(at)
                } else {
                    Effect::Begins
                }
            }
            (Kind::Other, Some((at, known))) if repeats(known) => Effect::Repeats(at),
            (Kind::In, Some((at, known))) if known.kind == Kind::Out => match known.state {
                State::Open => Effect::Ends(at),
                State::Ended | State::Cancelled => Effect::Repeats(at),
            },
            (Kind::In, Some((at, known)))
                if known.kind == Kind::In
                    && (known.is_at(cue)
                        || known.is_section(cue, checksum) && !self.has_break_behind(at)) =>
            {
                Effect::Repeats(at)
            }
            (Kind::In, _) => self.endless_before(cue).map_or(Effect::Begins, Effect::EndsOther),
            (Kind::Cancel, Some((at, known))) if known.state == State::Open => Effect::Cancels(at),
            (Kind::Cancel, _) => Effect::None,
            (Kind::Out | Kind::Other, _) => Effect::Begins,
        }
    }

    /// True if a known range from index `at` on is a break without an announced end that is still open.
    fn has_break_behind(&self, at: usize) -> bool {
        self.known.iter().skip(at).any(|known| known.is_endless && known.state == State::Open)
    }

    /// The newest break without an announced end that is still open at the time of a cue.
    fn endless_before(&self, cue: &Cue) -> Option<usize> {
        let is_open = |known: &Known| known.is_endless && !known.is_over(cue.date_ms);
        self.known.iter().rposition(|known| is_open(known) && known.at_ms <= cue.at_ms)
    }

    fn begin(&mut self, cue: &Cue, event: &Event, checksum: Option<u32>) -> DateRange {
        let planned = event.duration.map(duration_of);
        let splice = match event.kind {
            Kind::Out => SpliceKind::Out,
            Kind::In => SpliceKind::In,
            Kind::Other | Kind::Cancel => SpliceKind::Command,
        };
        let id = self.new_id(cue, event);
        self.known.push_back(Known::of(cue, event, checksum, id.clone()));
        DateRange {
            id,
            start_ms: cue.date_ms,
            duration: None,
            planned,
            splice: shown(splice, cue),
            parts_before: 0,
        }
    }

    /// Returns an id that no known range has. Event ids are reused, so the returned id also
    /// contains the splice time. All playlists of a stream have the same ids.
    fn new_id(&self, cue: &Cue, event: &Event) -> String {
        let mut id = format!("{}-{}", event.id, cue.at_ms);
        let mut number = 1_u32;
        while self.known.iter().any(|known| known.id == id) {
            number = number.saturating_add(1);
            id = format!("{}-{}-{number}", event.id, cue.at_ms);
        }
        id
    }

    /// Tags to place before the growing segment.
    pub(super) fn growing(&self) -> &[DateRange] {
        &self.growing
    }

    /// Clears the tags of the growing segment; the segment has ended and keeps a copy of them.
    pub(super) fn end_segment(&mut self) {
        self.growing.clear();
    }

    /// Selects from the tags of a removed segment those whose ranges have not ended when the next segment
    /// begins.
    pub(super) fn lasting(&self, gone: Vec<DateRange>, next: &Segment) -> Vec<DateRange> {
        let begin_ms = next.program_date_time.unwrap_or(i64::MIN);
        let lasts = |tag: &DateRange| {
            let known = self.known.iter().find(|known| known.id == tag.id);
            known.is_some_and(|known| known.end_ms > begin_ms)
        };
        gone.into_iter().filter(lasts).map(|tag| DateRange { parts_before: 0, ..tag }).collect()
    }

    /// Adds `by_ms` to all dates. Must only be called before the playlist is first shown, because
    /// dates that players know must not change.
    pub(super) fn move_dates(&mut self, by_ms: i64) {
        for known in &mut self.known {
            known.start_ms = known.start_ms.saturating_add(by_ms);
            known.end_ms = known.end_ms.saturating_add(by_ms);
        }
        self.growing.iter_mut().for_each(|tag| tag.start_ms = tag.start_ms.saturating_add(by_ms));
    }
}

impl Known {
    /// The range that an event begins.
    fn of(cue: &Cue, event: &Event, checksum: Option<u32>, id: String) -> Self {
        // A break without an announced end lasts until its return.
        let is_endless = event.kind == Kind::Out && event.duration.is_none();
        let announced = event.duration.map(duration_of).unwrap_or_default();
        let length = if is_endless { OPEN_MAX } else { announced };
        Self {
            event: event.id,
            kind: event.kind,
            at_ms: cue.at_ms,
            id,
            start_ms: cue.date_ms,
            end_ms: cue.date_ms.saturating_add(ms(length)),
            is_endless,
            state: State::Open,
            checksum,
            seen_ms: cue.at_ms,
        }
    }

    /// True if the cue's splice time is that of the range.
    const fn is_at(&self, cue: &Cue) -> bool {
        self.at_ms.saturating_sub(cue.at_ms).saturating_abs() <= SAME_MS
    }

    /// True if a cue without a splice time has the same section as this range, and the section was last
    /// received shortly before.
    fn is_section(&self, cue: &Cue, checksum: Option<u32>) -> bool {
        let since_ms = cue.at_ms.saturating_sub(self.seen_ms).saturating_abs();
        checksum.is_some() && self.checksum == checksum && since_ms <= REPEAT_MS
    }

    /// True if the range was ended or cancelled, or its end is not later than this date.
    const fn is_over(&self, now_ms: i64) -> bool {
        !matches!(self.state, State::Open) || self.end_ms <= now_ms
    }

    /// Ends the range at this date, or cancels it. Returns the tag that says so, with this splice information.
    fn close(&mut self, date_ms: i64, state: State, splice: Option<(SpliceKind, Bytes)>) -> DateRange {
        let is_cancelled = state == State::Cancelled;
        let length_ms = if is_cancelled { 0 } else { date_ms.saturating_sub(self.start_ms).max(0) };
        self.state = state;
        self.end_ms = self.start_ms.saturating_add(length_ms);
        DateRange {
            id: self.id.clone(),
            start_ms: self.start_ms,
            duration: Some(Duration::from_millis(length_ms.unsigned_abs())),
            planned: None,
            splice,
            parts_before: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rules;
    use super::super::window::{Start, Unit, Window};
    use super::*;
    use crate::Playlist;
    use crate::playlist::{LowLatency, MediaPlaylist};

    const DATES_MS: i64 = 1_700_000_000_000;

    /// A cue at `at_ms`, with a duration in milliseconds.
    fn cue(id: u32, kind: Kind, at_ms: i64, duration_ms: Option<u64>) -> Cue {
        let section = scte35::insert(id, kind, duration_ms.map(|ms| ms * 90));
        let splice = Splice::read(&section).unwrap();
        Cue { at_ms, date_ms: at_ms + DATES_MS, splice, section }
    }

    /// A window with segments of two seconds, three in the playlist.
    fn window() -> Window {
        let rules = Rules { list_size: 3, ..Rules::DEFAULT };
        Window::new(&rules, 3, Start { number: 1, discontinuities: 0 })
    }

    /// Passes frames to the window, one every 500 ms, with a key frame every two seconds.
    fn run(window: &mut Window, from_ms: i64, until_ms: i64) {
        for dts_ms in (from_ms..until_ms).step_by(500) {
            let begins = dts_ms % 2000 == 0;
            let unit = Unit { dts_ms, date_ms: dts_ms + DATES_MS, begins, epoch: 1, leads: true };
            if let Some(end) = window.ends_before(&unit, 1) {
                let open = window.open_segment(None, &[]);
                assert!(window.close(end.at_ms, &format!("{dts_ms}.ts"), 1, open));
                window.settle();
            }
            window.note(&unit, None);
        }
    }

    /// Returns the tags of the playlist, each with the number of the segment after it, its id, duration and kind.
    /// Checks that the playlist reads back as written.
    fn tags(window: &Window) -> Vec<(u64, String, Option<u128>, SpliceKind)> {
        let text = window.playlist().to_string();
        let Ok(Playlist::Media(read)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
        assert_eq!(&read, window.playlist());
        let tags = (read.media_sequence..).zip(&read.segments).flat_map(|(number, segment)| {
            segment.date_ranges.iter().map(move |tag| {
                let kind = tag.splice.as_ref().unwrap().0;
                (number, tag.id.clone(), tag.duration.map(|length| length.as_millis()), kind)
            })
        });
        tags.collect()
    }

    #[test]
    fn a_break_is_a_range_that_its_return_ends_and_that_leaves_when_it_is_over() {
        let mut window = window();
        run(&mut window, 0, 2500);
        assert!(window.cue(&cue(7, Kind::Out, 6000, Some(6000))));
        assert!(!window.cue(&cue(7, Kind::Out, 6000, Some(6000))), "a repetition");
        run(&mut window, 2500, 4500);
        let out = (2, "7-6000".to_owned(), None, SpliceKind::Out);
        assert_eq!(tags(&window), std::slice::from_ref(&out));
        let text = window.playlist().to_string();
        let line = "#EXT-X-DATERANGE:ID=\"7-6000\",START-DATE=\"2023-11-14T22:13:26.000Z\",PLANNED-DURATION=6.000,SCTE35-OUT=0xFC30";
        assert!(text.contains(line), "{text}");
        run(&mut window, 4500, 10_500);
        // The range's first segment has left the playlist; the range continues.
        let (number, ..) = tags(&window)[0].clone();
        assert_eq!((number, window.playlist().media_sequence), (3, 3));
        assert!(window.cue(&cue(7, Kind::In, 12_000, None)));
        assert!(!window.cue(&cue(7, Kind::In, 12_000, None)), "a repetition");
        assert!(!window.cue(&cue(7, Kind::Out, 6000, Some(6000))), "a late repetition is no other break");
        run(&mut window, 10_500, 12_500);
        let back = (6, "7-6000".to_owned(), Some(6000), SpliceKind::In);
        assert_eq!(tags(&window), [(4, out.1, out.2, out.3), back]);
        run(&mut window, 12_500, 18_500);
        assert_eq!(tags(&window).len(), 0, "all that it was over has left");
        assert!(window.cue(&cue(7, Kind::Out, 20_000, None)), "ids of events come again");
    }

    #[test]
    fn a_break_without_an_end_stays_until_it_returns() {
        let mut window = window();
        run(&mut window, 0, 2500);
        window.cue(&cue(1, Kind::Out, 2500, None));
        run(&mut window, 2500, 60_500);
        assert_eq!(tags(&window)[0].0, window.playlist().media_sequence);
        window.cue(&cue(1, Kind::In, 60_400, None));
        run(&mut window, 60_500, 70_500);
        assert_eq!(tags(&window), []);
    }

    #[test]
    fn a_cancelled_event_lasts_no_time_and_unknown_ones_are_passed_over() {
        let mut window = window();
        run(&mut window, 0, 2500);
        assert!(!window.cue(&cue(3, Kind::Cancel, 2500, None)));
        assert!(window.cue(&cue(3, Kind::Out, 9000, Some(30_000))));
        assert!(window.cue(&cue(3, Kind::Cancel, 2500, None)));
        assert!(!window.cue(&cue(3, Kind::Cancel, 2500, None)));
        assert!(window.cue(&cue(4, Kind::In, 2500, None)), "a return to which no break is known");
        assert!(!window.cue(&cue(4, Kind::In, 2500, None)));
        run(&mut window, 2500, 4500);
        let kinds: Vec<_> =
            tags(&window).into_iter().map(|(_, id, length, kind)| (id, length, kind)).collect();
        let expected = [
            ("3-9000".to_owned(), None, SpliceKind::Out),
            ("3-9000".to_owned(), Some(0), SpliceKind::Command),
            ("4-2500".to_owned(), None, SpliceKind::In),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn marks_are_told_once_at_each_time() {
        let mut window = window();
        run(&mut window, 0, 2500);
        let mark = |at_ms| {
            let events = vec![Event { id: 9, kind: Kind::Other, duration: None, auto_return: false }];
            Cue { splice: Splice { pts: Some(0), events }, ..cue(9, Kind::Out, at_ms, None) }
        };
        assert!(window.cue(&mark(2500)) && !window.cue(&mark(3400)) && window.cue(&mark(4000)));
    }

    /// Ids, durations and kinds of the tags made for these cues.
    fn told(cues: &[Cue]) -> Vec<(String, Option<i64>, Option<SpliceKind>)> {
        let mut known = Cues::default();
        for cue in cues {
            known.take(cue, 0, &mut []);
        }
        let tags = known.growing().iter();
        tags.map(|tag| (tag.id.clone(), tag.duration.map(ms), tag.splice.as_ref().map(|(kind, _)| *kind)))
            .collect()
    }

    fn tag(id: &str, length_ms: Option<i64>, kind: SpliceKind) -> (String, Option<i64>, Option<SpliceKind>) {
        (id.to_owned(), length_ms, Some(kind))
    }

    /// A cue without a splice time; the time of its arrival is used.
    fn immediate(id: u32, kind: Kind, at_ms: i64, duration_ms: Option<u64>) -> Cue {
        let cue = cue(id, kind, at_ms, duration_ms);
        Cue { splice: Splice { pts: None, ..cue.splice.clone() }, ..cue }
    }

    #[test]
    fn a_return_with_an_id_of_its_own_ends_the_newest_break_without_an_end() {
        let out = |id, at_ms| cue(id, Kind::Out, at_ms, None);
        let back = |id, at_ms| cue(id, Kind::In, at_ms, None);
        let all = [out(1, 2000), out(3, 4000), cue(5, Kind::Out, 5000, Some(60_000)), out(6, 90_000)];
        let returns = [back(2, 8000), back(2, 8500), back(4, 12_000), back(7, 14_000)];
        let expected = [
            tag("1-2000", None, SpliceKind::Out),
            tag("3-4000", None, SpliceKind::Out),
            tag("5-5000", None, SpliceKind::Out),
            tag("6-90000", None, SpliceKind::Out),
            tag("3-4000", Some(4000), SpliceKind::In),
            tag("1-2000", Some(10_000), SpliceKind::In),
            tag("7-14000", None, SpliceKind::In),
        ];
        assert_eq!(told(&[&all[..], &returns].concat()), expected);
        // All breaks use the same two ids and are seconds apart.
        let pairs = [out(1, 2000), back(2, 4000), out(1, 9000), back(2, 12_000), back(2, 12_000)];
        let lengths: Vec<_> = told(&pairs).into_iter().map(|(_, length, _)| length).collect();
        assert_eq!(lengths, [None, Some(2000), None, Some(3000)]);
    }

    #[test]
    fn a_break_that_begins_anew_ends_the_one_that_was_left_open() {
        let cues =
            [cue(1, Kind::Out, 2000, None), cue(1, Kind::Out, 2900, None), cue(1, Kind::Out, 9000, None)];
        let expected = [
            tag("1-2000", None, SpliceKind::Out),
            ("1-2000".to_owned(), Some(7000), None),
            tag("1-9000", None, SpliceKind::Out),
        ];
        assert_eq!(told(&cues), expected);
        let remaining = (0..10).map(|n| cue(1, Kind::Out, n * 2000, Some(30_000 - 2000 * n.unsigned_abs())));
        assert_eq!(told(&remaining.collect::<Vec<_>>()), [tag("1-0", None, SpliceKind::Out)]);
    }

    #[test]
    fn a_break_that_is_announced_again_after_a_cancellation_is_another_one() {
        let out = || cue(1, Kind::Out, 9000, Some(30_000));
        let cues = [out(), cue(1, Kind::Cancel, 2000, None), out(), out(), cue(1, Kind::In, 39_000, None)];
        let expected = [
            tag("1-9000", None, SpliceKind::Out),
            tag("1-9000", Some(0), SpliceKind::Command),
            tag("1-9000-2", None, SpliceKind::Out),
            tag("1-9000-2", Some(30_000), SpliceKind::In),
        ];
        assert_eq!(told(&cues), expected);
    }

    #[test]
    fn t_18_sections_without_a_time_are_told_once_while_they_are_repeated() {
        let out = |at_ms| immediate(1, Kind::Out, at_ms, None);
        let back = |id, at_ms| immediate(id, Kind::In, at_ms, None);
        let repeated: Vec<_> = (0..40).map(|n| out(n * 2000)).collect();
        assert_eq!(told(&repeated), [tag("1-0", None, SpliceKind::Out)]);
        let returns: Vec<_> = (0..40).map(|n| back(2, n * 2000)).collect();
        assert_eq!(told(&returns), [tag("2-0", None, SpliceKind::In)]);
        let lengths = |cues: &[Cue]| told(cues).into_iter().map(|(_, length, _)| length).collect::<Vec<_>>();
        // Breaks with identical bytes in quick succession, ended by returns with the same id and with their
        // own.
        for id in [1, 2] {
            let cues = [out(0), out(2000), back(id, 6000), back(id, 8000), out(12_000), back(id, 20_000)];
            assert_eq!(lengths(&cues), [None, Some(6000), None, Some(8000)], "{id}");
        }
        let planned = |at_ms| immediate(1, Kind::Out, at_ms, Some(10_000));
        assert_eq!(lengths(&[planned(0), planned(2000), planned(20_000)]), [None, None]);
        let mark = |at_ms, adjustment| {
            let section = scte35::shifted(&immediate(9, Kind::In, 0, None).section, adjustment).unwrap();
            let events = vec![Event { id: 9, kind: Kind::Other, duration: None, auto_return: false }];
            Cue { splice: Splice { pts: None, events }, section, ..out(at_ms) }
        };
        let marks: Vec<_> = (0..10).map(|n| mark(n * 2000, n.unsigned_abs() * 180_000)).collect();
        assert_eq!(told(&marks), [tag("9-0", None, SpliceKind::Command)]);
        assert_eq!(lengths(&[mark(0, 0), mark(REPEAT_MS + 1, 0)]), [None, None], "another one");
    }

    #[test]
    fn t_18_tags_of_a_playlist_are_bounded() {
        let mut window = window();
        run(&mut window, 0, 2500);
        assert!((0..1000).all(|id| window.cue(&cue(id, Kind::Out, 2500, None))), "all are new");
        run(&mut window, 2500, 4500);
        let ids = |window: &Window| tags(window).into_iter().map(|(_, id, ..)| id).collect::<Vec<_>>();
        let newest = |from: u32| (from..1000).map(|id| format!("{id}-2500")).collect::<Vec<_>>();
        assert_eq!(ids(&window), newest(936), "the newest");
        assert!(window.cue(&cue(2000, Kind::Out, 4500, None)));
        run(&mut window, 4500, 30_500);
        let open = [newest(937), vec!["2000-4500".to_owned()]].concat();
        assert_eq!(ids(&window), open, "breaks without an end are still there");
    }

    #[test]
    fn t_18_breaks_return_and_are_cancelled_where_all_room_is_taken() {
        let mut window = window();
        run(&mut window, 0, 2500);
        (0..64).for_each(|id| assert!(window.cue(&cue(id, Kind::Out, 2500, None))));
        run(&mut window, 2500, 4500);
        assert!(window.cue(&cue(0, Kind::In, 4500, None)), "of the oldest");
        assert!(window.cue(&cue(40, Kind::Cancel, 4500, None)));
        run(&mut window, 4500, 6500);
        let of = |window: &Window, wanted: &str| {
            let tags = tags(window).into_iter().filter(|(_, id, ..)| id == wanted);
            tags.map(|(.., length, _)| length).collect::<Vec<_>>()
        };
        assert_eq!(of(&window, "40-2500"), [None, Some(0)]);
        assert_eq!(of(&window, "0-2500"), [None, Some(2000)], "not shown before, and not dropped");
        assert!(tags(&window).len() <= TAGS_MAX);
        (41..64).for_each(|id| assert!(window.cue(&cue(id, Kind::In, 6500, None)), "{id}"));
        run(&mut window, 6500, 8500);
        assert_eq!(of(&window, "63-2500"), [None, Some(4000)]);
        run(&mut window, 8500, 20_500);
        assert!(window.cue(&cue(99, Kind::Out, 20_500, Some(6000))));
        run(&mut window, 20_500, 22_500);
        assert_eq!(of(&window, "99-20500"), [None]);
    }

    #[test]
    fn t_18_ranges_that_are_remembered_are_bounded() {
        let mut cues = Cues::default();
        for id in 0..1000 {
            assert!(cues.take(&cue(id, Kind::Out, i64::from(id) * 2000, Some(1000)), 0, &mut []));
            cues.end_segment();
        }
        assert_eq!(cues.known.len(), KNOWN_MAX);
    }

    #[test]
    fn a_tag_stands_behind_parts_of_its_own_segment_alone() {
        let mut window = window();
        run(&mut window, 0, 2500);
        assert!(window.cue_behind(&cue(1, Kind::Out, 2500, None), 3));
        run(&mut window, 2500, 4500);
        // The parts of the growing segment are no longer listed, but its tag still is.
        assert!(window.playlist().to_string().contains("ID=\"1-2500\""));
        let low = LowLatency { skip_until: Some(Duration::from_secs(1)), ..LowLatency::default() };
        let delta = MediaPlaylist { low_latency: Some(Box::new(low)), ..window.playlist().clone() }.delta();
        assert_eq!(delta.unwrap().low_latency.unwrap().open.date_ranges[0].parts_before, 0);
        run(&mut window, 4500, 20_500);
        assert_eq!(window.playlist().segments[0].date_ranges[0].parts_before, 0);
    }

    #[test]
    fn t_18_in_a_long_list_the_oldest_ranges_leave_and_one_that_goes_on_stays() {
        let rules = Rules { list_size: 500, ..Rules::DEFAULT };
        let mut window = Window::new(&rules, 3, Start { number: 1, discontinuities: 0 });
        run(&mut window, 0, 2500);
        assert!(window.cue(&cue(1, Kind::Out, 2500, None)));
        for (id, at_ms) in (2..202).zip((4500..).step_by(2000)) {
            run(&mut window, at_ms - 2000, at_ms);
            assert!(window.cue(&cue(id, Kind::Out, at_ms, Some(1000))));
        }
        run(&mut window, 402_500, 404_500);
        let ids: Vec<String> = tags(&window).into_iter().map(|(_, id, ..)| id).collect();
        assert_eq!((ids.len(), ids[0].as_str()), (TAGS_MAX, "1-2500"));
        assert_eq!(ids[1..], (139..202).map(|id| format!("{id}-{}", id * 2000 + 500)).collect::<Vec<_>>());
    }

    #[test]
    fn t_18_a_break_without_an_end_leaves_after_a_day() {
        let mut window = window();
        run(&mut window, 0, 2500);
        window.cue(&cue(1, Kind::Out, 2500, None));
        run(&mut window, 2500, 4500);
        let day_ms = ms(OPEN_MAX);
        run(&mut window, day_ms - 8000, day_ms);
        assert_eq!(tags(&window).len(), 1);
        run(&mut window, day_ms, day_ms + 20_500);
        assert_eq!(tags(&window), []);
    }

    #[test]
    fn t_18_bytes_of_tags_are_bounded_and_large_sections_are_not_shown() {
        let mut window = window();
        run(&mut window, 0, 2500);
        let large = |id, bytes: usize| {
            let section = Bytes::from(vec![0xfc; bytes]);
            Cue { section, ..cue(id, Kind::Out, 2500, None) }
        };
        assert!((0..64).all(|id| window.cue(&large(id, SECTION_SHOWN_MAX))));
        run(&mut window, 2500, 4500);
        let text = window.playlist().to_string();
        assert!(text.len() < TAGS_BYTES_MAX + 1000, "{} bytes", text.len());
        assert_eq!(tags(&window).last().map(|(_, id, ..)| id.as_str()), Some("63-2500"), "the newest");
        assert!(tags(&window).len() >= 7, "{text}");
        assert!(window.cue(&large(64, SECTION_SHOWN_MAX + 1)));
        run(&mut window, 4500, 6500);
        let text = window.playlist().to_string();
        let line = text.lines().find(|line| line.contains("ID=\"64-2500\"")).unwrap();
        assert!(!line.contains("SCTE35"), "{line}");
    }

    #[test]
    fn dates_that_are_corrected_before_they_are_shown_take_ranges_along() {
        let mut window = window();
        run(&mut window, 0, 2500);
        window.cue(&cue(1, Kind::Out, 1000, Some(1000)));
        run(&mut window, 2500, 4500);
        window.cue(&cue(2, Kind::Out, 5000, Some(1000)));
        window.move_dates(-300);
        run(&mut window, 4500, 6500);
        let dates =
            |segment: &Segment| segment.date_ranges.iter().map(|tag| tag.start_ms).collect::<Vec<_>>();
        let shown: Vec<i64> = window.playlist().segments.iter().flat_map(dates).collect();
        assert_eq!(shown, [DATES_MS + 700, DATES_MS + 4700]);
    }
}
