//! The rate at which a publisher may send splice information or cues of subtitles.

/// Milliseconds of stream time for each section or cue: 50 of them a second.
const EACH_MS: i64 = 20;
/// Number of sections or cues that may arrive at the same time.
const BURST: i64 = 100;

/// The number of sections or cues that a publisher may still send, measured in stream time.
#[derive(Debug)]
pub(in crate::protocol) struct CueRate {
    /// Saved stream time in milliseconds; each section or cue costs [`EACH_MS`] of it.
    saved_ms: i64,
    last_ms: Option<i64>,
}

impl CueRate {
    pub(in crate::protocol) const fn new() -> Self {
        Self { saved_ms: BURST * EACH_MS, last_ms: None }
    }

    /// Counts a section or a cue at this stream time, in milliseconds. Returns false if there were too many.
    pub(in crate::protocol) fn takes(&mut self, at_ms: i64) -> bool {
        let last_ms = self.last_ms.unwrap_or(at_ms);
        let passed_ms = at_ms.saturating_sub(last_ms).max(0);
        self.last_ms = Some(last_ms.max(at_ms));
        self.saved_ms = self.saved_ms.saturating_add(passed_ms).min(BURST * EACH_MS);
        let is_free = self.saved_ms >= EACH_MS;
        if is_free {
            self.saved_ms = self.saved_ms.saturating_sub(EACH_MS);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_fifty_a_second_behind_a_hundred_at_once() {
        let mut rate = CueRate::new();
        let mut taken = |at_ms: i64| (0..500).filter(|_| rate.takes(at_ms)).count();
        let times = [-5000, -5000, -4990, -4980, -3980, -4000, 1_000_000, i64::MAX];
        assert_eq!(times.map(&mut taken), [100, 0, 0, 1, 50, 0, 100, 100]);
    }

    #[test]
    fn what_comes_steadily_is_all_taken() {
        let mut rate = CueRate::new();
        assert!((0..10_000).all(|n| rate.takes(n * EACH_MS)));
    }
}
