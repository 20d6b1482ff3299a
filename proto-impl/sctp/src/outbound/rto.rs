//! The retransmission timeout (RFC 9260 §6.3.1).

use std::time::Duration;

/// Clock granularity (§16, `G`).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Retransmission timeout of an association.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rto {
    min: Duration,
    max: Duration,
    current: Duration,
    initial: Duration,
    /// Smoothed round trip and its variation; `None` before the first measurement.
    measured: Option<(Duration, Duration)>,
}

impl Rto {
    pub(crate) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        Self { min, max, current: initial.min(max), initial: initial.min(max), measured: None }
    }

    pub(crate) const fn current(&self) -> Duration {
        self.current
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.measured.map(|(smoothed, _)| smoothed)
    }

    pub(crate) fn measure(&mut self, round_trip: Duration) {
        let (smoothed, variation) = match self.measured {
            None => (round_trip, round_trip / 2),
            Some((smoothed, variation)) => (
                (smoothed.saturating_mul(7).saturating_add(round_trip)) / 8,
                (variation.saturating_mul(3).saturating_add(smoothed.abs_diff(round_trip))) / 4,
            ),
        };
        let variation = variation.max(GRANULARITY);
        self.measured = Some((smoothed, variation));
        self.recover();
    }

    /// Resets the timeout to the measured value, because new data was acknowledged. RFC 9260 waits for the next
    /// measurement, but on a path with heavy loss hardly any chunk is sent only once, as a measurement
    /// requires.
    pub(crate) fn recover(&mut self) {
        self.current = self.measured.map_or(self.initial, |(smoothed, variation)| {
            smoothed.saturating_add(variation.saturating_mul(4)).clamp(self.min, self.max)
        });
    }

    /// Doubles the timeout after it has expired.
    pub(crate) fn back_off(&mut self) {
        self.current = self.current.saturating_mul(2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netsim::ms;

    #[test]
    fn the_pause_follows_what_is_measured_and_doubles_without() {
        let mut rto = Rto::new(ms(1000), ms(400), ms(3000));
        assert_eq!((rto.current(), rto.round_trip()), (ms(1000), None));
        // Columns: the measured round trip in milliseconds; the resulting timeout in microseconds, which is the
        // smoothed round trip plus four times its variation.
        for (measured, pause) in [(200, 600_000), (200, 500_000), (200, 425_000), (1000, 1_268_750)] {
            rto.measure(ms(measured));
            assert_eq!(rto.current(), Duration::from_micros(pause), "{measured}");
        }
        for pause in [2_537_500, 3_000_000, 3_000_000] {
            rto.back_off();
            assert_eq!(rto.current(), Duration::from_micros(pause));
        }
        rto.recover();
        assert_eq!(rto.current(), Duration::from_micros(1_268_750));
        (0..100).for_each(|_| rto.measure(ms(1)));
        assert_eq!(rto.current(), ms(400));
    }
}
