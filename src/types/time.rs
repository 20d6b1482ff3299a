//! The time of a turn.

use std::time::Instant;

/// The time of one turn. Protocol machines get `mono` only.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time, for durations and deadlines.
    pub mono: Instant,
    /// Wall-clock time for records that people read: milliseconds since the Unix epoch.
    pub wall_ms: u64,
}
