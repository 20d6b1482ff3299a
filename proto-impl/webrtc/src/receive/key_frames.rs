//! Key frame requests to a publisher: one at a time, and less often while they are not answered.

use std::time::{Duration, Instant};

use rtp::KEY_FRAME_INTERVAL;

/// Longest time between two requests.
const INTERVAL_MAX: Duration = Duration::from_secs(4);
/// Time, in addition to the round trip, that a publisher needs to encode and send a key frame.
const MAKING: Duration = Duration::from_millis(300);

/// Demand for key frames. The first request is sent immediately. If no key frame arrives in time, the request
/// is repeated, each time after twice the previous interval, so that a publisher that cannot answer, or whose
/// path is full, is not flooded. A key frame ends the demand.
#[derive(Debug, Default)]
pub(crate) struct KeyFrameDemand {
    wanted: bool,
    last: Option<Instant>,
    /// Number of unanswered requests.
    unanswered: u32,
    round_trip: Duration,
}

impl KeyFrameDemand {
    /// Records that a key frame is needed.
    pub(crate) const fn request(&mut self) {
        self.wanted = true;
    }

    /// Records that a key frame arrived, which satisfies all requests so far.
    pub(crate) const fn handle_key_frame(&mut self) {
        (self.wanted, self.unanswered) = (false, 0);
    }

    pub(crate) const fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// Returns true if a request must be sent now, and counts it as sent.
    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let is_first = self.wanted && self.last.is_none();
        let due = is_first || self.poll_timeout().is_some_and(|at| at <= now);
        if due {
            (self.last, self.wanted) = (Some(now), false);
            self.unanswered = self.unanswered.saturating_add(1);
        }
        due
    }

    /// Returns the time of the next request. `None` without demand, and for the very first request, which may
    /// be sent immediately.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.last.filter(|_| self.wanted).map(|last| last + self.interval())
    }

    /// Time from one request to the next.
    fn interval(&self) -> Duration {
        if self.unanswered == 0 {
            return KEY_FRAME_INTERVAL;
        }
        let first = self.round_trip.saturating_add(MAKING).max(KEY_FRAME_INTERVAL);
        let doubled = 1u32.checked_shl(self.unanswered.saturating_sub(1)).unwrap_or(u32::MAX);
        first.saturating_mul(doubled).min(INTERVAL_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the requests in milliseconds, if a key frame is wanted all the time and key
    /// frames arrive at the times `came`.
    fn asked(round_trip: u64, length: u64, came: &[u64]) -> Vec<u64> {
        let start = netsim::Clock::new().now();
        let mut demand = KeyFrameDemand::default();
        demand.set_round_trip(Duration::from_millis(round_trip));
        let mut asked = Vec::new();
        for ms in (0..length).step_by(10) {
            if came.contains(&ms) {
                demand.handle_key_frame();
            }
            demand.request();
            if demand.poll(start + Duration::from_millis(ms)) {
                asked.push(ms);
            }
        }
        asked
    }

    #[test]
    fn what_is_not_answered_is_asked_for_less_and_less() {
        for (round_trip, wanted) in [
            (0, &[0, 500, 1500, 3500, 7500, 11_500][..]),
            (100, &[0, 500, 1500, 3500, 7500, 11_500]),
            (500, &[0, 800, 2400, 5600, 9600]),
            (800, &[0, 1100, 3300, 7300, 11_300]),
            (60_000, &[0, 4000, 8000]),
        ] {
            assert_eq!(asked(round_trip, 12_000, &[]), wanted, "{round_trip}");
        }
    }

    #[test]
    fn a_key_frame_ends_it() {
        // At a round trip of 500 ms, each request is answered before the next is due.
        assert_eq!(asked(500, 2500, &[700, 1400, 2100]), [0, 700, 1400, 2100]);
        let start = netsim::Clock::new().now();
        let mut demand = KeyFrameDemand::default();
        demand.request();
        assert!(demand.poll(start) && !demand.poll(start));
        demand.request();
        demand.handle_key_frame();
        assert_eq!((demand.poll(start + INTERVAL_MAX), demand.poll_timeout()), (false, None));
    }

    /// Merges the requests of a thousand viewers, each with a thousand requests per second, while key frames
    /// arrive as requested.
    #[test]
    fn requests_of_many_are_merged() {
        let start = netsim::Clock::new().now();
        let mut demand = KeyFrameDemand::default();
        let (mut asked, mut answer) = (0, None);
        for ms in 0..5000 {
            let now = start + Duration::from_millis(ms);
            if answer == Some(ms) {
                demand.handle_key_frame();
            }
            (0..1000).for_each(|_| demand.request());
            if demand.poll(now) {
                (asked, answer) = (asked + 1, Some(ms + 100));
            }
        }
        assert_eq!(asked, 10);
    }
}
