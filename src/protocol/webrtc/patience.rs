//! A limit on one viewer's key frame requests, because a key frame is sent to all viewers at their cost.

use std::time::{Duration, Instant};

/// Time after an accepted request before the next is accepted; doubled each time.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Time without a request after which the next one is accepted without a wait again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);

/// The requests of one viewer. The first is accepted immediately; a viewer that keeps asking must wait longer and
/// longer.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Time of the last request, accepted or not.
    asked: Option<Instant>,
    /// Time of the last accepted request, and the wait from then on.
    heard: Option<(Instant, Duration)>,
}

impl Patience {
    /// Records a request, and returns true if it is accepted. Viewers repeat requests until they get a key frame.
    pub(super) fn hears(&mut self, now: Instant) -> bool {
        let since = |at: Instant| now.saturating_duration_since(at);
        let is_forgiven = self.asked.replace(now).is_none_or(|at| since(at) >= FORGIVEN_AFTER);
        match self.heard.filter(|_| !is_forgiven) {
            Some((at, wait)) if since(at) < wait => false,
            Some((_, wait)) => {
                self.heard = Some((now, wait.saturating_mul(2).min(WAIT_MAX)));
                true
            }
            None => {
                self.heard = Some((now, WAIT_FIRST));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stubborn_viewer_is_heard_less_and_less_and_a_patient_one_at_once() {
        let start = Instant::now();
        let mut patience = Patience::default();
        let heard: Vec<u64> = (0..80)
            .filter(|n| patience.hears(start + Duration::from_millis(500 * n)))
            .map(|n| n * 500)
            .collect();
        assert_eq!(heard, [0, 1000, 3000, 7000, 15_000, 23_000, 31_000, 39_000]);
        assert!(!patience.hears(start + Duration::from_secs(41)));
        assert!(patience.hears(start + Duration::from_secs(51)), "ten seconds of silence");
        assert!(patience.hears(start + Duration::from_secs(52)));
    }
}
