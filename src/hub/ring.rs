//! The ring: access units in the order of their arrival, numbered consecutively. Its bytes, its number of units and its
//! time span are limited.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use media::{AccessUnit, Timescale, Track, TrackId, TrackKind, TrackSet, Tracks};
use smallvec::SmallVec;

/// Maximum bytes retained by a ring: payload, and the parameter sets of its units.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of units retained by a ring.
const UNITS_MAX: usize = 4000;
/// If the last key frame of a video track is older than the newest key frame of another track by more than this many
/// milliseconds, and by more than twice the track's previous GOP, the track counts as silent, and no entries are
/// retained for it.
const TRACK_SILENT_MS: i64 = 10_000;
/// If a video track has had no picture for this many milliseconds while other tracks continue, subscribers no longer
/// wait for it.
const PICTURELESS_MS: i64 = 3_000;

/// An access unit, with the tracks of its config epoch.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The unit.
    pub unit: AccessUnit,
    /// The tracks that describe how to decode the unit.
    pub tracks: Arc<Tracks>,
    /// Kind of the unit's track; `None` if the tracks do not list it.
    pub kind: Option<TrackKind>,
    /// DTS in milliseconds, used to measure lag and to apply the ring's limits.
    pub dts_ms: i64,
    /// Time at which the last byte of the unit reached this server, on any worker.
    pub received: Instant,
    /// Wall clock at the time `received`, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

impl Entry {
    /// Makes the entry of a unit received at this time.
    #[must_use]
    pub fn new(received: Instant, wall_ms: u64, unit: AccessUnit, tracks: Arc<Tracks>) -> Self {
        let track = tracks.get(unit.track);
        let dts_ms = track.map_or(unit.dts, |track| track.timescale.to_ms(unit.dts));
        let kind = track.map(Track::kind);
        Self { unit, tracks, kind, dts_ms, received, wall_ms }
    }

    /// Moves the unit to a later DTS, in milliseconds, and its PTS only if that would be earlier.
    pub fn delay_until(&mut self, dts_ms: i64) {
        let scale = self.tracks.get(self.unit.track).map_or(Timescale::MILLISECONDS, |track| track.timescale);
        let dts = Timescale::MILLISECONDS.convert(dts_ms, scale);
        // Rounding down may have led to the millisecond before.
        self.unit.dts = if scale.to_ms(dts) < dts_ms { dts.saturating_add(1) } else { dts };
        self.unit.pts = self.unit.pts.max(self.unit.dts);
        self.dts_ms = dts_ms;
    }
}

/// The limits of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingLimits {
    /// Maximum bytes of payload and parameter sets.
    pub bytes: usize,
    /// Maximum number of units.
    pub units: usize,
    /// Media time that a viewer may lag, in milliseconds. The ring retains this time and two GOPs more.
    pub lag_ms: i64,
}

impl RingLimits {
    /// Returns the standard limits with this lag, an application's `maxLatencyMs`.
    #[must_use]
    pub const fn with_lag_ms(lag_ms: i64) -> Self {
        Self { bytes: BYTES_MAX, units: UNITS_MAX, lag_ms }
    }
}

/// The start of the newest GOP of a video track.
#[derive(Debug, Clone, Copy)]
struct Gop {
    track: TrackId,
    /// Number of the GOP's key frame; `None` once it is no longer retained.
    key: Option<u64>,
    key_ms: i64,
    /// Duration of the previous GOP in milliseconds; 0 until a whole GOP has been seen.
    previous_ms: i64,
}

/// A bounded sequence of entries. Sequence numbers start at 0 with the stream's first unit on this worker and are
/// never reused.
#[derive(Debug)]
pub struct Ring {
    entries: VecDeque<Entry>,
    base: u64,
    bytes: usize,
    /// The newest GOP of each video track that has had a key frame.
    gops: SmallVec<[Gop; 1]>,
    /// DTS of the first and the newest unit since the ring was last emptied by [`Ring::clear`], in milliseconds.
    span_ms: Option<(i64, i64)>,
    /// Arrival time of the newest unit.
    received: Option<Instant>,
    /// For each video track that has had a picture: DTS of the newest one, in milliseconds.
    pictures_ms: SmallVec<[(TrackId, i64); 1]>,
    limits: RingLimits,
}

impl Ring {
    /// Makes an empty ring.
    #[must_use]
    pub fn new(limits: RingLimits) -> Self {
        let (entries, gops, pictures_ms) = (VecDeque::new(), SmallVec::new(), SmallVec::new());
        Self { entries, base: 0, bytes: 0, gops, span_ms: None, received: None, pictures_ms, limits }
    }

    /// Appends an entry, then evicts entries beyond the limits.
    pub fn push(&mut self, entry: Entry) {
        if entry.unit.key_frame {
            self.begin_gop(&entry);
        }
        self.note_time(&entry);
        let tracks = new_bytes(&entry, self.entries.back());
        self.bytes = self.bytes.saturating_add(entry.unit.payload.len()).saturating_add(tracks);
        self.entries.push_back(entry);
        while self.over_limits() {
            self.pop_front();
        }
    }

    fn note_time(&mut self, entry: &Entry) {
        let began_ms = self.span_ms.map_or(entry.dts_ms, |(began_ms, _)| began_ms);
        self.span_ms = Some((began_ms, entry.dts_ms));
        self.received = Some(entry.received);
        if entry.kind == Some(TrackKind::Video) {
            let track = entry.unit.track;
            match self.pictures_ms.iter_mut().find(|(known, _)| *known == track) {
                Some((_, at)) => *at = entry.dts_ms,
                None => self.pictures_ms.push((track, entry.dts_ms)),
            }
        }
    }

    /// Returns the arrival time of the newest unit, even if the unit is no longer retained.
    #[must_use]
    pub const fn received(&self) -> Option<Instant> {
        self.received
    }

    /// True if a video track has had no picture for [`PICTURELESS_MS`] while other tracks continued: the track was
    /// announced but never sent, or the publisher has paused it.
    #[must_use]
    pub fn is_pictureless(&self, track: TrackId) -> bool {
        let Some((began_ms, newest_ms)) = self.span_ms else { return false };
        let picture = self.pictures_ms.iter().find(|(known, _)| *known == track);
        let since_ms = picture.map_or(began_ms, |(_, at)| *at);
        newest_ms.saturating_sub(since_ms) >= PICTURELESS_MS
    }

    fn begin_gop(&mut self, entry: &Entry) {
        let (track, head, key_ms) = (entry.unit.track, self.head(), entry.dts_ms);
        match self.gops.iter_mut().find(|gop| gop.track == track) {
            Some(gop) => {
                let length_ms = key_ms.saturating_sub(gop.key_ms).max(0);
                let previous_ms = if gop.key.is_some() { length_ms } else { gop.previous_ms };
                *gop = Gop { track, key: Some(head), key_ms, previous_ms };
            }
            None => self.gops.push(Gop { track, key: Some(head), key_ms, previous_ms: 0 }),
        }
    }

    /// Drops all entries before the newest key frame of each video track (if `keep_gop` is set) or before the head.
    /// Entries at or after `slowest`, the position of the slowest cursor, are kept in any case.
    pub fn trim(&mut self, keep_gop: bool, slowest: Option<u64>) {
        let start = if keep_gop { self.start().unwrap_or_else(|| self.head()) } else { self.head() };
        let keep_from = slowest.map_or(start, |slowest| slowest.min(start));
        while self.base < keep_from && !self.entries.is_empty() {
            self.pop_front();
        }
    }

    /// Drops the oldest entries until no more than `bytes` bytes, or only one entry, are left.
    pub fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes && self.entries.len() > 1 {
            self.pop_front();
        }
    }

    /// Drops all entries; the numbering continues.
    pub fn clear(&mut self) {
        while !self.entries.is_empty() {
            self.pop_front();
        }
        self.span_ms = None;
        self.pictures_ms.clear();
    }

    /// Bytes per second of media time, measured over the retained entries.
    #[must_use]
    pub fn bytes_per_second(&self) -> usize {
        let (Some(front), Some(back)) = (self.entries.front(), self.entries.back()) else {
            return 0;
        };
        let span_ms = usize::try_from(back.dts_ms.saturating_sub(front.dts_ms)).unwrap_or(0).max(100);
        self.bytes.saturating_mul(1000).checked_div(span_ms).unwrap_or(0)
    }

    /// Returns the entry with this number, if retained.
    #[must_use]
    pub fn get(&self, sequence: u64) -> Option<&Entry> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        self.entries.get(index)
    }

    /// Number of the oldest retained entry.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Number that the next entry will get.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.base.saturating_add(self.entries.len() as u64)
    }

    /// Number of the newest key frame of a video track, if retained.
    #[must_use]
    pub fn newest_key(&self, track: TrackId) -> Option<u64> {
        self.gops.iter().find(|gop| gop.track == track)?.key
    }

    /// Forgets the key frames of all tracks except these, because the other tracks no longer reach this worker.
    pub fn keep_keys(&mut self, tracks: TrackSet) {
        self.gops.iter_mut().filter(|gop| !tracks.contains(gop.track)).for_each(|gop| gop.key = None);
    }

    /// Number of the entry that a viewer can start from to get the newest GOP of every video track that is not silent.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        if let [gop] = self.gops.as_slice() {
            return gop.key;
        }
        let newest_ms = self.gops.iter().map(|gop| gop.key_ms).max()?;
        let is_alive = |gop: &&Gop| {
            let patience_ms = gop.previous_ms.saturating_mul(2).max(TRACK_SILENT_MS);
            newest_ms.saturating_sub(gop.key_ms) <= patience_ms
        };
        self.gops.iter().filter(is_alive).filter_map(|gop| gop.key).min()
    }

    /// DTS of the newest entry in milliseconds.
    #[must_use]
    pub fn head_ms(&self) -> Option<i64> {
        self.entries.back().map(|entry| entry.dts_ms)
    }

    /// DTS of the last retained entry of each track, in milliseconds.
    #[must_use]
    pub fn last_of_tracks(&self) -> Vec<(TrackId, i64)> {
        let mut last: Vec<(TrackId, i64)> = Vec::new();
        for entry in self.entries.iter().rev() {
            if last.iter().all(|(track, _)| *track != entry.unit.track) {
                last.push((entry.unit.track, entry.dts_ms));
            }
        }
        last
    }

    /// Bytes of payload and parameter sets retained.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn over_limits(&self) -> bool {
        let span = match (self.entries.front(), self.entries.back()) {
            (Some(front), Some(back)) => back.dts_ms.saturating_sub(front.dts_ms),
            _ => 0,
        };
        // Until a whole GOP was seen, the length of a GOP is unknown. Only bytes and the number of units then limit the
        // ring.
        let (previous_ms, gop_ms) = self.gop_ms();
        let span_max = self.limits.lag_ms.saturating_add(gop_ms.saturating_mul(2));
        self.entries.len() > 1
            && (self.bytes > self.limits.bytes
                || self.entries.len() > self.limits.units
                || (previous_ms > 0 && span > span_max))
    }

    /// Returns the duration in milliseconds of the longest complete GOP, and that of the longest GOP including those
    /// that are not complete. An encoder with scene-cut detection may send a GOP of many seconds after a short one, and
    /// the key frame of the long GOP must be retained.
    fn gop_ms(&self) -> (i64, i64) {
        let head_ms = self.head_ms().unwrap_or_default();
        self.gops.iter().fold((0, 0), |(previous, longest), gop| {
            let running = gop.key.map_or(0, |_| head_ms.saturating_sub(gop.key_ms));
            (previous.max(gop.previous_ms), longest.max(gop.previous_ms).max(running))
        })
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            let tracks = new_bytes(&entry, self.entries.front());
            self.bytes = self.bytes.saturating_sub(entry.unit.payload.len()).saturating_sub(tracks);
            self.base = self.base.saturating_add(1);
        }
        for gop in &mut self.gops {
            gop.key = gop.key.filter(|key| *key >= self.base);
        }
    }
}

/// Bytes of an entry's tracks, or 0 if the neighbouring entry shares them.
fn new_bytes(entry: &Entry, beside: Option<&Entry>) -> usize {
    let is_shared = beside.is_some_and(|beside| Arc::ptr_eq(&beside.tracks, &entry.tracks));
    if is_shared { 0 } else { entry.tracks.bytes() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use media::codec::vp8;
    use media::{CodecConfig, Timescale, Track, TrackKind};

    pub(in crate::hub) fn entry(dts_ms: i64, key_frame: bool, bytes: usize) -> Entry {
        let unit = AccessUnit {
            track: TrackId::VIDEO,
            dts: dts_ms,
            pts: dts_ms,
            key_frame,
            config_epoch: 1,
            payload: Bytes::from(vec![0; bytes]),
        };
        Entry::new(Instant::now(), 0, unit, vp8_tracks(1))
    }

    /// Makes `count` VP8 tracks.
    pub(in crate::hub) fn vp8_tracks(count: u8) -> Arc<Tracks> {
        let track = |n| {
            let id = TrackId::nth(TrackKind::Video, n).unwrap();
            let config = CodecConfig::Vp8(vp8::Config::default());
            Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
        };
        Arc::new(Tracks::new(1, (0..count).map(track)))
    }

    #[test]
    fn without_laggards_one_gop_is_held() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..100 {
            ring.push(entry(n * 33, n % 30 == 0, 10));
            ring.trim(true, Some(ring.head()));
        }
        assert_eq!(
            (ring.base(), ring.head(), ring.newest_key(TrackId::VIDEO), ring.bytes()),
            (90, 100, Some(90), 100)
        );
        ring.trim(false, Some(95));
        assert_eq!(ring.base(), 95);
        ring.trim(false, None);
        assert_eq!((ring.base(), ring.bytes(), ring.newest_key(TrackId::VIDEO)), (100, 0, None));
    }

    #[test]
    fn m_21_no_key_frame_for_ten_minutes_stays_under_the_caps() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..18_000 {
            ring.push(entry(n * 33, n == 0, 83_000));
            ring.trim(true, Some(0));
            assert!(ring.bytes() <= BYTES_MAX && ring.entries.len() <= UNITS_MAX);
        }
        assert_eq!(ring.newest_key(TrackId::VIDEO), None);
        assert!((16_600_000..=16_777_216).contains(&ring.bytes()), "16 MiB are used: {}", ring.bytes());
    }

    #[test]
    fn m_21_a_hundred_thousand_tiny_frames_a_second_stay_under_the_caps() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..100_000 {
            ring.push(entry(n / 100, n == 0, 1));
        }
        assert_eq!(ring.entries.len(), UNITS_MAX);
    }

    #[test]
    fn m_21_parameter_sets_that_change_with_every_frame_stay_under_the_caps() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..3000 {
            let metadata = Some(Bytes::from(vec![0; 60_000]));
            let mut tracks = Tracks::default();
            tracks.metadata = metadata;
            let tracks = Arc::new(tracks);
            // The second unit of an epoch shares the tracks of the first.
            for _ in 0..2 {
                ring.push(Entry { tracks: Arc::clone(&tracks), ..entry(n, n == 0, 10) });
            }
        }
        let held: usize =
            ring.entries.iter().filter_map(|entry| entry.tracks.metadata.as_ref()).map(Bytes::len).sum();
        assert!(held / 2 <= BYTES_MAX && held / 2 > BYTES_MAX * 9 / 10, "{held}");
        assert!(ring.bytes() <= BYTES_MAX);
        while ring.base() < ring.head() {
            ring.trim(false, Some(ring.base() + 1));
        }
        assert_eq!(ring.bytes(), 0);
    }

    #[test]
    fn time_bounds_the_ring_once_a_gop_is_known() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..1000 {
            ring.push(entry(n * 100, n % 10 == 0, 1));
            ring.trim(true, Some(0));
        }
        let span = ring.head_ms().unwrap() - ring.get(ring.base()).unwrap().dts_ms;
        assert_eq!(span, 7000, "5 s of lag and two GOPs of 1 s");
    }

    #[test]
    fn a_long_gop_behind_a_short_one_keeps_its_key_frame() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..300 {
            ring.push(entry(n * 33, n == 0 || n == 24, 100));
            ring.trim(true, Some(0));
        }
        assert_eq!(ring.newest_key(TrackId::VIDEO), Some(24));
    }

    #[test]
    fn each_video_track_has_its_own_key_frames_and_the_older_gop_stays() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let second = TrackId::nth(TrackKind::Video, 1).unwrap();
        for n in 0..100 {
            ring.push(entry(n * 33, n % 30 == 0, 10));
            let mut other = entry(n * 33, n % 30 == 20, 10);
            other.unit.track = second;
            ring.push(other);
            ring.trim(true, None);
        }
        assert_eq!((ring.newest_key(TrackId::VIDEO), ring.newest_key(second)), (Some(180), Some(161)));
        assert_eq!((ring.base(), ring.start()), (161, Some(161)));
        // A track that has ended retains no entries.
        for n in 100..500 {
            ring.push(entry(n * 33, n % 30 == 0, 10));
            ring.trim(true, None);
        }
        assert_eq!(ring.start(), ring.newest_key(TrackId::VIDEO));
        assert_eq!(Some(ring.base()), ring.start());
    }

    #[test]
    fn one_entry_larger_than_the_cap_is_still_delivered() {
        let mut ring = Ring::new(RingLimits { bytes: 10, units: 4, lag_ms: 1000 });
        ring.push(entry(0, true, 100));
        assert!(ring.get(0).is_some());
        ring.push(entry(1, false, 1));
        assert!(ring.get(0).is_none() && ring.get(1).is_some());
    }

    #[test]
    fn a_ring_holds_as_much_as_its_limits_say() {
        let held = |limits: RingLimits, key_every: i64| {
            let mut ring = Ring::new(limits);
            for n in 0..10 {
                let is_key = n % key_every == key_every - 1;
                ring.push(Entry { tracks: Arc::default(), ..entry(n * 10, is_key, 10) });
            }
            assert_eq!(ring.bytes(), ring.entries.len() * 10);
            ring.entries.len()
        };
        let wide = RingLimits { bytes: 1000, units: 1000, lag_ms: 1_000_000 };
        assert_eq!(held(wide, 2), 10);
        assert_eq!(held(RingLimits { bytes: 30, ..wide }, 2), 3);
        assert_eq!(held(RingLimits { units: 3, ..wide }, 2), 3);
        // With GOPs of 20 ms, the lag and two GOPs are retained.
        assert_eq!(held(RingLimits { lag_ms: 10, ..wide }, 2), 6);
        // Without key frames the length of a GOP is unknown, and time does not limit the ring.
        assert_eq!(held(RingLimits { lag_ms: 10, ..wide }, 100), 10);
    }
}
