//! A budget for frames that cost the peer less than they cost us: it allows a burst, and refills at
//! a rate per second.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Allowance {
    left: u32,
    max: u32,
    per_second: u32,
    /// Time up to which the budget was refilled.
    at: Instant,
}

impl Allowance {
    pub(crate) const fn new(now: Instant, (max, per_second): (u32, u32)) -> Self {
        Self { left: max, max, per_second, at: now }
    }

    /// Takes one unit. Returns false if none is left.
    #[must_use]
    pub(crate) fn spend(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            self.refill(now);
        }
        let has = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has
    }

    /// Adds units to the budget.
    pub(crate) fn earn(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(count).min(self.max);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let earned = passed.as_millis().saturating_mul(u128::from(self.per_second)) / 1000;
        if earned > 0 {
            self.left = u32::try_from(earned).unwrap_or(u32::MAX).min(self.max);
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_spent_comes_back_with_time_and_never_exceeds_the_maximum() {
        let start = crate::tests::start();
        let mut allowance = Allowance::new(start, (3, 2));
        let spent = |allowance: &mut Allowance, at| (0..9).filter(|_| allowance.spend(at)).count();
        assert_eq!(spent(&mut allowance, start), 3);
        assert_eq!(spent(&mut allowance, start + Duration::from_millis(499)), 0);
        assert_eq!(spent(&mut allowance, start + Duration::from_millis(1000)), 2);
        assert_eq!(spent(&mut allowance, start + Duration::from_secs(100)), 3);
        allowance.earn(99);
        assert_eq!(spent(&mut allowance, start + Duration::from_secs(100)), 3);
        assert_eq!(spent(&mut allowance, start), 0, "time that runs backwards earns nothing");
    }
}
