//! Segments of fragmented MP4, of one track or of several together, and their parts (RFC 8216bis).
//!
//! A unit is complete when the next unit of its track has arrived, so segments and parts are one frame late. If
//! parts are wanted, each lasts between 85 % and 100 % of the part target (§4.4.4.9): frames are added to a
//! part until one more would exceed the target. The target is set after the first segment, with some room for
//! jitter. If frames are not evenly spaced, for example those of a captured screen, the target is chosen so
//! that the longest frame lasts 15 % of it, and a part ends when it has reached 85 %. If a frame arrives so
//! late that the frame before it would make the part too long, that previous frame moves to the next part, and
//! the part that it leaves may be too short. A single frame may exceed the target, since it cannot be split.

mod described;
mod events;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fmp4::{Fragment, ID3_SCHEME, SPLICE_SCHEME, Samples, init_segment, styp};
use media::{CodecConfig, Timescale, Track, TrackId, TrackKind};

pub use self::described::{Described, Made, Span, Spanned};
use self::events::{Fragments, Waiting};
use super::cues::Cue;
use super::protect::Protector;
use super::seal::{GivenKey, Sealed, Sealer};
use super::window::{End, GAPS_AT_ONCE_MAX, Start, Unit, Window};
use super::{Names, Rules, Timed};
use crate::playlist::{Key, LowLatency, Map, MediaPlaylist, Part, Segment};

/// Distance from the end of the playlist at which players should play, in parts (RFC 8216bis §4.4.3.8).
const HOLD_BACK_PARTS: u32 = 3;
/// Delta updates leave out segments further than this many target durations from the end (§4.4.3.8).
const SKIP_TARGETS: u32 = 6;
/// Number of the newest segments listed with their parts: those within three target durations of the end
/// (§6.2.2).
const SEGMENTS_WITH_PARTS: usize = 3;
/// Maximum number of distances between units that are measured, in the first segment.
const STEPS_MAX: usize = 512;
/// Maximum frame duration that is considered when the part target is chosen; longer ones count as this long.
const STEP_MS_MAX: i64 = 2000;
/// Frames count as unevenly spaced if their distances differ by more than this.
const UNEVEN_MS: i64 = 5;
/// Common frame rates, in frames per 1000 seconds.
const RATES_MILLI: [u64; 8] = [23_976, 24_000, 25_000, 29_970, 30_000, 50_000, 59_940, 60_000];
/// Maximum number of parts of one segment.
const PARTS_MAX: usize = 256;
/// Number of parts of the longest segment that the part target allows for; further parts are room for jitter.
const PARTS_PLANNED: i64 = 240;
/// Maximum duration of a fragment, in milliseconds, if segments are encrypted as a whole. Each fragment is
/// encrypted when it ends; so a long segment is never encrypted all at once.
const SEALED_FRAGMENT_MS_MAX: i64 = 500;

/// The parts of the growing segment.
#[derive(Debug, Default)]
struct Growing {
    slices: Vec<Bytes>,
    /// Bytes so far, if the segment is encrypted as a whole.
    sealed: BytesMut,
    bytes: usize,
    parts: Vec<Part>,
    /// DTS in milliseconds at which the growing part began; the flag is true if it begins with a key frame.
    part_begin: Option<(i64, bool)>,
    /// Decode time of the first track's first sample, and of the end of its last one.
    span: Option<(u64, u64)>,
}

/// The rule for the duration of parts, and the names of the parts that are listed.
#[derive(Debug, Default)]
struct PartRule {
    are_wanted: bool,
    /// Distances between units so far, in milliseconds, until the target is set.
    steps: Vec<i64>,
    /// A duration that nearly no frame exceeds, in milliseconds.
    step_ms: i64,
    /// DTS of the leading track's last unit; the flag is true if the unit is a key frame.
    last: Option<(i64, bool)>,
    target_ms: Option<i64>,
    /// Minimum duration of parts if units are not evenly spaced.
    least_ms: Option<i64>,
    /// Names of the listed parts, for each segment that is listed with its parts.
    shown: VecDeque<Vec<String>>,
}

/// Files that were made or dropped since the owner last took them.
#[derive(Debug, Default)]
struct News {
    made: Vec<Made>,
    gone: Vec<String>,
}

/// Cuts one track, or several together, into segments of fragmented MP4, and keeps their playlist.
#[derive(Debug)]
pub struct Mp4Segmenter {
    names: Names,
    rules: Rules,
    window: Window,
    /// The samples of each track. Empty while the tracks have left the stream.
    lanes: Vec<Samples>,
    /// The tracks whose samples are in `lanes`.
    tracks: Vec<Track>,
    epoch: u32,
    map: Option<Arc<Map>>,
    growing: Growing,
    fragments: Fragments,
    parts: PartRule,
    spans: VecDeque<Span>,
    news: News,
    /// Descriptions of the init segments in the playlist, the newest last.
    described: Vec<Described>,
    seal: Seal,
}

/// Encryption of the segments.
#[derive(Debug, Default)]
struct Seal {
    /// Encrypts segments as a whole.
    sealer: Option<Sealer>,
    /// Makes the key for samples, and the [`Protector`] that encrypts with it. Kept until the key
    /// has a name (its URI).
    maker: Option<Sealer>,
    samples: Option<Protector>,
    /// The tag of the key for samples, listed before the segments.
    tag: Option<Arc<Key>>,
}

impl Mp4Segmenter {
    /// Creates the segmenter of one playlist, with parts if `low_latency`. `shift_ms` is added to all decode
    /// times so that none is negative; it is the same for all playlists of a stream.
    #[must_use]
    pub fn new(names: Names, rules: &Rules, low_latency: bool, (start, shift_ms): (Start, i64)) -> Self {
        Self {
            names,
            window: Window::new(rules, if low_latency { 9 } else { 6 }, start),
            rules: rules.clone(),
            lanes: Vec::new(),
            tracks: Vec::new(),
            epoch: 0,
            map: None,
            growing: Growing::default(),
            fragments: Fragments { shift_ms, ..Fragments::default() },
            parts: PartRule { are_wanted: low_latency, ..PartRule::default() },
            spans: VecDeque::new(),
            news: News::default(),
            described: Vec::new(),
            seal: Seal::default(),
        }
    }

    /// Accepts timed metadata, and announces it in manifests.
    #[must_use]
    pub const fn with_metadata(mut self) -> Self {
        self.fragments.has_metadata = true;
        self
    }

    /// True if timed metadata is accepted; manifests then announce it.
    #[must_use]
    pub const fn has_metadata(&self) -> bool {
        self.fragments.has_metadata
    }

    /// Encrypts the segments if there is a sealer. Segments that are encrypted as a whole have no parts,
    /// because an encrypted segment is not the concatenation of encrypted parts.
    #[must_use]
    pub fn sealed_by(mut self, sealer: Option<Sealer>) -> Self {
        if sealer.as_ref().is_some_and(Sealer::is_of_samples) {
            self.seal.maker = sealer;
        } else if sealer.is_some() {
            self.parts.are_wanted = false;
            let length = self.rules.fragment_ms.unwrap_or(SEALED_FRAGMENT_MS_MAX);
            self.rules.fragment_ms = Some(length.min(SEALED_FRAGMENT_MS_MAX));
            self.seal.sealer = sealer;
        }
        self
    }

    // ---- inputs

    /// Sets the encryption key, used from the next segment on. If samples are encrypted rather than
    /// whole segments, only the first key is used.
    pub fn set_key(&mut self, key: GivenKey) {
        if let Some(sealer) = self.seal.sealer.as_mut().or(self.seal.maker.as_mut()) {
            sealer.set_key(key);
        }
    }

    /// Sets the tracks from the next unit on; the first one leads. Units of the former tracks become a segment
    /// of their own. A changed `epoch` makes a discontinuity.
    pub fn set_tracks(&mut self, tracks: Vec<Track>, epoch: u32) {
        self.lanes.iter_mut().for_each(Samples::finish);
        self.close(self.window.end_ms());
        let lane = |(number, track): (u32, &Track)| {
            let mut lane = Samples::new(number, track);
            let is_same = |former: &&Samples| {
                former.id == lane.id && former.description.config == lane.description.config
            };
            // The size of VP9 video is only in key frames, so it is kept when other tracks change between them.
            if let Some(former) = self.lanes.iter().find(is_same) {
                lane.description.first_unit = former.description.first_unit.clone();
            }
            lane
        };
        self.lanes = (1..).zip(&tracks).map(lane).collect();
        self.tracks = tracks;
        self.epoch = epoch;
        self.map = None;
        self.seal.samples.iter_mut().for_each(|protector| protector.set_tracks(&self.tracks));
    }

    /// Must be called when the rendition's tracks have left the stream, perhaps temporarily. Until they return,
    /// the playlist continues with gaps: players would never reload a playlist that has ended.
    pub fn pause(&mut self) {
        self.lanes.iter_mut().for_each(Samples::finish);
        self.close(self.window.end_ms());
        self.lanes = Vec::new();
        (self.parts.last, self.parts.step_ms) = (None, 0);
    }

    /// Lists gaps (segments marked as missing) up to `end_ms`, where a segment of another rendition
    /// has ended. To be called if this rendition has received nothing since its own last segment.
    /// `dated` returns the date of a DTS. Returns true if the playlist has changed.
    pub fn pass(&mut self, end_ms: i64, dated: impl Fn(i64) -> i64) -> bool {
        let mut has_passed = false;
        // Each gap is at most as long as a segment may be.
        for _ in 0..GAPS_AT_ONCE_MAX {
            let uri = self.names.segment(&self.rules.suffix, self.window.number());
            if !self.window.add_gap(end_ms, &dated, (&uri, self.map.as_ref())) {
                break;
            }
            has_passed = true;
            self.forget(Vec::new());
        }
        has_passed
    }

    /// Adds ID3 tags for this time in milliseconds, to be written before the growing fragment. Drops them if no
    /// segment is growing, or if the segmenter was created without [`Self::with_metadata`]. If more than 64 are
    /// waiting for one fragment, the oldest are dropped.
    pub fn metadata(&mut self, at_ms: i64, tags: &Bytes) {
        if !self.fragments.has_metadata || self.window.begin_ms().is_none() {
            return;
        }
        let data = tags.clone();
        self.fragments.add_event(Waiting { scheme: ID3_SCHEME, at_ms, duration_ms: None, data });
    }

    /// Handles splice information. If it is new, its tags precede the growing segment in the playlist, after
    /// the parts already listed; with `has_event`, an event message precedes the growing fragment as well.
    pub fn cue(&mut self, cue: &Cue, has_event: bool) {
        if self.window.cue_behind(cue, self.growing.parts.len()) && has_event {
            self.fragments.has_cues = true;
            self.fragments.add_event(Waiting {
                scheme: SPLICE_SCHEME,
                at_ms: cue.at_ms,
                duration_ms: cue.duration_ms(),
                data: cue.section.clone(),
            });
        }
    }

    /// True if any segment so far had splice information; manifests announce it from then on.
    #[must_use]
    pub const fn has_cues(&self) -> bool {
        self.fragments.has_cues
    }

    /// True if the track belongs to this segmenter.
    #[must_use]
    pub fn has(&self, track: TrackId) -> bool {
        self.tracks.iter().any(|own| own.id == track)
    }

    /// True if the segments begin with key frames.
    fn is_video(&self) -> bool {
        self.tracks.first().is_some_and(|track| track.kind() == TrackKind::Video)
    }

    /// End of the growing segment, in milliseconds of DTS, if it ends before this unit.
    #[must_use]
    pub fn end_before(&self, timed: &Timed<'_>) -> Option<i64> {
        let unit = self.unit_of(timed)?;
        self.window.ends_before(&unit, self.growing.bytes).map(|end| end.at_ms)
    }

    /// Adds `by_ms` to all dates. Must only be called before the playlist is first shown, because
    /// dates that players know must not change.
    pub fn move_dates(&mut self, by_ms: i64) {
        self.window.move_dates(by_ms);
    }

    /// Handles a unit, and ends the growing segment at a suitable key frame of this rendition. Returns the DTS
    /// at which the segment ended, in milliseconds.
    pub fn unit(&mut self, timed: &Timed<'_>) -> Option<i64> {
        let unit = self.unit_of(timed)?;
        let end = self.window.ends_before(&unit, self.growing.bytes);
        self.take(timed, &unit, end);
        end.map(|end| end.at_ms)
    }

    /// Handles a unit of a rendition that follows another one, whose last segment ended at `boundary_ms`.
    pub fn follow(&mut self, timed: &Timed<'_>, boundary_ms: Option<i64>) {
        let Some(unit) = self.unit_of(timed) else { return };
        let is_behind = boundary_ms
            .is_some_and(|at| unit.dts_ms >= at && self.window.begin_ms().is_some_and(|begin| begin < at));
        let own = self.window.must_end_before(&unit, self.growing.bytes);
        let end = own.or_else(|| is_behind.then_some(End { at_ms: unit.dts_ms, changed: false }));
        self.take(timed, &unit, end);
    }

    /// Ends the stream. If `is_told`, the playlist tells players that the stream has ended.
    pub fn finish(&mut self, is_told: bool) {
        self.lanes.iter_mut().for_each(Samples::finish);
        self.close(self.window.end_ms());
        self.window.finish(is_told);
    }

    fn unit_of(&self, timed: &Timed<'_>) -> Option<Unit> {
        let leads = self.tracks.first().is_some_and(|first| first.id == timed.unit.track);
        let begins = leads && (timed.unit.key_frame || !self.is_video());
        // The first segment begins with a key frame.
        (begins || self.window.begin_ms().is_some() || self.window.has_cut()).then_some(Unit {
            dts_ms: timed.dts_ms,
            date_ms: timed.date_ms,
            begins,
            epoch: self.epoch,
            leads,
        })
    }

    fn take(&mut self, timed: &Timed<'_>, unit: &Unit, end: Option<End>) {
        let changed = end.is_some_and(|end| end.changed);
        if changed {
            self.lanes.iter_mut().for_each(Samples::finish);
            self.close(self.window.end_ms());
            // The distance across a pause is not a usual distance between units, and the next publisher may have
            // another frame rate.
            (self.parts.last, self.parts.step_ms) = (None, 0);
        } else {
            self.end_part_before_last(unit);
        }
        self.begin_protection();
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == timed.unit.track) else { return };
        let is_picture = lane.description.config.codec().kind() == TrackKind::Video;
        let is_known = is_picture && !timed.unit.key_frame && !lane.description.first_unit.is_empty();
        if lane.is_new() && !is_known {
            lane.description.first_unit = timed.unit.payload.clone();
        }
        match &mut self.seal {
            Seal { samples: Some(protector), .. } => {
                // The unit cannot be encrypted. It must not be passed on in the clear.
                let Some((payload, parts)) = protector.protect(timed.unit) else { return };
                lane.description.protection = Some(protector.protection());
                lane.push_protected(timed.unit, payload, parts);
            }
            Seal { maker: Some(_), .. } => return,
            Seal { .. } => lane.push(timed.unit),
        }
        if let Some(end) = end.filter(|end| !end.changed) {
            self.close(end.at_ms);
        } else if self.is_part_due(unit) || self.is_fragment_due(unit) {
            self.end_part(unit.dts_ms);
        }
        if self.growing.part_begin.is_none() {
            self.growing.part_begin = Some((unit.dts_ms, unit.begins));
        }
        self.measure(unit);
        self.window.note(unit, end);
        if end.is_some_and(|end| !end.changed) && !unit.leads {
            self.window.begins_with_last();
        }
    }

    /// Makes the key for samples at the first unit for which one is available; later calls do nothing.
    fn begin_protection(&mut self) {
        if let Some(maker) = self.seal.maker.as_mut().filter(|_| self.seal.samples.is_none()) {
            self.seal.samples = maker.protector();
            self.seal.samples.iter_mut().for_each(|protector| protector.set_tracks(&self.tracks));
        }
    }

    /// Names the key for samples when the first init segment is named; later calls do nothing.
    fn name_key(&mut self) {
        let (Some(maker), Some(protector)) = (&self.seal.maker, &self.seal.samples) else { return };
        let vector = protector.protection().vector;
        let named = maker.name(vector, &self.names.base, self.window.number());
        let Some(Sealed { tag, new }) = named else { return };
        self.news.made.extend(new.map(|(name, bytes)| Made { name, bytes, is_init: true }));
        (self.seal.tag, self.seal.maker) = (Some(tag), None);
    }

    /// Sets the target duration; later calls do nothing.
    pub const fn adopt(&mut self, target: Duration) {
        self.window.adopt(target);
    }

    // ---- parts

    /// Measures the distance between units of the leading track.
    fn measure(&mut self, unit: &Unit) {
        let step = self.parts.last.replace((unit.dts_ms, unit.begins));
        let step = step.map(|(last, _)| unit.dts_ms.saturating_sub(last));
        if self.parts.target_ms.is_some() && self.parts.step_ms == 0 {
            self.parts.step_ms = step.unwrap_or(0).clamp(0, STEP_MS_MAX);
        }
        if self.parts.are_wanted && self.parts.target_ms.is_none() && self.parts.steps.len() < STEPS_MAX {
            self.parts.steps.extend(step.filter(|step| *step > 0));
        }
    }

    /// True if the growing fragment is long enough. The first segment is always a single fragment, so that its
    /// track can be described and measured before it is written.
    fn is_fragment_due(&self, unit: &Unit) -> bool {
        let (Some(length), Some((begin, _))) = (self.rules.fragment_ms, self.growing.part_begin) else {
            return false;
        };
        let is_apart = !self.parts.are_wanted && self.map.is_some();
        is_apart && unit.dts_ms.saturating_sub(begin) >= length
    }

    /// True if the growing part is long enough, or if adding this unit would make it too long.
    fn is_part_due(&self, unit: &Unit) -> bool {
        let (Some(target), Some((begin, _))) = (self.parts.target_ms, self.growing.part_begin) else {
            return false;
        };
        let elapsed = unit.dts_ms.saturating_sub(begin);
        let step = self.parts.last.map_or(0, |(last, _)| unit.dts_ms.saturating_sub(last));
        // The next frame may be a millisecond longer than the longest frame so far.
        let step = step.max(self.parts.step_ms).saturating_add(1);
        let is_due = match self.parts.least_ms {
            Some(least) => elapsed >= least,
            None => elapsed.saturating_add(step) > target,
        };
        is_due && self.growing.parts.len() < PARTS_MAX
    }

    /// If the growing part's last frame, which lasts until `unit`, would make the part too long, ends the part
    /// before that frame.
    fn end_part_before_last(&mut self, unit: &Unit) {
        let (Some(target), Some((begin, _)), Some((last, begins))) =
            (self.parts.target_ms, self.growing.part_begin, self.parts.last)
        else {
            return;
        };
        let is_too_long = unit.dts_ms.saturating_sub(begin) > target;
        if is_too_long && last >= begin && self.growing.parts.len() < PARTS_MAX {
            self.end_part(last);
            self.growing.part_begin = Some((last, begins));
        }
    }

    fn end_part(&mut self, end_ms: i64) {
        let Some((begin_ms, independent)) = self.growing.part_begin.take() else { return };
        if self.map.is_none() {
            self.describe();
        }
        let Some(fragment) = self.fragment() else {
            self.growing.part_begin = Some((begin_ms, independent));
            return;
        };
        let slices = [self.fragments.take_events(), fragment].concat();
        let bytes = slices.iter().map(Bytes::len).sum::<usize>();
        self.growing.bytes = self.growing.bytes.saturating_add(bytes);
        if let Some(sealer) = &mut self.seal.sealer {
            let whole = &mut self.growing.sealed;
            if whole.is_empty() {
                whole.extend_from_slice(&styp());
            }
            slices.iter().for_each(|slice| whole.extend_from_slice(slice));
            return sealer.seal(whole);
        }
        if self.parts.target_ms.is_none() {
            self.growing.slices.extend(slices);
            return;
        }
        let uri = self.names.part(&self.rules.suffix, self.window.number(), self.growing.parts.len());
        let ms = end_ms.saturating_sub(begin_ms).max(1).unsigned_abs();
        let content = joined(&slices, bytes);
        self.growing.slices.push(content.clone());
        self.growing.parts.push(Part {
            uri: uri.clone(),
            duration: Duration::from_millis(ms),
            independent: independent && self.is_video() || !self.is_video(),
        });
        self.news.made.push(Made { name: uri, bytes: content, is_init: false });
    }

    /// Takes the complete samples as a fragment. `None` if there are none, or they cannot be written.
    fn fragment(&mut self) -> Option<Vec<Bytes>> {
        if self.lanes.iter().all(Samples::is_empty) {
            return None;
        }
        self.fragments.sequence = self.fragments.sequence.wrapping_add(1).max(1);
        let mut fragment = Fragment::new(self.fragments.sequence);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.is_empty() {
                continue;
            }
            let scale = lane.description.timescale;
            let (at, samples) = lane.take();
            let shift = Timescale::MILLISECONDS.convert(self.fragments.shift_ms, scale);
            let time = u64::try_from(at.saturating_add(shift)).unwrap_or(0);
            let ticks = samples.iter().map(|sample| u64::from(sample.duration)).sum::<u64>();
            if index == 0 {
                let begin = self.growing.span.map_or(time, |(begin, _)| begin);
                self.growing.span = Some((begin, time.saturating_add(ticks)));
            }
            fragment.add(&lane.description, time, samples);
        }
        fragment.write().inspect_err(|error| tracing::debug!(%error, "a fragment cannot be written")).ok()
    }

    // ---- segments

    fn close(&mut self, end_ms: i64) {
        self.end_part(end_ms);
        let mut growing = std::mem::take(&mut self.growing);
        let is_empty = growing.slices.is_empty() && growing.sealed.is_empty();
        if is_empty || self.window.begin_ms().is_none() {
            self.seal.sealer.iter_mut().for_each(Sealer::abandon);
            return;
        }
        // The segment's duration must be the sum of its parts (RFC 8216bis §4.4.4.9). Their sum may exceed the distance
        // between the timestamps, because a frame of zero duration counts as a millisecond.
        let parts: Duration = growing.parts.iter().map(|part| part.duration).sum();
        let parts_ms = i64::try_from(parts.as_millis()).unwrap_or(i64::MAX);
        let end_ms = end_ms.max(self.window.begin_ms().unwrap_or(end_ms).saturating_add(parts_ms));
        let number = self.window.number();
        let uri = self.names.segment(&self.rules.suffix, number);
        let mut open = self.window.open_segment(self.map.as_ref(), &growing.parts);
        let Some((content, key)) = self.content(&mut growing, number) else { return };
        open.key = key;
        if !self.window.close(end_ms, &uri, content.len(), open) {
            return;
        }
        self.news.made.push(Made { name: uri, bytes: content, is_init: false });
        if let Some((time, end)) = growing.span {
            self.spans.push_back(Span { number, time, ticks: end.saturating_sub(time) });
        }
        self.fix_part_target();
        self.forget(growing.parts);
    }

    /// The bytes of a whole segment, and the key with which they are encrypted. `None` if encryption fails; the
    /// segment is then dropped rather than passed on in the clear.
    fn content(&mut self, growing: &mut Growing, number: u64) -> Option<(Bytes, Option<Arc<Key>>)> {
        let Some(sealer) = &mut self.seal.sealer else {
            let kind = styp();
            let bytes = growing.bytes.saturating_add(kind.len());
            let slices: Vec<Bytes> =
                std::iter::once(kind).chain(std::mem::take(&mut growing.slices)).collect();
            return Some((joined(&slices, bytes), self.seal.tag.clone()));
        };
        let Sealed { tag, new } = sealer.finish(&mut growing.sealed, &self.names.stem(), number)?;
        self.news.made.extend(new.map(|(name, bytes)| Made { name, bytes, is_init: true }));
        Some((std::mem::take(&mut growing.sealed).freeze(), Some(tag)))
    }

    /// Sets the part target from the distances between frames of the first segment, once that segment is
    /// complete.
    fn fix_part_target(&mut self) {
        if self.parts.are_wanted && self.parts.target_ms.is_none() && !self.parts.steps.is_empty() {
            let mut steps = std::mem::take(&mut self.parts.steps);
            steps.sort_unstable();
            let at = |twentieth: usize| {
                steps.get(steps.len().saturating_mul(twentieth) / 20).copied().unwrap_or(1)
            };
            let (short, step) = (at(1), at(19).min(STEP_MS_MAX));
            self.parts.step_ms = step;
            let least =
                self.window.longest_ms().max(self.rules.segment_ms).saturating_add(1200) / PARTS_PLANNED;
            if step.saturating_sub(short) > UNEVEN_MS.max(step / 4) {
                let longest = steps.last().map_or(step, |longest| (*longest).min(STEP_MS_MAX));
                // The longest frame, plus a millisecond, is 15 % of the target, so no frame takes a
                // part from below 85 % to above 100 %. A segment's duration is the limit.
                let target = longest.saturating_add(1).saturating_mul(100) / 15 + 1;
                let target = target.max(self.rules.part_ms).max(least * 100 / 85).min(self.rules.segment_ms);
                self.parts.target_ms = Some(target);
                self.parts.least_ms = Some(target.saturating_mul(85).saturating_add(99) / 100);
                return;
            }
            // As many frames as fit the wanted duration, plus some room for jitter. The frames fill more than
            // 85 % of the target.
            let frames = self.rules.part_ms.saturating_add(step / 2).checked_div(step).unwrap_or(1);
            let frames = frames.max(least.checked_div(step).unwrap_or(0).saturating_add(1));
            let exact = frames.saturating_mul(step);
            self.parts.target_ms = Some(exact.saturating_add((exact / 12).min(step / 2)).saturating_add(1));
        }
    }

    /// Stops listing the parts of older segments. The files of those parts are dropped one segment later.
    fn forget(&mut self, parts: Vec<Part>) {
        if self.parts.are_wanted {
            self.parts.shown.push_back(parts.into_iter().map(|part| part.uri).collect());
            if self.parts.shown.len() > SEGMENTS_WITH_PARTS {
                let segments = &mut self.window.playlist_mut().segments;
                let index = segments.len().saturating_sub(SEGMENTS_WITH_PARTS.saturating_add(1));
                if let Some(segment) = segments.get_mut(index) {
                    segment.parts.clear();
                }
            }
            // A player may still be about to fetch the parts that have just been dropped from the playlist.
            if self.parts.shown.len() > SEGMENTS_WITH_PARTS.saturating_add(1) {
                self.news.gone.extend(self.parts.shown.pop_front().unwrap_or_default());
            }
        }
        self.forget_old();
    }

    /// Forgets files that the playlist no longer lists. An init segment is forgotten together with the last
    /// segment that uses it.
    fn forget_old(&mut self) {
        let first = self.window.playlist().media_sequence;
        while self.spans.front().is_some_and(|span| span.number < first) {
            self.spans.pop_front();
        }
        let oldest = self.window.playlist().segments.first().and_then(|segment| segment.map.as_ref());
        let in_use = self.described.iter().position(|one| oldest.is_some_and(|map| map.uri == one.uri));
        for unused in self.described.drain(..in_use.unwrap_or(0)) {
            self.window.leave(unused.uri);
        }
        for name in self.seal.sealer.as_mut().map(|sealer| sealer.take_left(first)).unwrap_or_default() {
            self.window.leave(name);
        }
        self.news.gone.extend(self.window.take_gone());
    }

    /// Writes the init segment for the tracks that have units.
    fn describe(&mut self) {
        // Leaves out tracks that cannot be described before their first unit has arrived.
        self.lanes.retain(|lane| {
            let needs_unit = matches!(lane.description.config, CodecConfig::Ac3(_) | CodecConfig::Eac3(_));
            !needs_unit || !lane.description.first_unit.is_empty()
        });
        let descriptions: Vec<_> = self.lanes.iter().map(|lane| lane.description.clone()).collect();
        let codecs = descriptions.iter().filter_map(|description| description.config.rfc6381()).collect();
        let bytes = match init_segment(&descriptions) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::debug!(%error, "the tracks cannot be described"),
        };
        self.name_key();
        let date_ms = self.window.open_segment(None, &[]).program_date_time.unwrap_or(0).unsigned_abs();
        let name = self.names.init(date_ms, self.epoch);
        self.map = Some(Arc::new(Map { uri: name.clone(), byte_range: None, key: None }));
        let track = self.tracks.first();
        let frame_rate_milli =
            self.frame_rate_milli().or_else(|| self.described.last().and_then(|one| one.frame_rate_milli));
        self.described.push(Described {
            uri: name.clone(),
            codecs,
            kind: track.map_or(TrackKind::Data, Track::kind),
            timescale: track.map_or(Timescale::MILLISECONDS, |track| track.timescale),
            size: track.and_then(Track::picture_size),
            frame_rate_milli: frame_rate_milli.filter(|_| self.is_video()),
            sound: track.and_then(|track| track.config.sound()),
            language: track
                .filter(|track| track.kind() == TrackKind::Audio)
                .and_then(|track| track.language.clone()),
            key_id: self.seal.samples.as_ref().map(|protector| protector.protection().key_id),
        });
        self.news.made.push(Made { name, bytes, is_init: true });
    }

    /// Frame rate of the first track, measured by its frames that are in no fragment yet. `None` if they last
    /// less than a second.
    fn frame_rate_milli(&self) -> Option<u64> {
        let lane = self.lanes.first()?;
        let (frames, ticks) = lane.measure();
        let second = u64::from(lane.description.timescale.ticks());
        let frames = u64::try_from(frames).ok()?;
        let measured = frames.saturating_mul(1000).saturating_mul(second).checked_div(ticks)?;
        // Times in milliseconds make the measured rate slightly inexact.
        let is_near = |usual: &&u64| usual.abs_diff(measured).saturating_mul(2000) <= **usual;
        (ticks >= second).then(|| RATES_MILLI.iter().find(is_near).copied().unwrap_or(measured))
    }

    // ---- outputs

    /// Rules for the names of the rendition's files.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Sets the prefix of names from the next file on.
    pub fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.names.base);
    }

    /// Sets the first numbers. Does nothing once a segment has ended. If the numbers in names are relative to
    /// the first segment, they are now relative to this one.
    pub fn begin_at(&mut self, start: Start) {
        if !self.window.has_cut() {
            self.window.begin_at(start);
            self.names.run = self.names.run.map(|_| start.number);
        }
    }

    /// The tracks that were last set.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Template of the segments' names in a DASH manifest, with the prefix `stem`.
    pub(super) fn template(&self, stem: &str) -> String {
        self.rules.suffix.template(stem, self.names.ending)
    }

    /// Takes the files that players can fetch from now on, init segments first.
    pub fn take_made(&mut self) -> Vec<Made> {
        let mut made = std::mem::take(&mut self.news.made);
        made.sort_by_key(|made| !made.is_init);
        made
    }

    /// Takes the names of files that the playlist no longer lists and that players no longer fetch.
    pub fn take_gone(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news.gone)
    }

    /// Takes the names of files that the playlist has stopped listing since the last call.
    pub fn take_left(&mut self) -> Vec<String> {
        self.window.take_left()
    }

    /// Number of the growing segment, and number of its next part: the first ones that do not exist yet.
    #[must_use]
    pub fn progress(&self) -> (u64, u32) {
        (self.window.number(), u32::try_from(self.growing.parts.len()).unwrap_or(u32::MAX))
    }

    /// The window, from which the playlist and its statistics can be read.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The window, to set values that must be the same for several renditions.
    #[must_use]
    pub const fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// The newest init segment, for a multivariant playlist.
    #[must_use]
    pub fn newest(&self) -> Option<&Described> {
        self.described.last()
    }

    /// The segments of the playlist, without gaps, each with its description.
    pub fn spanned(&self) -> impl Iterator<Item = Spanned<'_>> {
        let playlist = self.window.playlist();
        self.spans.iter().filter_map(move |span| {
            let at = usize::try_from(span.number.checked_sub(playlist.media_sequence)?).ok()?;
            let segment = playlist.segments.get(at)?;
            let map = segment.map.as_ref()?;
            let described = self.described.iter().find(|described| described.uri == map.uri)?;
            Some(Spanned { span: *span, described, begins_period: segment.discontinuity })
        })
    }

    /// The playlist as it is now.
    #[must_use]
    pub fn playlist(&self) -> MediaPlaylist {
        let mut playlist = self.window.playlist().clone();
        let target = playlist.target_duration;
        playlist.low_latency = self.parts.target_ms.filter(|_| !playlist.ended).map(|part_ms| {
            let part_target = Duration::from_millis(part_ms.unsigned_abs());
            Box::new(LowLatency {
                part_target,
                part_hold_back: part_target.saturating_mul(HOLD_BACK_PARTS),
                skip_until: Some(target.saturating_mul(SKIP_TARGETS)),
                can_block_reload: true,
                open: self.open_segment(),
                hint: (!self.lanes.is_empty() && !self.window.is_over()).then(|| {
                    self.names.part(&self.rules.suffix, self.window.number(), self.growing.parts.len())
                }),
                reports: Vec::new(),
            })
        });
        playlist
    }

    fn open_segment(&self) -> Segment {
        let open = self.window.open_segment(self.map.as_ref(), &self.growing.parts);
        Segment { key: self.seal.tag.clone(), ..open }
    }
}

/// Joins slices; the only copy made of a segment or part.
fn joined(slices: &[Bytes], bytes: usize) -> Bytes {
    let mut joined = BytesMut::with_capacity(bytes);
    slices.iter().for_each(|slice| joined.extend_from_slice(slice));
    joined.freeze()
}

#[cfg(test)]
mod tests;
