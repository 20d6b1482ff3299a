//! Scheduled events in an order that does not depend on when they were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Event returned by [`Scheduler::pop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<T> {
    /// Time of the event.
    pub at: Instant,
    /// Source that scheduled the event.
    pub source: u32,
    /// The payload.
    pub payload: T,
}

/// Event queue ordered by time, then by source, then by the order in which the source scheduled the events. So the
/// result does not depend on which of two sources runs first at one instant.
#[derive(Debug)]
pub struct Scheduler<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

impl<T> Scheduler<T> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    /// Schedules `payload` at `at`.
    pub fn schedule(&mut self, at: Instant, source: u32, payload: T) {
        self.heap.push(Entry { at, source, sequence: self.sequence, payload });
        self.sequence += 1;
    }

    /// Time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Returns the next event at or before `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Due<T>> {
        if self.next_at()? > now {
            return None;
        }
        let Entry { at, source, payload, .. } = self.heap.pop()?;
        Some(Due { at, source, payload })
    }

    /// Number of scheduled events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if there are no scheduled events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<T> Default for Scheduler<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    source: u32,
    sequence: u64,
    payload: T,
}

/// The order is reversed, because the heap returns its greatest entry and the earliest one is needed.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |e: &Self| (e.at, e.source, e.sequence);
        key(other).cmp(&key(self))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ms};

    #[test]
    fn order_is_time_then_source_then_sequence() {
        let clock = Clock::new();
        let mut s = Scheduler::new();
        for (at, source, payload) in [(2, 0, "d"), (1, 1, "b"), (1, 1, "c"), (1, 0, "a"), (3, 0, "e")] {
            s.schedule(clock.at(ms(at)), source, payload);
        }
        assert_eq!((s.len(), s.next_at()), (5, Some(clock.at(ms(1)))));
        assert_eq!(s.pop(clock.now()), None);
        let order: String = std::iter::from_fn(|| s.pop(clock.at(ms(2)))).map(|due| due.payload).collect();
        assert_eq!((order.as_str(), s.is_empty()), ("abcd", false));
    }
}
