//! Dates of media: `EXT-X-PROGRAM-DATE-TIME`, and the time in a DASH manifest.
//!
//! A presentation is dated by a single reading of the wall clock; from there, dates advance with media time.
//! Therefore dates are as regular as durations, and setting the wall clock does not change them. Two errors are
//! only discovered later. To correct them, dates jump at the beginning of a segment, which then has a
//! discontinuity:
//!
//! - the media falls behind its arrival, because its publisher paused without advancing its timestamps;
//! - the wall clock was set, and stays set. Manifests ignore this, because only the player uses their time.
//!
//! The owner records the arrival of each unit ([`Dates::note`]), asks at the beginning of a segment whether
//! dates jump there ([`Dates::is_due`], [`Dates::jump`]), and reports when the first playlist is shown
//! ([`Dates::settle`]).

use std::time::{Duration, Instant};

/// Error of dates that is tolerated, in milliseconds.
const OFF_MS: i64 = 5000;
/// Tolerated error of dates after the publisher has changed, in milliseconds. It is smaller, because that
/// change is a discontinuity anyway.
const RESUMED_OFF_MS: i64 = 1000;
/// Dates are corrected when this many consecutive windows show an error and agree on it.
const WINDOWS: usize = 3;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Windows agree if their errors differ by less than this, in milliseconds.
const AGREE_MS: i64 = 2000;

/// Difference between dates and DTS, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Offset {
    /// Difference between the calendar date, which ignores later changes of the wall clock, and the DTS.
    media_ms: i64,
    /// Difference between the date shown in playlists and the calendar date.
    wall_ms: i64,
}

/// Errors of the dates, measured when units arrive.
#[derive(Debug, Clone, Copy)]
struct Errors {
    /// Smallest delay of a unit compared with its date, in milliseconds.
    late_ms: i64,
    /// Difference between the wall clock and the dates at the beginning of the window.
    set_ms: i64,
}

/// Arrival of a unit.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Time of the arrival.
    pub at: Instant,
    /// Time of the arrival by the wall clock, in milliseconds of Unix time.
    pub wall_ms: u64,
    /// DTS in milliseconds.
    pub dts_ms: i64,
}

/// The dates of a stream's media.
#[derive(Debug)]
pub struct Dates {
    /// The reading of the wall clock from which dates advance.
    reading: Option<(Instant, u64)>,
    /// The epoch of the last unit's tracks.
    epoch: u32,
    /// The offset `now` applies from this DTS on, and `before` to smaller ones.
    from_ms: i64,
    before: Offset,
    now: Offset,
    /// The corrected offset, which applies when the next segment begins.
    next: Option<Offset>,
    /// The offset that applied when the first playlist was shown.
    shown: Option<Offset>,
    /// End of the current window, and the errors in it.
    open: Option<(Instant, Errors)>,
    /// Errors of the last windows.
    windows: [Option<Errors>; WINDOWS],
}

impl Default for Dates {
    fn default() -> Self {
        Self {
            reading: None,
            epoch: 0,
            from_ms: i64::MIN,
            before: Offset::default(),
            now: Offset::default(),
            next: None,
            shown: None,
            open: None,
            windows: [None; WINDOWS],
        }
    }
}

impl Dates {
    /// Creates dates without a reading of the wall clock; the first unit supplies the reading.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the arrival of a unit; `epoch` is that of its tracks. Returns the milliseconds to
    /// add to all dates so far: if a unit arrives before its date, as in a burst, all dates are too
    /// late. The result is zero once a playlist has been shown.
    pub fn note(&mut self, unit: Arrival, epoch: u32) -> i64 {
        let Some(date_ms) = self.today_ms(unit.at) else {
            self.reading = Some((unit.at, unit.wall_ms));
            self.now.media_ms = ms(unit.wall_ms).saturating_sub(unit.dts_ms);
            self.epoch = epoch;
            return 0;
        };
        let found_ms = date_ms.saturating_sub(unit.dts_ms);
        let late_ms = found_ms.saturating_sub(self.now.media_ms);
        let is_new = std::mem::replace(&mut self.epoch, epoch) != epoch;
        if self.shown.is_none() && late_ms < 0 {
            self.now.media_ms = found_ms;
            return late_ms;
        }
        if is_new && late_ms >= RESUMED_OFF_MS {
            self.next = Some(Offset { media_ms: found_ms, ..self.now });
            self.jump(unit.dts_ms);
            return 0;
        }
        let set_ms = ms(unit.wall_ms).saturating_sub(date_ms).saturating_sub(self.now.wall_ms);
        self.measure(unit.at, Errors { late_ms, set_ms });
        0
    }

    fn measure(&mut self, at: Instant, errors: Errors) {
        match &mut self.open {
            Some((end, window)) if at < *end => {
                window.late_ms = window.late_ms.min(errors.late_ms);
                return;
            }
            Some((_, window)) => {
                let [_, second, third] = self.windows;
                self.windows = [second, third, Some(*window)];
                self.next = self.verdict();
            }
            None => {}
        }
        self.open = at.checked_add(WINDOW).map(|end| (end, errors));
    }

    /// Returns the corrected offset if the last windows agree on an error.
    fn verdict(&self) -> Option<Offset> {
        let [Some(a), Some(b), Some(c)] = self.windows else { return None };
        let agreed = |values: [i64; WINDOWS]| {
            let (least, most) = (values.iter().copied().min()?, values.iter().copied().max()?);
            (most.saturating_sub(least) < AGREE_MS).then_some(least)
        };
        let late_ms = agreed([a, b, c].map(|one| one.late_ms)).filter(|late| *late >= OFF_MS);
        let set_ms = agreed([a, b, c].map(|one| one.set_ms)).filter(|set| set.abs() >= OFF_MS);
        (late_ms.is_some() || set_ms.is_some()).then(|| Offset {
            media_ms: self.now.media_ms.saturating_add(late_ms.unwrap_or(0)),
            wall_ms: self.now.wall_ms.saturating_add(set_ms.unwrap_or(0)),
        })
    }

    /// True if dates will jump at the beginning of the next segment.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.next.is_some()
    }

    /// Applies the pending jump to a segment that begins at this DTS.
    pub fn jump(&mut self, at_ms: i64) {
        let Some(next) = self.next.take() else { return };
        (self.before, self.now, self.from_ms) = (self.now, next, at_ms);
        (self.open, self.windows) = (None, [None; WINDOWS]);
    }

    const fn offset(&self, dts_ms: i64) -> Offset {
        if dts_ms < self.from_ms { self.before } else { self.now }
    }

    /// Returns the date of the media at this DTS, in milliseconds of Unix time.
    #[must_use]
    pub const fn date_ms(&self, dts_ms: i64) -> i64 {
        let Offset { media_ms, wall_ms } = self.offset(dts_ms);
        dts_ms.saturating_add(media_ms).saturating_add(wall_ms)
    }

    /// Returns the calendar date, in milliseconds of Unix time; it ignores changes of the wall clock.
    #[must_use]
    pub const fn calendar_ms(&self, dts_ms: i64) -> i64 {
        dts_ms.saturating_add(self.offset(dts_ms).media_ms)
    }

    /// Records that a playlist has been shown. From now on, the dates of media already received do
    /// not change.
    pub fn settle(&mut self) {
        self.shown.get_or_insert(self.now);
    }

    // ---- manifests

    /// Returns the reading of the wall clock, in milliseconds of Unix time, from which the dates of manifests
    /// advance without jumps. `None` before the first unit.
    #[must_use]
    pub const fn reading(&self) -> Option<(Instant, u64)> {
        self.reading
    }

    /// Returns the date of an instant in milliseconds of Unix time, counted from the reading of the wall clock.
    #[must_use]
    pub fn today_ms(&self, at: Instant) -> Option<i64> {
        let (read_at, wall_ms) = self.reading?;
        let since = |from: Instant, to: Instant| {
            i64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(i64::MAX)
        };
        Some(ms(wall_ms).saturating_add(since(read_at, at)).saturating_sub(since(at, read_at)))
    }

    /// Returns the calendar date of DTS zero when the first playlist was shown.
    #[must_use]
    pub fn zero_ms(&self) -> Option<i64> {
        self.shown.map(|shown| shown.media_ms)
    }

    /// Returns by how many milliseconds the media at this DTS is later than [`Self::zero_ms`] implies.
    #[must_use]
    pub fn delay_ms(&self, dts_ms: i64) -> u64 {
        let delay = self.zero_ms().map_or(0, |zero| self.offset(dts_ms).media_ms.saturating_sub(zero));
        u64::try_from(delay).unwrap_or(0)
    }
}

fn ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN_MS: i64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    /// Units of a stream with their arrivals, and changes of the wall clock.
    struct Rig {
        dates: Dates,
        began: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { dates: Dates::new(), began: netsim::Clock::new().now() }
        }

        fn unit(&mut self, dts_ms: i64, arrival_ms: i64, set_ms: i64, epoch: u32) -> i64 {
            let at = self.began + Duration::from_millis(arrival_ms.unsigned_abs());
            let wall_ms = (BEGAN_MS + arrival_ms + set_ms).unsigned_abs();
            self.dates.note(Arrival { at, wall_ms, dts_ms }, epoch)
        }

        /// Feeds two hundred seconds from `from_ms` on, with segments of two seconds. Returns the jumps: the
        /// DTS and size of each.
        fn run(
            &mut self,
            from_ms: i64,
            arrival: impl Fn(i64) -> i64,
            set: impl Fn(i64) -> i64,
        ) -> Vec<(i64, i64)> {
            let mut jumps = Vec::new();
            for dts_ms in (from_ms..from_ms + 200_000).step_by(40) {
                let at = arrival(dts_ms);
                assert_eq!(self.unit(dts_ms, at, set(at), 1), 0, "nothing that was shown is changed");
                if self.dates.is_due() && dts_ms % 2000 == 0 {
                    let before = self.dates.date_ms(dts_ms);
                    self.dates.jump(dts_ms);
                    assert_eq!(self.dates.date_ms(dts_ms - 1), before - 1, "what came before stays");
                    jumps.push((dts_ms, self.dates.date_ms(dts_ms) - before));
                }
            }
            jumps
        }
    }

    /// True if there is exactly one jump, of `by_ms` and within 45 s after `at_ms`.
    fn is_one(jumps: &[(i64, i64)], at_ms: i64, by_ms: i64) -> bool {
        matches!(jumps, [(at, by)] if (at_ms + 20_000..at_ms + 45_000).contains(at) && *by == by_ms)
    }

    #[test]
    fn dates_jump_once_when_the_wall_clock_stays_set_and_not_before() {
        type Set = fn(i64) -> i64;
        let cases: [(&str, Set, i64); 7] = [
            ("steady", |_| 0, 0),
            ("an hour on", |at| if at < 50_000 { 0 } else { HOUR_MS }, HOUR_MS),
            ("an hour back", |at| if at < 50_000 { 0 } else { -HOUR_MS }, -HOUR_MS),
            ("a little on", |at| if at < 50_000 { 0 } else { 1500 }, 0),
            ("a little back", |at| if at < 50_000 { 0 } else { -1500 }, 0),
            ("on, and back again", |at| if (50_000..68_000).contains(&at) { HOUR_MS } else { 0 }, 0),
            ("again and again", |at| if at / 15_000 % 2 == 1 { HOUR_MS } else { 0 }, 0),
        ];
        for (name, set, by) in cases {
            let mut rig = Rig::new();
            rig.unit(0, 0, 0, 1);
            rig.dates.settle();
            let jumps = rig.run(0, |dts| dts, set);
            let is_right = if by == 0 { jumps.is_empty() } else { is_one(&jumps, 50_000, by) };
            assert!(is_right, "{name}: {jumps:?}");
            assert_eq!((rig.dates.zero_ms(), rig.dates.delay_ms(190_000)), (Some(BEGAN_MS), 0), "{name}");
        }
    }

    #[test]
    fn media_that_stays_late_makes_dates_jump_and_other_media_none() {
        type Arrival = fn(i64) -> i64;
        let cases: [(&str, Arrival, i64); 6] = [
            (
                "a pause without a gap in the timestamps",
                |dts| if dts < 50_000 { dts } else { dts + 30_000 },
                30_000,
            ),
            (
                "a stall, and the burst behind it",
                |dts| if (50_000..70_000).contains(&dts) { 70_000 } else { dts },
                0,
            ),
            ("six seconds at a time", |dts| (dts + 5999) / 6000 * 6000, 0),
            ("twice as fast", |dts| dts / 2, 0),
            ("slower than time", |dts| dts + dts / 2, 0),
            ("a little late", |dts| if dts < 50_000 { dts } else { dts + 4000 }, 0),
        ];
        for (name, arrival, by) in cases {
            let mut rig = Rig::new();
            rig.unit(0, 0, 0, 1);
            rig.dates.settle();
            let jumps = rig.run(0, arrival, |_| 0);
            let is_right = if by == 0 { jumps.is_empty() } else { is_one(&jumps, 50_000, by) };
            assert!(is_right, "{name}: {jumps:?}");
            assert_eq!(rig.dates.delay_ms(199_000), by.unsigned_abs(), "{name}");
            assert_eq!(rig.dates.delay_ms(40_000), 0, "{name}");
        }
    }

    #[test]
    fn a_track_that_is_late_beside_others_makes_no_jump() {
        let mut rig = Rig::new();
        rig.unit(0, 0, 0, 1);
        rig.dates.settle();
        for ms in (6000..100_000).step_by(40) {
            rig.unit(ms, ms, 0, 1);
            rig.unit(ms - 6000, ms, 0, 1);
            assert!(!rig.dates.is_due(), "behind {ms} ms");
        }
    }

    #[test]
    fn a_burst_corrects_dates_while_none_was_shown() {
        let mut rig = Rig::new();
        assert_eq!(rig.unit(0, 0, 0, 1), 0);
        assert_eq!((1..=8).map(|n| rig.unit(n * 1000, n, 0, 1)).sum::<i64>(), -7992);
        assert_eq!(rig.dates.date_ms(8000), BEGAN_MS + 8);
        assert_eq!(rig.dates.zero_ms(), None);
        rig.dates.settle();
        assert_eq!(rig.unit(16_000, 8000, 0, 1), 0, "shown is shown");
        assert_eq!((rig.dates.date_ms(8000), rig.dates.zero_ms()), (BEGAN_MS + 8, Some(BEGAN_MS - 7992)));
    }

    #[test]
    fn a_publisher_that_returns_is_dated_by_its_arrival_and_never_back() {
        for (away_ms, by) in [(0, 0), (900, 0), (8000, 8000), (-3000, 0)] {
            let mut rig = Rig::new();
            rig.unit(0, 0, 0, 1);
            rig.dates.settle();
            rig.unit(10_000, 10_000, 0, 1);
            rig.unit(10_040, 10_040 + away_ms, 0, 2);
            assert_eq!(rig.dates.date_ms(10_040), BEGAN_MS + 10_040 + by, "away for {away_ms}");
            assert_eq!(rig.dates.date_ms(10_000), BEGAN_MS + 10_000);
        }
    }
}
