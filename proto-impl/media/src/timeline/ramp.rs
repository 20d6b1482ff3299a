//! Detects a delay of all tracks that grows within seconds and then stays. Such a delay is a queue in the
//! network, not drift.

use super::limits::Limits;

/// Maximum number of measurement windows in which a delay of the network grows. If the error grows
/// for longer, it is drift.
const WINDOWS_MAX: u8 = 20;
/// Number of successive windows without growth after which the error is considered constant. Growth of less
/// than half the average so far does not count.
const STANDS_WINDOWS: u8 = 2;
/// Errors below this count as zero.
const CALM_US: i64 = 25_000;
/// Minimum error that is considered a delay.
const LARGE_US: i64 = 100_000;

/// History of the common error of all tracks since it was last small.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ramp {
    /// Number of windows since the error was last small.
    windows: u8,
    /// Number of successive windows in which the error did not grow.
    stands: u8,
    /// Error of the last window.
    before: i64,
}

impl Ramp {
    pub(super) const NEW: Self = Self { windows: 0, stands: 0, before: 0 };

    /// Returns the common error of all tracks in the last window. It is zero after a delay was attributed to
    /// the network.
    pub(super) const fn error(&self) -> i64 {
        self.before
    }

    /// Handles the error of a window. Returns true if the error has grown within seconds and is now constant.
    /// Always returns false while the clock is being corrected (`is_corrected`).
    pub(super) fn handle_error(&mut self, error: i64, is_corrected: bool, limits: &Limits) -> bool {
        let size = limits.to_us(error).saturating_abs();
        let before = limits.to_us(core::mem::replace(&mut self.before, error)).saturating_abs();
        if size < CALM_US || is_corrected {
            *self = Self { before: error, ..Self::NEW };
            return false;
        }
        self.windows = self.windows.saturating_add(1);
        let grown = size.saturating_sub(before);
        let is_on_its_way = grown > size / i64::from(self.windows.max(1)) / 2;
        self.stands = if is_on_its_way { 0 } else { self.stands.saturating_add(1) };
        let has_come = self.windows <= WINDOWS_MAX && size > LARGE_US && self.stands >= STANDS_WINDOWS;
        if has_come {
            *self = Self::NEW;
        }
        has_come
    }
}
