//! The deadline table: one heap for everything of a worker that waits.
//!
//! An owner whose deadline moves later does nothing: its entry fires early, it looks, and arms itself anew. So a
//! viewer that makes progress with every frame costs the heap nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::types::{ConnId, StreamId};

/// The owner of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A connection's session, or its stalled write.
    Conn(ConnId),
    /// Units of a stream that were held back to ride together.
    Flush(StreamId),
    /// The report to control.
    Report,
    /// Derived tracks of a stream that nobody is sent.
    Linger(StreamId),
    /// Leases of viewers that are not connections, requests that wait, blobs of streams that are over.
    Polled,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Deadlines {
    /// Fires `timer` at `at`, besides whatever else it has armed.
    pub(super) fn arm(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// The next one that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        self.heap
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= now)
            .then(|| self.heap.pop())?
            .map(|Reverse(due)| due)
    }

    /// Entries.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    #[must_use]
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
