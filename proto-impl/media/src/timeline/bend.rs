//! Movements of a track towards its sender reports, as a curve over its timestamps.
//!
//! Pictures arrive in decoding order, so some arrive after pictures that are shown later. If a movement
//! applied to all units that arrive after it, such a picture would be moved although the later picture was
//! not, and both could change places. So each movement belongs to the interval of timestamps in which it
//! was made: it grows from zero to its full size within this interval.

use alloc::vec::Vec;

/// Maximum number of movements that are remembered. Each has a timestamp greater than the one before it, so
/// only a picture that is shown before more than 16 pictures that arrived earlier needs an older movement,
/// and no decoder reorders pictures that far (H.264 §A.3.1).
const BENDS_MAX: usize = 16;

/// A movement that was made from timestamp `from` to timestamp `to`.
#[derive(Debug, Clone, Copy)]
struct Moved {
    from: i64,
    to: i64,
    ticks: i64,
}

impl Moved {
    /// Returns how much of the movement is made after this timestamp: all of it before `from`, nothing from
    /// `to` on.
    const fn after(&self, raw: i64) -> i64 {
        let whole = self.to.saturating_sub(self.from);
        let rest = self.to.saturating_sub(raw);
        if rest <= 0 {
            0
        } else if rest >= whole {
            self.ticks
        } else {
            self.ticks.saturating_mul(rest) / whole
        }
    }
}

/// The recent movements of a track.
#[derive(Debug, Clone)]
pub(super) struct Bend {
    /// The greatest timestamp so far.
    front: i64,
    /// Movements, the newest last.
    moved: Vec<Moved>,
}

impl Bend {
    pub(super) const fn new(front: i64) -> Self {
        Self { front, moved: Vec::new() }
    }

    /// Returns the distance of a timestamp from the greatest so far.
    pub(super) const fn advance(&self, raw: i64) -> i64 {
        raw.saturating_sub(self.front)
    }

    /// Returns the sum of all movements that are made after this timestamp.
    pub(super) fn after(&self, raw: i64) -> i64 {
        self.moved.iter().fold(0, |sum, moved| sum.saturating_add(moved.after(raw)))
    }

    /// Records a movement of `ticks`, which is spread over the interval from the greatest timestamp so far
    /// to `raw`.
    pub(super) fn push(&mut self, raw: i64, ticks: i64) {
        if self.moved.len() == BENDS_MAX {
            self.moved.remove(0);
        }
        self.moved.push(Moved { from: self.front, to: raw, ticks });
    }

    /// Records the timestamp of a unit. If it is more than `back` ticks before the greatest one, the
    /// publisher's clock was reset, and all movements are forgotten.
    pub(super) fn accept(&mut self, raw: i64, back: i64) {
        if self.front.saturating_sub(raw) > back {
            *self = Self::new(raw);
        }
        self.front = self.front.max(raw);
        // Units with timestamps before `since` do not arrive any more, so movements before it are not
        // needed.
        let since = self.front.saturating_sub(back);
        if self.moved.first().is_some_and(|moved| moved.to < since) {
            self.moved.remove(0);
        }
    }
}
