//! A counter of events in windows of time.

use std::time::{Duration, Instant};

/// A limit of events per window. A window begins with the first event after the previous window.
#[derive(Debug)]
pub(crate) struct Rate {
    max: u32,
    window: Duration,
    begun: Option<Instant>,
    count: u32,
}

impl Rate {
    pub(crate) const fn new(max: u32, window: Duration) -> Self {
        Self { max, window, begun: None, count: 0 }
    }

    /// Counts an event. Returns false if the window now has more events than allowed.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= self.window) {
            self.begun = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.max
    }
}
