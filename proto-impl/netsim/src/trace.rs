//! Fingerprint of all deliveries of a simulation.

use std::fmt;
use std::time::Duration;

/// Start value of FNV-1a with 64 bits, a small hash that depends on the order. It need not resist attackers.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Order-sensitive hash of the deliveries of a simulation. Its display contains the seed, so that a failed assertion
/// shows how to run it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    seed: u64,
    hash: u64,
    events: u64,
}

impl Trace {
    /// Creates the trace of a run with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, hash: OFFSET, events: 0 }
    }

    /// Records a delivery: its time, the number of its link (`lane`), and its content.
    pub fn record(&mut self, at: Duration, lane: u32, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.fold(&at.as_nanos().to_be_bytes());
        self.fold(&lane.to_be_bytes());
        self.fold(&length.to_be_bytes());
        self.fold(bytes);
        self.events += 1;
    }

    /// Current hash.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of deliveries so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Seed of the run.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    fn fold(&mut self, bytes: &[u8]) {
        self.hash = fnv(self.hash, bytes);
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, trace {:016x} of {} deliveries", self.seed, self.hash, self.events)
    }
}

/// Continues a hash with more bytes.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Computes the hash of a single slice.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    fnv(OFFSET, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ms;

    /// Checks the vectors of draft-eastlake-fnv, appendix C.
    #[test]
    fn fnv_1a_vectors() {
        assert_eq!((checksum(b""), checksum(b"foobar")), (OFFSET, 0x8594_4171_f739_67e8));
    }

    #[test]
    fn order_time_and_lane_count() {
        let of = |steps: &[(u64, u32, &[u8])]| {
            let mut trace = Trace::new(1);
            steps.iter().for_each(|(at, lane, bytes)| trace.record(ms(*at), *lane, bytes));
            trace.hash()
        };
        let base = of(&[(1, 0, b"a"), (1, 0, b"b")]);
        for other in
            [of(&[(1, 0, b"b"), (1, 0, b"a")]), of(&[(1, 0, b"a"), (2, 0, b"b")]), of(&[(1, 0, b"ab")])]
        {
            assert_ne!(base, other);
        }
        assert_eq!(base, of(&[(1, 0, b"a"), (1, 0, b"b")]));
    }
}
