//! The congestion window (RFC 9260 §7.2): slow start, congestion avoidance, fast recovery.

/// Maximum number of packets sent in one burst (§16, `Max.Burst`).
const BURST_PACKETS: u32 = 4;
/// Maximum growth of the window per acknowledgement in slow start, in packets.
const GROWTH_PACKETS: usize = 4;

/// Congestion window of an association. Byte counts include chunk headers.
#[derive(Debug)]
pub(crate) struct Congestion {
    mtu: usize,
    window: usize,
    threshold: usize,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    partial: usize,
    /// TSN whose acknowledgement ends fast recovery; `None` outside fast recovery.
    exit: Option<u64>,
    /// Number of packets that may be sent before the next acknowledgement.
    burst: u32,
}

impl Congestion {
    /// Creates the state. `peer_window` is the initial slow start threshold (§7.2.1).
    pub(crate) fn new(mtu: usize, peer_window: usize) -> Self {
        let window = mtu.saturating_mul(4).min(mtu.saturating_mul(2).max(4404));
        Self { mtu, window, threshold: peer_window, partial: 0, exit: None, burst: BURST_PACKETS }
    }

    pub(crate) const fn window(&self) -> usize {
        self.window
    }

    pub(crate) const fn in_recovery(&self) -> bool {
        self.exit.is_some()
    }

    pub(crate) const fn may_burst(&self) -> bool {
        self.burst > 0
    }

    pub(crate) const fn count_packet(&mut self) {
        self.burst = self.burst.saturating_sub(1);
    }

    /// Allows another burst while nothing is in flight, so that no acknowledgement is needed to continue.
    pub(crate) fn refill(&mut self) {
        self.burst = self.burst.max(BURST_PACKETS);
    }

    /// Refills the burst after `bytes` bytes were acknowledged. A peer that reads in batches acknowledges many
    /// packets at once; twice as many may then be sent, as in slow start.
    fn refill_for(&mut self, bytes: usize) {
        let packets = bytes.checked_div(self.mtu).unwrap_or_default().saturating_add(1).saturating_mul(2);
        self.burst = u32::try_from(packets).unwrap_or(u32::MAX).max(BURST_PACKETS);
    }

    /// Handles the acknowledgement of `bytes` further bytes, up to `cumulative` without gaps; `before` bytes
    /// were in flight before this acknowledgement.
    pub(crate) fn acknowledge(&mut self, cumulative: u64, advanced: bool, bytes: usize, before: usize) {
        self.refill_for(bytes);
        if self.exit.is_some_and(|exit| cumulative >= exit) {
            self.exit = None;
            self.partial = 0;
        }
        if self.exit.is_some() || !advanced {
            return;
        }
        let is_full = before.saturating_add(self.mtu) > self.window;
        if self.window <= self.threshold {
            if is_full {
                // §7.2.1 allows one packet per acknowledgement, assuming that each acknowledges two packets
                // (RFC 3465 §2.2).
                self.window = self.window.saturating_add(bytes.min(self.mtu.saturating_mul(GROWTH_PACKETS)));
            }
            return;
        }
        self.partial = self.partial.saturating_add(bytes);
        if self.partial >= self.window {
            self.partial = if is_full { self.partial.saturating_sub(self.window) } else { self.window };
            if is_full {
                self.window = self.window.saturating_add(self.mtu);
            }
        }
    }

    /// Enters fast recovery because chunks are missing (§7.2.4); `last` is the highest TSN in flight. Has no
    /// effect during fast recovery.
    pub(crate) fn lose(&mut self, last: u64) {
        if self.exit.is_none() {
            self.halve();
            self.window = self.threshold;
            self.partial = 0;
            self.exit = Some(last);
        }
    }

    /// Handles a timeout (§7.2.3).
    pub(crate) fn time_out(&mut self) {
        self.halve();
        self.window = self.mtu;
        self.partial = 0;
        self.exit = None;
        self.refill();
    }

    /// Handles a pause in which nothing was sent (§7.2.1).
    pub(crate) fn rest(&mut self) {
        let least = self.mtu.saturating_mul(4);
        self.window = (self.window / 2).max(least).min(self.window.max(least));
        self.refill();
    }

    fn halve(&mut self) {
        self.threshold = (self.window / 2).max(self.mtu.saturating_mul(4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one_packet_a_round_trip() {
        let mut congestion = Congestion::new(MTU, 8 * MTU);
        assert_eq!(congestion.window(), 4 * MTU);
        (0..2).for_each(|n| congestion.acknowledge(n, true, MTU, 8 * MTU));
        assert_eq!(congestion.window(), 6 * MTU, "by what is acknowledged");
        congestion.acknowledge(3, true, 2 * MTU, 8 * MTU);
        congestion.acknowledge(5, true, MTU, MTU);
        assert_eq!(congestion.window(), 8 * MTU, "the window was not used");
        congestion.acknowledge(6, true, MTU, 8 * MTU);
        assert_eq!(congestion.window(), 9 * MTU);
        (0..8).for_each(|n| congestion.acknowledge(n + 7, true, MTU, 9 * MTU));
        assert_eq!(congestion.window(), 9 * MTU);
        congestion.acknowledge(16, true, MTU, 9 * MTU);
        assert_eq!(congestion.window(), 10 * MTU);
    }

    #[test]
    fn a_loss_halves_once_in_a_recovery_and_a_timeout_leaves_one_packet() {
        let mut congestion = Congestion::new(MTU, 100 * MTU);
        (0..16).for_each(|n| congestion.acknowledge(n, true, MTU, 100 * MTU));
        assert_eq!(congestion.window(), 20 * MTU);
        congestion.lose(50);
        assert!(congestion.in_recovery());
        congestion.lose(60);
        congestion.acknowledge(49, true, MTU, 20 * MTU);
        assert_eq!(congestion.window(), 10 * MTU, "no growth in recovery");
        congestion.acknowledge(50, true, MTU, 20 * MTU);
        assert!(!congestion.in_recovery());
        assert_eq!(congestion.window(), 11 * MTU);
        congestion.time_out();
        assert_eq!((congestion.window(), congestion.threshold), (MTU, 11 * MTU / 2));
        congestion.time_out();
        assert_eq!(congestion.threshold, 4 * MTU, "not below four packets");
        congestion.rest();
        assert_eq!(congestion.window(), 4 * MTU);
    }

    #[test]
    fn a_burst_has_an_end() {
        let mut congestion = Congestion::new(MTU, 8 * MTU);
        (0..BURST_PACKETS).for_each(|_| {
            assert!(congestion.may_burst());
            congestion.count_packet();
        });
        assert!(!congestion.may_burst());
        congestion.refill();
        assert!(congestion.may_burst());
        congestion.acknowledge(1, true, 9 * MTU, 9 * MTU);
        (0..20).for_each(|_| {
            assert!(congestion.may_burst());
            congestion.count_packet();
        });
        assert!(!congestion.may_burst());
    }
}
