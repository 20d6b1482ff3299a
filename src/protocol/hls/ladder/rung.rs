//! A rendition of a ladder: a video track with the audio of its stream, cut at the boundaries of the leading
//! rendition as far as key frames allow.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hls::playlist::MediaPlaylist;
use hls::segmenter::{
    Cue, Cut, GivenKey, Made, Mp4Segmenter, Names, Outline, Sealer, Start, TsSegmenter, Window,
};
use media::captions::Known;
use media::{Track, TrackKind, Tracks};

use super::Layout;
use super::clock::SNAP_MS;
use crate::hub::{Chosen, Entry, Fit, Pick, Selection};
use crate::mail::{Mark, Progress, Sound};
use crate::protocol::hls::captions::Noted;
use crate::protocol::hls::settings::HlsSettings;
use crate::protocol::hls::{cmaf, progress, sink, sounds, timed};

/// Maximum number of segment beginnings that are kept for renditions that follow this one ([`Lead`]).
const MARKS_MAX: usize = 6;
/// Maximum number of key-frame times that are kept for renditions that follow this one ([`Lead`]).
const KEYS_MAX: usize = 3;
/// Maximum difference, in milliseconds, between distances of key frames that count as evenly spaced.
const EVEN_MS: i64 = 20;

/// The state of the leading rendition that others follow.
#[derive(Debug, Clone, Default)]
pub(super) struct Lead {
    /// The beginnings of the leading rendition's newest segments.
    pub(super) marks: Vec<Mark>,
    /// Times of the leading rendition's newest key frames, in milliseconds.
    pub(super) keys: Vec<i64>,
    /// The leading rendition's target duration, once it is known.
    pub(super) target: Option<Duration>,
}

/// Facts about the other renditions.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    /// The leading rendition; `None` if this one leads.
    pub(super) lead: Option<Lead>,
    /// The longest segment among the other renditions, in milliseconds: all playlists have the same target duration
    /// (RFC 8216 §6.2.4).
    pub(super) longest_ms: i64,
}

impl Beside {
    /// Returns the target duration that is long enough for a window and for the other renditions.
    fn wanted_target(&self, window: &Window) -> Duration {
        let longest = Duration::from_millis(self.longest_ms.max(0).unsigned_abs().saturating_add(500));
        window.wanted_target().max(Duration::from_secs(longest.as_secs()))
    }
}

/// Returns the length of the longest of these segments, or the longest distance between these key frames.
pub(super) fn longest_ms(marks: &[Mark], keys: &[i64]) -> i64 {
    let distances = keys.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(b.saturating_sub(*a)),
        _ => None,
    });
    let lengths = marks.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(b.begin_ms.saturating_sub(a.begin_ms)),
        _ => None,
    });
    lengths.chain(distances).max().unwrap_or(0)
}

/// The place of a segment relative to those of the leading rendition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: Start,
    /// Expected beginning of the leading rendition's next segment, if this segment begins within one of its segments.
    due_ms: Option<i64>,
}

impl Lead {
    /// Returns the distance in milliseconds from this time to the nearest key frame of the leading rendition;
    /// negative if that key frame is earlier. If key frames are evenly spaced, expected ones are considered too.
    pub(super) fn key_beside(&self, at_ms: i64) -> Option<i64> {
        let apart_ms = |key_ms: i64| key_ms.saturating_sub(at_ms);
        let mut nearest =
            self.keys.iter().map(|key_ms| apart_ms(*key_ms)).min_by_key(|ms| ms.saturating_abs());
        if let [before @ .., b, c] = &*self.keys {
            let (c, step_ms) = (*c, c.saturating_sub(*b));
            let is_as_far =
                |a: &i64| b.saturating_sub(*a).saturating_sub(step_ms).saturating_abs() <= EVEN_MS;
            let is_even = before.last().is_none_or(is_as_far);
            let behind_ms = at_ms.saturating_sub(c);
            if is_even && step_ms > 0 && behind_ms > 0 {
                let steps = behind_ms.saturating_add(step_ms / 2).checked_div(step_ms)?;
                let next = apart_ms(c.saturating_add(steps.saturating_mul(step_ms)));
                nearest = nearest.into_iter().chain([next]).min_by_key(|ms| ms.saturating_abs());
            }
        }
        nearest
    }

    /// Returns the place of a segment that begins at this time; `None` if it begins before all known segments of
    /// the leading rendition.
    fn place(&self, begin_ms: i64, segment_ms: i64) -> Option<Place> {
        let at = self.marks.iter().rposition(|mark| mark.begin_ms <= begin_ms.saturating_add(SNAP_MS))?;
        let mark = self.marks.get(at)?;
        let start = |passed: i64| Start {
            number: mark.number.saturating_add(u64::try_from(passed).unwrap_or(0)),
            discontinuities: mark.discontinuities,
        };
        let behind_ms = begin_ms.saturating_sub(mark.begin_ms);
        if behind_ms <= SNAP_MS {
            return Some(Place { start: start(0), due_ms: None });
        }
        if let Some(next) = self.marks.get(at.saturating_add(1)) {
            return Some(Place { start: start(0), due_ms: Some(next.begin_ms.saturating_sub(SNAP_MS)) });
        }
        // Segments after the known ones are assumed to be as long as the last one.
        let before = at.checked_sub(1).and_then(|at| self.marks.get(at));
        let step_ms = before.map_or(segment_ms, |before| mark.begin_ms.saturating_sub(before.begin_ms));
        let passed = behind_ms.saturating_add(SNAP_MS).checked_div(step_ms.max(1))?;
        let beside_ms = behind_ms.saturating_sub(passed.saturating_mul(step_ms));
        if beside_ms <= SNAP_MS {
            return Some(Place { start: start(passed), due_ms: None });
        }
        let next_ms = mark.begin_ms.saturating_add(passed.saturating_add(1).saturating_mul(step_ms));
        Some(Place { start: start(passed), due_ms: Some(next_ms.saturating_sub(SNAP_MS)) })
    }
}

/// The segments of a rendition, in the form that the application's settings choose.
#[derive(Debug)]
enum Form {
    Ts(Box<TsSegmenter>),
    Mp4(Box<Mp4Segmenter>),
}

/// Returns the index of a track among the tracks of its kind, if the rule selects exactly this track; otherwise 0. The
/// index of a member's track is never 0, because the member may be any.
fn index_of(pick: Pick, tracks: &Tracks) -> u8 {
    let Pick::Only(id) = pick else { return 0 };
    let member = tracks.get(id).and_then(Track::member_number);
    member.map_or_else(|| id.index(), |number| number.saturating_add(1))
}

/// Returns the part by which the key names of a stream's renditions differ: the index of the video track, or for
/// audio a number that counts down from 255.
pub(super) fn key_name(selection: Selection, tracks: &Tracks) -> String {
    let is_sound = selection.video == Pick::None;
    let of_sound = || u8::MAX.saturating_sub(index_of(selection.audio, tracks));
    let number = if is_sound { of_sound() } else { index_of(selection.video, tracks) };
    number.to_string()
}

/// The times during which a rendition's track was absent from the stream.
#[derive(Debug)]
struct Away {
    /// True while the track is absent.
    is_paused: bool,
    /// Number of absences so far; always 0 for additional audio.
    pauses: u32,
    /// Units before this time belong to no segment: audio that has returned begins with the next segment of the
    /// other renditions.
    from_ms: i64,
}

/// A rendition of a ladder.
#[derive(Debug)]
pub(super) struct Rung {
    /// Index among the video tracks of its stream, or among the audio tracks.
    pub(super) index: u8,
    /// True if the rendition has audio only: it is shared by the videos of the ladder, or can be chosen with them.
    pub(super) is_sound: bool,
    pub(super) captions: Noted,
    /// True if the samples of the rendition are encrypted.
    is_protected: bool,
    selection: Selection,
    chosen: Chosen,
    away: Away,
    form: Form,
    segment_ms: i64,
    /// Common prefix of the names of the rendition's files, once known.
    name: Option<String>,
    marks: VecDeque<Mark>,
    keys: VecDeque<i64>,
    /// Bytes of the first segment, for the rate in the rendition's name.
    bytes: usize,
    made: Vec<Made>,
    /// True if a segment or part was cut since the last call of `take_news`.
    is_news: bool,
}

impl Rung {
    /// Makes the rendition of a selection: a video with or without audio, the stream's audio, or additional audio.
    pub(super) fn new(
        (selection, tracks): (Selection, &Tracks),
        (layout, settings): (Layout, &HlsSettings),
        start: Start,
        sealer: Option<Sealer>,
    ) -> Self {
        let is_apart = layout == Layout::Apart;
        let form = if is_apart || settings.fragmented {
            let run = is_apart.then_some(start.number);
            let names = Names { base: String::new(), ending: "m4s", run };
            let parts = is_apart && settings.enabled && settings.low_latency;
            let segmenter = Mp4Segmenter::new(names, &settings.rules, parts, (start, 0));
            Form::Mp4(Box::new(cmaf::segmenter(settings, segmenter, sealer)))
        } else {
            let segmenter = TsSegmenter::of_ladder(&settings.rules, start);
            Form::Ts(Box::new(sink::segmenter(settings, segmenter, sealer)))
        };
        let is_of_sound = selection.video == Pick::None;
        Self {
            index: index_of(if is_of_sound { selection.audio } else { selection.video }, tracks),
            is_sound: is_of_sound && (is_apart || selection.audio != Pick::Default),
            captions: Noted { setting: settings.told.captions.clone(), known: Known::default() },
            is_protected: settings.protects_samples(),
            selection,
            chosen: Chosen::default(),
            away: Away { is_paused: false, pauses: 0, from_ms: i64::MIN },
            form,
            segment_ms: settings.rules.segment_ms,
            name: None,
            marks: VecDeque::new(),
            keys: VecDeque::new(),
            bytes: 0,
            made: Vec::new(),
            is_news: false,
        }
    }

    /// True if this is the rendition of the selection.
    pub(super) fn is_of(&self, selection: Selection) -> bool {
        self.selection == selection
    }

    /// True if the rendition is additional audio, beside the first one.
    pub(super) fn is_other_sound(&self) -> bool {
        self.is_sound && self.selection.audio != Pick::Default
    }

    pub(super) const fn window(&self) -> &Window {
        match &self.form {
            Form::Ts(segmenter) => segmenter.window(),
            Form::Mp4(segmenter) => segmenter.window(),
        }
    }

    /// Returns the beginning of the current segment, in the form that is passed to other renditions.
    fn mark(&self) -> Option<Mark> {
        let hls::segmenter::Mark { number, discontinuities, begin_ms } = self.window().mark()?;
        Some(Mark { number, discontinuities, begin_ms })
    }

    const fn window_mut(&mut self) -> &mut Window {
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.window_mut(),
            Form::Mp4(segmenter) => segmenter.window_mut(),
        }
    }

    // ---- inputs

    /// Sets a key given by the operator, for the next segment and those after it.
    pub(super) fn set_key(&mut self, key: GivenKey) {
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.set_key(key),
            Form::Mp4(segmenter) => segmenter.set_key(key),
        }
    }

    /// Sets the tracks of the stream. Units of the former tracks become a segment of their own.
    pub(super) fn set_tracks(
        &mut self,
        chosen: &Chosen,
        beside: &Beside,
        named: impl FnOnce(u32, u64) -> String,
    ) {
        if self.name.is_none() && self.window().mark().is_some() {
            self.begin_as(self.window().end_ms(), beside, named);
        }
        let (before, was_paused) = (self.chosen.epoch(), std::mem::take(&mut self.away.is_paused));
        // Additional audio joins and leaves without a discontinuity, because the other renditions have none there.
        let is_behind_one = was_paused && !self.is_other_sound();
        self.away.pauses = self.away.pauses.saturating_add(u32::from(is_behind_one));
        if was_paused && self.is_other_sound() {
            self.away.from_ms = i64::MAX;
        }
        let fit: fn(&Track) -> Fit = match &self.form {
            Form::Ts(_) => sink::fit,
            Form::Mp4(_) if self.is_protected => cmaf::fit_protected,
            Form::Mp4(_) => cmaf::fit,
        };
        self.chosen.update(self.selection, chosen.all(), &fit);
        if self.chosen.epoch() == before && !was_paused {
            return;
        }
        let epoch = self.chosen.epoch().saturating_add(self.away.pauses);
        let tracks = self.chosen.iter().cloned().collect();
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.set_tracks(tracks, epoch),
            Form::Mp4(segmenter) => {
                segmenter.set_tracks(tracks, epoch);
                self.made.extend(segmenter.take_made());
            }
        }
    }

    /// Adds timed metadata to the current segment.
    pub(super) fn metadata(&mut self, at_ms: i64, tags: &Bytes) {
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.metadata(at_ms, tags),
            Form::Mp4(segmenter) => segmenter.metadata(at_ms, tags),
        }
    }

    /// Takes splice information. With `has_event`, fragmented MP4 also carries it in segments.
    pub(super) fn cue(&mut self, cue: &Cue, has_event: bool) {
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.cue(cue),
            Form::Mp4(segmenter) => segmenter.cue(cue, has_event),
        }
    }

    /// True if the rendition has audio only, beside video renditions.
    pub(super) const fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Returns the end of the current segment, if it ends before this unit.
    pub(super) fn end_before(&self, entry: &Entry) -> Option<i64> {
        if !self.chosen.contains(entry.unit.track) {
            return None;
        }
        match &self.form {
            Form::Ts(segmenter) => segmenter.end_before(&timed(entry, 0)),
            Form::Mp4(segmenter) => segmenter.end_before(&timed(entry, 0)),
        }
    }

    /// True if a segment has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.window().begin_ms().is_some() || self.window().has_cut()
    }

    /// True if the unit belongs to the rendition's tracks, and a segment may begin with it.
    pub(super) fn begins_with(&self, entry: &Entry) -> bool {
        let lead = self.chosen.lead();
        self.chosen.contains(entry.unit.track)
            && lead.is_none_or(|lead| lead == entry.unit.track && entry.unit.key_frame)
    }

    /// Takes a unit with its time on the ladder's clock and its date. `beside` describes the other renditions. Until
    /// the first segment ends, `named` gives the rendition's name for a height and a rate in kbit/s.
    pub(super) fn take(
        &mut self,
        entry: &Entry,
        date_ms: i64,
        beside: &Beside,
        named: impl FnOnce(u32, u64) -> String,
    ) {
        let begins = self.begins_with(entry);
        if !self.chosen.contains(entry.unit.track) || !self.has_begun() && !begins {
            return;
        }
        if let Some(end_ms) = self.end_before(entry).filter(|_| self.name.is_none()) {
            self.begin_as(end_ms, beside, named);
        }
        if self.name.is_none() {
            self.bytes = self.bytes.saturating_add(entry.unit.payload.len());
        }
        if begins && self.chosen.lead().is_some() {
            self.keys.push_back(entry.dts_ms);
            if self.keys.len() > KEYS_MAX {
                self.keys.pop_front();
            }
        }
        self.captions.setting.note(&mut self.captions.known, entry, true);
        let before = self.window().number();
        match &mut self.form {
            Form::Ts(segmenter) => {
                let cut = segmenter.unit(&timed(entry, date_ms));
                self.keep(cut);
            }
            Form::Mp4(segmenter) => drop(segmenter.unit(&timed(entry, date_ms))),
        }
        self.note_mark(before, beside);
    }

    /// Names the rendition at the end of its first segment, and numbers it relative to the leading one.
    fn begin_as(&mut self, end_ms: i64, beside: &Beside, named: impl FnOnce(u32, u64) -> String) {
        let begin_ms = self.window().begin_ms().unwrap_or(end_ms);
        let ms = u64::try_from(end_ms.saturating_sub(begin_ms)).unwrap_or(0).max(1);
        let kbps = (self.bytes as u64).saturating_mul(8) / ms;
        let height = self.size().map_or(0, |(_, height)| height);
        let name = named(height, kbps);
        match &mut self.form {
            Form::Ts(segmenter) => segmenter.set_name(&name),
            Form::Mp4(segmenter) => segmenter.set_name(&name),
        }
        self.name = Some(name);
        let place = beside.lead.as_ref().and_then(|lead| lead.place(begin_ms, self.segment_ms));
        if let Some(place) = place {
            match &mut self.form {
                Form::Ts(segmenter) => segmenter.window_mut().begin_at(place.start),
                Form::Mp4(segmenter) => segmenter.begin_at(place.start),
            }
            self.marks = self.mark().into_iter().collect();
        }
    }

    /// Takes an audio unit. Segments of this audio end with those of a video, the last of which ended at
    /// `boundary_ms`.
    pub(super) fn follow(
        &mut self,
        entry: &Entry,
        date_ms: i64,
        beside: &Beside,
        (boundary_ms, named): (Option<i64>, impl FnOnce(u32, u64) -> String),
    ) {
        if !self.chosen.contains(entry.unit.track) || entry.dts_ms < self.away.from_ms {
            return;
        }
        let begin_ms = self.window().begin_ms();
        let ends_with = |at: &i64| entry.dts_ms >= *at && begin_ms.is_some_and(|begin_ms| begin_ms < *at);
        let ends = self.end_before(entry).or_else(|| boundary_ms.filter(ends_with));
        if let Some(end_ms) = ends.filter(|_| self.name.is_none()) {
            self.begin_as(end_ms, beside, named);
        }
        let before = self.window().number();
        match &mut self.form {
            Form::Ts(segmenter) => {
                let cut = segmenter.follow(&timed(entry, date_ms), boundary_ms);
                self.keep(cut);
            }
            Form::Mp4(segmenter) => segmenter.follow(&timed(entry, date_ms), boundary_ms),
        }
        if self.note_begin(before).is_some() {
            self.settle(beside, true);
        }
    }

    /// Notes the beginning of the current segment, unless its number is still `before`.
    fn note_begin(&mut self, before: u64) -> Option<Mark> {
        let is_new = self.window().number() != before || self.marks.is_empty();
        let mark = self.mark().filter(|_| is_new)?;
        self.is_news = true;
        self.marks.push_back(mark);
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
        Some(mark)
    }

    fn note_mark(&mut self, before: u64, beside: &Beside) {
        let Some(mark) = self.note_begin(before) else { return };
        let place = beside.lead.as_ref().and_then(|lead| lead.place(mark.begin_ms, self.segment_ms));
        if let Some(due_ms) = place.and_then(|place| place.due_ms) {
            self.window_mut().end_from(due_ms);
        }
        let has_waited = beside.lead.is_none() || self.window().has_waited();
        self.settle(beside, has_waited);
    }

    /// Sets the target duration: the one of the leading rendition, or one that is long enough for all renditions.
    fn settle(&mut self, beside: &Beside, has_waited: bool) {
        let told = beside.lead.as_ref().and_then(|lead| lead.target);
        if !self.window().is_ripe() || told.is_none() && !has_waited {
            return;
        }
        // This rendition's segments may be longer than the leading rendition's target duration. Different target
        // durations are a lesser evil than segments without a key frame.
        let target = match told {
            Some(told) => told.max(self.window().wanted_target()),
            None => beside.wanted_target(self.window()),
        };
        self.window_mut().adopt(target);
    }

    /// Pauses the rendition, because its track has left the stream; the track may return.
    pub(super) fn pause(&mut self) {
        match &mut self.form {
            Form::Ts(segmenter) => {
                let cut = segmenter.pause();
                self.keep(cut);
            }
            Form::Mp4(segmenter) => segmenter.pause(),
        }
        (self.away.is_paused, self.is_news) = (true, true);
    }

    /// Lists a gap up to `end_ms`, the end of another rendition's segment. `dated` converts a media time to a date.
    pub(super) fn pass(&mut self, end_ms: i64, dated: impl Fn(i64) -> i64) {
        self.is_news |= match &mut self.form {
            Form::Ts(segmenter) => segmenter.pass(end_ms, dated),
            Form::Mp4(segmenter) => segmenter.pass(end_ms, dated),
        };
    }

    /// Ends the rendition with the stream. With `is_told`, the playlist gets its end tag.
    pub(super) fn finish(&mut self, is_told: bool, beside: &Beside, named: impl FnOnce(u32, u64) -> String) {
        if self.name.is_none() {
            let end_ms = self.window().end_ms();
            self.begin_as(end_ms, beside, named);
        }
        match &mut self.form {
            Form::Ts(segmenter) => {
                let cut = segmenter.finish(is_told);
                self.keep(cut);
            }
            Form::Mp4(segmenter) => segmenter.finish(is_told),
        }
        self.settle(beside, true);
        self.is_news = true;
    }

    /// Called at `end_ms`, the end of another rendition's segment. If the audio of this rendition has returned and
    /// waits for such an end, it continues there, and gaps are listed up to there.
    pub(super) fn resume(&mut self, end_ms: i64, dated: impl Fn(i64) -> i64) {
        if self.away.from_ms == i64::MAX {
            self.away.from_ms = end_ms;
            self.pass(end_ms, dated);
        }
    }

    fn keep(&mut self, cut: Option<Cut>) {
        let Some(Cut { uri, bytes, key }) = cut else { return };
        self.made.extend(key.map(|(name, bytes)| Made { name, bytes, is_init: true }));
        self.made.push(Made { name: uri, bytes, is_init: false });
    }

    // ---- outputs

    /// True if a segment or part was cut since the last call.
    pub(super) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.is_news, false)
    }

    /// True if there are finished files that [`Self::take_made`] has not returned yet.
    pub(super) fn has_made(&mut self) -> bool {
        if let Form::Mp4(segmenter) = &mut self.form {
            self.made.extend(segmenter.take_made());
        }
        !self.made.is_empty()
    }

    /// Returns the files that can be fetched from now on, init segments first.
    pub(super) fn take_made(&mut self) -> Vec<(String, Bytes, bool)> {
        self.has_made();
        std::mem::take(&mut self.made).into_iter().map(|made| (made.name, made.bytes, made.is_init)).collect()
    }

    /// Returns the names of files that have left the playlist, and of those that no player fetches any more.
    pub(super) fn take_left(&mut self) -> (Vec<String>, Vec<String>) {
        match &mut self.form {
            Form::Ts(segmenter) => (segmenter.take_left(), segmenter.take_gone()),
            Form::Mp4(segmenter) => (segmenter.take_left(), segmenter.take_gone()),
        }
    }

    /// Returns the playlist and its progress, once it has enough segments for players to begin.
    pub(super) fn playlist(&self) -> Option<(MediaPlaylist, Progress)> {
        let window = self.window();
        window.is_enough().then(|| match &self.form {
            Form::Ts(_) => (window.playlist().clone(), self.progress()),
            Form::Mp4(segmenter) => (segmenter.playlist(), self.progress()),
        })
    }

    /// Returns the progress of the playlist.
    pub(super) fn progress(&self) -> Progress {
        match &self.form {
            Form::Mp4(segmenter) if !self.window().playlist().ended => {
                let (segment, part) = segmenter.progress();
                Progress { segment, part }
            }
            Form::Ts(_) | Form::Mp4(_) => progress(self.window()),
        }
    }

    /// Returns the number of parts of the newest whole segment.
    pub(super) fn last_parts(&self) -> u32 {
        let last = self.window().playlist().segments.last();
        last.map_or(0, |last| u32::try_from(last.parts.len()).unwrap_or(u32::MAX))
    }

    /// Returns the description of the rendition's segments for manifests; `None` for MPEG-TS.
    pub(super) fn outline(&self) -> Option<Outline> {
        match &self.form {
            Form::Ts(_) => None,
            Form::Mp4(segmenter) => {
                let accessibility = if self.is_sound {
                    Vec::new()
                } else {
                    self.captions.setting.accessibility(&self.captions.known)
                };
                Some(Outline::of(segmenter).with_accessibility(accessibility))
            }
        }
    }

    /// Returns the description of the rendition's audio.
    pub(super) fn sound(&self) -> Sound {
        let track = self.chosen.of_kind(TrackKind::Audio).next();
        let sound = track.map(sounds::of).unwrap_or_default();
        // The first audio rendition keeps its name, whichever track it carries.
        let is_own = self.is_sound || track.is_some_and(|track| track.member.is_some());
        Sound { index: if is_own { self.index } else { sound.index }, ..sound }
    }

    /// Returns the common prefix of the names of the rendition's files, once it is known.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the state that other renditions follow.
    pub(super) fn lead(&self) -> Lead {
        let target = Some(self.window().playlist().target_duration).filter(|target| !target.is_zero());
        let (marks, keys) = (self.marks.iter().copied().collect(), self.keys.iter().copied().collect());
        Lead { marks, keys, target }
    }

    /// Returns the width and height of the rendition's video.
    pub(super) fn size(&self) -> Option<(u32, u32)> {
        self.chosen.of_kind(TrackKind::Video).next().and_then(Track::picture_size)
    }

    /// Returns the frame rate in frames per 1000 seconds, if known.
    pub(super) fn frame_rate_milli(&self) -> Option<u64> {
        match &self.form {
            Form::Ts(_) => None,
            Form::Mp4(segmenter) => segmenter.newest()?.frame_rate_milli,
        }
    }

    /// Returns the rendition's codecs (RFC 6381), separated by commas.
    pub(super) fn codecs(&self) -> String {
        let codecs: Vec<String> = self.chosen.iter().filter_map(|track| track.config.rfc6381()).collect();
        codecs.join(",")
    }
}
