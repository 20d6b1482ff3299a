//! Probing of a path: for a moment, more is sent than the stream requires, and feedback shows how much of it
//! arrived, and how fast.

use std::time::{Duration, Instant};

/// Duration of a probe.
const LENGTH: Duration = Duration::from_millis(200);
/// Minimum portion of padding sent at once, in bytes.
const PORTION: u64 = 2_400;
/// Maximum probed rate, in bits per second.
const BITS_MAX: u64 = 50_000_000;

#[derive(Debug)]
struct Run {
    begun: Instant,
    bits: u64,
    /// Bytes sent since the start, media included.
    sent: u64,
}

impl Run {
    /// Bytes that should have been sent by now.
    fn wanted(&self, now: Instant) -> u64 {
        let micros = now.saturating_duration_since(self.begun).min(LENGTH).as_micros();
        let bytes = u128::from(self.bits).saturating_mul(micros) / 8_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(PORTION)
    }

    /// Bytes still to be sent to reach the wanted amount; 0 if they are fewer than [`PORTION`].
    fn due(&self, now: Instant) -> u64 {
        let missing = self.wanted(now).saturating_sub(self.sent);
        if missing < PORTION { 0 } else { missing }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= LENGTH
    }
}

/// The current probe, if any.
#[derive(Debug, Default)]
pub(crate) struct Prober(Option<Run>);

impl Prober {
    /// Starts a probe of this many bits per second. Returns false if another is running.
    pub(crate) fn begin(&mut self, now: Instant, bits: u64) -> bool {
        if self.0.is_some() {
            return false;
        }
        self.0 = Some(Run { begun: now, bits: bits.min(BITS_MAX), sent: 0 });
        true
    }

    /// Rate of the current probe, in bits per second.
    pub(crate) fn bits(&self) -> Option<u64> {
        self.0.as_ref().map(|run| run.bits)
    }

    /// Counts bytes sent during the probe.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(run) = &mut self.0 {
            run.sent = run.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// Bytes of padding to send now.
    pub(crate) fn due(&self, now: Instant) -> u64 {
        self.0.as_ref().map_or(0, |run| run.due(now))
    }

    /// Returns true once after a probe has ended.
    pub(crate) fn ends(&mut self, now: Instant) -> bool {
        self.0.take_if(|run| run.is_over(now)).is_some()
    }

    /// Ends the probe early.
    pub(crate) fn give_up(&mut self) {
        self.0 = None;
    }

    /// Returns the time at which padding is due or the probe ends.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let run = self.0.as_ref()?;
        let micros = run.sent.saturating_mul(8_000_000) / run.bits.max(1);
        run.begun.checked_add(Duration::from_micros(micros.saturating_add(1)).min(LENGTH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_leaves_in_portions_until_the_end() {
        let start = netsim::Clock::new().now();
        let mut prober = Prober::default();
        assert_eq!((prober.due(start), prober.poll_timeout()), (0, None));
        assert!(prober.begin(start, 2_000_000) && !prober.begin(start, 9_000_000));
        let (mut now, mut sent) = (start, 0);
        while !prober.ends(now) {
            let due = prober.due(now);
            sent += due;
            prober.sent(usize::try_from(due).unwrap());
            assert_eq!(prober.due(now), 0);
            let next = prober.poll_timeout().unwrap();
            assert!(next > now);
            now = next;
        }
        assert_eq!(now, start + LENGTH);
        assert!((48_000..=52_400).contains(&sent), "{sent}");
        // The stream's own bytes count towards the probe.
        assert!(prober.begin(now, 2_000_000));
        prober.sent(100_000);
        assert_eq!(prober.due(now + LENGTH / 2), 0);
    }
}
