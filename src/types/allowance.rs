//! Limits on how many bytes per second may be spent.

use std::time::{Duration, Instant};

/// Rate of an [`Allowance`]: bytes per second, and the size of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second.
    pub bytes: u64,
    /// Maximum bytes of a burst.
    pub burst: u64,
}

/// Bytes that may be spent. They grow with time up to a burst. Attempts to spend, however frequent, lose no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    left: u64,
    /// Time up to which passed time has been converted to bytes.
    since: Instant,
}

impl Allowance {
    /// Makes an allowance of a whole burst.
    #[must_use]
    pub const fn new(now: Instant, rate: Rate) -> Self {
        Self { left: rate.burst, since: now }
    }

    /// Spends bytes. Returns false, and spends nothing, if fewer are left.
    pub fn spend(&mut self, now: Instant, rate: Rate, bytes: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let passed = u64::try_from(now.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(rate.bytes) / SECOND;
        let left = self.left.saturating_add(more);
        if left >= rate.burst || more >= rate.burst {
            (self.left, self.since) = (rate.burst, now);
        } else if more > 0 {
            // Only the time that these bytes took is used up.
            let took = more.saturating_mul(SECOND).checked_div(rate.bytes).unwrap_or(0);
            self.left = left;
            self.since = self.since.checked_add(Duration::from_nanos(took)).unwrap_or(now);
        }
        let rest = self.left.checked_sub(bytes);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_in_quick_succession_lose_no_time() {
        let rate = Rate { bytes: 1000, burst: 1000 };
        for step_us in [7, 300, 999, 1001, 50_000] {
            let start = Instant::now();
            let (mut allowance, mut now, mut spent) = (Allowance::new(start, rate), start, 0);
            while now < start + Duration::from_secs(10) {
                spent += if allowance.spend(now, rate, 20) { 20 } else { 0 };
                now += Duration::from_micros(step_us);
            }
            let most = if step_us > 20_000 { 20 * (10_000_000 / step_us) } else { 11_000 };
            assert!(spent <= most && spent + 40 >= most, "{spent} of {most} in steps of {step_us} us");
        }
        let mut allowance = Allowance::new(Instant::now(), rate);
        let later = Instant::now() + Duration::from_secs(1_000_000);
        assert!(allowance.spend(later, rate, 1000) && !allowance.spend(later, rate, 1), "a burst, not more");
    }
}
