//! Ticks, timescales, and the unwrapping of short clocks.

/// Timescale of a track: ticks per second of its timestamps.
///
/// Each track has its own timescale: a global 90 kHz, for example, does not suit audio at 44.1 kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timescale(u32);

impl Timescale {
    /// Milliseconds, used by RTMP and FLV.
    pub const MILLISECONDS: Self = Self(1000);

    /// Creates a timescale of `ticks` per second; zero becomes one.
    #[must_use]
    pub const fn new(ticks: u32) -> Self {
        Self(if ticks == 0 { 1 } else { ticks })
    }

    /// Ticks per second.
    #[must_use]
    pub const fn ticks(self) -> u32 {
        self.0
    }

    /// Converts `value` from this timescale to `to`, rounding towards negative infinity. Saturates at the limits of
    /// `i64`, which no real stream reaches.
    #[must_use]
    pub fn convert(self, value: i64, to: Self) -> i64 {
        if self == to {
            return value;
        }
        let scaled = (i128::from(value) * i128::from(to.0)).div_euclid(i128::from(self.0));
        i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
    }

    /// Converts `value` to milliseconds.
    #[must_use]
    pub fn to_ms(self, value: i64) -> i64 {
        self.convert(value, Self::MILLISECONDS)
    }
}

/// Unwraps a clock of `bits` bits (RTMP 32, RTP 32, MPEG-TS 33) to 64 bits. Of all values with the same low bits,
/// the one nearest to the previous value is chosen, so a step back of up to half the range is possible.
#[derive(Debug, Clone)]
pub struct Unwrap {
    bits: u32,
    last: Option<i64>,
}

impl Unwrap {
    /// Creates an unwrapper for a clock of `bits` bits, 1 to 62.
    #[must_use]
    pub fn new(bits: u32) -> Self {
        Self { bits: bits.clamp(1, 62), last: None }
    }

    /// Returns the unwrapped form of `raw`; the first value is returned unchanged.
    pub fn unwrap(&mut self, raw: u64) -> i64 {
        let value = match self.last {
            None => i64::try_from(raw).unwrap_or(i64::MAX) & ((1i64 << self.bits) - 1),
            Some(last) => nearest(raw, self.bits, last),
        };
        self.last = Some(value);
        value
    }
}

/// Returns the value nearest to `last` whose lowest `bits` bits, 1 to 62, are those of `raw`.
pub(crate) fn nearest(raw: u64, bits: u32, last: i64) -> i64 {
    let range = 1i64 << bits.clamp(1, 62);
    let raw = i64::try_from(raw).unwrap_or(i64::MAX) & (range - 1);
    let delta = raw.wrapping_sub(last) & (range - 1);
    let delta = if delta >= range / 2 { delta - range } else { delta };
    last.saturating_add(delta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_rounds_down_and_does_not_overflow() {
        let (audio, video) = (Timescale::new(44_100), Timescale::new(90_000));
        assert_eq!(audio.convert(1024, video), 2089);
        assert_eq!(audio.convert(-1, Timescale::MILLISECONDS), -1);
        assert_eq!(Timescale::new(1).convert(i64::MAX, video), i64::MAX);
        assert_eq!(Timescale::new(0).ticks(), 1);
    }

    #[test]
    fn m_07_a_32_bit_clock_passes_its_end_and_steps_back() {
        let mut u = Unwrap::new(32);
        assert_eq!(u.unwrap(0xffff_fff0), 0xffff_fff0);
        assert_eq!(u.unwrap(0x10), 0x1_0000_0010);
        assert_eq!(u.unwrap(0xffff_ffff), 0xffff_ffff);
        assert_eq!(u.unwrap(0), 0x1_0000_0000);
    }
}
