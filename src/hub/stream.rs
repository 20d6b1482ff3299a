//! A live stream on one worker: its ring, formats, subscribers, and the workers that mirror it.

mod formats;
mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use media::{Origin, Track, TrackId, TrackKind, TrackSet, Tracks};
use smallvec::SmallVec;
use wire::Gather;

use super::mirror::{Credit, Had, Mirror};
use super::{
    Chosen, Cursor, Delivery, Entry, Flush, FlushState, FormatKey, Forwarded, Jump, Package, Packager,
    PacketLogs, Parts, Ring, RingLimits,
};
use formats::Formats;
pub use formats::{FormatIndex, FormatLimit};

use crate::config::AppSettings;
use crate::stats::ForwardingIndex;
use crate::types::{Ingest, StreamId, StreamKey, SubscriptionId, WorkerId};

/// Number of units after which a ring without key frames is trimmed.
const TRIM_UNITS: u32 = 64;
/// Maximum age of a stream's last unit. If the last unit is older, bytes that a format holds back are dropped instead
/// of sent, both when the stream ends and when the tracks of a returning publisher differ.
const TAIL_AGE_MAX: Duration = Duration::from_secs(1);
/// Minimum interval between requests for key frames of one track.
const KEY_FRAME_INTERVAL: Duration = Duration::from_millis(500);

/// A subscriber's side of a subscription, kept in its session.
#[derive(Debug)]
pub struct Subscriber {
    /// The stream.
    pub stream: StreamId,
    /// Index of the shared package.
    pub format: FormatIndex,
    /// The position in the ring.
    pub cursor: Cursor,
    /// True while the peer has paused; nothing is sent.
    pub paused: bool,
    /// Index under which forwarding times are counted.
    pub forwarding: ForwardingIndex,
    /// Number of units that were not sent because the subscriber was too slow.
    pub skipped: u64,
    /// Number of times that the cursor jumped.
    pub jumps: u64,
    /// A pending change of selection.
    switch: Option<Switch>,
}

/// A change of selection while the stream plays.
#[derive(Debug, Clone, Copy)]
struct Switch {
    /// The package to switch to.
    to: FormatIndex,
    /// Number of the unit at which to switch, once it is known. It is a key frame of the new lead video track.
    at: Option<u64>,
    /// Number of the first unit that was not yet searched for the key frame to switch at.
    searched: u64,
}

/// The effects of an appended unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Time at which the unit must be sent to subscribers.
    pub flush: Flush,
    /// True if the ring may have entries to forget: call [`Stream::trim`].
    pub trim: bool,
    /// True if the tracks that subscribers are sent have changed: check [`Stream::wanted`].
    pub rechosen: bool,
    /// True if a stream that already had tracks gained its first published video or audio track.
    pub kind_added: bool,
}

/// A live stream.
#[derive(Debug)]
pub struct Stream {
    /// The id of the stream.
    pub id: StreamId,
    /// The stream's key.
    pub key: StreamKey,
    /// The worker that has the stream's publisher.
    pub source: WorkerId,
    /// The protocol or path over which the stream arrives.
    pub ingest: Ingest,
    /// Settings of the stream's application.
    pub settings: Arc<AppSettings>,
    /// Subscribers to wake when there are units to send.
    pub subscribers: IndexSet<SubscriptionId>,
    /// The workers that receive the stream from here.
    mirrors: Vec<Mirror>,
    /// State of this worker's requests to the stream's source.
    asked: Asked,
    tracks: Arc<Tracks>,
    ring: Ring,
    formats: Formats,
    /// The position up to which units were released for sending, and the time of the next release.
    pub flush: FlushState,
    untrimmed: u32,
    offer: Offer,
    demand: Demand,
}

/// The derived tracks offered to subscribers.
#[derive(Debug, Default)]
struct Offer {
    /// The published tracks, and the same tracks completed by those that can be derived from them.
    completed: Option<(Arc<Tracks>, Arc<Tracks>)>,
    /// Derived tracks that are not offered now, each with the time until which it is not offered: a second if there was
    /// no room for it, longer if it failed.
    left_out: Vec<(TrackId, Instant)>,
}

/// State of this worker's requests for a mirrored stream to the stream's source.
#[derive(Debug, Default)]
struct Asked {
    /// Number of the last request.
    request: u64,
    /// True from the request until this worker needs the stream no longer.
    holds: bool,
}

/// The demand last reported to the stream's source.
#[derive(Debug, Default)]
struct Demand {
    /// The tracks that this worker's subscribers select.
    wanted: TrackSet,
    /// Time of the last key frame request of each video track.
    key_asked: SmallVec<[(TrackId, Instant); 1]>,
    /// Requested key frames that the publisher has not sent yet.
    keys_due: SmallVec<[keys::KeyDue; 1]>,
    /// Video tracks whose key frames subscribers wait for since they jumped ahead.
    keys_lost: TrackSet,
}

impl Stream {
    /// Creates a stream without units.
    #[must_use]
    pub fn new(
        id: StreamId,
        key: StreamKey,
        source: WorkerId,
        ingest: Ingest,
        settings: Arc<AppSettings>,
    ) -> Self {
        let lag_ms = i64::try_from(settings.max_latency.as_millis()).unwrap_or(i64::MAX);
        Self {
            id,
            key,
            source,
            ingest,
            settings,
            subscribers: IndexSet::new(),
            mirrors: Vec::new(),
            asked: Asked::default(),
            tracks: Arc::default(),
            ring: Ring::new(RingLimits::with_lag_ms(lag_ms)),
            formats: Formats::default(),
            flush: FlushState::default(),
            untrimmed: 0,
            offer: Offer::default(),
            demand: Demand::default(),
        }
    }

    /// Returns the published tracks and those that can be derived from them, recomputed only if the published ones
    /// changed. Once tracks that [`Stream::leave_out_track`] left out are due, `has_room` is asked whether the application
    /// may have them again. If not, they are due again after `pause`.
    pub fn with_derived(
        &mut self,
        (now, pause): (Instant, Duration),
        has_room: impl FnOnce(&str) -> bool,
        published: Arc<Tracks>,
        complete: impl FnOnce(&Arc<Tracks>, &AppSettings) -> Arc<Tracks>,
    ) -> Arc<Tracks> {
        let offer = &mut self.offer;
        let is_due = |(_, until): &(TrackId, Instant)| *until <= now;
        if offer.left_out.iter().any(is_due) {
            if has_room(&self.key.app) {
                offer.left_out.retain(|one| !is_due(one));
                offer.completed = None;
            } else {
                let due = offer.left_out.iter_mut().filter(|one| is_due(one));
                due.for_each(|(_, until)| *until = now + pause);
            }
        }
        if let Some((before, completed)) = &offer.completed
            && Arc::ptr_eq(before, &published)
        {
            return Arc::clone(completed);
        }
        let mut completed = complete(&published, &self.settings);
        if !offer.left_out.is_empty() {
            let is_left_out = |id| offer.left_out.iter().any(|(track, _)| *track == id);
            Arc::make_mut(&mut completed).retain(|track| !is_left_out(track.id));
        }
        offer.completed = Some((published, Arc::clone(&completed)));
        completed
    }

    /// Stops offering a derived track until `until`. After that, it is offered again with the next allowed retry.
    pub fn leave_out_track(&mut self, track: TrackId, until: Instant) {
        self.offer.completed = None;
        self.offer.left_out.retain(|(one, _)| *one != track);
        self.offer.left_out.push((track, until));
    }

    /// Returns the largest DTS of the units so far, in milliseconds; `None` before the first one.
    #[must_use]
    pub fn head_ms(&self) -> Option<i64> {
        self.ring.head_ms()
    }

    /// The derived tracks that are left out now.
    #[must_use]
    pub fn left_out(&self) -> TrackSet {
        self.offer.left_out.iter().map(|(track, _)| *track).collect()
    }

    /// Appends a unit and packages it for the formats in use.
    pub fn push(&mut self, now: Instant, entry: Entry) -> Pushed {
        self.untrimmed = self.untrimmed.saturating_add(1);
        let trim = entry.unit.key_frame || self.untrimmed >= TRIM_UNITS;
        let mut kind_added = false;
        if !Arc::ptr_eq(&self.tracks, &entry.tracks) {
            let adds = |kind| has_published(&entry.tracks, kind) && !has_published(&self.tracks, kind);
            kind_added = !self.tracks.is_empty() && (adds(TrackKind::Video) || adds(TrackKind::Audio));
            if !self.is_fresh(now) {
                self.formats.iter_mut().for_each(Packager::forget_held);
            }
            self.tracks = Arc::clone(&entry.tracks);
        }
        let mut rechosen = false;
        for packager in self.formats.iter_mut() {
            rechosen |= packager.push(&entry);
        }
        let flush = self.flush.push(now, &entry, &self.settings);
        self.ring.push(entry);
        Pushed { flush, trim, rechosen, kind_added }
    }

    /// Removes a unit from all packages after a panic in [`Stream::push`], so that no package contains it.
    pub fn leave_out(&mut self) {
        let head = self.ring.head();
        self.formats.iter_mut().for_each(|packager| packager.cut(head));
    }

    /// Marks everything appended so far for sending.
    pub fn flush(&mut self) {
        self.flush.flush(self.ring.head());
    }

    /// Marks everything appended for sending, because the stream has ended. Includes the bytes that formats hold back,
    /// unless the last unit is older than [`TAIL_AGE_MAX`].
    pub fn finish(&mut self, now: Instant) {
        self.flush();
        if self.is_fresh(now) {
            self.formats.iter_mut().for_each(Packager::finish);
        }
    }

    /// True if the last unit is not older than [`TAIL_AGE_MAX`].
    fn is_fresh(&self, now: Instant) -> bool {
        self.ring.received().is_some_and(|at| now.saturating_duration_since(at) <= TAIL_AGE_MAX)
    }

    // ---- mirrors

    /// Begins a request for the stream to the worker that has its publisher. Returns the request's number and, for each
    /// track, the DTS of the last unit that this worker already has from a former source.
    pub fn ask_source(&mut self) -> (u64, Vec<(TrackId, i64)>) {
        let request = self.asked.request.saturating_add(1);
        self.asked = Asked { request, holds: true };
        (request, self.ring.last_of_tracks())
    }

    /// Ends the request to the source.
    pub const fn leave_source(&mut self) {
        self.asked.holds = false;
    }

    /// True if this worker has requested the stream from its source.
    #[must_use]
    pub const fn is_mirrored_here(&self) -> bool {
        self.asked.holds
    }

    /// Adds a mirror for `asker`, a worker with the number of its request. The mirror begins at the newest key frames
    /// or, if the worker already has units from a former source (`after`), at the first units that it lacks.
    pub fn add_mirror(&mut self, asker: (WorkerId, u64), wanted: TrackSet, after: Vec<(TrackId, i64)>) {
        self.remove_mirror(asker.0);
        let (start, head) = (self.ring.start(), self.ring.head());
        let had = Had::new(after, head);
        let at = if !had.is_nothing() {
            let is_new =
                |number: &u64| self.ring.get(*number).is_some_and(|entry| !had.contains(*number, entry));
            Some((start.unwrap_or(head)..head).find(is_new).unwrap_or(head))
        } else if self.has_video() {
            start
        } else {
            Some(head)
        };
        self.mirrors.push(Mirror::new(asker, wanted, had, at, head));
    }

    /// Sets the tracks that another worker wants.
    pub fn mirror_wants(&mut self, to: WorkerId, wanted: TrackSet) {
        if let Some(mirror) = self.mirrors.iter_mut().find(|mirror| mirror.to == to) {
            mirror.want(wanted);
        }
    }

    /// Removes the mirror of a worker that no longer needs the stream.
    pub fn remove_mirror(&mut self, to: WorkerId) {
        self.mirrors.retain(|mirror| mirror.to != to);
    }

    /// Removes all mirrors, because the source is on another worker now.
    pub fn remove_mirrors(&mut self) {
        self.mirrors.clear();
    }

    /// Sends the next units to each mirror until the limit of the mirror's bytes in flight is reached.
    /// Returns the number of units that mirrors missed since the last call.
    pub fn feed_mirrors(&mut self, mut send: impl FnMut((WorkerId, u64), Entry, Credit)) -> u64 {
        let lag_ms = self.lag_ms();
        let mut missed = 0_u64;
        for mirror in &mut self.mirrors {
            while let Some((entry, credit)) = mirror.next(&self.ring, lag_ms) {
                send((mirror.to, mirror.request), entry, credit);
            }
            missed = missed.saturating_add(mirror.take_missed());
        }
        missed
    }

    // ---- demand

    /// Returns the wanted tracks if they have changed since the last call. If this worker mirrors the stream and wants
    /// any track, published audio is also wanted, so that a later viewer has audio from its first key frame on.
    pub fn wanted_anew(&mut self) -> Option<TrackSet> {
        let mut wanted = self.wanted();
        if self.asked.holds {
            self.ring.keep_keys(wanted);
            if !wanted.is_empty() {
                wanted = wanted.or(self.published_sound());
            }
        }
        (std::mem::replace(&mut self.demand.wanted, wanted) != wanted).then_some(wanted)
    }

    /// Returns the tracks that a mirror requests from its source. Empty while the mirror does not know the stream's
    /// tracks. The source then sends one unit, which carries the list of tracks, and the mirror requests tracks after
    /// that ([`Stream::demand_is_known`]).
    pub fn wanted_of_source(&mut self) -> TrackSet {
        self.forget_demand();
        if self.demand_is_known() { self.wanted_anew().unwrap_or_default() } else { TrackSet::EMPTY }
    }

    fn published_sound(&self) -> TrackSet {
        let is_sound = |track: &&Track| track.kind() == TrackKind::Audio && !track.id.is_derived();
        self.tracks().iter().filter(is_sound).map(|track| track.id).collect()
    }

    /// True if the stream's tracks are known, so that it is also known which of them are wanted.
    #[must_use]
    pub fn demand_is_known(&self) -> bool {
        !self.tracks().is_empty()
    }

    /// Returns the derived tracks that subscribers here select, with their number of subscribers.
    #[must_use]
    pub fn derived_subscribers(&self) -> BTreeMap<TrackId, usize> {
        let mut counts = BTreeMap::new();
        for packager in self.formats.iter() {
            for track in packager.chosen().set().iter().filter(|track| track.is_derived()) {
                *counts.entry(track).or_default() += packager.subscribers();
            }
        }
        counts
    }

    /// True if a mirror accepts a unit of this track that was sent for this request. Until the mirror knows the tracks,
    /// it accepts units of any track, afterwards only those of requested tracks. Late units of other tracks would be
    /// followed by a gap, and answers to an earlier request may repeat units.
    #[must_use]
    pub fn takes_mirrored(&self, request: u64, track: TrackId) -> bool {
        let is_current = self.asked.holds && self.asked.request == request;
        is_current && (!self.demand_is_known() || self.demand.wanted.contains(track))
    }

    /// Forgets the demand that was last reported, because the new source does not know it.
    pub const fn forget_demand(&mut self) {
        self.demand.wanted = TrackSet::EMPTY;
    }

    /// Returns the tracks that subscribers here or on mirroring workers select.
    #[must_use]
    pub fn wanted(&self) -> TrackSet {
        let here = self.formats.iter().map(|packager| packager.chosen().set());
        here.chain(self.mirrors.iter().map(|mirror| mirror.wanted)).fold(TrackSet::EMPTY, TrackSet::or)
    }

    // ---- subscribers

    /// Subscribes `id` to a format. For the first subscriber of the format, the package is made by `package`, which
    /// returns `None` if the subscriber takes units unpackaged. Returns `None` if `limit` allows no further format.
    pub fn subscribe(
        &mut self,
        id: SubscriptionId,
        (key, limit): (FormatKey, FormatLimit),
        forwarding: ForwardingIndex,
        package: impl FnOnce() -> Option<Box<dyn Package>>,
    ) -> Option<Subscriber> {
        let format = self.format(key, limit, package)?;
        self.subscribers.insert(id);
        let cursor = Cursor::new(&self.ring, self.formats.get(format)?.chosen());
        // The new subscriber is immediately sent all units from its starting point on, even if the newest of them were
        // not released for the other subscribers yet.
        self.flush.advance(self.ring.head());
        let (stream, paused, switch) = (self.id, false, None);
        Some(Subscriber { stream, format, cursor, paused, forwarding, skipped: 0, jumps: 0, switch })
    }

    /// Makes a subscriber begin at the oldest key frame that a new viewer would begin at, even if the subscriber takes
    /// no video.
    pub fn begin_with_backlog(&self, subscriber: &mut Subscriber) {
        if let Some(start) = self.ring.start() {
            subscriber.cursor = Cursor::at(start);
        }
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: SubscriptionId, subscriber: &Subscriber) {
        self.subscribers.swap_remove(&id);
        self.leave_format(subscriber.format);
        if let Some(switch) = subscriber.switch {
            self.leave_format(switch.to);
        }
    }

    /// Changes a subscriber's selection: immediately if the lead video track stays the same, else at the next key frame
    /// of the new lead track. Until the change, the former tracks are sent. Returns false if `limit` allows no
    /// further format.
    pub fn select(
        &mut self,
        subscriber: &mut Subscriber,
        (key, limit): (FormatKey, FormatLimit),
        package: impl FnOnce() -> Option<Box<dyn Package>>,
    ) -> bool {
        let Some(to) = self.format(key, limit, package) else { return false };
        if let Some(former) = subscriber.switch.take() {
            self.leave_format(former.to);
        }
        if to == subscriber.format {
            self.leave_format(to);
            return true;
        }
        let next = subscriber.cursor.next();
        subscriber.switch = Some(Switch { to, at: None, searched: next });
        self.search_switch(subscriber);
        true
    }

    /// Searches for the unit at which a subscriber's pending switch can happen. Switches if the subscriber has reached
    /// that unit.
    fn search_switch(&mut self, subscriber: &mut Subscriber) {
        let Some(switch) = &mut subscriber.switch else { return };
        let next = subscriber.cursor.next();
        let (formats, from) = (&self.formats, subscriber.format);
        let (Some(from), Some(to)) = (formats.get(from), formats.get(switch.to)) else { return };
        let (from, to) = (from.chosen(), to.chosen());
        if switch.at.is_none_or(|at| at < next) {
            let (head, lead) = (self.ring.head(), to.lead());
            let is_start = |sequence: &u64| {
                self.ring.get(*sequence).is_some_and(|e| e.unit.key_frame && Some(e.unit.track) == lead)
            };
            let is_free = lead.is_none() || lead == from.lead();
            let start = switch.searched.max(next);
            switch.at = if is_free { Some(next) } else { (start..head).find(is_start) };
            switch.searched = head;
        }
        if switch.at == Some(next) {
            subscriber.cursor.switch(from, to);
            let former = std::mem::replace(&mut subscriber.format, switch.to);
            subscriber.switch = None;
            self.leave_format(former);
        }
    }

    /// Prepares a write to a subscriber: its cursor jumps ahead if it lags, and moves past units that cannot be
    /// decoded. Returns the number of units skipped.
    pub fn prepare(&mut self, subscriber: &mut Subscriber) -> u64 {
        let skipped = self.pass_over(subscriber);
        // If the switch is reached before anything is sent, switch now. Otherwise nothing would be written, and an
        // empty write does not cause another one.
        if self.switches_at(subscriber) {
            skipped.saturating_add(self.pass_over(subscriber))
        } else {
            skipped
        }
    }

    /// Moves a subscriber to the next unit that it can be sent, but not past a pending switch. Returns the number of
    /// units skipped.
    fn pass_over(&mut self, subscriber: &mut Subscriber) -> u64 {
        if subscriber.switch.is_some() {
            self.search_switch(subscriber);
        }
        let Some(packager) = self.formats.get(subscriber.format) else { return 0 };
        let chosen = packager.chosen();
        let skipped = match subscriber.cursor.check_lag(&self.ring, chosen, self.lag_ms()) {
            Jump::None => 0,
            // Units skipped during a pause do not count as missed.
            Jump::Skipped(_) if subscriber.paused => 0,
            Jump::Skipped(units) => {
                subscriber.jumps = subscriber.jumps.saturating_add(1);
                subscriber.skipped = subscriber.skipped.saturating_add(units);
                let lost = subscriber.cursor.keys_awaited(&self.ring, chosen);
                self.demand.keys_lost = self.demand.keys_lost.or(lost);
                units
            }
        };
        subscriber.cursor.learn(chosen);
        subscriber.cursor.start_without_video(&self.ring, chosen);
        let until = self.until(subscriber);
        subscriber.cursor.skip_undecodable(&self.ring, chosen, until);
        subscriber.cursor.skip_empty(packager, until);
        skipped
    }

    /// True if a subscriber has reached the unit at which its selection changes.
    #[must_use]
    pub fn switches_at(&self, subscriber: &Subscriber) -> bool {
        subscriber.switch.is_some_and(|switch| switch.at == Some(subscriber.cursor.next()))
    }

    /// Number of the first unit that the subscriber may not be sent yet.
    fn until(&self, subscriber: &Subscriber) -> u64 {
        let switch_at = subscriber.switch.and_then(|switch| switch.at);
        self.flush.until().min(switch_at.unwrap_or(u64::MAX))
    }

    /// Returns the time at which the newest key frame of a track was received.
    #[must_use]
    pub fn newest_key(&self, track: TrackId) -> Option<Instant> {
        Some(self.ring.get(self.ring.newest_key(track)?)?.received)
    }

    /// Resumes after a pause, at the newest key frame.
    pub fn resume(&self, subscriber: &mut Subscriber) {
        subscriber.paused = false;
        if let Some(packager) = self.formats.get(subscriber.format) {
            subscriber.cursor.resume(&self.ring, packager.chosen());
        }
    }

    /// Adds the units to send to a subscriber to `gather`, the slices of the next write. They follow the
    /// rest of a partly sent unit. Returns false if `gather` is full.
    pub fn gather<'a>(&'a self, subscriber: &'a Subscriber, gather: &mut Gather<'a>) -> bool {
        match self.formats.get(subscriber.format) {
            Some(packager) if !subscriber.paused => {
                subscriber.cursor.gather_units(packager, self.until(subscriber), gather)
            }
            _ => true,
        }
    }

    /// Counts `bytes` sent bytes toward the units in the order in which they were gathered. Returns the number of bytes
    /// left over.
    pub fn sent(&self, subscriber: &mut Subscriber, bytes: usize, forwarded: impl FnMut(Forwarded)) -> usize {
        let until = self.until(subscriber);
        match self.formats.get(subscriber.format) {
            Some(packager) if !subscriber.paused => {
                subscriber.cursor.units_sent(packager, until, bytes, forwarded)
            }
            _ => bytes,
        }
    }

    /// Returns the next unit for a subscriber that takes whole units, and moves its cursor past it.
    pub fn next_unit<'a>(&'a self, subscriber: &mut Subscriber) -> Option<Delivery<'a>> {
        let packager = self.formats.get(subscriber.format)?;
        if subscriber.paused {
            return None;
        }
        let until = self.until(subscriber);
        subscriber.cursor.take_unit(&self.ring, packager, until)
    }

    /// Returns the bytes that follow the last unit of an ended stream, for a subscriber that has taken all units.
    /// Returns them only once.
    pub fn tail<'a>(&'a self, subscriber: &mut Subscriber) -> Option<&'a Parts> {
        let tail = self.formats.get(subscriber.format)?.tail()?;
        (!subscriber.paused && subscriber.cursor.pass_end(self.ring.head())).then_some(tail)
    }

    /// Returns the logs of a subscriber's packets, if its format sends packets.
    #[must_use]
    pub fn logs(&self, subscriber: &Subscriber) -> Option<&dyn PacketLogs> {
        self.formats.get(subscriber.format)?.logs()
    }

    /// True if there is something to send to a subscriber.
    #[must_use]
    pub fn has_more(&self, subscriber: &Subscriber) -> bool {
        subscriber.cursor.has_rest() || (!subscriber.paused && subscriber.cursor.next() < self.flush.until())
    }

    /// Drops entries before the newest key frame, except those that are still needed by the slowest cursor, which is at
    /// `slowest`.
    pub fn trim(&mut self, slowest: Option<u64>) {
        let mirrors = self.mirrors.iter().map(Mirror::position);
        let slowest = slowest.into_iter().chain(mirrors).min();
        let keep_gop = self.settings.gop_cache && self.has_video();
        self.ring.trim(keep_gop, slowest);
        self.untrimmed = 0;
        let base = self.ring.base();
        self.formats.iter_mut().for_each(|packager| packager.trim(base));
    }

    /// True if the stream has a subscriber on this worker or is mirrored to another worker.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.subscribers.is_empty() || !self.mirrors.is_empty()
    }

    /// Shrinks the ring to at most `bytes`. If its key frames are lost and it has no subscribers, the ring is cleared,
    /// because a new viewer could not begin with the remaining units.
    pub fn shrink(&mut self, bytes: usize) {
        self.ring.shrink(bytes);
        if !self.is_watched() && self.ring.start().is_none() {
            self.ring.clear();
        }
        let base = self.ring.base();
        self.formats.iter_mut().for_each(|packager| packager.trim(base));
    }

    /// Drops all units, because they will be old when the next ones arrive.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.trim(None);
        self.flush();
    }

    /// Bytes per second of media time over the retained units; 0 if there are none.
    #[must_use]
    pub fn bytes_per_second(&self) -> usize {
        self.ring.bytes_per_second()
    }

    /// Returns the newest unit, if retained.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Option<&Entry> {
        self.ring.get(self.ring.head().checked_sub(1)?)
    }

    /// The tracks of the newest unit.
    #[must_use]
    pub const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// Number of bytes that the ring retains.
    #[must_use]
    pub const fn retained_bytes(&self) -> usize {
        self.ring.bytes()
    }

    fn has_video(&self) -> bool {
        self.tracks.video().is_some()
    }

    fn lag_ms(&self) -> i64 {
        i64::try_from(self.settings.max_latency.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the tracks that the subscribers of a format are sent.
    #[must_use]
    pub fn chosen(&self, format: FormatIndex) -> Option<&Chosen> {
        self.formats.get(format).map(Packager::chosen)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod viewers;

fn has_published(tracks: &Tracks, kind: TrackKind) -> bool {
    tracks.of_kind(kind).any(|track| track.origin == Origin::Published)
}

#[cfg(test)]
mod tests {
    use super::super::packager::tests::{PLAIN, Plain};
    use super::super::ring::tests::entry;
    use super::*;
    use crate::types::{ConnId, Handle};

    pub(super) fn stream() -> Stream {
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        Stream::new(StreamId(1), StreamKey::new("live", "s"), WorkerId(0), Ingest::PULL, settings)
    }

    pub(super) fn subscription(slot: u32) -> SubscriptionId {
        SubscriptionId { conn: ConnId { slot, generation: 0 }, handle: Handle::ONLY }
    }

    #[test]
    fn a_paused_viewer_is_moved_on_and_not_called_slow() {
        let mut stream = stream();
        let forwarding = crate::stats::ForwardingTable::default().index(Ingest::PULL, "plain");
        let mut subscribe = |slot| {
            let id = subscription(slot);
            stream.subscribe(id, (PLAIN, FormatLimit::Plain), forwarding, || Some(Box::new(Plain))).unwrap()
        };
        let (mut paused, mut slow) = (subscribe(0), subscribe(1));
        paused.paused = true;
        // Append more units than the ring holds, so that both viewers lose units.
        let now = Instant::now();
        for dts_ms in 0..6000 {
            stream.push(now, entry(dts_ms, false, 1));
        }
        stream.flush();
        assert_eq!(stream.prepare(&mut paused), 0);
        assert_eq!((paused.jumps, paused.skipped, paused.cursor.next()), (0, 0, 6000));
        assert_eq!(stream.prepare(&mut slow), 6000);
        assert_eq!((slow.jumps, slow.skipped, slow.cursor.next()), (1, 6000, 6000));
    }
}
