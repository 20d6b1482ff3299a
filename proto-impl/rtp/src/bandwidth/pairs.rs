//! Packets sent together, and the distance between their arrivals: a bottleneck spreads them to its own rate,
//! even if the total rate is low.
//!
//! A single pair says little, because jitter also pushes packets together. If several pairs in a row arrive
//! much closer together than the known rate allows, the path may have become wider. This does not measure the
//! path; it is only a reason to probe it.

use super::rate::bits_per_second;
use super::sent::SentPacket;

/// Maximum time between the departures of two packets that were sent together, in microseconds.
const TOGETHER: i64 = 500;
/// Minimum size of the second packet of a pair. For smaller packets, the receiver's clock is too coarse.
const BYTES_MIN: u32 = 600;
/// Resolution of arrival times in feedback, in microseconds.
const RESOLUTION: i64 = 250;
/// Multiple of the known rate from which on a pair counts as a hint.
const WIDER: f64 = 1.7;
/// Number of consecutive pairs that make a hint.
const RUN: u8 = 5;

/// The pairs of a path.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Number of the last packet, its departure and its arrival.
    last: Option<(u64, i64, i64)>,
    /// Number of consecutive pairs that indicate a wider path.
    run: u8,
    /// Rate of the slowest of these pairs, in bits per second.
    slowest: f64,
}

impl Pairs {
    /// Adds a packet that arrived; `rate` is the known rate of the path, in bits per second.
    pub(super) fn packet(&mut self, packet: &SentPacket, arrived: i64, rate: f64) {
        let Some((number, sent, at)) = self.last.replace((packet.number, packet.sent, arrived)) else {
            return;
        };
        let is_pair = packet.number == number.saturating_add(1)
            && packet.sent.saturating_sub(sent) <= TOGETHER
            && packet.bytes >= BYTES_MIN;
        if !is_pair {
            return;
        }
        let took = arrived.saturating_sub(at);
        let bits = bits_per_second(packet.bytes.into(), took.max(RESOLUTION));
        if took < 0 || bits < WIDER * rate {
            self.run = 0;
            return;
        }
        self.slowest = if self.run == 0 { bits } else { self.slowest.min(bits) };
        self.run = self.run.saturating_add(1);
    }

    /// Returns the rate of the slowest pair in a run that hints at a wider path, in bits per second.
    pub(super) fn hint(&self) -> Option<f64> {
        (self.run >= RUN).then_some(self.slowest)
    }

    /// Forgets the pairs.
    pub(super) const fn clear(&mut self) {
        (self.last, self.run) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 600_000.0;

    /// Sends pairs of 1200-byte packets whose arrivals are `apart` microseconds apart.
    fn pairs(pairs: &mut Pairs, first: u64, apart: &[i64]) -> Option<f64> {
        for (n, apart) in (first..).zip(apart) {
            let sent = i64::try_from(n).unwrap() * 40_000;
            let packet = |number| SentPacket { number, sent, bytes: 1200 };
            pairs.packet(&packet(2 * n), sent + 20_000, RATE);
            pairs.packet(&packet(2 * n + 1), sent + 20_000 + apart, RATE);
        }
        pairs.hint()
    }

    #[test]
    fn some_pairs_in_a_row_that_arrive_close_together_are_a_hint() {
        let mut seen = Pairs::default();
        assert_eq!(pairs(&mut seen, 0, &[16_000; 100]), None, "as far apart as the known rate has it");
        assert_eq!(pairs(&mut seen, 100, &[4_800, 2_400, 2_400, 4_000]), None, "too few");
        assert_eq!(pairs(&mut seen, 104, &[2_400]), Some(2_000_000.0), "the slowest of them");
        assert_eq!(pairs(&mut seen, 105, &[16_000]), None);
        assert_eq!(pairs(&mut seen, 106, &[0; 5]), Some(38_400_000.0), "as close as feedback can tell");
        assert_eq!(pairs(&mut seen, 111, &[-5_000]), None, "overtaken");
        pairs(&mut seen, 112, &[2_400; 5]);
        seen.clear();
        assert_eq!(seen.hint(), None);
    }

    #[test]
    fn packets_that_did_not_leave_together_are_no_pair() {
        let mut seen = Pairs::default();
        for n in 0..100u64 {
            // None of these is a pair: packets 0 and 1 are sent too far apart, packet 2 is missing, packet 4
            // is too small.
            let sent = i64::try_from(n).unwrap() * 100_000;
            let all = [(0, 0, 1200), (1, 5_000, 1200), (3, 5_000, 1200), (4, 5_000, 200)];
            for (number, later, bytes) in all {
                let packet = SentPacket { number: 6 * n + number, sent: sent + later, bytes };
                seen.packet(&packet, sent + 20_000, RATE);
            }
        }
        assert_eq!(seen.hint(), None);
    }
}
