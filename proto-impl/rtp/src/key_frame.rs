//! Key frame requests to an encoder: merged, and limited in rate.

use std::time::{Duration, Instant};

/// Shortest time between two requests to a publisher.
pub const KEY_FRAME_INTERVAL: Duration = Duration::from_millis(500);

/// Merges key frame requests: the first is forwarded immediately, and all requests within the interval after
/// it become a single one at the end of the interval.
#[derive(Debug, Clone, Default)]
pub struct KeyFrameRequests {
    last: Option<Instant>,
    wanted: bool,
}

impl KeyFrameRequests {
    /// Creates the state without a pending request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a viewer wants a key frame.
    pub const fn request(&mut self) {
        self.wanted = true;
    }

    /// Records that a key frame arrived, which satisfies all requests so far.
    pub const fn handle_key_frame(&mut self) {
        self.wanted = false;
    }

    /// Returns true if a request must be sent now, and counts it as sent.
    pub fn poll(&mut self, now: Instant) -> bool {
        let due = self.poll_timeout().is_some_and(|at| at <= now) || (self.wanted && self.last.is_none());
        if due {
            (self.last, self.wanted) = (Some(now), false);
        }
        due
    }

    /// Returns the time at which a waiting request may be sent. `None` if no request waits, and for the very
    /// first request, which may be sent immediately.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.last.filter(|_| self.wanted).map(|last| last + KEY_FRAME_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a thousand viewers that each send a thousand requests per second.
    #[test]
    fn x_12_requests_are_merged_to_two_a_second() {
        let start = netsim::Clock::new().now();
        let mut requests = KeyFrameRequests::new();
        let mut asked = Vec::new();
        for ms in 0..5000u64 {
            let now = start + Duration::from_millis(ms);
            for _ in 0..1000 {
                requests.request();
                if requests.poll(now) {
                    asked.push(ms);
                }
            }
        }
        assert_eq!(asked, (0..5000).step_by(500).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_waits_and_a_key_frame_fulfils_it() {
        let start = netsim::Clock::new().now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut requests = KeyFrameRequests::new();
        assert!(!requests.poll(at(0)));
        requests.request();
        assert!(requests.poll(at(10)) && !requests.poll(at(20)));
        requests.request();
        assert_eq!((requests.poll(at(100)), requests.poll_timeout()), (false, Some(at(510))));
        assert!(requests.poll(at(510)));
        requests.request();
        requests.handle_key_frame();
        assert_eq!((requests.poll(at(2000)), requests.poll_timeout()), (false, None));
    }
}
