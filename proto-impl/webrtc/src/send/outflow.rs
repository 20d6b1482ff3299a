//! Rates sent for each purpose, in bits per second over the last second.

use std::time::{Duration, Instant};

/// Time over which a rate is averaged.
const WINDOW: Duration = Duration::from_secs(1);

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Media of an audio section.
    Audio,
    /// Media of a video section.
    Video,
    /// A retransmission requested by the peer, or its second copy.
    Repair,
    /// Padding of a probe.
    Probe,
}

/// Bytes of the current and the previous window; a sliding sum is computed from both.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    since: Option<Instant>,
    current: u64,
    before: u64,
}

impl Flow {
    fn advance(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW.saturating_mul(2) {
            *self = Self { since: Some(now), current: 0, before: 0 };
        } else if passed >= WINDOW {
            *self = Self { since: since.checked_add(WINDOW), current: 0, before: self.current };
        }
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        self.advance(now);
        self.current = self.current.saturating_add(bytes);
    }

    fn bits(mut self, now: Instant) -> u64 {
        let Some(begun) = self.since else { return 0 };
        self.advance(now);
        let since = self.since.unwrap_or(begun);
        let left = WINDOW.saturating_sub(now.saturating_duration_since(since));
        let share = u128::from(self.before).saturating_mul(left.as_micros()) / WINDOW.as_micros();
        u64::try_from(share).unwrap_or(u64::MAX).saturating_add(self.current).saturating_mul(8)
    }
}

/// Sent rates of a peer, by purpose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outflow {
    audio: Flow,
    video: Flow,
    repairs: Flow,
    probes: Flow,
}

impl Outflow {
    /// Counts a packet that leaves.
    pub(crate) fn add(&mut self, now: Instant, purpose: Purpose, bytes: u64) {
        let flow = match purpose {
            Purpose::Audio => &mut self.audio,
            Purpose::Video => &mut self.video,
            Purpose::Repair => &mut self.repairs,
            Purpose::Probe => &mut self.probes,
        };
        flow.add(now, bytes);
    }

    /// Returns the bits per second sent for a purpose.
    pub(crate) fn bits(&self, now: Instant, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Audio => self.audio,
            Purpose::Video => self.video,
            Purpose::Repair => self.repairs,
            Purpose::Probe => self.probes,
        }
        .bits(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_what_left_within_a_second_and_purposes_are_apart() {
        let start = netsim::Clock::new().now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut outflow = Outflow::default();
        assert_eq!(outflow.bits(start, Purpose::Audio), 0);
        for n in 0..300 {
            outflow.add(at(n * 10), Purpose::Video, 1000);
            outflow.add(at(n * 10), Purpose::Repair, 10);
        }
        for (ms, video) in [(3000, 800_000), (3500, 400_000), (3990, 8_000), (5000, 0), (60_000, 0)] {
            assert_eq!(outflow.bits(at(ms), Purpose::Video), video, "{ms}");
            assert_eq!(outflow.bits(at(ms), Purpose::Repair), video / 100, "{ms}");
        }
        assert_eq!(outflow.bits(at(3000), Purpose::Audio) + outflow.bits(at(3000), Purpose::Probe), 0);
        // Times that go backwards do no harm.
        outflow.add(start, Purpose::Audio, u64::MAX);
        assert!(outflow.bits(start, Purpose::Audio) > 0);
    }
}
