//! The only module that reads the clocks of this machine.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::types::Now;

/// Returns the current time, to be used for one turn.
pub(crate) fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono: Instant::now(), wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
}
