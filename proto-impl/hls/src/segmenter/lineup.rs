//! Aligns tracks that arrive at different times: a publisher's audio may be seconds ahead of its video, or
//! behind it.
//!
//! A segment is complete only if all tracks have reached its end, so units of tracks that are ahead wait for
//! the track that lags most. The lag of a track is the smallest distance to the leading track during the last
//! seconds; therefore neither bursts nor rare pictures increase it. Tracks that differ by less than
//! [`APART_MS`] are passed on as they arrive.

use std::collections::BTreeMap;

use media::TrackId;

/// Largest lag that needs no alignment.
const APART_MS: i64 = 250;
/// A track that lags by more than this is not waited for.
const LAG_MS_MAX: i64 = 5000;
/// Time over which the lag of a track is measured for the first time, in milliseconds of its DTS.
const FIRST_WINDOW_MS: i64 = 1000;
/// Time over which the lag of a track is measured later, in milliseconds of its DTS.
const WINDOW_MS: i64 = 3000;
/// Maximum number of waiting units, and of their bytes. Beyond either, the oldest unit is passed on.
const UNITS_MAX: usize = 2000;
const BYTES_MAX: usize = 16 << 20;

/// State of a track.
#[derive(Debug)]
struct Lane {
    track: TrackId,
    /// DTS of the track's newest unit, in milliseconds.
    newest_ms: i64,
    /// Smallest lag in the last window.
    lag_ms: i64,
    /// End of the current window, and the smallest lag in it so far.
    window: (i64, i64),
}

impl Lane {
    /// Records a unit that is `behind_ms` behind the track that is furthest ahead.
    fn note(&mut self, dts_ms: i64, behind_ms: i64) {
        let behind_ms = if behind_ms > LAG_MS_MAX { 0 } else { behind_ms };
        self.newest_ms = dts_ms;
        self.lag_ms = self.lag_ms.min(behind_ms);
        let (end_ms, least_ms) = &mut self.window;
        *least_ms = behind_ms.min(*least_ms);
        if dts_ms >= *end_ms {
            self.lag_ms = *least_ms;
            self.window = (dts_ms.saturating_add(WINDOW_MS), behind_ms);
        }
    }
}

/// Aligns the tracks of a stream. `U` is the owner's type for a unit.
#[derive(Debug)]
pub struct Lineup<U> {
    lanes: Vec<Lane>,
    /// Waiting units with their sizes, ordered by DTS and arrival.
    waiting: BTreeMap<(i64, u64), (usize, U)>,
    bytes: usize,
    /// Number of units that have waited so far; orders units with the same DTS.
    count: u64,
}

impl<U> Default for Lineup<U> {
    fn default() -> Self {
        Self { lanes: Vec::new(), waiting: BTreeMap::new(), bytes: 0, count: 0 }
    }
}

impl<U> Lineup<U> {
    /// Forgets the lags of the old tracks. Waiting units stay; take them before calling this.
    pub fn change_tracks(&mut self) {
        self.lanes.clear();
    }

    /// Records a unit of `bytes` bytes. Returns true if the unit does not have to wait; otherwise
    /// `unit` is kept until [`Self::pop`] returns it.
    pub fn passes(&mut self, track: TrackId, dts_ms: i64, bytes: usize, unit: impl FnOnce() -> U) -> bool {
        self.note(track, dts_ms);
        if self.waiting.is_empty() && self.lag_ms() <= APART_MS {
            return true;
        }
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.waiting.insert((dts_ms, self.count), (bytes, unit()));
        false
    }

    /// Returns the next unit whose DTS all tracks have reached.
    pub fn pop(&mut self) -> Option<U> {
        let ahead_ms = self.lanes.iter().map(|lane| lane.newest_ms.saturating_add(lane.lag_ms)).max()?;
        let (first_ms, _) = *self.waiting.first_key_value()?.0;
        let is_full = self.waiting.len() > UNITS_MAX || self.bytes > BYTES_MAX;
        let is_due = is_full || first_ms <= ahead_ms.saturating_sub(self.lag_ms());
        is_due.then(|| self.pop_rest())?
    }

    /// Returns the next unit, even if not all tracks have reached it.
    pub fn pop_rest(&mut self) -> Option<U> {
        let (_, (bytes, unit)) = self.waiting.pop_first()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(unit)
    }

    fn lag_ms(&self) -> i64 {
        self.lanes.iter().map(|lane| lane.lag_ms).max().unwrap_or(0)
    }

    fn note(&mut self, track: TrackId, dts_ms: i64) {
        let ahead_ms = self.lanes.iter().map(|lane| lane.newest_ms).max().unwrap_or(dts_ms);
        let behind_ms = ahead_ms.saturating_sub(dts_ms).max(0);
        match self.lanes.iter_mut().find(|lane| lane.track == track) {
            Some(lane) => lane.note(dts_ms, behind_ms),
            None => {
                // Until now there was only one track, so no lag could be measured.
                for lane in &mut self.lanes {
                    lane.window = (lane.newest_ms.saturating_add(FIRST_WINDOW_MS), LAG_MS_MAX);
                }
                let window = (dts_ms.saturating_add(FIRST_WINDOW_MS), behind_ms);
                self.lanes.push(Lane { track, newest_ms: dts_ms, lag_ms: 0, window });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lineup of video and audio, with all its output.
    #[derive(Default)]
    struct Rig {
        lineup: Lineup<(TrackId, i64)>,
        out: Vec<(TrackId, i64)>,
        waited: usize,
    }

    impl Rig {
        fn new() -> Self {
            Self::default()
        }

        fn unit(&mut self, track: TrackId, dts: i64, bytes: usize) {
            if self.lineup.passes(track, dts, bytes, || (track, dts)) {
                self.out.push((track, dts));
            }
            self.out.extend(std::iter::from_fn(|| self.lineup.pop()));
            self.waited = self.waited.max(self.lineup.waiting.len());
        }

        fn finish(&mut self) {
            self.out.extend(std::iter::from_fn(|| self.lineup.pop_rest()));
            assert_eq!(self.lineup.bytes, 0);
        }

        /// The DTS of a track's units, in output order.
        fn of(&self, track: TrackId) -> Vec<i64> {
            self.out.iter().filter(|(of, _)| *of == track).map(|(_, dts)| *dts).collect()
        }

        /// The largest amount by which a DTS is smaller than an earlier one in the output, from `from_ms` on.
        fn apart_ms(&self, from_ms: i64) -> i64 {
            let late = self.out.iter().filter(|(_, dts)| *dts >= from_ms);
            late.fold((i64::MIN, 0), |(most, apart), (_, dts)| {
                (most.max(*dts), apart.max(most.max(*dts) - dts))
            })
            .1
        }
    }

    #[test]
    fn tracks_that_are_apart_come_out_beside_each_other() {
        for apart_ms in [-4000, -2500, -1000, -300, 300, 1000, 2500, 4000] {
            let mut rig = Rig::new();
            for ms in 0..20_000 {
                if ms % 40 == 0 {
                    rig.unit(TrackId::VIDEO, ms, 10);
                }
                if ms % 21 == 0 {
                    rig.unit(TrackId::AUDIO, ms + apart_ms, 10);
                }
            }
            rig.finish();
            assert_eq!(rig.of(TrackId::VIDEO), (0..20_000).step_by(40).collect::<Vec<_>>());
            assert_eq!(rig.of(TrackId::AUDIO), (apart_ms..20_000 + apart_ms).step_by(21).collect::<Vec<_>>());
            assert!(rig.apart_ms(5500) <= 100, "{apart_ms}: {}", rig.apart_ms(5500));
        }
    }

    #[test]
    fn tracks_that_are_not_apart_are_left_as_they_come() {
        type Comes = fn(i64) -> (bool, bool);
        let cases: [(&str, Comes); 4] = [
            ("steady", |ms| (ms % 40 == 0, ms % 21 == 0)),
            ("a picture in five seconds", |ms| (ms % 5000 == 0, ms % 21 == 0)),
            ("no more pictures", |ms| (ms < 4000 && ms % 40 == 0, ms % 21 == 0)),
            ("sound now and then", |ms| (ms % 40 == 0, ms % 1700 < 400 && ms % 20 == 0)),
        ];
        for (name, comes) in cases {
            let mut rig = Rig::new();
            for ms in 0..30_000 {
                let (video, audio) = comes(ms);
                [(TrackId::VIDEO, video), (TrackId::AUDIO, audio)]
                    .into_iter()
                    .filter(|(_, comes)| *comes)
                    .for_each(|(track, _)| rig.unit(track, ms, 10));
            }
            assert_eq!(rig.waited, 0, "{name}");
        }
        // Audio in bursts of a second.
        let mut rig = Rig::new();
        for ms in (0..30_000).step_by(40) {
            rig.unit(TrackId::VIDEO, ms, 10);
            if ms % 1000 == 960 {
                (ms - 960..ms + 40).step_by(20).for_each(|ms| rig.unit(TrackId::AUDIO, ms, 10));
            }
        }
        assert_eq!(rig.waited, 0, "bursts");
    }

    #[test]
    fn a_track_that_stops_does_not_hold_the_other_up_and_what_waits_has_a_bound() {
        for (stops, goes_on) in [(TrackId::VIDEO, TrackId::AUDIO), (TrackId::AUDIO, TrackId::VIDEO)] {
            for apart_ms in [-2500, 2500] {
                let mut rig = Rig::new();
                for ms in (0..40_000).step_by(20) {
                    for (track, dts) in [(TrackId::VIDEO, ms), (TrackId::AUDIO, ms + apart_ms)] {
                        if track == goes_on || ms < 10_000 {
                            rig.unit(track, dts, 10);
                        }
                    }
                }
                let last = rig.of(goes_on).last().copied().unwrap();
                assert!(last > 40_000 - 5200, "{stops:?} {apart_ms}: {last}");
                rig.finish();
                assert_eq!((rig.of(stops).len(), rig.of(goes_on).len()), (500, 2000));
            }
        }
        let mut rig = Rig::new();
        for ms in (0..20_000).step_by(20) {
            rig.unit(TrackId::VIDEO, ms, 1 << 20);
            rig.unit(TrackId::AUDIO, ms - 4000, 10);
        }
        assert!(rig.waited < 40, "{}", rig.waited);
    }
}
