//! The clock of a stream: even and monotone, whatever the publisher's clocks do.
//!
//! **Arrival decides.** The owner reports when units arrive ([`Timeline::arrive`]). If it never does, the
//! timeline is that of a file, and only timestamps are used.
//!
//! **Within a track** a timestamp is believed if it follows from the previous one: it is a little later, or
//! later by the time that has passed. Any other timestamp is suspect; its unit gets a place that is derived
//! from its neighbours and its arrival. If the next timestamp follows from the suspect one, the clock has
//! moved, and the track continues from there. If it follows from the old clock, the suspect was an outlier
//! and changes nothing. When one track has made a step, the others repeat exactly that step, so that all
//! tracks keep their distance.
//!
//! **Between tracks** the distance between the publisher's timestamps is kept if it is within 3 s of the
//! distance at arrival. Otherwise a track begins at its arrival. If a track was muted and its clock stood
//! still meanwhile, it resumes at the place where it is due. The timestamps of RTP sources have arbitrary
//! origins: such tracks begin at their arrival, and are aligned by sender reports as long as the reports
//! agree with arrival. The movement is part of the mapping of timestamps (see `bend`), which keeps their order: a
//! track runs at half to one and a half of its speed meanwhile, or leaps forward once, at its first report.
//!
//! **Over time** the lead of each track over its arrival is measured in windows of 500 ms, and compared with
//! the lead in the track's first 2 s. The greatest lead in a window is used, because it is least disturbed by
//! the network. If the leads of all tracks change at once, and the change is quick, or grows within seconds
//! and then stays, it is caused by the network, or by a file that is sent faster than real time; it is not
//! corrected. (After such a delay, units that are on time again are accepted.) A slow change is drift, which
//! is slewed: from 60 ms on for one track against the others, from 250 ms on for all together. If a track's
//! lead has changed at a constant pace since its first window, the track has drifted from its first moment
//! on: it is slewed from 30 ms on, back to its position in that moment. Tracks whose reports are believed, and have
//! agreed with their position within the last 12 s, follow the reports instead: if they vary by at most 50 ms, after
//! 6 s; if they vary by at most 200 ms, to the middle of 12 s each. The track that the others are aligned with is
//! not slewed either while any of them follows its reports.
//!
//! **A clock that stands still** is replaced by arrival. If several units arrive at once, the last one is
//! placed at that time, and the others are spread over the time since the units before them.
//!
//! DTS never decreases within a track. A returning publisher continues after its predecessor.

mod bend;
mod faults;
mod limits;
mod ramp;
mod slew;
mod track;

use alloc::vec::Vec;
use std::time::Instant;

use self::faults::Faults;
pub use self::faults::{ClockFault, ClockNews, FaultCounts, FaultNews};
use self::limits::Limits;
use self::ramp::Ramp;
use self::slew::{Slew, Thresholds};
use self::track::{Alignment, Suspect, TrackClock};
use crate::{TRACKS_MAX, Timescale, TrackId, nearest};

/// Maximum number of remembered steps of the publisher's clock.
const STEPS_MAX: usize = 4;
/// Lengths in bits at which the clocks of some encoders wrap, although the protocol's timestamps have more
/// bits.
const SHORT_CLOCKS: [u32; 3] = [24, 31, 32];
/// Number of bits of timestamps that do not wrap.
const UNWRAPPED_BITS: u32 = 62;
/// If a track is far off in this many successive windows, it is moved in a single step.
const FAR_WINDOWS: u8 = 2;

/// The position of a timeline. The next publisher of the stream continues from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The highest DTS assigned so far, in milliseconds.
    pub dts_ms: i64,
    /// True if at least one DTS was assigned.
    pub started: bool,
}

impl Position {
    /// The least DTS of the units that follow, in `timescale`: 0 in a new stream, otherwise the millisecond after the
    /// highest DTS, which was rounded down.
    #[must_use]
    pub fn floor(self, timescale: Timescale) -> i64 {
        let ms = if self.started { self.dts_ms.saturating_add(1) } else { 0 };
        Timescale::MILLISECONDS.convert(ms, timescale)
    }
}

/// Arrival of the current units; `now` counts ticks since the first arrival.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    began: Instant,
    at: Instant,
    now: i64,
}

/// A step of the publisher's clock: the change that it required in a track's offset, and the time of the
/// step.
#[derive(Debug, Clone, Copy)]
struct Step {
    shift: i64,
    at: i64,
}

/// The current measurement window of all tracks.
#[derive(Debug, Clone)]
struct Window {
    ends: i64,
    /// Value of `common` at the end of the last window.
    common_before: i64,
}

/// Maps a publisher's clocks to the stream's clock, in ticks of one timescale.
#[derive(Debug, Clone)]
pub struct Timeline {
    bits: u32,
    limits: Limits,
    /// True if the timestamps of each track have their own origin.
    independent: bool,
    arrival: Option<Arrival>,
    tracks: Vec<TrackClock>,
    /// Known steps of the publisher's clock, the newest last.
    steps: Vec<Step>,
    /// Offset added to the times of all tracks.
    common: i64,
    common_slew: Slew,
    ramp: Ramp,
    window: Window,
    /// Last DTS assigned to a unit that is neither audio nor video.
    beside: i64,
    /// The highest DTS assigned so far.
    head: i64,
    /// The least DTS of a unit, because no track begins behind the stream's previous publisher.
    floor: i64,
    started: bool,
    faults: Faults,
}

impl Timeline {
    /// Creates a timeline that continues at `position`, for tracks that share a clock of `bits` bits in
    /// `timescale`. Their units must be in decoding order.
    #[must_use]
    pub fn new(bits: u32, timescale: Timescale, position: Position) -> Self {
        let floor = position.floor(timescale);
        let limits = Limits::decoding(timescale);
        Self {
            bits: bits.clamp(1, UNWRAPPED_BITS),
            limits,
            independent: false,
            arrival: None,
            tracks: Vec::new(),
            steps: Vec::new(),
            common: 0,
            common_slew: Slew::NEW,
            ramp: Ramp::NEW,
            window: Window { ends: limits.window, common_before: 0 },
            beside: floor,
            head: Timescale::MILLISECONDS.convert(position.dts_ms, timescale),
            floor,
            started: position.started,
            faults: Faults::default(),
        }
    }

    /// Creates a timeline for RTP sources. The timestamps of each source are presentation times and have an
    /// arbitrary origin. The owner unwraps them and converts them to `timescale`.
    #[must_use]
    pub fn of_sources(timescale: Timescale, position: Position) -> Self {
        let timeline = Self::new(UNWRAPPED_BITS, timescale, position);
        Self { independent: true, limits: Limits::showing(timescale), ..timeline }
    }

    /// Sets the arrival time of the units that follow.
    pub fn arrive(&mut self, now: Instant) {
        let arrival = self.arrival.get_or_insert(Arrival { began: now, at: now, now: 0 });
        if arrival.at == now {
            return;
        }
        arrival.at = now;
        arrival.now = arrival.now.max(self.limits.ticks_of(now.saturating_duration_since(arrival.began)));
        let now = arrival.now;
        if now >= self.window.ends {
            self.window.ends = now.saturating_add(self.limits.window);
            self.close_windows();
        }
    }

    /// Returns the stream's DTS for a unit; `raw` is the publisher's timestamp.
    pub fn map(&mut self, track: TrackId, raw: u64) -> i64 {
        if let Some(dts) = self.follow(track, raw) {
            return dts;
        }
        let at = self.place(track, raw, None).max(0);
        self.settle(track, at)
    }

    /// Returns the stream's DTS for a unit that arrived at `came` but is only mapped now: its end
    /// was not known before the next unit began. Units of other tracks may have been mapped in the
    /// meantime. Without arrivals, the result is that of [`Timeline::map`].
    pub fn map_held(&mut self, track: TrackId, raw: u64, came: Instant) -> i64 {
        let Some(arrival) = &mut self.arrival else { return self.map(track, raw) };
        let now = arrival.now;
        let held = self.limits.ticks_of(came.saturating_duration_since(arrival.began));
        arrival.now = held.clamp(now.saturating_sub(self.limits.held), now);
        let dts = self.map(track, raw);
        if let Some(arrival) = &mut self.arrival {
            arrival.now = now;
        }
        dts
    }

    /// Returns the time of a source's frame on the stream's clock. `own` is the frame's unwrapped timestamp.
    /// `sampled` is its time on the sender's wall clock, derived from sender reports, in the same ticks. The
    /// result may be smaller than that of the previous frame, because pictures arrive in decoding order.
    pub fn place_frame(&mut self, track: TrackId, own: i64, sampled: Option<i64>) -> i64 {
        let raw = own.cast_unsigned() & ((1 << UNWRAPPED_BITS) - 1);
        let at = self.place(track, raw, sampled);
        self.head = self.head.max(at);
        self.started = true;
        at
    }

    /// Returns the stream's DTS for a frame of a source that does not reorder pictures.
    pub fn map_frame(&mut self, track: TrackId, own: i64, sampled: Option<i64>) -> i64 {
        let at = self.place_frame(track, own, sampled).max(0);
        self.settle(track, at)
    }

    /// Returns the stream's DTS for a unit that is neither audio nor video. Its timestamp does not affect any
    /// clock, because some encoders give metadata the timestamp zero at any time. A unit with an implausible
    /// timestamp gets the current time of the stream.
    pub fn map_beside(&mut self, raw: u64) -> i64 {
        let near = self.tracks.first().and_then(|clock| {
            let at = self.place_of(raw)?;
            (at.saturating_sub(clock.top).saturating_abs() <= self.limits.apart).then_some(at.max(0))
        });
        self.beside = self.beside.max(near.unwrap_or(self.head));
        self.head = self.head.max(self.beside);
        self.started = true;
        self.beside
    }

    /// Converts a time of the source's clock, even one far from the present, by the clock of the first track.
    /// Changes no state. `None` before the first unit.
    #[must_use]
    pub fn place_of(&self, raw: u64) -> Option<i64> {
        let clock = self.tracks.first()?;
        Some(nearest(raw, self.bits, clock.raw).saturating_add(clock.offset).saturating_add(self.common))
    }

    /// The position that the stream has reached.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { dts_ms: self.limits.to_ms(self.head), started: self.started }
    }

    /// Numbers of faults of the publisher's clocks so far.
    #[must_use]
    pub const fn faults(&self) -> FaultCounts {
        self.faults.counts
    }

    /// Takes the next report: the newest fault of a kind, or the time by which the stream has advanced more than its
    /// timestamps.
    pub fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.faults.take()
    }

    fn now(&self) -> i64 {
        self.arrival.map_or(0, |arrival| arrival.now)
    }

    /// Fast path for nearly all units: it applies if the stream is live, the unit plainly follows the
    /// previous one, and no correction is active. `None` means that no state has changed and that the slow
    /// path must decide.
    fn follow(&mut self, track: TrackId, raw: u64) -> Option<i64> {
        let now = self.arrival?.now;
        if self.common_slew.is_active() {
            return None;
        }
        let clock = self.tracks.iter_mut().find(|clock| clock.id == track)?;
        let raw = nearest(raw, self.bits, clock.raw);
        let dts = clock.follow(raw, self.common, now, &self.limits)?;
        self.head = self.head.max(dts);
        Some(dts)
    }

    /// Returns the DTS for a place, never less than the last DTS of the track.
    fn settle(&mut self, track: TrackId, at: i64) -> i64 {
        let clock = self.tracks.iter_mut().find(|clock| clock.id == track);
        let dts = clock.map_or_else(|| at.max(self.floor), |clock| clock.monotone(at));
        self.head = self.head.max(dts);
        self.started = true;
        dts
    }

    fn place(&mut self, track: TrackId, raw: u64, sampled: Option<i64>) -> i64 {
        let Some(at) = self.tracks.iter().position(|clock| clock.id == track) else {
            return self.begin(track, raw, sampled);
        };
        let live = self.arrival.map(|arrival| arrival.now);
        let Some(clock) = self.tracks.get_mut(at) else { return self.head };
        let raw = nearest(raw, self.bits, clock.raw);
        let step = raw.saturating_sub(clock.raw);
        let passed = live.map_or(0, |now| now.saturating_sub(clock.arrived));
        if (0..=self.limits.longest_step(passed)).contains(&step) {
            let slewed = clock.slew.advance(step);
            clock.make_up(slewed.saturating_neg());
        }
        let (bend, unbent) = clock.bent(raw, &self.limits);
        let own = raw.saturating_add(clock.offset).saturating_add(self.common).saturating_sub(unbent);
        if !fits(clock, raw, own, live, &self.limits) {
            return self.doubt(at, raw, live);
        }
        let out = own.saturating_add(bend);
        clock.make_bend(raw, bend);
        if let Some(suspect) = clock.suspect.take() {
            let own = suspect.raw.saturating_add(clock.offset).saturating_add(self.common);
            self.faults.note(ClockFault::Outlier, track, self.limits.to_ms(own.saturating_sub(suspect.out)));
        }
        let out = match live {
            Some(now) => self.resume(at, raw, out, now),
            None => out,
        };
        self.accept(at, raw, out);
        self.align(at, raw, sampled);
        out
    }

    /// Starts a track with its first unit. Returns the unit's place.
    fn begin(&mut self, track: TrackId, raw: u64, sampled: Option<i64>) -> i64 {
        let now = self.now();
        let lead = self.tracks.iter().max_by_key(|clock| clock.arrived);
        let raw = match lead {
            Some(lead) if !self.independent => nearest(raw, self.bits, lead.raw),
            Some(_) | None => nearest(raw, UNWRAPPED_BITS, 0),
        };
        let (offset, off) = match lead {
            None => (self.first_offset(raw), 0),
            Some(lead) => self.offset_beside(lead, raw, now),
        };
        if off != 0 {
            self.faults.note(ClockFault::Apart, track, self.limits.to_ms(off));
        }
        let base = self.tracks.iter().find_map(TrackClock::report_base);
        let (offset, step) = (offset.saturating_sub(self.common), self.limits.step_first);
        let mut clock = TrackClock::new(track, raw, offset, now, step);
        clock.monotone(self.floor);
        if let Some(sampled) = sampled {
            clock.align_first(sampled.saturating_sub(raw), base, now, &self.limits);
        }
        let out = raw.saturating_add(clock.offset).saturating_add(self.common);
        if self.tracks.len() < TRACKS_MAX {
            self.tracks.push(clock);
        }
        out
    }

    /// Returns the offset for a track that begins after other tracks. The track keeps the publisher's
    /// distance from the track `lead` if that is plausible, and the second value is 0. Otherwise the track
    /// begins at its arrival, and the second value is the distance by which its timestamp is ahead of the
    /// arrival.
    fn offset_beside(&self, lead: &TrackClock, raw: i64, now: i64) -> (i64, i64) {
        let (due, apart) = match self.arrival {
            Some(_) => (now.saturating_add(lead.peak()), self.limits.apart),
            None => (self.head, self.limits.step_memory),
        };
        if self.independent {
            return (due.saturating_sub(raw), 0);
        }
        let own = lead.offset.saturating_add(self.common);
        let off = raw.saturating_add(own).saturating_sub(due);
        let is_near = |shift: &i64| off.saturating_add(*shift).saturating_abs() <= apart;
        match core::iter::once(0).chain(self.wraps()).find(is_near) {
            Some(shift) => (own.saturating_add(shift), 0),
            None => (due.saturating_sub(raw), off),
        }
    }

    /// Returns the offsets that compensate for a wrap of a clock that has fewer bits than the protocol's.
    fn wraps(&self) -> impl Iterator<Item = i64> {
        let (bits, independent) = (self.bits, self.independent);
        let short = SHORT_CLOCKS.into_iter().filter(move |&short| !independent && short < bits);
        short.flat_map(|short| [1i64 << short, -(1i64 << short)])
    }

    /// Handles a timestamp that does not follow from the previous ones. Returns the unit's place.
    fn doubt(&mut self, at: usize, raw: i64, live: Option<i64>) -> i64 {
        let now = self.now();
        let Some(clock) = self.tracks.get(at) else { return self.head };
        let out = raw.saturating_add(clock.offset).saturating_add(self.common);
        let predicted = clock.predicted(live, &self.limits);
        let near = |shift: i64| {
            out.saturating_add(shift).saturating_sub(predicted).saturating_abs() <= self.limits.near
        };
        let is_recent =
            |step: &&Step| live.is_none() || now.saturating_sub(step.at) <= self.limits.step_memory;
        let known =
            self.steps.iter().rev().filter(is_recent).map(|step| step.shift).find(|&shift| near(shift));
        // A clock that counts in a wrong unit passes `near` again and again by chance. So a track
        // whose timestamps are no longer believed is excluded.
        let shift = known.or_else(|| self.wraps().find(|&shift| near(shift))).filter(|_| !clock.is_lost());
        if let Some(shift) = shift
            && let Some(clock) = self.tracks.get_mut(at)
        {
            clock.shift(shift);
            clock.suspect = None;
            let out = out.saturating_add(shift);
            self.accept(at, raw, out);
            return out;
        }
        let Some(clock) = self.tracks.get_mut(at) else { return self.head };
        let moved = clock.suspect.filter(|suspect| {
            let next = raw.saturating_add(suspect.out).saturating_sub(suspect.raw);
            let step = raw.saturating_sub(suspect.raw);
            step >= -self.limits.back && next <= bound(clock, live, &self.limits)
        });
        let Some(suspect) = moved else {
            if clock.suspect.is_some() {
                self.faults.note(
                    ClockFault::Outlier,
                    clock.id,
                    self.limits.to_ms(out.saturating_sub(predicted)),
                );
            }
            clock.place_suspect(Suspect { raw, out: predicted }, now);
            return predicted;
        };
        clock.suspect = None;
        let forward = suspect.raw.saturating_sub(clock.raw);
        let pause = if live.is_some() { self.limits.pause } else { self.limits.step_memory };
        if (0..=pause).contains(&forward) {
            // The encoder paused. Several units arrived at once, so the arrival did not show the pause.
            self.accept(at, raw, out);
            return out;
        }
        let track = clock.id;
        let place = raw.saturating_add(suspect.out).saturating_sub(suspect.raw);
        let shift = place.saturating_sub(out);
        clock.shift(shift);
        self.faults.note(ClockFault::Jump, track, self.limits.to_ms(shift.saturating_neg()));
        if self.steps.len() == STEPS_MAX {
            self.steps.remove(0);
        }
        self.steps.push(Step { shift, at: now });
        self.accept(at, raw, place);
        place
    }

    /// Checks whether a track's clock stood still, either while units arrived or while the track was silent.
    /// Returns the unit's place.
    fn resume(&mut self, at: usize, raw: i64, out: i64, now: i64) -> i64 {
        let Some(clock) = self.tracks.get_mut(at) else { return out };
        let track = clock.id;
        let (is_frozen, is_new) = clock.is_frozen(raw, now, &self.limits);
        if is_frozen {
            let due = clock.due(now, self.ramp.error());
            let place = if is_new { due } else { clock.spread(now, due) };
            let shift = place.saturating_sub(out).max(0);
            clock.make_up(shift);
            if is_new {
                self.faults.note(ClockFault::Frozen, track, self.limits.to_ms(shift.saturating_neg()));
            }
            return out.saturating_add(shift);
        }
        let gap = now.saturating_sub(clock.arrived);
        if gap < self.limits.gap {
            return out;
        }
        let Some(lateness) = self.lateness_beside(at, now, gap) else { return out };
        let Some(clock) = self.tracks.get_mut(at) else { return out };
        let behind = clock.due(now, lateness).saturating_sub(out);
        if behind <= self.limits.late {
            return out;
        }
        clock.make_up(behind);
        self.faults.note(ClockFault::Pause, track, self.limits.to_ms(behind.saturating_neg()));
        out.saturating_add(behind)
    }

    /// Returns the smallest lateness among the tracks that continued while this one was silent.
    /// `None` if all tracks were silent.
    fn lateness_beside(&self, at: usize, now: i64, gap: i64) -> Option<i64> {
        let others = self.tracks.iter().enumerate().filter(|(other, _)| *other != at);
        let flowing = others.filter(|(_, clock)| {
            now.saturating_sub(clock.arrived) <= self.limits.fresh
                && now.saturating_sub(clock.flows_since) >= gap / 4 * 3
        });
        flowing.map(|(_, clock)| clock.lateness().unwrap_or(0)).max()
    }

    fn accept(&mut self, at: usize, raw: i64, out: i64) {
        let now = self.now();
        let Some(clock) = self.tracks.get_mut(at) else { return };
        let advance = out.saturating_sub(self.head);
        let passed = now.saturating_sub(clock.arrived);
        clock.accept(raw, out, now, &self.limits);
        if (1..=self.limits.longest_step(passed)).contains(&advance) {
            self.common = self.common.saturating_sub(self.common_slew.advance(advance));
        }
    }

    /// Aligns a track, by sender reports, with the first of the earlier tracks that has reports. A unit without `sampled`
    /// comes before the first report of its source.
    fn align(&mut self, at: usize, raw: i64, sampled: Option<i64>) {
        let now = self.now();
        let base = self.tracks.iter().take(at).find_map(TrackClock::report_base);
        let Some(clock) = self.tracks.get_mut(at) else { return };
        let Some(sampled) = sampled else { return clock.forget_reports() };
        let alignment = clock.align(sampled.saturating_sub(raw), base, now, &self.limits);
        if let Alignment::Doubted(off) = alignment {
            self.faults.note(ClockFault::Report, clock.id, self.limits.to_ms(off));
        }
    }

    /// Reports by how much the stream has advanced more than its timestamps ([`ClockNews::MadeUp`]). The value is taken
    /// from the track with the smallest correction, because other tracks may be mute or have a clock that stands still.
    fn note_pace(&mut self) {
        let made_up =
            self.tracks.iter().map(|clock| clock.made_up).min_by_key(|ticks| ticks.saturating_abs());
        let made_up = made_up.unwrap_or(0).saturating_add(self.common);
        self.faults.note_pace(self.limits.to_ms(made_up));
    }

    /// Ends a measurement window of all tracks, and sets the speeds at which the tracks are corrected.
    fn close_windows(&mut self) {
        self.tracks.iter_mut().for_each(TrackClock::close_window);
        self.note_pace();
        // Our own correction changes the leads, too, and may compensate for a change of the network. So the change is
        // computed with and without our correction, and the smaller value is used.
        let corrected =
            self.common.saturating_sub(core::mem::replace(&mut self.window.common_before, self.common));
        let seen = shared(self.tracks.iter().filter_map(|clock| clock.change)).unwrap_or(0);
        let given = seen.saturating_sub(corrected);
        let change = if seen.saturating_abs() < given.saturating_abs() { seen } else { given };
        if change.saturating_abs() > self.limits.absorbed {
            self.tracks.iter_mut().for_each(|clock| clock.absorb(change, &self.limits));
        }
        let Some(mut common) = shared(self.tracks.iter().filter_map(|clock| clock.error)) else { return };
        if self.ramp.handle_error(common, self.common_slew.is_active(), &self.limits) {
            self.tracks.iter_mut().for_each(|clock| clock.absorb(common, &self.limits));
            common = 0;
        }
        let started = self.common_slew.handle_error(common, &self.limits, Thresholds::STREAM);
        if started && let Some(clock) = self.tracks.first() {
            self.faults.note(ClockFault::Drift, clock.id, self.limits.to_ms(common));
        }
        let warmed = shared(self.tracks.iter().filter_map(TrackClock::warmed)).unwrap_or(0);
        // Reports show the distance of tracks better than arrival does, because a congested path delays video
        // more than audio.
        let now = self.now();
        let is_followed = self.tracks.iter().any(|clock| clock.follows_reports(now, &self.limits));
        let base = self.tracks.iter().position(TrackClock::has_reports).filter(|_| is_followed);
        for (at, clock) in self.tracks.iter_mut().enumerate() {
            let Some(error) = clock.error else {
                clock.expect(common);
                continue;
            };
            if base == Some(at) || clock.follows_reports(now, &self.limits) {
                // A correction by arrival that began before the reports would move the track away from them.
                (clock.slew, clock.far_windows) = (Slew::NEW, 0);
                continue;
            }
            let off = error.saturating_sub(common);
            let is_far = off < -self.limits.far;
            clock.far_windows = if is_far { clock.far_windows.saturating_add(1) } else { 0 };
            if clock.far_windows >= FAR_WINDOWS {
                clock.far_windows = 0;
                clock.slew = Slew::NEW;
                clock.make_up(off.saturating_neg());
                self.faults.note(ClockFault::Apart, clock.id, self.limits.to_ms(off));
                continue;
            }
            let own = clock.warmed().unwrap_or(0).saturating_sub(warmed);
            let before = clock.drifted_before(off, own, &self.limits);
            let is_early = before.is_some() && clock.draws_a_line();
            let thresholds = if is_early { Thresholds::EARLY } else { Thresholds::TRACK };
            if clock.slew.handle_error(off, &self.limits, thresholds) {
                clock.move_reference(before.unwrap_or(0).saturating_neg());
                self.faults.note(ClockFault::Drift, clock.id, self.limits.to_ms(off));
            }
        }
    }

    fn first_offset(&self, raw: i64) -> i64 {
        if self.started {
            self.head.saturating_add(self.limits.resume_gap).saturating_sub(raw)
        } else if raw <= self.limits.start_kept && !self.independent {
            0
        } else {
            raw.saturating_neg()
        }
    }
}

/// Returns the part that all values have in common: if they have the same sign, the value nearest to zero,
/// otherwise zero.
fn shared(values: impl Iterator<Item = i64> + Clone) -> Option<i64> {
    let (least, most) = (values.clone().min()?, values.max()?);
    Some(if least > 0 { least } else { most.min(0) })
}

/// Returns the latest place at which a track's next unit can be.
fn bound(clock: &TrackClock, live: Option<i64>, limits: &Limits) -> i64 {
    let next = clock.top.saturating_add(clock.typical());
    match live {
        Some(now) => clock.latest(now, limits),
        // The interval of pictures is not known after only a few of them.
        None if clock.is_young() => next.saturating_add(limits.step_memory),
        None => next.saturating_add(limits.slack.max(clock.typical().saturating_mul(2))),
    }
}

/// True if a timestamp follows from the ones before it.
fn fits(clock: &TrackClock, raw: i64, out: i64, live: Option<i64>, limits: &Limits) -> bool {
    raw.saturating_sub(clock.raw) >= -limits.back && out <= bound(clock, live, limits)
}

#[cfg(test)]
mod tests;
