//! The events of a port that its program has not taken yet.

use std::collections::{BTreeMap, VecDeque};

/// Bytes that the events of one connection or session may hold: thirteen seconds of 5 Mbit/s.
pub(crate) const CONNECTION_BYTES_MAX: usize = 8 << 20;
/// Bytes that all events of a port may hold.
pub(crate) const PORT_BYTES_MAX: usize = 256 << 20;
/// Bytes that each event counts beside its data.
pub(crate) const EVENT_BYTES: usize = 128;

/// A bounded queue of events, each of which belongs to a connection or session.
#[derive(Debug)]
pub(crate) struct Events<T> {
    queue: VecDeque<(u64, usize, T)>,
    /// Bytes held for each owner with events.
    held: BTreeMap<u64, usize>,
    /// Bytes held for all of them.
    total: usize,
}

impl<T> Events<T> {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), held: BTreeMap::new(), total: 0 }
    }

    /// True if no event fits any more, whoever it belongs to. New connections should then be refused.
    pub(crate) const fn is_full(&self) -> bool {
        self.total >= PORT_BYTES_MAX
    }

    /// Adds an event with data of `bytes`. Returns false if its owner or the port holds too much: the event is lost then, and its owner
    /// must end.
    #[must_use]
    pub(crate) fn push(&mut self, owner: u64, bytes: usize, event: T) -> bool {
        let bytes = bytes.saturating_add(EVENT_BYTES);
        let held = self.held.get(&owner).copied().unwrap_or(0);
        // One event fits in any case: a frame may be as long as all that may be held.
        let fits = (held == 0 || held.saturating_add(bytes) <= CONNECTION_BYTES_MAX)
            && self.total.saturating_add(bytes) <= PORT_BYTES_MAX;
        if fits {
            self.add(owner, bytes, event);
        }
        fits
    }

    /// Adds one of the last events of an owner, without data: they always fit.
    pub(crate) fn push_last(&mut self, owner: u64, event: T) {
        self.add(owner, EVENT_BYTES, event);
    }

    fn add(&mut self, owner: u64, bytes: usize, event: T) {
        *self.held.entry(owner).or_insert(0) += bytes;
        self.total += bytes;
        self.queue.push_back((owner, bytes, event));
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (owner, bytes, event) = self.queue.pop_front()?;
        self.release(owner, bytes);
        Some(event)
    }

    /// Drops the events of an owner of which the program has heard nothing.
    pub(crate) fn forget(&mut self, owner: u64) {
        self.queue.retain(|(other, ..)| *other != owner);
        let bytes = self.held.get(&owner).copied().unwrap_or(0);
        self.release(owner, bytes);
    }

    /// True if an event of the owner has not been taken yet.
    pub(crate) fn holds(&self, owner: u64) -> bool {
        self.held.contains_key(&owner)
    }

    fn release(&mut self, owner: u64, bytes: usize) {
        self.total -= bytes;
        if let Some(held) = self.held.get_mut(&owner) {
            *held -= bytes;
            if *held == 0 {
                self.held.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_holds_too_much_is_refused_and_others_go_on() {
        let mut events = Events::new();
        let taken = (0..10_000).take_while(|n| events.push(1, 1316, *n)).count();
        assert_eq!(taken, CONNECTION_BYTES_MAX / (1316 + EVENT_BYTES));
        assert!(events.push(2, 1316, 0) && !events.push(1, 1316, 0) && !events.is_full());
        events.push_last(1, 7);
        assert_eq!(events.pop(), Some(0));
        assert!(events.push(1, 1316 - EVENT_BYTES, 8), "what was taken makes room");
        events.forget(1);
        assert_eq!(
            (events.holds(1), events.holds(2), events.pop(), events.pop()),
            (false, true, Some(0), None)
        );
        assert_eq!((events.total, events.held.len()), (0, 0));
    }

    #[test]
    fn a_port_holds_a_bounded_number_of_bytes() {
        let mut events = Events::new();
        let taken = (0..u64::MAX).take_while(|n| events.push(n / 7, 1 << 20, ())).count();
        assert_eq!(taken, PORT_BYTES_MAX / ((1 << 20) + EVENT_BYTES));
        assert!(!events.push(u64::MAX, 1 << 20, ()));
        (0..10_000).for_each(|n| events.push_last(n, ()));
        assert!(events.is_full());
    }
}
