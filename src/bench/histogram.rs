//! Latencies in buckets that grow with the value: 32 per power of two, so that a reading is off by at most 3 %.

use std::time::Duration;

/// Number of buckets for each power of two, as its binary logarithm.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// A histogram of nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.total += 1;
            self.max = self.max.max(nanos);
        }
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of values.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the largest recorded value exactly.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the value that `permille` of 1000 recorded values do not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Duration {
        let rank = (self.total * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(Duration::ZERO, |index| Duration::from_nanos(lower_bound(index)))
    }
}

fn bucket(value: u64) -> usize {
    let magnitude = value.checked_ilog2().unwrap_or(0);
    let shift = magnitude.saturating_sub(SUB_BITS);
    let sub = usize::try_from(value >> shift).unwrap_or(0);
    // A value below 64 is the number of its own bucket. For larger values, `sub` has its top bit set, so it is
    // between 32 and 63.
    shift as usize * SUB + sub
}

fn lower_bound(index: usize) -> u64 {
    let shift = (index / SUB).saturating_sub(1);
    ((index - shift * SUB) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_off_by_three_percent_at_most() {
        for value in [0, 1, 31, 32, 63, 64, 65, 1000, 123_456, 1_000_000_007, u64::MAX] {
            let mut histogram = Histogram::new();
            histogram.record(value);
            let read = u64::try_from(histogram.quantile(500).as_nanos()).unwrap();
            assert!(read <= value && value - read <= value / 32, "{value} as {read}");
            assert_eq!(histogram.max(), Duration::from_nanos(value));
        }
    }

    #[test]
    fn quantiles_of_two_merged_halves_are_those_of_the_whole() {
        let (mut low, mut high) = (Histogram::new(), Histogram::new());
        (1..=500).for_each(|value| low.record(value * 1000));
        (501..=1000).for_each(|value| high.record(value * 1000));
        low.merge(&high);
        assert_eq!(low.total(), 1000);
        for permille in [1, 500, 990, 1000] {
            let read = u64::try_from(low.quantile(permille).as_nanos()).unwrap();
            let true_value = permille * 1000;
            assert!(read.abs_diff(true_value) <= true_value / 32, "{permille}: {read}");
        }
        assert_eq!(Histogram::new().quantile(500), Duration::ZERO);
    }
}
