//! What a sender is told that it may send (REMB), where it does not judge by arrival times itself.

use std::time::Instant;

use super::micros_since;
use super::rate::RateMeter;

/// The first estimate, in bits per second.
const FIRST: f64 = 2_000_000.0;
/// The lowest one.
const LEAST: f64 = 100_000.0;
/// Growth from one report to the next while nothing is lost.
const GROWTH: f64 = 1.25;
/// How far it goes beyond what comes.
const HEADROOM: f64 = 2.0;
const HEADROOM_BITS: f64 = 500_000.0;
/// Loss in thousandths above which the sender is slowed down, and below which it may go on.
const LOSS_HIGH: u16 = 100;
const LOSS_LOW: u16 = 20;

/// The estimate of a receiver: it follows what comes, upwards while nothing is lost.
#[derive(Debug)]
pub struct ReceivedRate {
    epoch: Instant,
    meter: RateMeter,
    estimate: f64,
    max: f64,
}

impl ReceivedRate {
    /// Never tells more than `max` bits per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an estimate: 53 bits are enough")]
    pub fn new(now: Instant, max: u64) -> Self {
        Self { epoch: now, meter: RateMeter::default(), estimate: FIRST, max: max as f64 }
    }

    /// A packet of so many bytes came.
    pub fn handle_packet(&mut self, now: Instant, bytes: usize) {
        self.meter.add(micros_since(self.epoch, now), u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// What the sender is told, once a second: `loss` is the share that was lost since, in thousandths.
    pub fn report(&mut self, loss: u16) -> u64 {
        if let Some(rate) = self.meter.bits() {
            let share = f64::from(loss.min(1000)) / 1000.0;
            self.estimate = match loss {
                LOSS_HIGH.. => self.estimate.min(rate * (1.0 - share / 2.0)),
                ..LOSS_LOW => (self.estimate * GROWTH).min((rate * HEADROOM + HEADROOM_BITS).max(FIRST)),
                _ => self.estimate,
            };
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two constants")]
        let told = self.estimate.clamp(LEAST, self.max.max(LEAST)) as u64;
        told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A second of packets at so many bits per second.
    fn second(rate: &mut ReceivedRate, now: &mut Instant, bits: u64) {
        for _ in 0..100 {
            rate.handle_packet(*now, usize::try_from(bits / 800).unwrap());
            *now += Duration::from_millis(10);
        }
    }

    #[test]
    fn it_grows_with_what_comes_and_shrinks_with_losses() {
        let mut now = netsim::Clock::new().now();
        let mut rate = ReceivedRate::new(now, 20_000_000);
        assert_eq!(rate.report(0), 2_000_000);
        let mut told = 0;
        for _ in 0..12 {
            second(&mut rate, &mut now, told.clamp(1_000_000, 8_000_000));
            told = rate.report(0);
        }
        assert!((16_400_000..=16_500_000).contains(&told), "twice what comes, and half a megabit: {told}");
        second(&mut rate, &mut now, 8_000_000);
        assert_eq!(rate.report(50), told, "a little is lost: it stays");
        second(&mut rate, &mut now, 4_000_000);
        second(&mut rate, &mut now, 4_000_000);
        let less = rate.report(400);
        assert!((3_000_000..4_000_000).contains(&less), "{less}");
        for _ in 0..20 {
            second(&mut rate, &mut now, 20_000_000);
            told = rate.report(0);
        }
        assert_eq!(told, 20_000_000);
    }
}
