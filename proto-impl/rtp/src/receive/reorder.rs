//! The reorder buffer, in which packets wait for earlier ones.

use alloc::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::received::Received;
use crate::number::ExtendedSequence;

/// Maximum number of waiting packets.
pub const REORDER_PACKETS_MAX: usize = 2048;
/// Maximum number of payload bytes of waiting packets.
pub const REORDER_BYTES_MAX: usize = 2 << 20;

/// Maximum number of packets after a gap that are examined to determine when the gap was first noticed.
const OVERTAKERS_MAX: usize = 128;

/// A packet or a gap that leaves the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Released {
    /// The next packet.
    Packet(Received),
    /// Number of packets lost before the next one.
    Lost(u64),
    /// Number of missing packets before the next packet, which contains their media as well.
    Covered(u64),
}

/// Packets ordered by extended sequence number. A packet leaves when all earlier ones have left, or when the
/// first waiting packet has waited long enough.
#[derive(Debug)]
pub(super) struct ReorderBuffer {
    waiting: BTreeMap<ExtendedSequence, Received>,
    bytes: usize,
    next: ExtendedSequence,
    /// Time since which packets before the first waiting one are missing.
    gap_since: Option<Instant>,
    wait: Duration,
}

impl ReorderBuffer {
    pub(super) const fn new(next: ExtendedSequence) -> Self {
        Self { waiting: BTreeMap::new(), bytes: 0, next, gap_since: None, wait: Duration::ZERO }
    }

    /// Sets the maximum duration of a gap from now on.
    pub(super) const fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
    }

    /// Sequence number of the packet that must leave next.
    pub(super) const fn next(&self) -> ExtendedSequence {
        self.next
    }

    /// True if a packet need not wait, because it is the next one and no packet waits; it then counts as
    /// having left the buffer. Nearly all packets take this path, which avoids the tree.
    pub(super) fn passes(&mut self, sequence: ExtendedSequence) -> bool {
        let passes = sequence == self.next && self.waiting.is_empty();
        if passes {
            self.next = sequence.next();
        }
        passes
    }

    /// Adds a packet. Returns false if it has already left, was given up, or is a duplicate.
    pub(super) fn insert(&mut self, now: Instant, packet: Received) -> bool {
        if packet.sequence < self.next || self.waiting.contains_key(&packet.sequence) {
            return false;
        }
        if packet.sequence > self.next && self.gap_since.is_none() {
            self.gap_since = Some(now);
        }
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        self.waiting.insert(packet.sequence, packet);
        true
    }

    /// Returns the next packet if it has arrived. Otherwise returns the gap before the first waiting packet, if
    /// it has lasted long enough or the buffer is full.
    pub(super) fn release(&mut self, now: Instant) -> Option<Released> {
        let (&first, packet) = self.waiting.first_key_value()?;
        if first > self.next {
            let missing = first.since(self.next);
            if missing <= packet.covers.into() {
                self.next = first;
                return Some(Released::Covered(missing));
            }
            let full = self.waiting.len() > REORDER_PACKETS_MAX || self.bytes > REORDER_BYTES_MAX;
            if !full && self.deadline().is_none_or(|deadline| deadline > now) {
                return None;
            }
            self.next = first;
            return Some(Released::Lost(missing));
        }
        let (_, packet) = self.waiting.pop_first()?;
        self.bytes = self.bytes.saturating_sub(packet.payload.len());
        self.next = packet.sequence.next();
        // A gap after this packet was noticed when the first packet behind the gap arrived. That is the earliest
        // arrival of all waiting packets, since repaired packets arrived later.
        let behind = self.waiting.first_key_value().is_some_and(|(first, _)| *first > self.next);
        let arrivals = self.waiting.values().take(OVERTAKERS_MAX).map(|waiting| waiting.arrival);
        self.gap_since = if behind { arrivals.min() } else { None };
        Some(Released::Packet(packet))
    }

    /// Drops all waiting packets and continues at `next`.
    pub(super) fn restart(&mut self, next: ExtendedSequence) {
        self.waiting.clear();
        (self.bytes, self.next, self.gap_since) = (0, next, None);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.gap_since.map(|since| since + self.wait)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
