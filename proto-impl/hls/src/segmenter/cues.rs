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

/// Tags with splice information in a playlist. A section has 4 KiB at most, and an ordinary one a hundred bytes.
const TAGS_MAX: usize = 64;
/// Ranges that are remembered.
const KNOWN_MAX: usize = 64;
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

/// A range that was announced.
#[derive(Debug)]
struct Known {
    event: u32,
    kind: Kind,
    at_ms: i64,
    /// `ID` and `START-DATE` of its tags.
    id: String,
    start_ms: i64,
    /// Date at which it ends, as far as that is known.
    end_ms: Option<i64>,
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
    /// Takes the events of a cue, and returns true if any is new. `listed` is the number of tags that the playlist has.
    pub(super) fn take(&mut self, cue: &Cue, listed: usize) -> bool {
        let mut is_new = false;
        for event in &cue.splice.events {
            if listed.saturating_add(self.growing.len()) < TAGS_MAX
                && let Some(tag) = self.tag(cue, event)
            {
                self.growing.push(tag);
                is_new = true;
            }
        }
        is_new
    }

    /// The tag of an event; `None` if it says nothing new.
    fn tag(&mut self, cue: &Cue, event: &Event) -> Option<DateRange> {
        let last = self.known.iter_mut().rev().find(|known| known.event == event.id);
        let is_same_time = |known: &Known| known.at_ms.saturating_sub(cue.at_ms).saturating_abs() <= SAME_MS;
        let is_open = |known: &Known| !known.is_closed && known.end_ms.is_none_or(|end| end > cue.date_ms);
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
                Some(known.close(length, (SpliceKind::In, cue.section.clone())))
            }
            (Kind::Cancel, Some(known)) if !known.is_closed => {
                Some(known.close(0, (SpliceKind::Command, cue.section.clone())))
            }
            (Kind::Cancel, _) => None,
            (Kind::Out | Kind::In | Kind::Other, _) => Some(self.begin(cue, event)),
        }
    }

    fn begin(&mut self, cue: &Cue, event: &Event) -> DateRange {
        let planned = event.duration.map(duration_of);
        let end_ms = match (event.kind, planned) {
            // A break without an announced end lasts until its return.
            (Kind::Out, None) => None,
            (_, planned) => Some(cue.date_ms.saturating_add(ms(planned.unwrap_or_default()))),
        };
        let splice = match event.kind {
            Kind::Out => SpliceKind::Out,
            Kind::In => SpliceKind::In,
            Kind::Other | Kind::Cancel => SpliceKind::Command,
        };
        // Ids of events come again; all playlists of a stream count the same time.
        let id = format!("{}-{}", event.id, cue.at_ms);
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Known {
            event: event.id,
            kind: event.kind,
            at_ms: cue.at_ms,
            id: id.clone(),
            start_ms: cue.date_ms,
            end_ms,
            is_closed: false,
        });
        DateRange {
            id,
            start_ms: cue.date_ms,
            duration: None,
            planned,
            splice: Some((splice, cue.section.clone())),
        }
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
            known.is_some_and(|known| known.end_ms.is_none_or(|end_ms| end_ms > begin_ms))
        };
        gone.into_iter().filter(lasts).collect()
    }

    /// Adds so much to all dates, of which none was shown.
    pub(super) fn move_dates(&mut self, by_ms: i64) {
        for known in &mut self.known {
            known.start_ms = known.start_ms.saturating_add(by_ms);
            known.end_ms = known.end_ms.map(|end_ms| end_ms.saturating_add(by_ms));
        }
        self.growing.iter_mut().for_each(|tag| tag.start_ms = tag.start_ms.saturating_add(by_ms));
    }
}

impl Known {
    /// Ends the range after this time, by a tag with this splice information.
    fn close(&mut self, length_ms: i64, splice: (SpliceKind, Bytes)) -> DateRange {
        self.is_closed = true;
        self.end_ms = Some(self.start_ms.saturating_add(length_ms));
        DateRange {
            id: self.id.clone(),
            start_ms: self.start_ms,
            duration: Some(Duration::from_millis(length_ms.unsigned_abs())),
            planned: None,
            splice: Some(splice),
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
        let told = (0..1000).filter(|id| window.cue(&cue(*id, Kind::Out, 2500, None))).count();
        assert_eq!(told, TAGS_MAX);
        run(&mut window, 2500, 4500);
        assert!(!window.cue(&cue(2000, Kind::Out, 4500, None)));
        assert_eq!(tags(&window).len(), TAGS_MAX);
        run(&mut window, 4500, 30_500);
        assert_eq!(tags(&window).len(), KNOWN_MAX, "breaks without an end are still there");
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
