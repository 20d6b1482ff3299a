//! The delivery time of a packet: its timestamp on our clock plus the latency (draft-sharabayko-srt-01 §4.5).
//!
//! Times are microseconds since the connection's start. A packet's timestamp has only the low 32 bits of
//! such a time. Of all times with these low bits, the one nearest to the present is meant, so the wrap of
//! timestamps after 71.6 minutes needs no state.

use std::time::Duration;

/// Number of samples in one drift estimate (libsrt: `TSBPD_DRIFT_MAX_SAMPLES`).
const DRIFT_SAMPLES: u32 = 1000;
/// Longest time that a packet is held in addition to the latency, whatever its timestamp is.
const EARLY_MAX_US: i64 = 1_000_000;

/// Clock that maps timestamps to delivery times, for the receiving direction.
#[derive(Debug, Clone)]
pub(crate) struct Tsbpd {
    /// Zero of the peer's clock, as a time on our clock.
    base_us: i64,
    latency_us: i64,
    drift_us: i64,
    drift_sum_us: i64,
    drift_samples: u32,
    /// Round-trip time at the first drift sample. If the round trip changes later, the timestamps shift as they do with
    /// drift; this time is needed to tell the two apart.
    first_rtt_us: Option<u32>,
}

impl Tsbpd {
    /// Creates the clock from a packet of the handshake: its arrival time and its timestamp.
    pub(crate) fn new(now_us: i64, timestamp: u32, latency: Duration) -> Self {
        Self {
            base_us: now_us.saturating_sub(i64::from(timestamp)),
            latency_us: i64::try_from(latency.as_micros()).unwrap_or(i64::MAX / 4),
            drift_us: 0,
            drift_sum_us: 0,
            drift_samples: 0,
            first_rtt_us: None,
        }
    }

    /// Converts a timestamp to a time on our clock. The latency is not included.
    pub(crate) fn moment(&self, now_us: i64, timestamp: u32) -> i64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the lower 32 bits are meant"
        )]
        let expected = now_us.wrapping_sub(self.base_us) as u32;
        let ahead = timestamp.wrapping_sub(expected).cast_signed();
        now_us.saturating_add(i64::from(ahead).min(EARLY_MAX_US))
    }

    /// Returns the delivery time of a packet whose time on our clock is `moment_us`.
    pub(crate) const fn delivery(&self, moment_us: i64) -> i64 {
        moment_us.saturating_add(self.latency_us).saturating_add(self.drift_us)
    }

    /// Handles the timestamp of an ACKACK as a sample of the drift of the peer's clock relative to ours. The change of
    /// the path's delay, half of the change of the round trip, is subtracted.
    pub(crate) fn sample_drift(&mut self, now_us: i64, timestamp: u32, rtt_us: u32) {
        let first = *self.first_rtt_us.get_or_insert(rtt_us);
        let path_us = (i64::from(rtt_us) - i64::from(first)) / 2;
        let off_us = now_us.saturating_sub(self.moment(now_us, timestamp)).saturating_sub(path_us);
        self.drift_sum_us = self.drift_sum_us.saturating_add(off_us);
        self.drift_samples = self.drift_samples.saturating_add(1);
        if self.drift_samples >= DRIFT_SAMPLES {
            self.drift_us = self.drift_sum_us / i64::from(DRIFT_SAMPLES);
            (self.drift_sum_us, self.drift_samples) = (0, 0);
        }
    }

    pub(crate) const fn drift_us(&self) -> i64 {
        self.drift_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(120);

    #[test]
    fn s_08_the_wrap_of_timestamps_is_not_seen() {
        let t = Tsbpd::new(5_000, 2_000, LATENCY);
        for hours in 0..10_i64 {
            let at = hours * 3_600_000_000 + 10_000;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let timestamp = (at - 3_000) as u32;
            for late in [0, 7, 1_000_000] {
                assert_eq!(t.moment(at + late, timestamp), at);
            }
            assert_eq!(t.delivery(t.moment(at + 50_000, timestamp)), at + 120_000);
        }
    }

    #[test]
    fn a_timestamp_far_ahead_holds_nothing_for_long() {
        let t = Tsbpd::new(0, 0, LATENCY);
        assert_eq!(t.moment(10, 1_000_000_000), 1_000_010);
        assert_eq!(t.moment(2_000_000, 0), 0);
    }

    #[test]
    fn a_thousand_samples_move_the_delivery_by_their_mean() {
        let mut t = Tsbpd::new(0, 0, LATENCY);
        for n in 1..=1000_u32 {
            // The peer's clock is 3 ms slow, and the one-way delay has grown by 2 ms.
            let rtt_us = if n == 1 { 20_000 } else { 24_000 };
            let path = if n == 1 { 0 } else { 2_000 };
            t.sample_drift(i64::from(n) * 10_000 + 3_000 + path, n * 10_000, rtt_us);
        }
        assert_eq!((t.drift_us(), t.delivery(0)), (3_000, 123_000));
    }

    #[test]
    fn each_thousand_samples_are_an_estimate_of_their_own() {
        let mut t = Tsbpd::new(0, 0, LATENCY);
        let sample = |t: &mut Tsbpd, from: u32, slow_us: i64, count: u32| {
            for n in from..from + count {
                t.sample_drift(i64::from(n) * 10_000 + slow_us, n * 10_000, 20_000);
            }
        };
        sample(&mut t, 1, 3000, 999);
        assert_eq!(t.drift_us(), 0, "too few");
        sample(&mut t, 1000, 3000, 1);
        assert_eq!(t.drift_us(), 3000);
        sample(&mut t, 1001, -1000, 999);
        assert_eq!(t.drift_us(), 3000, "the next ones are not all there");
        sample(&mut t, 2000, -1000, 1);
        assert_eq!((t.drift_us(), t.delivery(0)), (-1000, 119_000));
    }
}
