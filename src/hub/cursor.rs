//! A subscriber's position in a ring. A subscriber has no queue: unsent units stay in the ring, after the cursor. The
//! cursor itself only holds the rest of a partly sent unit.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf, Bytes};
use media::{TrackId, TrackKind, TrackSet};
use wire::Gather;

use super::{Chosen, Entry, Item, Packager, PacketLogs, Packets, Parts, Ring};

/// The outcome of checking a cursor's lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// The cursor is near enough to the head.
    None,
    /// The cursor moved to the newest key frame, or to the head if there is no key frame, and skipped this many units.
    Skipped(u64),
}

/// The position of a subscriber.
#[derive(Debug, Default)]
pub struct Cursor {
    next: u64,
    /// True if the cursor has passed a unit that a decoder can start at.
    started: bool,
    /// Chosen video tracks that still wait for a key frame. A cursor that has not started also waits for a key
    /// frame of its lead track, the chosen video track at whose key frames subscribers start.
    waits: TrackSet,
    /// Chosen video tracks that the cursor knows. A track that is not yet among them must first wait for its key frame.
    known: TrackSet,
    /// The [`Chosen::epoch`] of the prelude (parameter sets and metadata) that was last sent.
    epoch: u32,
    /// DTS of the first unit sent, in milliseconds. In formats whose timestamps start at zero for each subscriber, this
    /// is subtracted from all timestamps.
    zero_ms: Option<i64>,
    /// The rest of a unit that was partly sent.
    rest: VecDeque<Bytes>,
    rest_bytes: usize,
    /// The unit that the rest belongs to; `None` if its forwarding time is not counted.
    rest_of: Option<Forwarded>,
    /// Number of the first unit appended after the subscriber had caught up. Earlier units were already old when they
    /// were sent, so their forwarding times are not counted.
    fresh_from: u64,
}

/// A unit whose last byte was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// Time at which the unit was received.
    pub received: Instant,
    /// True for video, false for audio.
    pub video: bool,
}

impl Forwarded {
    /// Returns the figures to count once the unit is sent; `None` unless it is video or audio.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let kind = entry.kind.filter(|kind| *kind != TrackKind::Data)?;
        Some(Self { received: entry.received, video: kind == TrackKind::Video })
    }
}

/// A unit that is handed to a subscriber as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The unit.
    pub entry: &'a Entry,
    /// The tracks that the subscriber is sent.
    pub chosen: &'a Chosen,
    /// The packet logs, if the format sends packets.
    pub logs: Option<&'a dyn PacketLogs>,
    prelude: Option<&'a Parts>,
    unit: Option<&'a Item>,
    /// Time in milliseconds that is subtracted from the timestamps sent to the subscriber, in formats that start at
    /// zero.
    zero_ms: i64,
    /// Set if the unit's forwarding time is counted.
    pub forwarded: Option<Forwarded>,
}

impl<'a> Delivery<'a> {
    /// Returns the bytes of the prelude, if the subscriber needs it, and then those of the unit. Returns nothing if the
    /// subscriber takes packets or takes units unpackaged.
    pub fn parts(&self) -> impl Iterator<Item = &'a Parts> {
        self.prelude.into_iter().chain(self.unit.and_then(Item::bytes))
    }

    /// Returns the packets of the unit, if the format sends packets.
    #[must_use]
    pub fn packets(&self) -> Option<&'a Packets> {
        self.unit?.packets()
    }

    /// Returns the bytes of [`Delivery::parts`] for this subscriber.
    pub fn slices(&self) -> impl Iterator<Item = Bytes> {
        self.parts().flat_map(|parts| parts.rest(self.zero_ms, 0))
    }
}

impl Cursor {
    /// Starts at the newest key frame of the lead video track. If there is none, waits for the next key frame. Starts
    /// immediately if the subscriber gets no video track.
    #[must_use]
    pub fn new(ring: &Ring, chosen: &Chosen) -> Self {
        let mut cursor = Self::default();
        cursor.restart(ring, chosen);
        cursor
    }

    /// Starts at this entry, or at the first later one that is retained. The subscriber already has all earlier
    /// entries.
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

    /// Moves to an entry at which decoding restarts.
    fn begin_at(&mut self, sequence: u64, chosen: &Chosen, started: bool) {
        self.next = sequence;
        self.started = started;
        self.known = chosen.videos();
        self.waits = chosen.lead().map_or(TrackSet::EMPTY, |lead| chosen.videos().without(lead));
    }

    /// Registers newly chosen video tracks. Each of them is sent from its next key frame on, even if the cursor started
    /// before any track was known.
    pub(super) fn learn(&mut self, chosen: &Chosen) {
        let videos = chosen.videos();
        if videos != self.known {
            self.waits = self.waits.and(videos).or(videos.without_all(self.known));
            self.known = videos;
        }
    }

    /// Changes the selection from the next unit on. If the lead track changes, the next unit must be a key frame of the
    /// new lead track. Tracks that still wait for a key frame continue to wait. The prelude is sent before the next
    /// unit.
    pub(super) fn switch(&mut self, from: &Chosen, to: &Chosen) {
        let running = from.videos().and(to.videos()).without_all(self.waits);
        self.waits = to.videos().without_all(running);
        self.known = to.videos();
        self.epoch = 0;
    }

    /// Resumes after a pause at the newest key frame, but never moves back: if the pause was within one GOP, the cursor
    /// stays where it is. The forwarding times of units that were received during the pause are not counted.
    pub fn resume(&mut self, ring: &Ring, chosen: &Chosen) {
        self.fresh_from = ring.head();
        let key = chosen.lead().and_then(|lead| ring.newest_key(lead));
        if chosen.lead().is_none() || key.is_some_and(|key| key > self.next) || self.next < ring.base() {
            self.restart(ring, chosen);
        }
    }

    /// Starts at any unit if there is no key frame to wait for: the stream has no video, or the lead track has sent no
    /// pictures. Video then begins at its next key frame.
    pub fn start_without_video(&mut self, ring: &Ring, chosen: &Chosen) {
        if self.started {
            return;
        }
        match chosen.lead() {
            None => self.started = true,
            Some(lead) if ring.is_pictureless(lead) => {
                self.started = true;
                self.waits = chosen.videos();
            }
            Some(_) => {}
        }
    }

    /// Jumps to the newest key frame if the units between the cursor and the head span more than `lag_ms`, or if the
    /// ring has dropped the next unit. If there is no newer key frame, a cursor that only lags stays where it is, and a
    /// cursor whose next unit was dropped waits for the next key frame. A cursor without video jumps to the head,
    /// because audio can start anywhere.
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

    /// Skips units that cannot be decoded yet. If the subscriber has a video track, nothing is sent before a key frame
    /// of the lead track.
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

    /// Returns the chosen video tracks whose key frames the cursor waits for, without those whose key frame is already
    /// in the ring ahead of the cursor.
    #[must_use]
    pub fn keys_awaited(&self, ring: &Ring, chosen: &Chosen) -> TrackSet {
        let lead = chosen.lead().filter(|_| !self.started);
        let waits = self.waits.or(lead.into_iter().collect()).and(chosen.videos());
        let is_ahead = |track: &TrackId| ring.newest_key(*track).is_some_and(|key| key >= self.next);
        waits.iter().filter(|track| !is_ahead(track)).collect()
    }

    /// Returns true if a unit of `track` is sent to a subscriber. A unit of a track in `waits` is sent only if it is a
    /// key frame, which also removes the track from `waits`.
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

    /// Adds the rest of a partly sent unit to `gather`, the slices of the next write. Returns false if
    /// `gather` is full.
    pub fn gather_rest<'a>(&'a self, gather: &mut Gather<'a>) -> bool {
        self.rest.iter().all(|part| gather.push(part))
    }

    /// Adds units before number `until` to `gather`, the slices of the next write. Returns false if
    /// `gather` is full.
    pub fn gather_units<'a>(&self, packager: &'a Packager, until: u64, gather: &mut Gather<'a>) -> bool {
        if !self.started {
            return true;
        }
        let (mut epoch, mut zero_ms, mut waits) = (self.epoch, self.zero_ms, self.waits);
        for sequence in self.next..until {
            let Some(unit) = packager.unit(sequence) else { return true };
            let Some(parts) = unit.item.bytes() else { continue };
            if !Self::passes(&mut waits, unit.track, unit.key_frame) {
                continue;
            }
            let zero_ms = *zero_ms.get_or_insert(unit.dts_ms);
            if unit.epoch != epoch {
                epoch = unit.epoch;
                if packager.prelude(sequence).is_some_and(|prelude| !prelude.gather(zero_ms, gather)) {
                    return false;
                }
            }
            if !parts.gather(zero_ms, gather) {
                return false;
            }
        }
        true
    }

    /// Takes out the rest of a partly sent unit.
    pub fn take_rest(&mut self) -> VecDeque<Bytes> {
        self.rest_bytes = 0;
        std::mem::take(&mut self.rest)
    }

    /// Counts `sent` bytes toward the rest of a partly sent unit. Returns the number of bytes left over for the units
    /// after it.
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
        // Free the buffer, so that an idle viewer uses no memory for it.
        self.rest = VecDeque::new();
        self.rest_of.take().map(&mut forwarded);
        sent
    }

    /// Counts `sent` bytes toward the units that [`Cursor::gather_units`] gathered, and keeps the rest of a partly sent
    /// unit. Returns the number of bytes left over for data gathered after these units.
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
            // A unit that is left out neither sets the subscriber's zero time nor changes its epoch.
            if unit.item.is_empty() || !Self::passes(&mut waits, unit.track, unit.key_frame) {
                self.next = self.next.saturating_add(1);
                continue;
            }
            if sent == 0 {
                return 0;
            }
            // Packets are sent as whole units and are not counted in bytes here.
            let Some(parts) = unit.item.bytes() else { return sent };
            let prelude = (unit.epoch != self.epoch).then(|| packager.prelude(self.next)).flatten();
            let total = parts.len().saturating_add(prelude.map_or(0, Parts::len));
            let zero_ms = *self.zero_ms.get_or_insert(unit.dts_ms);
            let counted = unit.forwarded.filter(|_| self.next >= self.fresh_from);
            if sent < total {
                self.rest_of = counted;
                self.keep_rest(prelude.into_iter().chain([parts]), zero_ms, sent);
            } else {
                counted.map(&mut forwarded);
            }
            sent = sent.saturating_sub(total);
            (self.epoch, self.waits) = (unit.epoch, waits);
            self.next = self.next.saturating_add(1);
        }
        sent
    }

    /// Moves past the next unit that has something to send, for a subscriber that takes whole units. No rest of the
    /// unit is kept.
    pub fn take_unit<'a>(
        &mut self,
        ring: &'a Ring,
        packager: &'a Packager,
        until: u64,
    ) -> Option<Delivery<'a>> {
        while self.started && self.next < until {
            let (sequence, entry) = (self.next, ring.get(self.next)?);
            let packaged = packager.is_packaged().then(|| packager.unit(sequence));
            let (unit, needs, dts_ms) = match packaged {
                Some(packaged) => packaged.map(|own| (Some(&own.item), own.epoch, own.dts_ms))?,
                None => (None, packager.chosen().epoch(), 0),
            };
            let is_sent =
                packager.chosen().contains(entry.unit.track) && unit.is_none_or(|unit| !unit.is_empty());
            let forwarded = Forwarded::of(entry).filter(|_| sequence >= self.fresh_from);
            self.next = self.next.saturating_add(1);
            if is_sent && Self::passes(&mut self.waits, entry.unit.track, entry.unit.key_frame) {
                let prelude = (needs != self.epoch).then(|| packager.prelude(sequence)).flatten();
                self.epoch = needs;
                let (chosen, logs) = (packager.chosen(), packager.logs());
                let zero_ms = *self.zero_ms.get_or_insert(dts_ms);
                return Some(Delivery { entry, chosen, logs, prelude, unit, zero_ms, forwarded });
            }
        }
        None
    }

    /// Moves past the end of a stream that ends at `head`. Returns false if the cursor has not reached the end or has
    /// already moved past it.
    pub(super) const fn pass_end(&mut self, head: u64) -> bool {
        let is_there = self.started && self.next == head;
        if is_there {
            self.pass();
        }
        is_there
    }

    /// Returns the next entry of one of these tracks, for a mirror. Moves past the entries before it.
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

    /// Returns the next entry of any track.
    pub(super) fn peek_any<'a>(&mut self, ring: &'a Ring) -> Option<&'a Entry> {
        let entry = ring.get(self.next)?;
        self.started |= entry.unit.key_frame;
        Some(entry)
    }

    /// Moves to the newest GOPs if the ring has dropped the next unit. Returns the number of units skipped.
    pub(super) fn skip_lost(&mut self, ring: &Ring) -> u64 {
        if self.next < ring.base() { self.skip_to_start(ring) } else { 0 }
    }

    /// Moves forward to the newest GOPs. Returns the number of units skipped.
    pub(super) fn skip_to_start(&mut self, ring: &Ring) -> u64 {
        let start = ring.start().unwrap_or_else(|| ring.head());
        let skipped = start.saturating_sub(self.next);
        self.next = self.next.max(start);
        skipped
    }

    /// Moves past the entry that [`Cursor::peek_entry`] returned.
    pub(super) const fn pass(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Moves past units for which the format sends no bytes. Otherwise the cursor would stay before them, because only
    /// writes move it.
    pub fn skip_empty(&mut self, packager: &Packager, until: u64) {
        self.units_sent(packager, until, 0, |_| ());
    }

    /// Number of the next unit.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// True if a unit was partly sent.
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
mod tests;
