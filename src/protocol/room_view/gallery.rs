//! The layout of a view that shows all streams, each with tracks of its own, on one clock.
//!
//! A stream takes the first free seat, in the order in which the streams joined, and keeps it until it leaves. Seat `n`
//! has video track `n` and audio track `n` of the view; formats show them as a member with the stream's id as its name
//! ([`media::Member`]). When a stream leaves, its tracks end, and the next stream takes the seat.
//!
//! The view's clock is arrival time: a stream begins at the arrival of its first unit, and keeps its own intervals from
//! there on. The first stream begins with its newest key frame, and the others with their next one: otherwise the
//! streams would be ahead of one another by the age of their key frames. A stream that comes to be far behind its arrival,
//! for example after an interruption, begins anew; units far ahead of theirs are left out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, Member, Origin, Timescale, Track, TrackId, TrackKind, Tracks};

use super::one::PICTURE_WAIT;
use super::session::ask;
use crate::hub::{Chosen, Entry, Pick};
use crate::mail::Grant;
use crate::protocol::{Event, SubscriptionEvent, SubscriptionNews, SubtrackNews};
use crate::types::{Handle, StreamKey};

/// Maximum number of streams that are shown: each has two tracks, and one that is derived if a viewer needs other audio.
const SEATS: usize = media::TRACKS_MAX / 3;
/// Time in milliseconds by which a stream may be behind its arrival; a stream further behind begins anew.
const BEHIND_MAX_MS: i64 = 1000;
/// Time in milliseconds by which a unit may be ahead of its arrival; units further ahead are left out.
const AHEAD_MAX_MS: i64 = 3000;
/// Time after which a stream that is too far ahead begins anew: its clock has jumped.
const AHEAD_FOR: Duration = Duration::from_secs(5);
/// Time after which a stream that could not be subscribed to is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of streams that are known.
const STREAMS_MAX: usize = 1000;

/// A view of all streams of a room.
#[derive(Debug)]
pub(super) struct Gallery {
    /// The streams in the order in which they joined.
    streams: Vec<StreamKey>,
    /// Streams that could not be subscribed to, with the times at which they are tried again.
    resting: Vec<(StreamKey, Instant)>,
    seats: [Seat; SEATS],
    clock: Option<Clock>,
    /// The handle of the last subscription.
    last_handle: u16,
    tracks: Arc<Tracks>,
}

/// The clock of the view.
#[derive(Debug)]
struct Clock {
    /// Time in milliseconds at which the view begins or continues.
    base_ms: i64,
    /// Time of arrival of the first unit, which is at `base_ms`.
    base_at: Option<Instant>,
}

/// A place for the tracks of one stream.
#[derive(Debug, Default)]
struct Seat {
    feed: Option<Feed>,
    /// Times of the newest units of video and audio, in milliseconds. They do not go back when another stream takes the
    /// seat.
    last_ms: [Option<i64>; 2],
}

/// A stream in a seat.
#[derive(Debug)]
struct Feed {
    handle: Handle,
    key: StreamKey,
    since: Instant,
    /// Milliseconds to add to a time of the stream to get the time on the view's clock; `None` until the stream
    /// begins.
    shift_ms: Option<i64>,
    /// The described tracks, video and audio, and their epochs.
    sources: [Option<(TrackId, u32)>; 2],
    /// Times up to which units of video and audio are left out.
    had_ms: [i64; 2],
    /// True if a decoder can take the next picture.
    has_picture: bool,
    /// Arrival of the first of the units that were left out because the stream is too far ahead.
    ahead_since: Option<Instant>,
}

impl Feed {
    /// True if the stream can begin with this unit. Audio of the first stream waits for its video.
    fn can_begin(&self, now: Instant, base_at: Option<Instant>, entry: &Entry, chosen: &Chosen) -> bool {
        let is_first = base_at.is_none();
        let has_video = chosen.of_kind(TrackKind::Video).next().is_some();
        let waits = is_first && has_video && now.saturating_duration_since(self.since) < PICTURE_WAIT;
        let is_start = match entry.kind {
            Some(TrackKind::Video) => entry.unit.key_frame,
            Some(TrackKind::Audio) => !waits,
            Some(TrackKind::Data) | None => false,
        };
        is_start && (is_first || entry.received >= self.since)
    }

    /// Compares the time of a unit on the view's clock with that of its arrival. Returns false if the unit is too far
    /// ahead and is left out. A stream that is too far behind, or ahead for long, begins anew: with this unit, if it can.
    fn keeps_pace(&mut self, clock: &mut Clock, entry: &Entry, chosen: &Chosen) -> bool {
        let Some(shift_ms) = self.shift_ms else { return true };
        let ahead_ms = entry.dts_ms.saturating_add(shift_ms).saturating_sub(clock.time_of(entry.received));
        let is_video = entry.kind == Some(TrackKind::Video);
        if ahead_ms > AHEAD_MAX_MS {
            let since = *self.ahead_since.get_or_insert(entry.received);
            self.has_picture &= !is_video;
            if entry.received.saturating_duration_since(since) < AHEAD_FOR {
                return false;
            }
            self.begin_anew();
            return true;
        }
        // Audio may come later than the video with the same time, so audio is judged only if there is no video.
        let leads = is_video || chosen.of_kind(TrackKind::Video).next().is_none();
        if leads {
            self.ahead_since = None;
        }
        if leads && ahead_ms < -BEHIND_MAX_MS {
            self.begin_anew();
        }
        true
    }

    const fn begin_anew(&mut self) {
        (self.shift_ms, self.has_picture, self.ahead_since) = (None, false, None);
    }
}

impl Clock {
    /// Returns the time on the view's clock at which a unit arrived.
    fn time_of(&mut self, received: Instant) -> i64 {
        let base_at = *self.base_at.get_or_insert(received);
        let passed = received.saturating_duration_since(base_at).as_millis();
        self.base_ms.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }
}

impl Gallery {
    pub(super) fn new() -> Self {
        Self {
            streams: Vec::new(),
            resting: Vec::new(),
            seats: Default::default(),
            clock: None,
            last_handle: 0,
            tracks: Arc::default(),
        }
    }

    pub(super) fn begin(&mut self, grant: &Grant) {
        let position = grant.position;
        let base_ms = if position.started { position.dts_ms.saturating_add(1) } else { 0 };
        self.clock = Some(Clock { base_ms, base_at: None });
        self.tracks = Arc::new(Tracks::new(grant.epoch, []));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    // ---- the room

    pub(super) fn handle_streams(&mut self, news: SubtrackNews<'_>, events: &mut VecDeque<Event>) {
        match news {
            SubtrackNews::Room(streams) => streams.iter().for_each(|key| self.came(key)),
            SubtrackNews::Came(key) => self.came(key),
            SubtrackNews::Left(key) => {
                self.streams.retain(|stream| stream != key);
                self.resting.retain(|(stream, _)| stream != key);
                if let Some(feed) = self.vacate(|feed| feed.key == *key) {
                    events.push_back(Event::Subscription(feed.handle, SubscriptionEvent::Unsubscribe));
                }
            }
            SubtrackNews::Loudness { .. } | SubtrackNews::Role { .. } => {}
        }
    }

    fn came(&mut self, key: &StreamKey) {
        if self.streams.len() < STREAMS_MAX && !self.streams.contains(key) {
            self.streams.push(key.clone());
        }
    }

    /// Frees the seat of a stream, and ends its tracks.
    fn vacate(&mut self, is_it: impl Fn(&Feed) -> bool) -> Option<Feed> {
        let (number, feed) = (0..).zip(&mut self.seats).find_map(|(number, seat)| {
            let feed = seat.feed.take_if(|feed| is_it(feed))?;
            Some((number, feed))
        })?;
        let mut tracks = Tracks::clone(&self.tracks);
        tracks.retain(|track| track.member_number() != Some(number));
        tracks.epoch = tracks.epoch.saturating_add(1);
        self.tracks = Arc::new(tracks);
        Some(feed)
    }

    /// Gives free seats to streams without one.
    pub(super) fn settle(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.clock.is_none() {
            return;
        }
        self.resting.retain(|(_, until)| *until > now);
        while let Some(seat) = self.seats.iter().position(|seat| seat.feed.is_none()) {
            let is_seated = |key: &&StreamKey| self.feeds().any(|feed| feed.key == **key);
            let rests = |key: &&StreamKey| self.resting.iter().any(|(stream, _)| stream == *key);
            let mut free = self.streams.iter().filter(|key| !is_seated(key) && !rests(key));
            let Some(key) = free.next().cloned() else { return };
            let handle = self.free_handle();
            let Some(seat) = self.seats.get_mut(seat) else { return };
            events.push_back(Event::Subscription(
                handle,
                SubscriptionEvent::Subscribe(ask(key.clone(), false, Pick::None)),
            ));
            seat.feed = Some(Feed {
                handle,
                key,
                since: now,
                shift_ms: None,
                sources: [None; 2],
                had_ms: seat.last_ms.map(|last| last.unwrap_or(i64::MIN)),
                has_picture: false,
                ahead_since: None,
            });
        }
    }

    /// Returns the time at which a stream is tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.resting.iter().map(|(_, until)| *until).min()
    }

    fn feeds(&self) -> impl Iterator<Item = &Feed> {
        self.seats.iter().filter_map(|seat| seat.feed.as_ref())
    }

    /// Returns a handle that no subscription has. News of a former subscription must not reach the next one.
    fn free_handle(&mut self) -> Handle {
        loop {
            // Zero is the subscription to the room.
            self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
            let handle = Handle(self.last_handle);
            if self.feeds().all(|feed| feed.handle != handle) {
                return handle;
            }
        }
    }

    // ---- the streams

    /// Returns the subscription to the stream that a track of the view is made of.
    pub(super) fn source_of(&self, track: TrackId) -> Option<Handle> {
        self.seats.get(usize::from(track.index()))?.feed.as_ref().map(|feed| feed.handle)
    }

    pub(super) fn handle_stream(
        &mut self,
        now: Instant,
        handle: Handle,
        news: &SubscriptionNews<'_>,
        events: &mut VecDeque<Event>,
    ) {
        match news {
            SubscriptionNews::Verdict(Ok(_)) => {
                let has_begun = self.clock.as_ref().is_some_and(|clock| clock.base_at.is_some());
                let is_first = !has_begun && self.feeds().next().is_some_and(|feed| feed.handle == handle);
                let wanted = match is_first {
                    true => SubscriptionEvent::KeyFrameSoon(None),
                    false => SubscriptionEvent::KeyFrameNeeded(None),
                };
                if self.feeds().any(|feed| feed.handle == handle) {
                    events.push_back(Event::Subscription(handle, wanted));
                }
            }
            SubscriptionNews::Verdict(Err(refusal)) => {
                if let Some(feed) = self.vacate(|feed| feed.handle == handle) {
                    tracing::debug!(key = %feed.key, ?refusal, "stream not shown in the view of its room");
                    self.resting.push((feed.key, now + RETRY));
                    self.settle(now, events);
                }
            }
            SubscriptionNews::Ended(_) => {
                if let Some(feed) = self.vacate(|feed| feed.handle == handle) {
                    self.streams.retain(|stream| *stream != feed.key);
                    self.settle(now, events);
                }
            }
            SubscriptionNews::Held
            | SubscriptionNews::Seasoned
            | SubscriptionNews::Zero(_)
            | SubscriptionNews::TracksKnown(_)
            | SubscriptionNews::KindAdded(_)
            | SubscriptionNews::Subtracks(_) => {}
        }
    }

    /// Converts a unit of a stream. `None` if the unit is not shown.
    pub(super) fn handle_unit(
        &mut self,
        now: Instant,
        handle: Handle,
        entry: &Entry,
        chosen: &Chosen,
    ) -> Option<(AccessUnit, Arc<Tracks>)> {
        let is_it = |seat: &Seat| seat.feed.as_ref().is_some_and(|feed| feed.handle == handle);
        let number = self.seats.iter().position(is_it)?;
        let seat = self.seats.get_mut(number)?;
        let (feed, clock) = (seat.feed.as_mut()?, self.clock.as_mut()?);
        let track = entry.tracks.get(entry.unit.track)?;
        let kind = track.kind();
        if !feed.keeps_pace(clock, entry, chosen) {
            return None;
        }
        let shift_ms = match feed.shift_ms {
            Some(shift_ms) => shift_ms,
            None if feed.can_begin(now, clock.base_at, entry, chosen) => {
                let after =
                    seat.last_ms.iter().flatten().max().map_or(i64::MIN, |last| last.saturating_add(1));
                let begins_ms = clock.time_of(entry.received).max(after);
                feed.had_ms = feed.had_ms.map(|had| had.max(begins_ms.saturating_sub(1)));
                *feed.shift_ms.insert(begins_ms.saturating_sub(entry.dts_ms))
            }
            None => return None,
        };
        let dts_ms = entry.dts_ms.saturating_add(shift_ms);
        let lane = lane(kind)?;
        let is_cut_in = kind == TrackKind::Video && !feed.has_picture && !entry.unit.key_frame;
        if feed.had_ms.get(lane).is_none_or(|had| dts_ms <= *had) || is_cut_in {
            return None;
        }
        feed.has_picture |= kind == TrackKind::Video;
        let last = seat.last_ms.get_mut(lane)?;
        *last = Some(last.map_or(dts_ms, |last| last.max(dts_ms)));
        let number = u8::try_from(number).ok()?;
        if feed.sources.get(lane) != Some(&Some((track.id, track.epoch))) {
            self.tracks = describe(&self.tracks, feed, number, track, chosen);
        }
        let shift = Timescale::MILLISECONDS.convert(shift_ms, track.timescale);
        let shown = self.tracks.get(TrackId::nth(kind, number)?)?;
        let unit = AccessUnit {
            track: shown.id,
            dts: entry.unit.dts.saturating_add(shift),
            pts: entry.unit.pts.saturating_add(shift),
            config_epoch: shown.epoch,
            ..entry.unit.clone()
        };
        Some((unit, Arc::clone(&self.tracks)))
    }
}

/// Describes the tracks of a seat anew, because `track` is new or has changed. The tracks of other seats stay.
fn describe(tracks: &Tracks, feed: &mut Feed, number: u8, track: &Track, chosen: &Chosen) -> Arc<Tracks> {
    let mut all = Tracks::clone(tracks);
    all.epoch = all.epoch.saturating_add(1);
    all.retain(|other| other.member_number() != Some(number));
    let name: Arc<str> = Arc::from(&*feed.key.id);
    for kind in [TrackKind::Video, TrackKind::Audio] {
        let other = || chosen.of_kind(kind).next();
        let of_kind = Some(track).filter(|track| track.kind() == kind).or_else(other);
        let (Some(source), Some(id), Some(lane)) = (of_kind, TrackId::nth(kind, number), lane(kind)) else {
            continue;
        };
        let Some(known) = feed.sources.get_mut(lane) else { continue };
        let is_same = known.replace((source.id, source.epoch)) == Some((source.id, source.epoch));
        let epoch = tracks.get(id).map(|track| track.epoch).filter(|_| is_same).unwrap_or(all.epoch);
        let member = Some(Member { number, name: Arc::clone(&name) });
        let label = Some(Arc::clone(&name));
        all.put(Track {
            id,
            epoch,
            label,
            member,
            rendition: None,
            origin: Origin::Published,
            ..source.clone()
        });
    }
    Arc::new(all)
}

/// Returns the index of a kind among the two tracks of a seat.
const fn lane(kind: TrackKind) -> Option<usize> {
    match kind {
        TrackKind::Video => Some(0),
        TrackKind::Audio => Some(1),
        TrackKind::Data => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::codec::{g711, vp8};
    use media::{CodecConfig, Position};

    use super::*;
    use crate::config::AppSettings;
    use crate::hub::{Fit, Selection};
    use crate::mail::StreamEnd;
    use crate::types::StreamId;

    fn key(id: &str) -> StreamKey {
        StreamKey::new("live", id)
    }

    /// A gallery with the streams of a room, each with the second video track of its list, and audio.
    struct Room {
        gallery: Gallery,
        now: Instant,
        handles: Vec<(StreamKey, Handle)>,
        tracks: Arc<Tracks>,
        chosen: Chosen,
    }

    impl Room {
        fn of(ids: &[&str]) -> Self {
            let picture = CodecConfig::Vp8(vp8::Config::default());
            let sound = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
            let video = TrackId::nth(TrackKind::Video, 1).unwrap();
            let list = [
                Track::new(video, picture, Timescale::new(90_000)),
                Track::new(TrackId::AUDIO, sound, Timescale::MILLISECONDS),
            ];
            let tracks = Arc::new(Tracks::new(1, list));
            let mut chosen = Chosen::default();
            chosen.update(Selection::DEFAULT, &tracks, &|_| Fit::Well);
            let (gallery, now) = (Gallery::new(), Instant::now());
            let mut room = Self { gallery, now, handles: Vec::new(), tracks, chosen };
            let streams: Vec<_> = ids.iter().map(|id| key(id)).collect();
            room.gallery.handle_streams(SubtrackNews::Room(&streams), &mut VecDeque::new());
            let settings = Arc::new(AppSettings::defaults("live").unwrap());
            let position = Position::default();
            room.gallery.begin(&Grant {
                stream: StreamId(1),
                position,
                epoch: 0,
                zero_ms: 0,
                settings,
                standby: false,
            });
            room.settle();
            room
        }

        fn settle(&mut self) {
            let mut events = VecDeque::new();
            self.gallery.settle(self.now, &mut events);
            for event in events {
                if let Event::Subscription(handle, SubscriptionEvent::Subscribe(ask)) = event {
                    self.handles.push((ask.key, handle));
                }
            }
        }

        fn leaves(&mut self, id: &str) {
            self.gallery.handle_streams(SubtrackNews::Left(&key(id)), &mut VecDeque::new());
            self.settle();
        }

        fn handle(&self, id: &str) -> Handle {
            self.handles.iter().rev().find(|(stream, _)| *stream == key(id)).unwrap().1
        }

        /// Sends a unit of a stream after `after` milliseconds. Returns its name and time in the view.
        fn sends(
            &mut self,
            after: u64,
            id: &str,
            kind: TrackKind,
            ms: i64,
            key_frame: bool,
        ) -> Option<(String, i64)> {
            self.now += Duration::from_millis(after);
            let track = self.tracks.of_kind(kind).next().unwrap();
            let dts = Timescale::MILLISECONDS.convert(ms, track.timescale);
            let payload = Bytes::from_static(b"unit");
            let unit = AccessUnit { track: track.id, dts, pts: dts, key_frame, config_epoch: 1, payload };
            let entry = Entry::new(self.now, 0, unit, Arc::clone(&self.tracks));
            let handle = self.handle(id);
            let (unit, tracks) = self.gallery.handle_unit(self.now, handle, &entry, &self.chosen)?;
            let shown = tracks.get(unit.track).unwrap();
            assert_eq!((shown.kind(), unit.config_epoch), (kind, shown.epoch));
            assert_eq!(shown.number(), unit.track.index());
            Some((
                format!("{} {}", shown.member.as_ref()?.name, unit.track.index()),
                shown.timescale.to_ms(unit.dts),
            ))
        }

        fn names(&self) -> Vec<String> {
            self.gallery.tracks.iter().map(|track| track.label.as_deref().unwrap_or("-").to_owned()).collect()
        }
    }

    fn at(name: &str, ms: i64) -> Option<(String, i64)> {
        Some((name.to_owned(), ms))
    }

    #[test]
    fn all_streams_are_shown_on_one_clock() {
        use TrackKind::{Audio, Video};
        let mut room = Room::of(&["ann", "ben"]);
        assert_eq!(room.sends(0, "ann", Audio, 70_000, false), None, "before the first picture");
        assert_eq!(room.sends(0, "ann", Video, 70_000, true), at("ann 0", 0));
        assert_eq!(room.sends(5, "ann", Audio, 70_010, false), at("ann 0", 10));
        assert_eq!(room.sends(95, "ben", Audio, 3, false), at("ben 1", 100), "needs no picture");
        assert_eq!(room.sends(0, "ben", Video, 10, false), None, "not before a key frame");
        assert_eq!(room.sends(40, "ann", Video, 70_140, false), at("ann 0", 140));
        assert_eq!(room.sends(0, "ben", Video, 53, true), at("ben 1", 150));
        assert_eq!(room.names(), ["ann", "ann", "ben", "ben"]);
    }

    #[test]
    fn the_tracks_of_who_leaves_end_and_the_seat_is_taken_by_the_next() {
        use TrackKind::Video;
        let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let mut room = Room::of(&ids);
        assert_eq!(room.handles.len(), SEATS, "three tracks each");
        assert_eq!(room.sends(0, "a", Video, 0, true), at("a 0", 0));
        assert_eq!(room.sends(10, "b", Video, 500, true), at("b 1", 10));
        let former = room.handle("a");
        let mut epochs = vec![room.gallery.tracks.epoch];
        room.leaves("a");
        epochs.push(room.gallery.tracks.epoch);
        assert_eq!(room.names(), ["b", "b"]);
        assert_eq!(room.handle("f"), room.handles.last().unwrap().1, "the first that waits");
        assert_ne!(room.handle("f"), former);
        // The end of the former subscription does not end the next one.
        let ended = SubscriptionNews::Ended(StreamEnd::Unpublished);
        room.gallery.handle_stream(room.now, former, &ended, &mut VecDeque::new());
        assert_eq!(room.sends(90, "f", Video, 9_000, true), at("f 0", 100));
        epochs.push(room.gallery.tracks.epoch);
        assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
        assert_eq!(room.gallery.source_of(TrackId::VIDEO), Some(room.handle("f")));
        assert_eq!(room.sends(0, "b", Video, 540, false), at("b 1", 50), "undisturbed");
        // A stream that ends by itself makes room for the next one, and nobody is left when all have gone.
        let of_b = room.handle("b");
        room.gallery.handle_stream(room.now, of_b, &ended, &mut VecDeque::new());
        ids.iter().for_each(|id| room.leaves(id));
        assert!(room.gallery.is_empty() && room.gallery.feeds().next().is_none() && room.names().is_empty());
    }

    #[test]
    fn times_do_not_go_back_and_old_units_do_not_count_beside_a_running_stream() {
        use TrackKind::Video;
        let mut room = Room::of(&["ann", "ben"]);
        assert_eq!(room.sends(0, "ann", Video, 0, true), at("ann 0", 0));
        assert_eq!(room.sends(0, "ann", Video, 800, false), at("ann 0", 800), "ahead of its arrival");
        room.leaves("ann");
        room.gallery.handle_streams(SubtrackNews::Came(&key("cat")), &mut VecDeque::new());
        room.now += Duration::from_millis(100);
        room.settle();
        room.now -= Duration::from_millis(50);
        assert_eq!(room.sends(0, "cat", Video, 0, true), None, "from before the subscription");
        assert_eq!(room.sends(60, "cat", Video, 0, true), at("cat 0", 801));
    }

    #[test]
    fn a_stream_that_returns_after_an_interruption_is_no_longer_behind() {
        use TrackKind::{Audio, Video};
        let mut room = Room::of(&["ann", "ben"]);
        assert_eq!(room.sends(0, "ann", Video, 0, true), at("ann 0", 0));
        assert_eq!(room.sends(100, "ben", Video, 0, true), at("ben 1", 100));
        for interruption in 1..4 {
            // The publisher returns after five seconds, and its times continue where they ended.
            let (before, now_ms) = (interruption * 100, interruption * 5_000 + 100);
            assert_eq!(room.sends(4_900, "ben", Video, before, false), None, "a key frame is awaited");
            assert_eq!(room.sends(60, "ben", Video, before + 60, true), at("ben 1", now_ms - 40));
            assert_eq!(room.sends(40, "ben", Audio, before + 100, false), at("ben 1", now_ms));
        }
        // A short delay changes nothing.
        assert_eq!(room.sends(900, "ben", Video, 440, false), at("ben 1", 15_140));
    }

    #[test]
    fn what_is_far_ahead_is_left_out_until_its_time_comes() {
        use TrackKind::Video;
        let mut room = Room::of(&["ann", "ben"]);
        assert_eq!(room.sends(0, "ann", Video, 0, true), at("ann 0", 0));
        // Ten seconds of pictures in a moment, with a key frame each second.
        let shown = (0..100).filter_map(|n| room.sends(1, "ann", Video, n * 100 + 100, n % 10 == 9)).count();
        assert_eq!(shown, 30);
        assert_eq!(room.sends(7_000, "ann", Video, 10_100, false), None, "the pictures before are lacking");
        assert_eq!(room.sends(0, "ann", Video, 10_200, true), None, "still three seconds ahead");
        assert_eq!(room.sends(100, "ann", Video, 10_200, true), at("ann 0", 10_200));
        // A clock that has jumped for good: the stream begins anew.
        assert_eq!(room.sends(100, "ann", Video, 90_000, true), None);
        assert_eq!(room.sends(4_900, "ann", Video, 94_900, true), None);
        let shown = room.sends(4_100, "ann", Video, 99_000, true);
        assert_eq!(shown, at("ann 0", 16_300));
    }

    #[test]
    fn a_stream_that_is_refused_is_tried_again() {
        let mut room = Room::of(&["ann"]);
        let refused = room.handle("ann");
        let no = SubscriptionNews::Verdict(Err(crate::mail::NoSubscription::NotFound));
        room.gallery.handle_stream(room.now, refused, &no, &mut VecDeque::new());
        room.settle();
        assert_eq!((room.handle("ann"), room.gallery.due()), (refused, Some(room.now + RETRY)));
        assert!(!room.gallery.is_empty());
        room.now += RETRY;
        room.settle();
        assert_ne!(room.handle("ann"), refused);
        assert_eq!(room.gallery.due(), None);
    }

    #[test]
    fn no_more_streams_are_known_than_a_room_may_have() {
        let mut gallery = Gallery::new();
        (0..2 * STREAMS_MAX).for_each(|n| gallery.came(&key(&n.to_string())));
        assert_eq!(gallery.streams.len(), STREAMS_MAX);
    }
}
