//! The rate at which a publisher may send splice information, cues of subtitles, or messages of script data.

/// Milliseconds of stream time for each section or cue: 50 of them a second.
const EACH_MS: i64 = 20;
/// The same for messages of script data, 200 a second: some encoders send a time code with each picture.
const EACH_SCRIPT_MS: i64 = 5;
/// Number of them that may arrive at the same time.
const BURST: i64 = 100;

/// The number of sections, cues or messages that a publisher may still send, measured in stream time.
#[derive(Debug)]
pub(in crate::protocol) struct CueRate {
    each_ms: i64,
    /// Saved stream time in milliseconds; each one costs `each_ms` of it.
    saved_ms: i64,
    last_ms: Option<i64>,
}

impl CueRate {
    pub(in crate::protocol) const fn new() -> Self {
        Self::every(EACH_MS)
    }

    /// Creates the rate for messages of script data.
    pub(in crate::protocol) const fn of_scripts() -> Self {
        Self::every(EACH_SCRIPT_MS)
    }

    const fn every(each_ms: i64) -> Self {
        Self { each_ms, saved_ms: BURST * each_ms, last_ms: None }
    }

    /// Counts one at this stream time, in milliseconds. Returns false if there were too many.
    pub(in crate::protocol) fn takes(&mut self, at_ms: i64) -> bool {
        let last_ms = self.last_ms.unwrap_or(at_ms);
        let passed_ms = at_ms.saturating_sub(last_ms).max(0);
        self.last_ms = Some(last_ms.max(at_ms));
        self.saved_ms = self.saved_ms.saturating_add(passed_ms).min(BURST.saturating_mul(self.each_ms));
        let is_free = self.saved_ms >= self.each_ms;
        if is_free {
            self.saved_ms = self.saved_ms.saturating_sub(self.each_ms);
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
