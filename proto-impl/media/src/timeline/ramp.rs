//! A delay of all tracks that grows within seconds and then stays: a queue of the network, and no drift.

use super::limits::Limits;

/// Windows within which such a delay has grown. A clock that is as far off after a longer time drifts.
const WINDOWS_MAX: u8 = 20;
/// Windows in a row in which the error has not grown, as far as it would have by its pace so far.
const STANDS_WINDOWS: u8 = 2;
/// An error below this is none.
const CALM_US: i64 = 25_000;
/// An error beyond this is looked at.
const LARGE_US: i64 = 100_000;

/// The way of the error of all tracks since it was small.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ramp {
    /// Windows since the error was small.
    windows: u8,
    /// Windows in a row in which it stood.
    stands: u8,
    /// The error of the last window.
    before: i64,
}

impl Ramp {
    pub(super) const NEW: Self = Self { windows: 0, stands: 0, before: 0 };

    /// The error of all tracks together in the last window; none is left of a delay that was taken for the network's.
    pub(super) const fn error(&self) -> i64 {
        self.before
    }

    /// Takes the error of a window. Returns true if it has grown within seconds and stands now; not while the clock `is_corrected`.
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
