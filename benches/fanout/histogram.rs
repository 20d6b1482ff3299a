//! Latencies in buckets that grow with the value: 32 to each power of two, so that a reading is off by 3 % at most.

use std::time::Duration;

/// Sub-buckets of each power of two, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Counts per bucket of nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Empty.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// The value that `permille` of a thousand do not exceed; zero when there is none.
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
    // Below 64 the value is its own bucket; above, `sub` has its top bit set and counts 32 to 63.
    shift as usize * SUB + sub
}

fn lower_bound(index: usize) -> u64 {
    let shift = (index / SUB).saturating_sub(1);
    ((index - shift * SUB) as u64) << shift
}
