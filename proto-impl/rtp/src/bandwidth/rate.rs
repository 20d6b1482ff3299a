//! Measures bits per second over windows of half a second.

/// Length of the first window in microseconds.
const WINDOW_FIRST: i64 = 150_000;
/// Length of later windows in microseconds.
const WINDOW: i64 = 500_000;
/// Time without data after which measuring restarts, in microseconds.
const SILENCE: i64 = 2_000_000;

/// Measures a bit rate, on any clock that counts microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RateMeter {
    since: Option<i64>,
    bytes: u64,
    bits: Option<f64>,
}

impl RateMeter {
    /// Adds bytes at this time.
    pub(super) fn add(&mut self, at: i64, bytes: u64) {
        let since = *self.since.get_or_insert(at);
        let took = at.saturating_sub(since);
        if took >= SILENCE {
            (self.since, self.bytes) = (Some(at), bytes);
            return;
        }
        // Bytes at the end of a window belong to the next one.
        if took >= if self.bits.is_some() { WINDOW } else { WINDOW_FIRST } {
            let seen = bits_per_second(self.bytes, took);
            self.bits = Some(self.bits.map_or(seen, |bits| 0.5 * (bits + seen)));
            (self.since, self.bytes) = (Some(at), 0);
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the rate in bits per second; 0 after a silence, or before the first window is over.
    pub(super) fn bits_at(&self, at: i64) -> f64 {
        let is_fresh = self.since.is_some_and(|since| at.saturating_sub(since) < SILENCE);
        self.bits.filter(|_| is_fresh).unwrap_or(0.0)
    }

    /// Returns the rate in bits per second; `None` before the first window is over.
    pub(super) const fn bits(&self) -> Option<f64> {
        self.bits
    }
}

/// Returns the rate, in bits per second, of this many bytes in this many microseconds.
#[allow(clippy::cast_precision_loss, reason = "an estimate: 53 bits are enough")]
pub(super) fn bits_per_second(bytes: u64, micros: i64) -> f64 {
    bytes as f64 * 8e6 / micros.max(1) as f64
}
