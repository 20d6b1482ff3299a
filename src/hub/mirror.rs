//! The path of a stream to another worker: a cursor like that of a subscriber, and a limit on the bytes in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use media::{TrackId, TrackKind, TrackSet};

use super::{Cursor, Entry, Ring};
use crate::types::{StreamId, WorkerId};

/// Maximum bytes of one stream in flight to one worker. A larger key frame is sent while nothing else is in flight.
const LANE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A unit on its way to a mirror.
#[derive(Debug)]
pub struct MirroredUnit {
    /// The stream.
    pub stream: StreamId,
    /// The request that the unit answers. A unit for an earlier request is discarded.
    pub request: u64,
    /// The unit and its tracks, as they are on the source worker.
    pub entry: Entry,
    /// Counts the unit's bytes as in flight until the unit has entered the mirror's ring.
    pub credit: Credit,
}

/// A worker that receives a stream from the worker that has the stream's publisher.
#[derive(Debug)]
pub struct Mirror {
    /// The worker that receives the stream.
    pub to: WorkerId,
    /// The number of the receiving worker's request.
    pub(super) request: u64,
    /// The tracks that the worker's subscribers select.
    pub wanted: TrackSet,
    /// Wanted video tracks that are sent from their next key frame on, because the receiving worker lacks the units
    /// before it.
    waits: TrackSet,
    /// The units that the receiving worker already has, because a former source worker has sent them.
    had: Had,
    cursor: Cursor,
    knows: Knows,
    lane: Lane,
    /// Number of units missed since [`Mirror::take_missed`] was last called.
    missed: u64,
}

/// The part of a stream that a worker already has, described by the last unit of each track. Units of different tracks
/// are not ordered by time, so a single time would not separate the units that the worker has from those that it lacks.
#[derive(Debug, Default)]
pub(super) struct Had {
    tracks: Vec<(TrackId, i64)>,
    /// Number of the first unit that the worker cannot have yet.
    until: u64,
}

impl Had {
    /// Describes the units that a worker has: those numbered below `until`, up to the time listed for their track.
    pub(super) const fn new(tracks: Vec<(TrackId, i64)>, until: u64) -> Self {
        Self { tracks, until }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.tracks.is_empty()
    }

    pub(super) fn contains(&self, number: u64, entry: &Entry) -> bool {
        let is_had =
            |(track, until_ms): &(TrackId, i64)| *track == entry.unit.track && entry.dts_ms <= *until_ms;
        number < self.until && self.tracks.iter().any(is_had)
    }
}

/// A mirror's knowledge of the stream's tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// The mirror does not know the tracks. The next unit, of any track, carries the list of tracks.
    Nothing,
    /// The track list is on its way. Nothing more is sent until the mirror has reported which tracks it wants. Holds
    /// the tracks for which a key frame was already sent.
    Soon(TrackSet),
    /// The mirror knows the tracks, and has reported which of them it wants.
    Tracks,
}

impl Mirror {
    /// Begins at entry `at`, or at the next key frame if `at` is `None`. If `wanted` is empty, the mirror does not know
    /// the stream's tracks yet.
    pub(super) fn new(
        (to, request): (WorkerId, u64),
        wanted: TrackSet,
        had: Had,
        at: Option<u64>,
        head: u64,
    ) -> Self {
        let cursor = at.map_or_else(|| Cursor::waiting_at(head), Cursor::at);
        let knows = if wanted.is_empty() { Knows::Nothing } else { Knows::Tracks };
        let (waits, lane) = (TrackSet::EMPTY, Lane::default());
        Self { to, request, wanted, waits, had, cursor, knows, lane, missed: 0 }
    }

    /// Sets the tracks that the mirror is sent from now on.
    pub(super) fn want(&mut self, wanted: TrackSet) {
        let running = match self.knows {
            Knows::Soon(begun) => begun,
            Knows::Nothing | Knows::Tracks => self.wanted.without_all(self.waits),
        };
        self.waits = wanted.without_all(running);
        (self.wanted, self.knows) = (wanted, Knows::Tracks);
    }

    /// Returns the next wanted unit. Skips units that the mirror already has or cannot begin with.
    fn peek_wanted<'a>(&mut self, ring: &'a Ring) -> Option<&'a Entry> {
        loop {
            let entry = self.cursor.peek_entry(ring, self.wanted)?;
            if self.had.contains(self.cursor.next(), entry) {
                self.cursor.pass();
                continue;
            }
            let is_video = entry.tracks.get(entry.unit.track).is_some_and(|t| t.kind() == TrackKind::Video);
            if !is_video || entry.unit.key_frame || !self.waits.contains(entry.unit.track) {
                return Some(entry);
            }
            self.cursor.pass();
        }
    }

    /// Returns the next unit, unless too many bytes are in flight to the mirror's worker. If the mirror
    /// lags by more than `lag_ms` for this reason, it continues at the newest key frame.
    pub(super) fn next(&mut self, ring: &Ring, lag_ms: i64) -> Option<(Entry, Credit)> {
        self.missed = self.missed.saturating_add(self.cursor.skip_lost(ring));
        let entry = match self.knows {
            Knows::Nothing => self.cursor.peek_any(ring)?,
            Knows::Soon(_) => return None,
            Knows::Tracks => self.peek_wanted(ring)?,
        };
        let Some(credit) = self.lane.credit(entry.unit.payload.len()) else {
            let late = ring.head_ms().is_some_and(|head_ms| head_ms.saturating_sub(entry.dts_ms) > lag_ms);
            if late {
                self.missed = self.missed.saturating_add(self.cursor.skip_to_start(ring));
            }
            return None;
        };
        self.cursor.pass();
        let track = entry.unit.track;
        self.waits = self.waits.without(track);
        if self.knows == Knows::Nothing {
            self.knows =
                Knows::Soon(if entry.unit.key_frame { TrackSet::of(track) } else { TrackSet::EMPTY });
        }
        Some((entry.clone(), credit))
    }

    /// Number of the next unit to send.
    pub(super) const fn position(&self) -> u64 {
        self.cursor.next()
    }

    /// Returns the units missed since the last call.
    pub const fn take_missed(&mut self) -> u64 {
        std::mem::replace(&mut self.missed, 0)
    }
}

/// Number of bytes of one stream that are in flight to one worker.
#[derive(Debug, Clone, Default)]
struct Lane {
    bytes: Arc<AtomicUsize>,
}

impl Lane {
    /// Reserves room for `bytes`, or returns `None` if the lane is full. An empty lane accepts anything.
    fn credit(&self, bytes: usize) -> Option<Credit> {
        let used = self.bytes.load(Ordering::Acquire);
        if used > 0 && used.saturating_add(bytes) > LANE_BYTES_MAX {
            return None;
        }
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Some(Credit { lane: Arc::clone(&self.bytes), bytes })
    }
}

/// Counts a unit's bytes as in flight in a lane until it is dropped.
#[derive(Debug, Default)]
pub struct Credit {
    lane: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.lane.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::RingLimits;
    use super::super::ring::tests::entry;
    use super::*;

    const VIDEO: TrackSet = TrackSet::of(TrackId::VIDEO);
    const ASKER: (WorkerId, u64) = (WorkerId(1), 1);

    #[test]
    fn a_full_lane_refuses_and_an_empty_one_takes_anything() {
        let lane = Lane::default();
        let huge = lane.credit(LANE_BYTES_MAX * 2).unwrap();
        assert!(lane.credit(1).is_none());
        drop(huge);
        let held: Vec<_> = (0..).map_while(|_| lane.credit(LANE_BYTES_MAX / 4)).collect();
        assert_eq!(held.len(), 4);
    }

    #[test]
    fn a_worker_that_takes_nothing_goes_on_at_a_key_frame() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut mirror = Mirror::new(ASKER, VIDEO, Had::default(), Some(0), 0);
        let mut held = Vec::new();
        for n in 0..12 {
            ring.push(entry(n * 1000, n % 2 == 0, LANE_BYTES_MAX / 4));
            held.extend(mirror.next(&ring, 5000));
        }
        // Four units may be in flight. When the mirror lags too far behind the next one, it jumps to the newest key
        // frame, number 10.
        assert_eq!((held.len(), mirror.position(), mirror.take_missed()), (4, 10, 6));
        held.clear();
        assert_eq!(mirror.next(&ring, 5000).unwrap().0.dts_ms, 10_000);
        assert_eq!((mirror.next(&ring, 5000).unwrap().0.dts_ms, mirror.take_missed()), (11_000, 0));
        assert!(mirror.next(&ring, 5000).is_none());
    }

    #[test]
    fn one_that_knows_no_tracks_is_sent_one_unit_and_then_what_it_wants() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut mirror = Mirror::new(ASKER, TrackSet::EMPTY, Had::default(), Some(0), 0);
        assert!(mirror.next(&ring, 5000).is_none());
        for n in 0..3 {
            ring.push(entry(n * 33, n == 0, 10));
        }
        assert_eq!(mirror.next(&ring, 5000).unwrap().0.dts_ms, 0);
        assert!(mirror.next(&ring, 5000).is_none());
        mirror.want(VIDEO);
        let sent: Vec<_> =
            std::iter::from_fn(|| mirror.next(&ring, 5000)).map(|(entry, _)| entry.dts_ms).collect();
        assert_eq!((sent, mirror.take_missed()), (vec![33, 66], 0));
    }

    /// A new mirror continues each track after the last unit that its worker has received of that track.
    /// The tracks differ: over MPEG-TS, for example, the audio of a time arrives after the video of the
    /// same time.
    #[test]
    fn what_is_had_of_a_former_source_is_told_by_track() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut push = |track, dts_ms, key_frame| {
            let mut entry = entry(dts_ms, key_frame, 10);
            entry.unit.track = track;
            ring.push(entry);
        };
        push(TrackId::VIDEO, 1000, true);
        push(TrackId::VIDEO, 1625, false);
        (0..4).for_each(|n| push(TrackId::AUDIO, 1000 + n * 20, false));
        let had = Had::new(vec![(TrackId::VIDEO, 1625), (TrackId::AUDIO, 1020)], ring.head());
        let wanted = TrackSet::of(TrackId::VIDEO).with(TrackId::AUDIO);
        let mut mirror = Mirror::new(ASKER, wanted, had, Some(0), 0);
        let sent: Vec<_> =
            std::iter::from_fn(|| mirror.next(&ring, 5000)).map(|(entry, _)| entry.dts_ms).collect();
        assert_eq!(sent, [1040, 1060]);
    }

    #[test]
    fn only_what_somebody_there_is_sent_is_mirrored() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut mirror = Mirror::new(ASKER, TrackSet::of(TrackId::AUDIO), Had::default(), Some(0), 0);
        ring.push(entry(0, true, 10));
        assert!(mirror.next(&ring, 5000).is_none());
        // A track that becomes wanted while the stream plays begins with a key frame.
        mirror.want(VIDEO);
        ring.push(entry(33, false, 10));
        assert!(mirror.next(&ring, 5000).is_none());
        ring.push(entry(50, true, 10));
        ring.push(entry(60, false, 10));
        assert_eq!(mirror.next(&ring, 5000).unwrap().0.dts_ms, 50);
        assert_eq!(mirror.next(&ring, 5000).unwrap().0.dts_ms, 60);
        // A mirror that begins without a key frame waits for one.
        let mut late = Mirror::new(ASKER, VIDEO, Had::default(), None, ring.head());
        ring.push(entry(66, false, 10));
        assert!(late.next(&ring, 5000).is_none());
        ring.push(entry(99, true, 10));
        assert_eq!(late.next(&ring, 5000).unwrap().0.dts_ms, 99);
    }

    #[test]
    fn the_unit_that_brings_the_tracks_counts_as_a_start_when_it_is_a_key_frame() {
        for first_is_key in [true, false] {
            let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
            let mut mirror = Mirror::new(ASKER, TrackSet::EMPTY, Had::default(), None, 0);
            for n in 0..3 {
                ring.push(entry(n * 10, n == 0 && first_is_key, 10));
            }
            assert_eq!(mirror.next(&ring, 5000).unwrap().0.dts_ms, 0);
            mirror.want(VIDEO);
            let next = mirror.next(&ring, 5000).map(|(entry, _)| entry.dts_ms);
            assert_eq!(next, first_is_key.then_some(10));
        }
    }

    #[test]
    fn a_mirror_that_has_lost_nothing_is_sent_everything() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut mirror = Mirror::new(ASKER, VIDEO, Had::default(), Some(0), 0);
        (0..4).for_each(|n| ring.push(entry(n * 10, n % 2 == 0, 10)));
        let sent: Vec<_> =
            std::iter::from_fn(|| mirror.next(&ring, 5000)).map(|(one, _)| one.dts_ms).collect();
        assert_eq!((sent, mirror.take_missed()), (vec![0, 10, 20, 30], 0));
        // Units that the ring has dropped count as missed, and the mirror continues at a key frame.
        (4..9).for_each(|n| ring.push(entry(n * 10, n == 6, 10)));
        ring.trim(false, Some(5));
        let sent: Vec<_> =
            std::iter::from_fn(|| mirror.next(&ring, 5000)).map(|(one, _)| one.dts_ms).collect();
        assert_eq!((sent, mirror.take_missed()), (vec![60, 70, 80], 2));
    }
}
