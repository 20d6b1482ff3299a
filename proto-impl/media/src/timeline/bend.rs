//! Movements of a track towards its sender reports, as a curve over its timestamps.
//!
//! Pictures arrive in decoding order. A movement that applied to all units that arrive after it would place a picture
//! that is shown before earlier ones by another offset than them, and change their order. So each movement belongs to
//! the interval of timestamps in which it was made: it grows from zero to its whole within this interval.

use alloc::vec::Vec;

/// Maximum number of movements that are remembered: pictures that are shown earlier than all of them come from
/// more than 16 pictures before, which no decoder keeps (H.264 §A.3.1).
const BENDS_MAX: usize = 16;

/// A movement that was made from timestamp `from` to timestamp `to`.
#[derive(Debug, Clone, Copy)]
struct Moved {
    from: i64,
    to: i64,
    ticks: i64,
}

impl Moved {
    /// Returns the part of the movement that comes after this timestamp.
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

    /// Returns the sum of the movements that come after this timestamp.
    pub(super) fn after(&self, raw: i64) -> i64 {
        self.moved.iter().fold(0, |sum, moved| sum.saturating_add(moved.after(raw)))
    }

    /// Notes a movement that is made up to this timestamp.
    pub(super) fn push(&mut self, raw: i64, ticks: i64) {
        if self.moved.len() == BENDS_MAX {
            self.moved.remove(0);
        }
        self.moved.push(Moved { from: self.front, to: raw, ticks });
    }

    /// Notes the timestamp of a unit. If it is further back than `back`, the clock has moved.
    pub(super) fn accept(&mut self, raw: i64, back: i64) {
        if self.front.saturating_sub(raw) > back {
            *self = Self::new(raw);
        }
        self.front = self.front.max(raw);
        // Movements that lie further back concern no unit any more.
        let since = self.front.saturating_sub(back);
        if self.moved.first().is_some_and(|moved| moved.to < since) {
            self.moved.remove(0);
        }
    }
}
