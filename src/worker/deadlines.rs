//! The deadline table: one heap of all deadlines of a worker.
//!
//! Moving an owner's deadline to a later time does not change the heap: the old entry fires early, and the owner
//! then arms a new one. A viewer whose deadline moves with every frame therefore costs no work in the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::types::{ConnId, StreamId};

/// The owner of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The next deadline of a connection: of its session, of a subscription, or of a stalled write.
    Conn(ConnId),
    /// Units of a stream that wait so that they can be sent together with later ones.
    Flush(StreamId),
    /// The worker's report to control.
    Report,
    /// Derived tracks of a stream that lost their last subscriber.
    Linger(StreamId),
    /// The silence of a stream's publisher and its standby.
    Silence(StreamId),
    /// Leases of viewers without a connection, waiting requests, and blobs of ended streams.
    Polled,
}

/// All deadlines of a worker.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Deadlines {
    /// Arms `timer` at `at`. Entries of the timer at other times remain.
    pub(super) fn arm(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// Removes and returns the next entry that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        self.heap
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= now)
            .then(|| self.heap.pop())?
            .map(|Reverse(due)| due)
    }

    /// Number of entries.
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
