//! Subtitles of a live stream in one language, as segments beside those of another rendition.
//!
//! Each segment of the other rendition has a segment of WebVTT with the same number, duration and date (RFC 8216 §3.5),
//! and a segment of a `wvtt` track if manifests need one (ISO/IEC 14496-30). A cue is written to every segment that it
//! overlaps in time; segments without cues are written, too. A cue that arrives after the end of its segment is written
//! to the next segment, if the cue lasts that long. A cue with an unknown end is cut at the ends of segments: if its
//! times changed from one segment to the next, players would show two cues.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use fmp4::{TextCue, text_init_segment, text_segment};
use media::subtitles::{Time, write_cue};
use media::{Timescale, TrackKind};

use super::left::Left;
use super::manifest::Escaped;
use super::mp4::{Described, Made, Span};
use super::outline::Outline;
use super::window::{Extent, Window};
use super::{Names, Suffix};
use crate::playlist::{MediaPlaylist, Segment};

/// Maximum number of cues that wait for the end of their last segment, and of the bytes of their texts.
pub const LINES_MAX: usize = 256;
const LINE_BYTES_MAX: usize = 32 * 1024;
/// Ticks of MPEG-TS in a millisecond, and the number at which its timestamps wrap (ISO/IEC 13818-1 §2.4.3.6).
const TICKS_PER_MS: i64 = 90;
const TICKS_END: i64 = 1 << 33;
/// Suffix of the names of WebVTT segments, and of segments of a `wvtt` track.
const TEXT: &str = "vtt";
const TRACK: &str = "m4s";
/// Minimum bit rate that manifests announce, in bits per second.
const BITS_MIN: u64 = 1000;

/// A cue in the time of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Time at which the cue appears, in milliseconds.
    pub begin_ms: i64,
    /// Time at which the cue disappears, in milliseconds.
    pub end_ms: i64,
    /// WebVTT cue text.
    pub text: String,
    /// True if the end of the cue is not known yet. The next line of this kind ends the cue.
    pub is_open: bool,
}

/// Time zero of a stream in its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zero {
    /// Milliseconds added to all times.
    pub shift_ms: i64,
    /// Timestamp of time zero in ticks of MPEG-TS, after the shift.
    pub ticks: i64,
}

/// The names and the description of subtitles.
#[derive(Debug, Clone)]
pub struct SubtitlesOf {
    /// Prefix of the names of segments.
    pub base: String,
    /// Format of the numbers in names.
    pub suffix: Suffix,
    /// Index among the languages of the stream.
    pub index: u8,
    /// Language, as a BCP 47 tag.
    pub language: Arc<str>,
    /// Time zero in the segments.
    pub zero: Zero,
    /// True if a manifest needs segments of a `wvtt` track.
    pub has_track: bool,
}

/// Segments of subtitles in one language, and their playlist.
#[derive(Debug)]
pub struct Subtitles {
    of: SubtitlesOf,
    /// Lines ordered by the time at which they begin, each with its number.
    lines: Vec<(u32, Line)>,
    /// Number of the next line.
    next_line: u32,
    /// If set, the numbers in names start at 1 with this segment.
    run: Option<u64>,
    /// Number of the next segment, and its beginning in milliseconds.
    next: Option<(u64, i64)>,
    playlist: MediaPlaylist,
    spans: VecDeque<(Span, bool)>,
    described: Option<Described>,
    left: Left,
    made: Vec<Made>,
}

impl Subtitles {
    /// Creates the subtitles of a stream that has none yet.
    #[must_use]
    pub fn new(of: SubtitlesOf) -> Self {
        Self {
            of,
            lines: Vec::new(),
            next_line: 1,
            run: None,
            next: None,
            playlist: MediaPlaylist::default(),
            spans: VecDeque::new(),
            described: None,
            left: Left::default(),
            made: Vec::new(),
        }
    }

    /// Sets time zero in the segments. Called before the first segment.
    pub const fn set_zero(&mut self, zero: Zero) {
        self.of.zero = zero;
    }

    /// The language, as a BCP 47 tag.
    #[must_use]
    pub fn language(&self) -> &str {
        &self.of.language
    }

    /// Adds a line; a line without text is not shown. If the end of the line is not known (`is_open`), it ends all
    /// earlier lines of this kind. Returns the number of dropped lines: this line, if its time is over, and if too many
    /// lines are waiting, those that begin last.
    pub fn line(&mut self, line: Line) -> usize {
        if line.is_open {
            for (_, open) in self.lines.iter_mut().filter(|(_, former)| former.is_open) {
                open.end_ms = open.end_ms.min(line.begin_ms);
            }
            self.lines.retain(|(_, line)| line.begin_ms < line.end_ms);
        }
        if line.text.is_empty() {
            return 0;
        }
        if line.end_ms <= line.begin_ms || self.next.is_some_and(|(_, at_ms)| line.end_ms <= at_ms) {
            return 1;
        }
        let at = self.lines.partition_point(|(_, other)| other.begin_ms <= line.begin_ms);
        self.lines.insert(at, (self.next_line, line));
        self.next_line = self.next_line.wrapping_add(1);
        let fits = |lines: &[(u32, Line)]| {
            let bytes = lines.iter().fold(0_usize, |sum, (_, one)| sum.saturating_add(one.text.len()));
            lines.len() <= LINES_MAX && bytes <= LINE_BYTES_MAX
        };
        let mut dropped: usize = 0;
        while !fits(&self.lines) && self.lines.pop().is_some() {
            dropped = dropped.saturating_add(1);
        }
        dropped
    }

    /// Makes the segments that the leading rendition has and these subtitles lack. Returns true if the playlist has
    /// changed.
    pub fn follow(&mut self, lead: &Window) -> bool {
        let list = lead.playlist();
        let mut is_changed =
            self.playlist.ended != list.ended || self.playlist.target_duration != list.target_duration;
        let has_all = list.segments.is_empty() || self.next.is_some_and(|(next, _)| next == lead.number());
        if has_all && !is_changed {
            return false;
        }
        for (number, segment, extent) in lead.listed() {
            let next = self.next.map_or(number, |(next, _)| next);
            if number < next {
                continue;
            }
            if number > next {
                self.clear();
            }
            self.add(number, segment, extent);
            is_changed = true;
        }
        let first = list.media_sequence;
        while self.playlist.media_sequence < first && !self.playlist.segments.is_empty() {
            self.forget_first();
        }
        for (number, segment, _) in lead.listed() {
            let at = number.checked_sub(self.playlist.media_sequence).and_then(|at| usize::try_from(at).ok());
            if let Some(own) = at.and_then(|at| self.playlist.segments.get_mut(at)) {
                own.program_date_time = segment.program_date_time;
            }
        }
        let missing =
            usize::try_from(self.playlist.media_sequence.saturating_sub(first)).unwrap_or(usize::MAX);
        let before =
            list.segments.iter().take(missing).filter(|segment| segment.discontinuity).count() as u64;
        self.playlist.discontinuity_sequence = list.discontinuity_sequence.saturating_add(before);
        (self.playlist.version, self.playlist.target_duration) = (list.version, list.target_duration);
        (self.playlist.ended, self.playlist.independent_segments) = (list.ended, list.independent_segments);
        is_changed
    }

    /// Makes one segment.
    fn add(&mut self, number: u64, segment: &Segment, extent: Extent) {
        self.run.get_or_insert(number);
        if self.playlist.segments.is_empty() {
            self.playlist.media_sequence = number;
        }
        let names = self.names(TEXT);
        let uri = names.segment(&self.of.suffix, number);
        if !segment.gap {
            self.describe(segment);
            let text = self.text(extent);
            self.made.push(Made { name: uri.clone(), bytes: Bytes::from(text), is_init: false });
            self.track_segment(number, segment.discontinuity, extent);
        }
        self.playlist.segments.push(Segment {
            uri,
            duration: segment.duration,
            discontinuity: segment.discontinuity,
            program_date_time: segment.program_date_time,
            gap: segment.gap,
            ..Segment::default()
        });
        self.left.note_segment(segment.duration);
        self.left.note_listed(&self.playlist.segments);
        self.next = Some((number.saturating_add(1), extent.end_ms));
        self.lines.retain(|(_, line)| line.end_ms > extent.end_ms);
    }

    /// Returns the lines of a segment.
    fn shown(&self, extent: Extent) -> impl Iterator<Item = &(u32, Line)> {
        self.lines
            .iter()
            .filter(move |(_, line)| line.begin_ms < extent.end_ms && extent.begin_ms < line.end_ms)
    }

    /// Writes a segment of WebVTT. It states the timestamp of the segment's beginning, from which players derive the
    /// times of the cues (RFC 8216 §3.5).
    fn text(&self, extent: Extent) -> String {
        let begin = self.local(extent.begin_ms);
        let ticks = i64::try_from(begin).unwrap_or(i64::MAX).saturating_mul(TICKS_PER_MS);
        let ticks = ticks.saturating_add(self.of.zero.ticks).rem_euclid(TICKS_END);
        let mut out = String::from("WEBVTT\n");
        let _ = write!(out, "X-TIMESTAMP-MAP=MPEGTS:{ticks},LOCAL:{}\n\n", Time(begin));
        for (_, line) in self.shown(extent) {
            let (begin_ms, end_ms) = self.times(line, extent);
            write_cue(&mut out, begin_ms, end_ms, &line.text);
        }
        out
    }

    /// Returns the times at which a line begins and ends, in milliseconds on the time axis of the segments. Those of an
    /// open line are cut to the segment, because the line's end may still change.
    fn times(&self, line: &Line, extent: Extent) -> (u64, u64) {
        let (mut begin_ms, mut end_ms) = (line.begin_ms, line.end_ms);
        if line.is_open {
            (begin_ms, end_ms) = (begin_ms.max(extent.begin_ms), end_ms.min(extent.end_ms));
        }
        (self.local(begin_ms), self.local(end_ms))
    }

    /// Makes a segment of the `wvtt` track.
    fn track_segment(&mut self, number: u64, begins_period: bool, extent: Extent) {
        let (begin, end) = (self.local(extent.begin_ms), self.local(extent.end_ms));
        let cues: Vec<TextCue<'_>> = self
            .shown(extent)
            .map(|(id, line)| {
                let (begin_ms, end_ms) = self.times(line, extent);
                TextCue { id: *id, begin_ms, end_ms, text: &line.text }
            })
            .collect();
        // Fragments have 32-bit numbers, which may wrap.
        let sequence = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        if !self.of.has_track {
            return;
        }
        let Ok(bytes) = text_segment(sequence, (begin, end), &cues) else { return };
        let name = self.names(TRACK).segment(&self.of.suffix, number);
        self.made.push(Made { name, bytes, is_init: false });
        let span = Span { number, time: begin, ticks: end.saturating_sub(begin) };
        self.spans.push_back((span, begins_period));
    }

    /// Makes the init segment, once.
    fn describe(&mut self, first: &Segment) {
        if !self.of.has_track || self.described.is_some() {
            return;
        }
        let uri = self.names(TRACK).init(first.program_date_time.unwrap_or(0).unsigned_abs(), 1);
        let bytes = text_init_segment(Some(&self.of.language));
        self.made.push(Made { name: uri.clone(), bytes, is_init: true });
        self.described = Some(Described {
            uri,
            codecs: vec!["wvtt".to_owned()],
            kind: TrackKind::Data,
            timescale: Timescale::MILLISECONDS,
            size: None,
            frame_rate_milli: None,
            sound: None,
            language: Some(Arc::clone(&self.of.language)),
            key_id: None,
        });
    }

    fn forget_first(&mut self) {
        let number = self.playlist.media_sequence;
        let gone = self.playlist.segments.remove(0);
        self.playlist.media_sequence = number.saturating_add(1);
        self.left.add(gone.uri, gone.duration);
        if let Some((span, _)) = self.spans.pop_front_if(|(span, _)| span.number <= number) {
            self.left.add(self.names(TRACK).segment(&self.of.suffix, span.number), gone.duration);
        }
    }

    /// Drops all segments, because those that follow have other numbers.
    fn clear(&mut self) {
        while !self.playlist.segments.is_empty() {
            self.forget_first();
        }
    }

    fn names(&self, ending: &'static str) -> Names {
        Names { base: self.of.base.clone(), ending, run: self.run }
    }

    /// Converts a time to milliseconds on the time axis of the segments.
    fn local(&self, at_ms: i64) -> u64 {
        u64::try_from(at_ms.saturating_add(self.of.zero.shift_ms)).unwrap_or(0)
    }

    // ---- outputs

    /// Files that can be fetched from now on.
    pub fn take_made(&mut self) -> Vec<Made> {
        std::mem::take(&mut self.made)
    }

    /// Names that have left the playlist since the last call, and names that players no longer fetch.
    pub fn take_left(&mut self) -> (Vec<String>, Vec<String>) {
        (self.left.take_new(), self.left.take_gone())
    }

    /// The playlist as it is now.
    #[must_use]
    pub const fn playlist(&self) -> &MediaPlaylist {
        &self.playlist
    }

    /// Number of the next segment.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.next.map_or(0, |(number, _)| number)
    }

    /// The segments of the `wvtt` track, for a manifest; `None` if there are none.
    #[must_use]
    pub fn outline(&self) -> Option<Outline> {
        let described = self.described.clone()?;
        let stem = Escaped(&self.names(TRACK).stem()).to_string();
        Some(Outline {
            id: self.of.base.clone(),
            accessibility: Vec::new(),
            track: Some(self.of.index),
            template: self.of.suffix.template(&stem, TRACK),
            run: self.run,
            is_enough: !self.playlist.target_duration.is_zero(),
            is_independent: true,
            has_metadata: false,
            has_cues: false,
            target: self.playlist.target_duration,
            bits: BITS_MIN,
            lengths: self.playlist.segments.iter().map(|segment| segment.duration).collect(),
            inits: vec![described],
            spans: self.spans.iter().map(|(span, begins)| (*span, 0, *begins)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use media::subtitles::read_webvtt;

    use super::*;

    fn subtitles() -> Subtitles {
        Subtitles::new(SubtitlesOf {
            base: "cam__subs_en".to_owned(),
            suffix: Suffix::NINE_DIGITS,
            index: 0,
            language: "en".into(),
            zero: Zero { shift_ms: 0, ticks: 0 },
            has_track: false,
        })
    }

    fn open(begin_ms: i64, text: &str) -> Line {
        Line { begin_ms, end_ms: begin_ms + 5000, text: text.to_owned(), is_open: true }
    }

    fn closed(begin_ms: i64, text: &str) -> Line {
        Line { is_open: false, ..open(begin_ms, text) }
    }

    /// Makes a segment of two seconds and returns its cues.
    fn segment(of: &mut Subtitles, number: u64) -> Vec<(u64, u64, String)> {
        let begin_ms = i64::try_from(number).unwrap() * 2000;
        let segment = Segment { duration: Duration::from_secs(2), ..Segment::default() };
        of.add(number, &segment, Extent { bytes: 0, begin_ms, end_ms: begin_ms + 2000 });
        let made = of.take_made().remove(0);
        let cues = read_webvtt(&made.bytes).unwrap();
        cues.into_iter().map(|cue| (cue.begin_ms, cue.end_ms, cue.text)).collect()
    }

    #[test]
    fn an_open_line_has_no_time_in_a_segment_that_later_segments_change() {
        let mut of = subtitles();
        assert_eq!(of.line(open(1000, "one")), 0);
        assert_eq!(segment(&mut of, 0), [(1000, 2000, "one".into())]);
        assert_eq!(of.line(open(3000, "two")), 0);
        assert_eq!(segment(&mut of, 1), [(2000, 3000, "one".into()), (3000, 4000, "two".into())]);
        assert_eq!(of.line(open(5000, "")), 0);
        assert_eq!(segment(&mut of, 2), [(4000, 5000, "two".into())]);
        assert_eq!(segment(&mut of, 3), []);
    }

    #[test]
    fn only_open_lines_end_open_ones() {
        let mut of = subtitles();
        of.line(open(1000, "said"));
        of.line(closed(0, "before"));
        of.line(closed(1500, "beside"));
        let wanted = [(0, 5000, "before".into()), (1000, 2000, "said".into()), (1500, 6500, "beside".into())];
        assert_eq!(segment(&mut of, 0), wanted);
        of.line(open(2500, ""));
        let wanted = [(0, 5000, "before".into()), (2000, 2500, "said".into()), (1500, 6500, "beside".into())];
        assert_eq!(segment(&mut of, 1), wanted);
    }

    #[test]
    fn lines_that_begin_last_are_dropped_when_too_many_wait_and_all_dropped_ones_are_counted() {
        let mut of = subtitles();
        let texts = |of: &Subtitles| of.lines.iter().map(|(_, line)| line.text.clone()).collect::<Vec<_>>();
        for n in 0..LINES_MAX {
            assert_eq!(of.line(closed(100_000, &format!("later {n}"))), 0);
        }
        assert_eq!(of.line(closed(1000, "soon")), 1, "the last one makes room");
        assert_eq!((of.lines.len(), texts(&of)[0].as_str()), (LINES_MAX, "soon"));
        assert_eq!(of.line(closed(200_000, "last")), 1);
        assert!(!texts(&of).contains(&"last".to_owned()), "it is the one that begins last");
        let long = "x".repeat(LINE_BYTES_MAX - 4);
        assert_eq!(of.line(closed(2000, &long)), LINES_MAX - 1);
        assert_eq!(texts(&of), ["soon".to_owned(), long]);
        segment(&mut of, 4);
        assert_eq!(of.line(closed(1000, "too late")), 1);
    }
}
