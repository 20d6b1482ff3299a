//! A histogram of durations with fixed bounds: an array in which only counts are incremented.

use std::time::Duration;

/// Upper bounds of the buckets in microseconds. One more bucket, without a bound, follows.
pub const BOUNDS_US: [u64; 25] = [
    10, 20, 50, 100, 150, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 20_000,
    40_000, 60_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
];

/// Counts of durations by size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BOUNDS_US.len() + 1], sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|&bound| bound.saturating_mul(1000) < ns);
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of the values.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the upper bound in seconds and the count of each bucket. Counts are not cumulative, and the
    /// last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|&us| Duration::from_micros(us).as_secs_f64());
        bounds.chain([f64::INFINITY]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut h = Histogram::default();
        for us in [0, 10, 11, 5_000_000, 5_000_001] {
            h.record(Duration::from_micros(us));
        }
        let mut more = Histogram::default();
        more.record(Duration::from_micros(10));
        h.merge(&more);
        let buckets: Vec<_> = h.buckets().collect();
        assert_eq!((buckets[0], buckets[1].1), ((0.000_01, 3), 1));
        assert_eq!((buckets[24].1, buckets[25]), (1, (f64::INFINITY, 1)));
        assert_eq!((h.count(), h.sum()), (6, Duration::from_micros(10_000_032)));
    }
}
