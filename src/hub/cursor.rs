//! A subscriber's position in a ring. It has no queue: what it has not been sent is what lies behind its cursor, and
//! only the rest of a unit that a short write has cut is its own.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf, Bytes};
use media::{TrackId, TrackKind, TrackSet};
use wire::Gather;

use super::{Chosen, Entry, Packager, Parts, Ring};

/// The outcome of a look at a cursor's lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// Near enough to the head.
    None,
    /// Moved to the newest key frame (or, without one, to the head); so many units were skipped.
    Skipped(u64),
}

/// The position of a subscriber.
#[derive(Debug, Default)]
pub struct Cursor {
    next: u64,
    /// Whether it had a unit that a decoder can start at.
    started: bool,
    /// Video tracks of which it has not had a key frame yet; a cursor that has not started waits for its lead besides.
    waits: TrackSet,
    /// Video tracks of the choice that it has seen: one that comes later waits for its key frame.
    known: TrackSet,
    /// The [`Chosen::epoch`] whose prelude was last sent.
    epoch: u32,
    /// DTS of the first unit it was sent: its zero, in formats that start at zero for each subscriber.
    zero_ms: Option<i64>,
    /// The rest of a unit that was partly sent.
    rest: VecDeque<Bytes>,
    rest_bytes: usize,
    /// The unit of the rest, when its forwarding counts.
    rest_of: Option<Forwarded>,
    /// Units before this one were old already when the subscriber came to them.
    fresh_from: u64,
}

/// A unit whose last byte was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// When it came.
    pub received: Instant,
    /// A video frame, not audio.
    pub video: bool,
}

impl Forwarded {
    /// What is counted of a unit when it is sent: video and audio.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let kind = entry.kind.filter(|kind| *kind != TrackKind::Data)?;
        Some(Self { received: entry.received, video: kind == TrackKind::Video })
    }
}

/// A unit that a subscriber has taken whole.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The unit.
    pub entry: &'a Entry,
    /// The tracks that the subscriber is sent.
    pub chosen: &'a Chosen,
    /// The state that the sessions of a format share besides bytes.
    pub shared: Option<&'a dyn std::any::Any>,
    prelude: Option<&'a Parts>,
    unit: Option<&'a Parts>,
    /// Set when its forwarding counts.
    pub forwarded: Option<Forwarded>,
}

impl<'a> Delivery<'a> {
    /// What it needs first, and itself, as the format packages them. Nothing where units are taken as they are.
    pub fn parts(&self) -> impl Iterator<Item = &'a Parts> {
        self.prelude.into_iter().chain(self.unit)
    }
}

impl Cursor {
    /// Starts at the newest key frame of the lead video track, or waits for the next one. Without a video track there
    /// is nothing to wait for.
    #[must_use]
    pub fn new(ring: &Ring, chosen: &Chosen) -> Self {
        let mut cursor = Self::default();
        cursor.restart(ring, chosen);
        cursor
    }

    /// Starts at this entry, or at the first retained one behind it. The subscriber has had what lies before.
    #[must_use]
    pub(super) fn at(sequence: u64) -> Self {
        Self { next: sequence, started: true, ..Self::default() }
    }

    /// Starts at the first key frame from this entry on.
    #[must_use]
    pub(super) fn waiting_at(sequence: u64) -> Self {
        Self { next: sequence, ..Self::default() }
    }

    fn restart(&mut self, ring: &Ring, chosen: &Chosen) {
        let key = chosen.lead().and_then(|lead| ring.newest_key(lead));
        self.begin_at(key.unwrap_or_else(|| ring.head()), chosen, key.is_some() || chosen.lead().is_none());
        self.fresh_from = ring.head();
    }

    /// Moves to an entry at which decoding begins anew.
    fn begin_at(&mut self, sequence: u64, chosen: &Chosen, started: bool) {
        self.next = sequence;
        self.started = started;
        self.known = chosen.videos();
        self.waits = chosen.lead().map_or(TrackSet::EMPTY, |lead| chosen.videos().without(lead));
    }

    /// Takes note of the video tracks that the choice has got since: what a subscriber is sent of each begins with a key
    /// frame, also when it came before any track was known.
    pub(super) fn learn(&mut self, chosen: &Chosen) {
        let videos = chosen.videos();
        if videos != self.known {
            self.waits = self.waits.and(videos).or(videos.without_all(self.known));
            self.known = videos;
        }
    }

    /// Goes on with another choice of tracks from here on: at a key frame of its lead, unless that is the lead it had. What it
    /// has not had a key frame of waits for one as before. The first unit gets its prelude.
    pub(super) fn switch(&mut self, from: &Chosen, to: &Chosen) {
        let running = from.videos().and(to.videos()).without_all(self.waits);
        self.waits = to.videos().without_all(running);
        self.known = to.videos();
        self.epoch = 0;
    }

    /// After a pause: at the newest key frame, but never back in time: a pause within one GOP changes nothing but that
    /// what came meanwhile is old.
    pub fn resume(&mut self, ring: &Ring, chosen: &Chosen) {
        self.fresh_from = ring.head();
        let key = chosen.lead().and_then(|lead| ring.newest_key(lead));
        if chosen.lead().is_none() || key.is_some_and(|key| key > self.next) || self.next < ring.base() {
            self.restart(ring, chosen);
        }
    }

    /// Starts at any unit: without video every unit is a start.
    pub const fn start(&mut self) {
        self.started = true;
    }

    /// Jumps to the newest key frame when the units between the cursor and the head span more than `lag_ms`, or
    /// when the ring has dropped what comes next. Without a newer key frame a cursor that is only late stays; one
    /// that has lost its place waits for the next. Audio alone can start anywhere: it goes to the head.
    pub fn check_lag(&mut self, ring: &Ring, chosen: &Chosen, lag_ms: i64) -> Jump {
        let lost = self.next < ring.base();
        let late = match (ring.get(self.next), ring.head_ms()) {
            (Some(entry), Some(head)) => head.saturating_sub(entry.dts_ms) > lag_ms,
            _ => false,
        };
        if !lost && !late {
            return Jump::None;
        }
        let video = chosen.lead().is_some();
        let key = chosen.lead().and_then(|lead| ring.newest_key(lead)).filter(|&key| key > self.next);
        if key.is_none() && video && !lost {
            return Jump::None;
        }
        let target = key.unwrap_or_else(|| ring.head());
        let skipped = target.saturating_sub(self.next);
        self.begin_at(target, chosen, key.is_some() || !video);
        Jump::Skipped(skipped)
    }

    /// Passes over what cannot be decoded yet: until a key frame of the lead has come, a cursor of a stream with video
    /// sends nothing.
    pub fn skip_undecodable(&mut self, ring: &Ring, chosen: &Chosen, until: u64) {
        while !self.started && self.next < until {
            let is_start = |entry: &Entry| entry.unit.key_frame && Some(entry.unit.track) == chosen.lead();
            if ring.get(self.next).is_some_and(is_start) {
                self.started = true;
            } else {
                self.next = self.next.saturating_add(1);
            }
        }
    }

    /// Whether the cursor waits for a key frame of its lead that is not there.
    #[must_use]
    pub fn waits_for_key(&self, chosen: &Chosen) -> bool {
        !self.started || chosen.lead().is_some_and(|lead| self.waits.contains(lead))
    }

    /// Whether a unit is sent, to a subscriber for whom these tracks still wait for a key frame. Its key frame ends the
    /// wait of a track.
    #[inline]
    const fn passes(waits: &mut TrackSet, track: TrackId, key_frame: bool) -> bool {
        if waits.is_empty() || !waits.contains(track) {
            return true;
        }
        if key_frame {
            *waits = waits.without(track);
        }
        key_frame
    }

    /// Names the rest of a unit begun. False when the gather is full.
    pub fn gather_rest<'a>(&'a self, gather: &mut Gather<'a>) -> bool {
        self.rest.iter().all(|part| gather.push(part))
    }

    /// Names units up to (not including) `until`. False when the gather is full.
    pub fn gather_units<'a>(&self, packager: &'a Packager, until: u64, gather: &mut Gather<'a>) -> bool {
        if !self.started {
            return true;
        }
        let (mut epoch, mut zero_ms, mut waits) = (self.epoch, self.zero_ms, self.waits);
        for sequence in self.next..until {
            let Some(unit) = packager.unit(sequence) else { return true };
            if unit.parts.is_empty() || !Self::passes(&mut waits, unit.track, unit.key_frame) {
                continue;
            }
            let zero_ms = *zero_ms.get_or_insert(unit.dts_ms);
            if unit.epoch != epoch {
                epoch = unit.epoch;
                if packager.prelude(sequence).is_some_and(|prelude| !prelude.gather(zero_ms, gather)) {
                    return false;
                }
            }
            if !unit.parts.gather(zero_ms, gather) {
                return false;
            }
        }
        true
    }

    /// Takes out the rest of a unit begun.
    pub fn take_rest(&mut self) -> VecDeque<Bytes> {
        self.rest_bytes = 0;
        std::mem::take(&mut self.rest)
    }

    /// Accounts `sent` bytes against the rest of a unit begun; gives back what is left for those behind it.
    pub fn rest_sent(&mut self, sent: usize, mut forwarded: impl FnMut(Forwarded)) -> usize {
        let mut sent = sent;
        while let Some(front) = self.rest.front_mut() {
            if sent < front.len() {
                front.advance(sent);
                self.rest_bytes = self.rest_bytes.saturating_sub(sent);
                return 0;
            }
            sent -= front.len();
            self.rest_bytes = self.rest_bytes.saturating_sub(front.len());
            self.rest.pop_front();
        }
        if self.rest.capacity() > 0 {
            self.rest = VecDeque::new();
            self.rest_of.take().map(&mut forwarded);
        }
        sent
    }

    /// Accounts `sent` bytes against units, as [`Cursor::gather_units`] named them; keeps the rest of the one that
    /// was cut. Gives back what is left for those behind them.
    pub fn units_sent(
        &mut self,
        packager: &Packager,
        until: u64,
        sent: usize,
        mut forwarded: impl FnMut(Forwarded),
    ) -> usize {
        let mut sent = sent;
        while self.next < until && self.started {
            let Some(unit) = packager.unit(self.next) else { return sent };
            let mut waits = self.waits;
            // What is left out is nobody's zero, and moves no epoch.
            if unit.parts.is_empty() || !Self::passes(&mut waits, unit.track, unit.key_frame) {
                self.next = self.next.saturating_add(1);
                continue;
            }
            if sent == 0 {
                return 0;
            }
            let prelude = (unit.epoch != self.epoch).then(|| packager.prelude(self.next)).flatten();
            let total = unit.parts.len().saturating_add(prelude.map_or(0, Parts::len));
            let zero_ms = *self.zero_ms.get_or_insert(unit.dts_ms);
            let counted = unit.forwarded.filter(|_| self.next >= self.fresh_from);
            if sent < total {
                self.rest_of = counted;
                self.keep_rest(prelude.into_iter().chain([&unit.parts]), zero_ms, sent);
            } else {
                counted.map(&mut forwarded);
            }
            sent = sent.saturating_sub(total);
            (self.epoch, self.waits) = (unit.epoch, waits);
            self.next = self.next.saturating_add(1);
        }
        sent
    }

    /// Moves past the next unit that has something to be sent, for a subscriber that keeps what it sends. Nothing of a unit
    /// is left behind: the cursor has no rest.
    pub fn take_unit<'a>(
        &mut self,
        ring: &'a Ring,
        packager: &'a Packager,
        until: u64,
    ) -> Option<Delivery<'a>> {
        while self.started && self.next < until {
            let (sequence, entry) = (self.next, ring.get(self.next)?);
            let packaged = packager.is_packaged().then(|| packager.unit(sequence));
            let (unit, needs) = match packaged {
                Some(packaged) => packaged.map(|packaged| (Some(&packaged.parts), packaged.epoch))?,
                None => (None, packager.chosen().epoch()),
            };
            let is_sent =
                packager.chosen().contains(entry.unit.track) && unit.is_none_or(|unit| !unit.is_empty());
            let forwarded = Forwarded::of(entry).filter(|_| sequence >= self.fresh_from);
            self.next = self.next.saturating_add(1);
            if is_sent && Self::passes(&mut self.waits, entry.unit.track, entry.unit.key_frame) {
                let prelude = (needs != self.epoch).then(|| packager.prelude(sequence)).flatten();
                self.epoch = needs;
                let (chosen, shared) = (packager.chosen(), packager.shared());
                return Some(Delivery { entry, chosen, shared, prelude, unit, forwarded });
            }
        }
        None
    }

    /// The next entry of these tracks, for a mirror; what comes before it is passed over.
    pub(super) fn peek_entry<'a>(&mut self, ring: &'a Ring, wanted: TrackSet) -> Option<&'a Entry> {
        while let Some(entry) = ring.get(self.next) {
            let is_wanted = wanted.contains(entry.unit.track);
            self.started |= is_wanted && entry.unit.key_frame;
            if self.started && is_wanted {
                return Some(entry);
            }
            self.next = self.next.saturating_add(1);
        }
        None
    }

    /// The next entry, whatever its track.
    pub(super) fn peek_any<'a>(&mut self, ring: &'a Ring) -> Option<&'a Entry> {
        let entry = ring.get(self.next)?;
        self.started |= entry.unit.key_frame;
        Some(entry)
    }

    /// Moves to the newest GOPs when the ring has dropped what comes next. The units skipped.
    pub(super) fn skip_lost(&mut self, ring: &Ring) -> u64 {
        if self.next < ring.base() { self.skip_to_start(ring) } else { 0 }
    }

    /// Moves to the newest GOPs, unless it is there already. The units skipped.
    pub(super) fn skip_to_start(&mut self, ring: &Ring) -> u64 {
        let start = ring.start().unwrap_or_else(|| ring.head());
        let skipped = start.saturating_sub(self.next);
        self.next = self.next.max(start);
        skipped
    }

    /// Moves past the entry that [`Cursor::peek_entry`] has shown.
    pub(super) const fn pass(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Passes over units that the format leaves out: nothing would ever be sent that moves the cursor.
    pub fn skip_empty(&mut self, packager: &Packager, until: u64) {
        self.units_sent(packager, until, 0, |_| ());
    }

    /// Number of the next unit.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether a unit was begun and not finished.
    #[must_use]
    pub const fn has_rest(&self) -> bool {
        self.rest_bytes > 0
    }

    fn keep_rest<'a>(&mut self, parts: impl Iterator<Item = &'a Parts>, zero_ms: i64, sent: usize) {
        let mut skip = sent;
        for parts in parts {
            self.rest.extend(parts.rest(zero_ms, skip));
            skip = skip.saturating_sub(parts.len());
        }
        self.rest_bytes = self.rest.iter().map(Bytes::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::packager::tests::{PLAIN, Plain, plain};
    use super::super::ring::tests::{entry, vp8_tracks};
    use super::super::{Entry, Fit, FormatKey, Package, Packager, Pick, Ring, RingLimits, Selection};
    use super::*;
    use media::{Track, TrackId, Tracks};
    use proptest::prelude::*;

    struct Line {
        ring: Ring,
        packager: Packager,
    }

    impl Line {
        fn new() -> Self {
            Self { ring: Ring::new(RingLimits::with_lag_ms(5000)), packager: plain(0) }
        }

        fn of(selection: Selection, tracks: Arc<Tracks>) -> Self {
            let key = FormatKey { selection, ..PLAIN };
            Self { packager: Packager::new(key, Some(Box::new(Plain)), &tracks, 0), ..Self::new() }
        }

        fn push(&mut self, dts_ms: i64, key: bool) {
            self.push_entry(entry(dts_ms, key, 1));
        }

        fn push_entry(&mut self, entry: Entry) {
            self.packager.push(&entry);
            self.ring.push(entry);
            self.packager.trim(self.ring.base());
        }

        fn cursor(&self) -> Cursor {
            Cursor::new(&self.ring, self.packager.chosen())
        }

        /// Performs one write of at most `room` bytes.
        fn write(&self, cursor: &mut Cursor, room: usize) -> Vec<u8> {
            cursor.skip_undecodable(&self.ring, self.packager.chosen(), self.ring.head());
            let bytes: Vec<u8> = {
                let mut gather = Gather::new(1 << 20);
                let _ = cursor.gather_rest(&mut gather)
                    && cursor.gather_units(&self.packager, self.ring.head(), &mut gather);
                gather.slices().iter().flat_map(|s| s.to_vec()).take(room).collect()
            };
            let left = cursor.rest_sent(bytes.len(), |_| ());
            cursor.units_sent(&self.packager, self.ring.head(), left, |_| ());
            bytes
        }
    }

    #[test]
    fn units_that_are_taken_whole_are_those_that_a_write_would_name() {
        let mut line = Line::new();
        (0..5).for_each(|n| line.push(n * 33, n == 0 || n == 3));
        let mut cursor = line.cursor();
        cursor.skip_undecodable(&line.ring, line.packager.chosen(), line.ring.head());
        let mut taken = Vec::new();
        while let Some(delivery) = cursor.take_unit(&line.ring, &line.packager, line.ring.head()) {
            taken.extend(delivery.parts().map(|parts| parts.slices().concat()));
        }
        assert_eq!(taken.concat(), b"<1@99>[99][132]");
        assert!(!cursor.has_rest() && cursor.next() == 5);
    }

    #[test]
    fn a_new_cursor_starts_at_the_newest_key_frame_with_a_prelude() {
        let mut line = Line::new();
        (0..5).for_each(|n| line.push(n * 33, n == 0 || n == 3));
        let mut cursor = line.cursor();
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@99>[99][132]");
        assert!(line.write(&mut cursor, usize::MAX).is_empty());
    }

    /// Leaves out what is no key frame, as a format does that a track has no place in.
    #[derive(Debug)]
    struct Keys;

    impl Package for Keys {
        fn fit(&self, _track: &Track) -> Fit {
            Fit::Well
        }

        fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
            Parts::default()
        }

        fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Parts {
            if entry.unit.key_frame { Plain.unit(entry, chosen) } else { Parts::default() }
        }
    }

    #[test]
    fn units_that_the_format_leaves_out_are_passed_over() {
        let mut line = Line::new();
        line.packager = Packager::new(PLAIN, Some(Box::new(Keys)), &vp8_tracks(1), 0);
        let mut cursor = line.cursor();
        cursor.start();
        line.push(0, false);
        assert!(line.write(&mut cursor, usize::MAX).is_empty());
        cursor.skip_empty(&line.packager, line.ring.head());
        assert_eq!((cursor.next(), cursor.zero_ms), (1, None));
        line.push(33, true);
        line.push(66, false);
        line.push(99, true);
        // A unit that was not begun stays.
        cursor.skip_empty(&line.packager, line.ring.head());
        assert_eq!(cursor.next(), 1);
        assert_eq!(line.write(&mut cursor, 6), b"[33][9");
        assert_eq!(line.write(&mut cursor, usize::MAX), b"9]");
        assert_eq!((cursor.next(), cursor.zero_ms), (4, Some(33)));
    }

    #[test]
    fn without_a_key_frame_it_waits_for_one() {
        let mut line = Line::new();
        line.push(0, false);
        let mut cursor = line.cursor();
        line.push(33, false);
        assert!(line.write(&mut cursor, usize::MAX).is_empty());
        line.push(66, true);
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@66>[66]");
    }

    #[test]
    fn sound_alone_starts_at_once() {
        let mut line = Line::of(Selection { video: Pick::None, ..Selection::DEFAULT }, Arc::default());
        let sound = |dts_ms| {
            let mut entry = Entry { tracks: Arc::default(), ..entry(dts_ms, false, 1) };
            entry.unit.track = TrackId::DATA;
            entry
        };
        line.push_entry(sound(0));
        let mut cursor = line.cursor();
        line.push_entry(sound(23));
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@0>[23]");
    }

    #[test]
    fn m_23_over_the_lag_it_jumps_to_the_newest_key_frame_and_finishes_the_unit_begun() {
        let mut line = Line::new();
        (0..3).for_each(|n| line.push(n * 33, n == 0));
        let mut cursor = line.cursor();
        assert_eq!(line.write(&mut cursor, 8), b"<1@0>[0]");
        assert_eq!(line.write(&mut cursor, 2), b"[3");
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::None);
        (3..200).for_each(|n| line.push(n * 33, n % 30 == 0));
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::Skipped(178));
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::None);
        let sent = String::from_utf8(line.write(&mut cursor, usize::MAX)).unwrap();
        assert!(sent.starts_with("3][5940][5973]"), "{sent}");
    }

    #[test]
    fn a_pause_within_a_gop_goes_on_where_it_was_and_a_longer_one_at_the_newest_key_frame() {
        let mut line = Line::new();
        (0..3).for_each(|n| line.push(n * 33, n == 0));
        let mut cursor = line.cursor();
        line.write(&mut cursor, usize::MAX);
        line.push(99, false);
        cursor.resume(&line.ring, line.packager.chosen());
        assert_eq!(line.write(&mut cursor, usize::MAX), b"[99]");
        (4..8).for_each(|n| line.push(n * 33, n == 6));
        cursor.resume(&line.ring, line.packager.chosen());
        assert_eq!(line.write(&mut cursor, usize::MAX), b"[198][231]");
    }

    #[test]
    fn a_further_video_track_is_sent_from_its_own_key_frame_on() {
        let second = TrackId::nth(TrackKind::Video, 1).unwrap();
        let mut line = Line::of(Selection::ALL, vp8_tracks(2));
        let other = |dts_ms, key| {
            let mut entry = Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) };
            entry.unit.track = second;
            entry
        };
        line.push_entry(other(0, true));
        let push = |line: &mut Line, dts_ms, key| {
            line.push_entry(Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) });
        };
        push(&mut line, 10, true);
        line.push_entry(other(20, false));
        push(&mut line, 30, false);
        // Its GOP began before the viewer's first video frame: nobody could decode it.
        let mut cursor = line.cursor();
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@10>[10][30]");
        line.push_entry(other(40, true));
        line.push_entry(other(50, false));
        push(&mut line, 60, false);
        assert_eq!(line.write(&mut cursor, 6), b"[40][5");
        assert_eq!(line.write(&mut cursor, usize::MAX), b"0][60]");
    }

    #[test]
    fn what_came_during_a_pause_has_no_latency() {
        let mut line = Line::new();
        line.push(0, true);
        let mut cursor = line.cursor();
        line.write(&mut cursor, usize::MAX);
        line.push(33, false);
        cursor.resume(&line.ring, line.packager.chosen());
        line.push(66, false);
        let mut counted = 0;
        cursor.units_sent(&line.packager, 3, usize::MAX, |_| counted += 1);
        assert_eq!((cursor.next(), counted), (3, 1));
    }

    #[test]
    fn a_cursor_that_the_ring_has_passed_goes_on_at_a_key_frame() {
        let mut line = Line::new();
        line.push(0, true);
        let mut cursor = line.cursor();
        (1..6000).for_each(|n| line.push(n, false));
        assert!(matches!(cursor.check_lag(&line.ring, line.packager.chosen(), i64::MAX), Jump::Skipped(_)));
        // It has lost what those that follow refer to.
        line.push(6000, false);
        assert!(line.write(&mut cursor, usize::MAX).is_empty());
        line.push(6001, true);
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@6001>[6001]");
    }

    fn nth_video(n: u8) -> TrackId {
        TrackId::nth(TrackKind::Video, n).unwrap()
    }

    /// A unit of one of two video tracks.
    fn of_two(n: u8, dts_ms: i64, key: bool) -> Entry {
        let mut entry = Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) };
        entry.unit.track = nth_video(n);
        entry
    }

    #[test]
    fn a_viewer_may_be_behind_by_the_whole_lag_and_stays_where_no_newer_key_frame_is() {
        let mut line = Line::new();
        line.push(0, true);
        let mut cursor = line.cursor();
        line.push(100, true);
        line.push(500, false);
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::None);
        line.push(501, false);
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::Skipped(1));
        assert!(!cursor.waits_for_key(line.packager.chosen()), "it stands at one");
        (0..20).for_each(|n| line.push(600 + n, false));
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::None);
        assert_eq!(line.write(&mut cursor, 15), b"<1@100>[100][50");
    }

    #[test]
    fn sound_that_is_late_goes_on_at_the_head() {
        let mut line = Line::of(Selection { video: Pick::None, ..Selection::DEFAULT }, Arc::default());
        let sound = |dts_ms| {
            let mut entry = Entry { tracks: Arc::default(), ..entry(dts_ms, false, 1) };
            entry.unit.track = TrackId::DATA;
            entry
        };
        line.push_entry(sound(0));
        let mut cursor = line.cursor();
        (0..4).for_each(|n| line.push_entry(sound(n * 1000)));
        assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::Skipped(4));
        line.push_entry(sound(4023));
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@4023>[4023]");
    }

    #[test]
    fn a_key_frame_is_waited_for_until_it_was_sent() {
        let mut line = Line::new();
        line.push(0, false);
        let mut cursor = line.cursor();
        assert!(cursor.waits_for_key(line.packager.chosen()));
        line.push(33, true);
        line.write(&mut cursor, usize::MAX);
        assert!(!cursor.waits_for_key(line.packager.chosen()));
        // Before the tracks are known there is none to wait for.
        let mut line = Line::of(Selection::DEFAULT, Arc::default());
        let mut cursor = line.cursor();
        assert!(!cursor.waits_for_key(line.packager.chosen()));
        line.push(0, false);
        cursor.learn(line.packager.chosen());
        assert!(cursor.waits_for_key(line.packager.chosen()));
        assert!(line.write(&mut cursor, usize::MAX).is_empty());
        line.push(33, true);
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<2@33>[33]");
        assert!(!cursor.waits_for_key(line.packager.chosen()));
    }

    #[test]
    fn video_that_is_added_begins_with_its_key_frame_and_stops_nothing() {
        let mut line = Line::of(Selection::ALL, vp8_tracks(1));
        line.push(0, true);
        let mut cursor = line.cursor();
        line.write(&mut cursor, usize::MAX);
        line.push_entry(of_two(0, 10, false));
        line.push_entry(of_two(1, 11, false));
        cursor.learn(line.packager.chosen());
        assert!(!cursor.waits_for_key(line.packager.chosen()), "its lead goes on");
        assert_eq!(line.write(&mut cursor, usize::MAX), b"<2@10>[10]");
        line.push_entry(of_two(1, 20, true));
        cursor.learn(line.packager.chosen());
        line.push_entry(of_two(1, 21, false));
        assert_eq!(line.write(&mut cursor, usize::MAX), b"[20][21]");
    }

    #[test]
    fn a_pause_that_lost_nothing_interrupts_no_track() {
        // At the next key frame of the lead, with another track in mid-GOP.
        let mut line = Line::of(Selection::ALL, vp8_tracks(2));
        line.push_entry(of_two(0, 0, true));
        line.push_entry(of_two(1, 1, true));
        let mut cursor = line.cursor();
        line.write(&mut cursor, usize::MAX);
        line.push_entry(of_two(0, 10, true));
        line.push_entry(of_two(1, 11, false));
        cursor.resume(&line.ring, line.packager.chosen());
        assert_eq!(line.write(&mut cursor, usize::MAX), b"[10][11]");
        // At the oldest unit that is retained, when its key frame is not.
        let mut line = Line::new();
        (0..3).for_each(|n| line.push(n, n == 0));
        let mut cursor = line.cursor();
        line.write(&mut cursor, usize::MAX);
        line.push(3, false);
        line.ring.trim(false, Some(3));
        cursor.resume(&line.ring, line.packager.chosen());
        assert_eq!(line.write(&mut cursor, usize::MAX), b"[3]");
        // One that lost something waits for a key frame.
        line.push(4, false);
        line.push(5, false);
        line.ring.trim(false, Some(5));
        cursor.resume(&line.ring, line.packager.chosen());
        assert!(cursor.next() == 6 && cursor.waits_for_key(line.packager.chosen()));
    }

    #[test]
    fn what_is_forwarded_is_counted_as_video_or_sound_and_data_not_at_all() {
        let of = |kind| Forwarded::of(&Entry { kind, ..entry(0, true, 1) }).map(|forwarded| forwarded.video);
        assert_eq!(of(Some(TrackKind::Video)), Some(true));
        assert_eq!(of(Some(TrackKind::Audio)), Some(false));
        assert_eq!((of(Some(TrackKind::Data)), of(None)), (None, None));
    }

    proptest! {
        #[test]
        fn any_short_writes_deliver_the_same_bytes(rooms in prop::collection::vec(1usize..40, 1..80)) {
            let mut line = Line::new();
            (0..30).for_each(|n| line.push(n * 33, n == 0));
            let mut whole = line.cursor();
            let want = line.write(&mut whole, usize::MAX);
            let mut cursor = line.cursor();
            let mut got = Vec::new();
            for room in rooms.iter().chain(std::iter::repeat_n(&usize::MAX, 1)) {
                got.extend(line.write(&mut cursor, *room));
            }
            prop_assert_eq!(got, want);
            prop_assert!(!cursor.has_rest());
        }
    }
}
