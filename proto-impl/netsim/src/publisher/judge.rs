//! Properties that a receiver must preserve although the publisher is faulty.

use super::{Fault, Publisher, Unit};

/// Maximum error of lip sync in milliseconds.
const LIPS_MAX: i64 = 100;
/// Maximum difference between tracks in delay and jitter together, in milliseconds.
const DELAYS_DIFFER: i64 = 200;
/// Maximum offset of a track from the first track, in milliseconds, that a receiver must preserve. Lower than the limit
/// of the receivers (3 s), because delays add to the offset.
const OWN_DISTANCE_MAX: i64 = 2_600;

impl Publisher {
    /// Checks the properties that must hold for every publisher, given the times assigned to its units: order, speed
    /// and lip sync.
    ///
    /// # Errors
    /// Returns the first violated property and its place.
    pub fn judge(&self, units: &[Unit]) -> Result<(), String> {
        self.judge_pace(units)?;
        self.check_lips(units)
    }

    /// Checks order and speed, but not lip sync.
    ///
    /// # Errors
    /// Returns the first violated property and its place.
    pub fn judge_pace(&self, units: &[Unit]) -> Result<(), String> {
        self.check_order(units)?;
        self.check_speed(units)
    }

    fn check_order(&self, units: &[Unit]) -> Result<(), String> {
        for track in 0..self.tracks.len() {
            let mut before: Option<&Unit> = None;
            for unit in units.iter().filter(|unit| unit.track == track) {
                if let Some(before) = before.filter(|before| unit.out < before.out) {
                    return Err(format!("the DTS falls: {before:?}, {unit:?}"));
                }
                before = Some(unit);
            }
        }
        Ok(())
    }

    /// True if no media of the track arrives in this period.
    fn is_silent(&self, track: usize, from: i64, to: i64) -> bool {
        self.faults.iter().any(|fault| match *fault {
            Fault::Stall { at, ms } => from < at + ms + 500 && at < to,
            Fault::Mute { of, at, ms, .. } => of.has(track) && from < at + ms + 2_500 && at < to,
            Fault::Jump { .. } | Fault::Outlier { .. } | Fault::Drift { .. } | Fault::Frozen { .. } => false,
        })
    }

    /// Checks that in 10 s of arrivals, each track advances by 10 s. The tolerance is a second, or the time between two
    /// units of the track if that is longer: a track whose units are 2 s apart cannot be measured better.
    fn check_speed(&self, units: &[Unit]) -> Result<(), String> {
        for track in 0..self.tracks.len() {
            let slack = spacing(units, track).max(1_000);
            let right = 10_000 - slack..=10_000 + slack;
            // A track has no position before its first unit.
            let (mut heads, mut second) = (vec![None], 1000);
            let mut head = None;
            for unit in units.iter().filter(|unit| unit.track == track) {
                while unit.arrives >= second {
                    heads.push(head);
                    second += 1000;
                }
                head = head.max(Some(unit.out));
            }
            for (from, pair) in heads.iter().zip(heads.iter().skip(10)).enumerate().skip(3) {
                let at = i64::try_from(from).unwrap_or(0) * 1000;
                let (Some(first), Some(last)) = (*pair.0, *pair.1) else { continue };
                let advance = last - first;
                if !self.is_silent(track, at, at + 10_000) && !right.contains(&advance) {
                    return Err(format!("10 s from {at} on advance track {track} by {advance} ms"));
                }
            }
        }
        Ok(())
    }

    /// Checks the lip sync of each track with the first track. The correct distance between the two is the track's
    /// own offset if receivers preserve an offset of that size. Otherwise it is the distance at arrival, which is
    /// near zero.
    fn check_lips(&self, units: &[Unit]) -> Result<(), String> {
        for (track, own) in self.offsets.iter().copied().enumerate().skip(1) {
            let (right, slack) = if own.abs() <= OWN_DISTANCE_MAX { (own, 0) } else { (0, DELAYS_DIFFER) };
            // The first three seconds are not checked. A track is held at zero for a while if its timestamps
            // begin before the timestamp of the publisher's first unit.
            for window in 3..self.seconds {
                let (from, to) = (window * 1000, window * 1000 + 1000);
                if self.is_unsettled(from, to) {
                    continue;
                }
                let lead = |track: usize| {
                    let of = units.iter().filter(|unit| unit.track == track && !unit.is_outlier);
                    let mut leads: Vec<i64> = of
                        .filter(|unit| (from..to).contains(&unit.sampled))
                        .map(|unit| unit.out - unit.sampled)
                        .collect();
                    leads.sort_unstable();
                    leads.get(leads.len() / 2).copied()
                };
                let (Some(first), Some(this)) = (lead(0), lead(track)) else { continue };
                let off = this - first - right;
                if off.abs() > LIPS_MAX + slack {
                    return Err(format!("track {track} is {off} ms off at {from}"));
                }
            }
        }
        Ok(())
    }

    /// True if a fault has just begun or ended, so that the receiver may not have corrected it yet.
    fn is_unsettled(&self, from: i64, to: i64) -> bool {
        self.faults.iter().any(|fault| match *fault {
            Fault::Drift { at, .. } => from < at + 8_000 && at < to,
            Fault::Frozen { at, ms, .. } => from < at + ms + 2_500 && at < to,
            Fault::Mute { at, ms, .. } => {
                let soon =
                    ms > 1_700 && !self.faults.iter().any(|fault| matches!(fault, Fault::Drift { .. }));
                from < at + ms + if soon { 600 } else { 8_000 } && at < to
            }
            Fault::Jump { .. } | Fault::Outlier { .. } | Fault::Stall { .. } => false,
        })
    }
}

/// Returns the usual time between neighbouring units of a track in milliseconds; 0 with fewer than two units.
fn spacing(units: &[Unit], track: usize) -> i64 {
    let sampled = || units.iter().filter(|unit| unit.track == track).map(|unit| unit.sampled);
    let mut gaps: Vec<i64> = sampled().skip(1).zip(sampled()).map(|(next, this)| next - this).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0)
}
