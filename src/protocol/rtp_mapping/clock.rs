//! Where the frames of several sources lie on one common time.
//!
//! Each source counts on a clock of its own, from anywhere. Its first frame is put where it arrived, or where the sender's
//! reports have it; the reports then tell how the sources lie to each other, and one that lies elsewhere is moved there
//! little by little, so that lips come into step without a leap.

use std::time::{Duration, Instant};

use media::{Timescale, Unwrap};
use rtp::NtpTime;

/// Ticks of the common time; every RTP clock rate in use divides it or is divided by it.
pub(in crate::protocol) const TICKS: Timescale = Timescale::new(90_000);
/// How far a frame moves its source towards where the sender's reports have it: an eighth of the way, 10 ms at most.
const SLEW_SHARE: i64 = 8;
const SLEW_MAX: i64 = 900;
/// Farther behind it is moved there at once: 500 ms.
const STEP: i64 = 45_000;

/// The common time of a sender's sources.
#[derive(Debug)]
pub(in crate::protocol) struct CommonTime {
    /// Its zero.
    pub(in crate::protocol) began: Instant,
    /// A moment on the sender's wall clock, and where it lies.
    anchor: Option<(NtpTime, i64)>,
}

impl CommonTime {
    pub(in crate::protocol) const fn new(began: Instant) -> Self {
        Self { began, anchor: None }
    }
}

/// The clock of one source.
#[derive(Debug)]
pub(in crate::protocol) struct SourceClock {
    rate: Timescale,
    unwrap: Unwrap,
    /// Added to its own time, in ticks; `None` before the first frame.
    offset: Option<i64>,
}

impl SourceClock {
    pub(in crate::protocol) const fn new(rate: Timescale, unwrap: Unwrap) -> Self {
        Self { rate, unwrap, offset: None }
    }

    /// Whether it has had a frame.
    pub(in crate::protocol) const fn has_begun(&self) -> bool {
        self.offset.is_some()
    }

    /// Where a frame lies on the common time, in ticks.
    pub(in crate::protocol) fn place(
        &mut self,
        now: Instant,
        time: &mut CommonTime,
        timestamp: u32,
        sampled: Option<NtpTime>,
    ) -> i64 {
        let own = self.rate.convert(self.unwrap.unwrap(timestamp.into()), TICKS);
        let arrived = ticks(now.saturating_duration_since(time.began));
        let first = self.offset.is_none();
        let offset = self.offset.get_or_insert_with(|| arrived.saturating_sub(own));
        let at = own.saturating_add(*offset);
        let Some(sampled) = sampled else { return at };
        let (base, base_at) = *time.anchor.get_or_insert((sampled, at));
        let Some(wanted) = distance(base, sampled).and_then(|distance| base_at.checked_add(distance)) else {
            return at;
        };
        let error = wanted.saturating_sub(at);
        // Times do not run backwards: what is too late by far is moved over many frames, what is too early at once.
        let leaps = error > STEP || (first && error.saturating_abs() <= STEP);
        let step = if leaps { error } else { (error / SLEW_SHARE).clamp(-SLEW_MAX, SLEW_MAX) };
        *offset = offset.saturating_add(step);
        own.saturating_add(*offset)
    }
}

fn ticks(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos() * 9 / 100_000).unwrap_or(i64::MAX)
}

/// From one time to another, in ticks.
fn distance(from: NtpTime, to: NtpTime) -> Option<i64> {
    let ahead = to.since(from).map(ticks);
    ahead.or_else(|| from.since(to).map(|back| ticks(back).saturating_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(rate: u32) -> SourceClock {
        SourceClock::new(Timescale::new(rate), Unwrap::new(u32::BITS))
    }

    #[test]
    fn sources_lie_as_reports_say_and_timestamps_wrap() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ntp = NtpTime::new(100 << 32);
        let mut time = CommonTime::new(start);
        let (mut video, mut audio) = (clock(90_000), clock(48_000));
        assert_eq!(video.place(start, &mut time, u32::MAX - 89, Some(ntp)), 0);
        // It came 80 ms late, and was taken at the same moment.
        assert_eq!(audio.place(at(80), &mut time, 5, Some(ntp)), 0);
        assert!(video.has_begun() && audio.has_begun());
        let later = ntp.plus(Duration::from_millis(20));
        assert_eq!(video.place(at(20), &mut time, 1710, Some(later)), 1800);
        // Without reports the arrival counts.
        assert_eq!(clock(8000).place(at(100), &mut time, 7, None), 9000);
    }

    #[test]
    fn a_source_that_lies_elsewhere_is_moved_little_by_little_and_one_far_behind_at_once() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let ntp = NtpTime::new(100 << 32);
        // Where the second frame of a source lies, when the reports have it so many ticks off what its own clock says.
        let moved = |ticks: i64| {
            let mut time = CommonTime::new(start);
            assert_eq!(clock(90_000).place(start, &mut time, 0, Some(ntp)), 0);
            let mut other = clock(90_000);
            assert_eq!(other.place(start, &mut time, 900_000, Some(ntp)), 0);
            // Two seconds later on its own clock.
            let to = ntp.plus(ms(2000));
            let off = Duration::from_nanos(ticks.unsigned_abs() * 100_000 / 9);
            let sampled = if ticks < 0 { to.minus(off) } else { to.plus(off) };
            other.place(start + ms(2000), &mut time, 900_000 + 180_000, Some(sampled)) - 180_000
        };
        let near = |ticks: i64, expected: i64| {
            let moved = moved(ticks);
            assert!((moved - expected).abs() <= 1, "{ticks}: {moved}");
        };
        near(0, 0);
        near(800, 100);
        near(-800, -100);
        near(7_000, 875);
        near(8_000, 900);
        near(-8_000, -900);
        near(44_000, 900);
        near(46_000, 46_000);
        near(-46_000, -900);
    }

    #[test]
    fn a_source_whose_first_frame_lies_far_ahead_is_not_pulled_back_at_once() {
        let start = Instant::now();
        let ntp = NtpTime::new(100 << 32);
        let first = |late_ms: u64, sampled| {
            let mut time = CommonTime::new(start);
            clock(90_000).place(start, &mut time, 0, Some(ntp));
            clock(8000).place(start + Duration::from_millis(late_ms), &mut time, 7, Some(sampled))
        };
        let near = |at: i64, expected: i64| assert!((at - expected).abs() <= 1, "{at}, not {expected}");
        // It was taken at the same moment, and came late: by less than half a second, by more.
        near(first(400, ntp), 0);
        near(first(600, ntp), 54_000 - 900);
        // Taken before the first one of all, and behind it.
        near(first(0, ntp.minus(Duration::from_millis(100))), -9000);
        near(first(0, ntp.plus(Duration::from_millis(800))), 72_000);
    }
}
