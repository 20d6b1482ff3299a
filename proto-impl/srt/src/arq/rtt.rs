//! The smoothed round-trip time (draft-sharabayko-srt-01 §4.10).

/// Round-trip time assumed before the first measurement.
const INITIAL_US: u32 = 100_000;
/// Longest round-trip time accepted from a peer.
const MAX_US: u32 = 10_000_000;

/// Smoothed round-trip time and its variation, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rtt {
    smoothed_us: u32,
    var_us: u32,
    measured: bool,
}

impl Rtt {
    pub(crate) const fn new() -> Self {
        Self { smoothed_us: INITIAL_US, var_us: INITIAL_US / 2, measured: false }
    }

    /// Adds a measurement. The first one is taken as it is; later ones have a weight of one eighth.
    pub(crate) fn update(&mut self, sample_us: u32) {
        let sample = sample_us.min(MAX_US);
        if !self.measured {
            *self = Self { smoothed_us: sample, var_us: sample / 2, measured: true };
            return;
        }
        let off = self.smoothed_us.abs_diff(sample);
        self.var_us = (self.var_us.saturating_mul(3).saturating_add(off)) / 4;
        self.smoothed_us = (self.smoothed_us.saturating_mul(7).saturating_add(sample)) / 8;
    }

    /// Adds a round-trip time that the peer has measured and smoothed.
    pub(crate) fn update_from_peer(&mut self, sample_us: u32, var_us: u32) {
        if !self.measured {
            self.update(sample_us);
            self.var_us = var_us.min(MAX_US);
            return;
        }
        self.update(sample_us);
    }

    pub(crate) const fn us(self) -> u32 {
        self.smoothed_us
    }

    pub(crate) const fn var_us(self) -> u32 {
        self.var_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_fully_and_later_ones_an_eighth() {
        let mut rtt = Rtt::new();
        rtt.update(40_000);
        assert_eq!((rtt.us(), rtt.var_us()), (40_000, 20_000));
        rtt.update(48_000);
        assert_eq!((rtt.us(), rtt.var_us()), (41_000, 17_000));
        rtt.update_from_peer(u32::MAX, u32::MAX);
        assert!(rtt.us() < MAX_US);
    }
}
