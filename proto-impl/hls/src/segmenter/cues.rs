//! Splice information of a playlist: `EXT-X-DATERANGE` (RFC 8216bis §4.4.5.1), each range once however often encoders repeat it.
//!
//! 1. An event begins a range, whose tag stands before the segment that grows: a playlist is only appended to (§6.2.1).
//! 2. A return ends the range of its break by a second tag with the same id, a cancellation by one that lasts no time.
//! 3. A range that goes on when the segment behind its tag leaves keeps its tags; one that is over goes with that segment.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use media::scte35::{Event, Kind, Splice, TICKS_PER_SECOND};

use crate::playlist::{DateRange, Segment, SpliceKind};

/// Tags with splice information in a playlist, and their bytes there: with more the oldest ranges leave.
const TAGS_MAX: usize = 64;
const TAGS_BYTES_MAX: usize = 32 << 10;
/// Bytes of a tag beside its section, of which each has two digits.
const TAG_BYTES: usize = 160;
/// Largest section that a tag has, in bytes: a range with a larger one is shown without. An ordinary one has a hundred.
const SECTION_SHOWN_MAX: usize = 2048;
/// Ranges that are remembered.
const KNOWN_MAX: usize = 64;
/// Longest break without an announced end.
const OPEN_MAX: Duration = Duration::from_hours(24);
/// Largest distance of the times of one event in its repetitions, in milliseconds.
const SAME_MS: i64 = 1000;

/// Splice information for a place in the time of the playlist.
#[derive(Debug, Clone)]
pub struct Cue {
    /// Time of the splice in milliseconds.
    pub at_ms: i64,
    /// Date of the splice, in milliseconds of Unix time.
    pub date_ms: i64,
    /// Events of the section.
    pub splice: Splice,
    /// The section as it came.
    pub section: Bytes,
}

impl Cue {
    /// Announced duration of its first event that has one, in milliseconds.
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

/// The section of a cue as a tag shows it.
fn shown(kind: SpliceKind, cue: &Cue) -> Option<(SpliceKind, Bytes)> {
    (cue.section.len() <= SECTION_SHOWN_MAX).then(|| (kind, cue.section.clone()))
}

/// Bytes of a tag in a playlist.
fn bytes_of(tag: &DateRange) -> usize {
    let section = tag.splice.as_ref().map_or(0, |(_, section)| section.len());
    section.saturating_mul(2).saturating_add(TAG_BYTES)
}

/// A range that was announced.
#[derive(Debug)]
struct Known {
    event: u32,
    kind: Kind,
    at_ms: i64,
    /// `ID` and `START-DATE` of its tags.
    id: String,
    start_ms: i64,
    /// Date at which it ends, as far as that is known: a break without an announced end after [`OPEN_MAX`].
    end_ms: i64,
    /// True if a second tag has ended it.
    is_closed: bool,
}

/// Date ranges of one playlist.
#[derive(Debug, Default)]
pub(super) struct Cues {
    known: VecDeque<Known>,
    /// Tags before the segment that grows.
    growing: Vec<DateRange>,
}

impl Cues {
    /// Takes the events of a cue, and returns true if any is new. Where the segments of the playlist have too many tags with those of the one
    /// that grows, the oldest leave.
    pub(super) fn take(&mut self, cue: &Cue, segments: &mut [Segment]) -> bool {
        let mut is_new = false;
        for event in &cue.splice.events {
            if let Some(tag) = self.tag(cue, event) {
                self.make_room(&tag, cue.date_ms, segments);
                self.growing.push(tag);
                is_new = true;
            }
        }
        is_new
    }

    /// Drops ranges until a tag has room, the oldest first: of those that a playlist has shown those that are over, then the others, then those
    /// with tags before the segment that grows. The tag's own range stays.
    fn make_room(&mut self, tag: &DateRange, now_ms: i64, segments: &mut [Segment]) {
        let listed = segments.iter().flat_map(|segment| &segment.date_ranges).chain(&self.growing);
        let mut count = listed.clone().count().saturating_add(1);
        let mut bytes = listed.chain([tag]).fold(0, |sum: usize, tag| sum.saturating_add(bytes_of(tag)));
        while count > TAGS_MAX || bytes > TAGS_BYTES_MAX || self.known.len() > KNOWN_MAX {
            let is_growing = |known: &Known| self.growing.iter().any(|tag| tag.id == known.id);
            let others = self.known.iter().enumerate().filter(|(_, known)| known.id != tag.id);
            // The first of the lowest rank.
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

    /// The tag of an event; `None` if it says nothing new.
    fn tag(&mut self, cue: &Cue, event: &Event) -> Option<DateRange> {
        let last = self.known.iter_mut().rev().find(|known| known.event == event.id);
        let is_same_time = |known: &Known| known.at_ms.saturating_sub(cue.at_ms).saturating_abs() <= SAME_MS;
        let is_open = |known: &Known| !known.is_over(cue.date_ms);
        match (event.kind, last) {
            (Kind::Out, Some(known))
                if known.kind == Kind::Out && (is_same_time(known) || is_open(known)) =>
            {
                None
            }
            (Kind::Other, Some(known)) if is_same_time(known) => None,
            (Kind::In, Some(known)) if known.is_closed || known.kind == Kind::In && is_same_time(known) => {
                None
            }
            (Kind::In, Some(known)) if known.kind == Kind::Out => {
                let length = cue.date_ms.saturating_sub(known.start_ms).max(0);
                Some(known.close(length, shown(SpliceKind::In, cue)))
            }
            (Kind::Cancel, Some(known)) if !known.is_closed => {
                Some(known.close(0, shown(SpliceKind::Command, cue)))
            }
            (Kind::Cancel, _) => None,
            (Kind::Out | Kind::In | Kind::Other, _) => Some(self.begin(cue, event)),
        }
    }

    fn begin(&mut self, cue: &Cue, event: &Event) -> DateRange {
        let planned = event.duration.map(duration_of);
        // A break without an announced end lasts until its return.
        let unannounced = if event.kind == Kind::Out { OPEN_MAX } else { Duration::ZERO };
        let end_ms = cue.date_ms.saturating_add(ms(planned.unwrap_or(unannounced)));
        let splice = match event.kind {
            Kind::Out => SpliceKind::Out,
            Kind::In => SpliceKind::In,
            Kind::Other | Kind::Cancel => SpliceKind::Command,
        };
        // Ids of events come again; all playlists of a stream count the same time.
        let id = format!("{}-{}", event.id, cue.at_ms);
        self.known.push_back(Known {
            event: event.id,
            kind: event.kind,
            at_ms: cue.at_ms,
            id: id.clone(),
            start_ms: cue.date_ms,
            end_ms,
            is_closed: false,
        });
        DateRange { id, start_ms: cue.date_ms, duration: None, planned, splice: shown(splice, cue) }
    }

    /// Tags before the segment that grows.
    pub(super) fn growing(&self) -> &[DateRange] {
        &self.growing
    }

    /// The segment that grows has ended, and has its tags.
    pub(super) fn end_segment(&mut self) {
        self.growing.clear();
    }

    /// Tags of a segment that leaves, of ranges that go on when the next one begins.
    pub(super) fn lasting(&self, gone: Vec<DateRange>, next: &Segment) -> Vec<DateRange> {
        let begin_ms = next.program_date_time.unwrap_or(i64::MIN);
        let lasts = |tag: &DateRange| {
            let known = self.known.iter().find(|known| known.id == tag.id);
            known.is_some_and(|known| known.end_ms > begin_ms)
        };
        gone.into_iter().filter(lasts).collect()
    }

    /// Adds so much to all dates, of which none was shown.
    pub(super) fn move_dates(&mut self, by_ms: i64) {
        for known in &mut self.known {
            known.start_ms = known.start_ms.saturating_add(by_ms);
            known.end_ms = known.end_ms.saturating_add(by_ms);
        }
        self.growing.iter_mut().for_each(|tag| tag.start_ms = tag.start_ms.saturating_add(by_ms));
    }
}

impl Known {
    /// True if it has been ended, or ends by itself until this date.
    const fn is_over(&self, now_ms: i64) -> bool {
        self.is_closed || self.end_ms <= now_ms
    }

    /// Ends the range after this time, by a tag with this splice information.
    fn close(&mut self, length_ms: i64, splice: Option<(SpliceKind, Bytes)>) -> DateRange {
        self.is_closed = true;
        self.end_ms = self.start_ms.saturating_add(length_ms);
        DateRange {
            id: self.id.clone(),
            start_ms: self.start_ms,
            duration: Some(Duration::from_millis(length_ms.unsigned_abs())),
            planned: None,
            splice,
        }
    }
}

#[cfg(test)]
mod tests {
    use media::scte35;

    use super::super::Rules;
    use super::super::window::{Start, Unit, Window};
    use super::*;
    use crate::Playlist;

    const DATES_MS: i64 = 1_700_000_000_000;

    /// A cue at this time, with a duration in milliseconds.
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

    /// Frames up to a time, 500 ms apart, key frames every two seconds.
    fn run(window: &mut Window, from_ms: i64, until_ms: i64) {
        for dts_ms in (from_ms..until_ms).step_by(500) {
            let begins = dts_ms % 2000 == 0;
            let unit = Unit { dts_ms, date_ms: dts_ms + DATES_MS, begins, epoch: 1, leads: true };
            if let Some(end) = window.ends_before(&unit, 1) {
                let open = window.open_segment(None, &[]);
                assert!(window.close(end.at_ms, &format!("{dts_ms}.ts"), 1, open));
                window.settle();
            }
            window.note(&unit, false);
        }
    }

    /// The tags of a playlist, which reads as it was written: number of the segment behind, id, duration and kind.
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
        // Its segment has left, the range goes on.
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
            Cue { splice: Splice { pts: None, events }, ..cue(9, Kind::Out, at_ms, None) }
        };
        assert!(window.cue(&mark(2500)) && !window.cue(&mark(3400)) && window.cue(&mark(4000)));
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
