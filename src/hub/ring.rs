//! The ring: access units in the order they came, numbered for ever, bounded three ways.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use media::{AccessUnit, Tracks};

/// Bytes a ring may retain: payload, and the parameter sets that its units point at.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Units a ring may retain.
const UNITS_MAX: usize = 4000;

/// A unit with the tracks of its config epoch.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The unit.
    pub unit: AccessUnit,
    /// The tracks that decode it.
    pub tracks: Arc<Tracks>,
    /// Its DTS in milliseconds, for lag and limits.
    pub dts_ms: i64,
    /// When its last byte came to this server, on whichever worker.
    pub received: Instant,
}

impl Entry {
    /// With its DTS in milliseconds.
    #[must_use]
    pub fn new(received: Instant, unit: AccessUnit, tracks: Arc<Tracks>) -> Self {
        let dts_ms = dts_ms(&unit, &tracks);
        Self { unit, tracks, dts_ms, received }
    }
}

/// Converts a unit's DTS by its track's timescale (data units count milliseconds).
#[must_use]
pub fn dts_ms(unit: &AccessUnit, tracks: &Tracks) -> i64 {
    tracks.get(unit.track).map_or(unit.dts, |track| track.timescale.to_ms(unit.dts))
}

/// What bounds a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingLimits {
    /// Bytes of payload and parameter sets.
    pub bytes: usize,
    /// Units.
    pub units: usize,
    /// Media time that a viewer may lag, in milliseconds; two GOPs are kept on top.
    pub lag_ms: i64,
}

impl RingLimits {
    /// The standard caps with an application's `maxLatencyMs`.
    #[must_use]
    pub const fn with_lag_ms(lag_ms: i64) -> Self {
        Self { bytes: BYTES_MAX, units: UNITS_MAX, lag_ms }
    }
}

/// A bounded sequence of entries. Sequence numbers start at 0 with the stream's first unit on this worker and are
/// never reused.
#[derive(Debug)]
pub struct Ring {
    entries: VecDeque<Entry>,
    base: u64,
    bytes: usize,
    newest_key: Option<u64>,
    newest_key_ms: i64,
    gop_ms: i64,
    limits: RingLimits,
}

impl Ring {
    /// Empty.
    #[must_use]
    pub fn new(limits: RingLimits) -> Self {
        Self {
            entries: VecDeque::new(),
            base: 0,
            bytes: 0,
            newest_key: None,
            newest_key_ms: 0,
            gop_ms: 0,
            limits,
        }
    }

    /// Appends, then evicts what a cap no longer allows.
    pub fn push(&mut self, entry: Entry) {
        if entry.unit.key_frame {
            if self.newest_key.is_some() {
                self.gop_ms = entry.dts_ms.saturating_sub(self.newest_key_ms).max(0);
            }
            self.newest_key = Some(self.head());
            self.newest_key_ms = entry.dts_ms;
        }
        let tracks = new_bytes(&entry, self.entries.back());
        self.bytes = self.bytes.saturating_add(entry.unit.payload.len()).saturating_add(tracks);
        self.entries.push_back(entry);
        while self.over_limits() {
            self.pop_front();
        }
    }

    /// Drops everything before the newest key frame (`keep_gop`) or before the head, but nothing at or behind
    /// `slowest`, the slowest cursor.
    pub fn trim(&mut self, keep_gop: bool, slowest: Option<u64>) {
        let start = if keep_gop { self.newest_key.unwrap_or_else(|| self.head()) } else { self.head() };
        let keep_from = slowest.map_or(start, |slowest| slowest.min(start));
        while self.base < keep_from && !self.entries.is_empty() {
            self.pop_front();
        }
    }

    /// Forgets all entries; the numbers go on.
    pub fn clear(&mut self) {
        while !self.entries.is_empty() {
            self.pop_front();
        }
    }

    /// Bytes per second of media time, out of what is retained.
    #[must_use]
    pub fn bytes_per_second(&self) -> usize {
        let (Some(front), Some(back)) = (self.entries.front(), self.entries.back()) else {
            return 0;
        };
        let span_ms = usize::try_from(back.dts_ms.saturating_sub(front.dts_ms)).unwrap_or(0).max(100);
        self.bytes.saturating_mul(1000).checked_div(span_ms).unwrap_or(0)
    }

    /// The entry with this number, while it is retained.
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

    /// Number of the newest key frame, while it is retained.
    #[must_use]
    pub const fn newest_key(&self) -> Option<u64> {
        self.newest_key
    }

    /// DTS of the newest entry in milliseconds.
    #[must_use]
    pub fn head_ms(&self) -> Option<i64> {
        self.entries.back().map(|entry| entry.dts_ms)
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
        // Until one GOP was seen whole its length is unknown, and only bytes and units bound the ring.
        let gop_ms = self.gop_ms.max(self.running_gop_ms());
        let span_max = self.limits.lag_ms.saturating_add(gop_ms.saturating_mul(2));
        self.entries.len() > 1
            && (self.bytes > self.limits.bytes
                || self.entries.len() > self.limits.units
                || (self.gop_ms > 0 && span > span_max))
    }

    /// Length of the GOP that is not over: an encoder that cuts by scene may follow a short one with one of many
    /// seconds, whose key frame must stay.
    fn running_gop_ms(&self) -> i64 {
        let head_ms = self.newest_key.and_then(|_| self.head_ms());
        head_ms.map_or(0, |head_ms| head_ms.saturating_sub(self.newest_key_ms))
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            let tracks = new_bytes(&entry, self.entries.front());
            self.bytes = self.bytes.saturating_sub(entry.unit.payload.len()).saturating_sub(tracks);
            self.base = self.base.saturating_add(1);
        }
        if self.newest_key.is_some_and(|key| key < self.base) {
            self.newest_key = None;
        }
    }
}

/// Bytes of an entry's tracks, unless the one beside it holds the same.
fn new_bytes(entry: &Entry, beside: Option<&Entry>) -> usize {
    let is_shared = beside.is_some_and(|beside| Arc::ptr_eq(&beside.tracks, &entry.tracks));
    if is_shared { 0 } else { entry.tracks.bytes() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use media::TrackId;

    pub(in crate::hub) fn entry(dts_ms: i64, key_frame: bool, bytes: usize) -> Entry {
        let unit = AccessUnit {
            track: TrackId::VIDEO,
            dts: dts_ms,
            pts: dts_ms,
            key_frame,
            config_epoch: 1,
            payload: Bytes::from(vec![0; bytes]),
        };
        Entry::new(Instant::now(), unit, Arc::new(Tracks { epoch: 1, ..Tracks::default() }))
    }

    #[test]
    fn without_laggards_one_gop_is_held() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..100 {
            ring.push(entry(n * 33, n % 30 == 0, 10));
            ring.trim(true, Some(ring.head()));
        }
        assert_eq!((ring.base(), ring.head(), ring.newest_key(), ring.bytes()), (90, 100, Some(90), 100));
        ring.trim(false, Some(95));
        assert_eq!(ring.base(), 95);
        ring.trim(false, None);
        assert_eq!((ring.base(), ring.bytes(), ring.newest_key()), (100, 0, None));
    }

    #[test]
    fn m_21_no_key_frame_for_ten_minutes_stays_under_the_caps() {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        for n in 0..18_000 {
            ring.push(entry(n * 33, n == 0, 83_000));
            ring.trim(true, Some(0));
            assert!(ring.bytes() <= BYTES_MAX && ring.entries.len() <= UNITS_MAX);
        }
        assert_eq!(ring.newest_key(), None);
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
            let tracks = Arc::new(Tracks { metadata, ..Tracks::default() });
            // The second unit of an epoch holds nothing more of it.
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
        assert_eq!(ring.newest_key(), Some(24));
    }

    #[test]
    fn one_entry_larger_than_the_cap_is_still_delivered() {
        let mut ring = Ring::new(RingLimits { bytes: 10, units: 4, lag_ms: 1000 });
        ring.push(entry(0, true, 100));
        assert!(ring.get(0).is_some());
        ring.push(entry(1, false, 1));
        assert!(ring.get(0).is_none() && ring.get(1).is_some());
    }
}
