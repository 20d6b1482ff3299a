//! The receive buffer: packets that have arrived and have not been delivered yet.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::seq::Seq;

/// Capacity in slots above which an empty buffer returns its memory.
const KEPT_SLOTS: usize = 64;

#[derive(Debug, Default)]
struct Slot {
    payload: Option<Bytes>,
    /// Time of the packet on our clock, before the latency is added.
    moment_us: i64,
    /// True if the sender has given the packet up.
    given_up: bool,
}

impl Slot {
    const fn is_missing(&self) -> bool {
        self.payload.is_none() && !self.given_up
    }
}

/// The effect of an arriving packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The packet is beyond all earlier ones. If packets are missing before it, these are the first and the last of the
    /// new gap; otherwise `None`.
    New(Option<(Seq, Seq)>),
    /// The packet fills a gap.
    Filled,
    /// The packet is already in the buffer.
    Duplicate,
    /// The packet was already delivered or given up.
    Belated,
    /// The packet is too far ahead, or the buffered bytes are at their limit.
    NoRoom,
}

/// A message or a gap that leaves the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A message.
    Payload(Bytes),
    /// The number of packets that were given up.
    Skipped(u32),
}

/// The packets that are not delivered yet. Each packet is a whole message, because live mode sends no
/// others.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    base: Seq,
    slots: VecDeque<Slot>,
    /// All slots before this index hold a packet or were given up.
    complete: usize,
    /// Index of the first slot with a payload.
    first: Option<usize>,
    bytes: usize,
    window: usize,
    bytes_max: usize,
}

impl ReceiveBuffer {
    pub(crate) const fn new(first: Seq, window: usize, bytes_max: usize) -> Self {
        Self { base: first, slots: VecDeque::new(), complete: 0, first: None, bytes: 0, window, bytes_max }
    }

    fn seq_at(&self, index: usize) -> Seq {
        self.base.plus(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Sequence number of the next packet to be delivered.
    pub(crate) const fn base(&self) -> Seq {
        self.base
    }

    /// Sequence number of the first missing packet, as carried by an acknowledgement.
    pub(crate) fn next_missing(&self) -> Seq {
        self.seq_at(self.complete)
    }

    /// Sequence number after the newest packet received.
    pub(crate) fn end(&self) -> Seq {
        self.seq_at(self.slots.len())
    }

    /// Number of packets for which there is still room.
    pub(crate) fn room(&self) -> usize {
        self.window.saturating_sub(self.slots.len())
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the effect that this packet would have, without storing the packet.
    pub(crate) fn look(&self, seq: Seq, bytes: usize) -> Arrival {
        let Some(index) = seq.ahead_of(self.base).and_then(|index| usize::try_from(index).ok()) else {
            return Arrival::Belated;
        };
        if index >= self.window || self.bytes.saturating_add(bytes) > self.bytes_max {
            return Arrival::NoRoom;
        }
        match self.slots.get(index) {
            Some(slot) if slot.given_up => Arrival::Belated,
            Some(slot) if slot.payload.is_some() => Arrival::Duplicate,
            Some(_) => Arrival::Filled,
            None if index == self.slots.len() => Arrival::New(None),
            None => Arrival::New(Some((self.end(), seq.previous()))),
        }
    }

    /// Stores a packet for which [`ReceiveBuffer::look`] has returned `New` or `Filled`.
    pub(crate) fn insert(&mut self, seq: Seq, moment_us: i64, payload: Bytes) {
        let Some(index) = seq.ahead_of(self.base).and_then(|index| usize::try_from(index).ok()) else {
            return;
        };
        if index >= self.window {
            return;
        }
        if index >= self.slots.len() {
            self.slots.resize_with(index.saturating_add(1), Slot::default);
        }
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.is_missing()) else { return };
        self.bytes = self.bytes.saturating_add(payload.len());
        *slot = Slot { payload: Some(payload), moment_us, given_up: false };
        self.first = Some(self.first.map_or(index, |first| first.min(index)));
        self.complete_from(self.complete);
    }

    fn complete_from(&mut self, from: usize) {
        self.complete = from;
        while self.slots.get(self.complete).is_some_and(|slot| !slot.is_missing()) {
            self.complete = self.complete.saturating_add(1);
        }
    }

    /// Gives up the packets from `first` to `last` that have not arrived, because the sender has given them up. Returns
    /// false if the range is malformed or outside the window.
    pub(crate) fn give_up(&mut self, first: Seq, last: Seq) -> bool {
        let to_index = |seq: Seq| seq.ahead_of(self.base).and_then(|index| usize::try_from(index).ok());
        let (Some(_), Some(to)) = (last.ahead_of(first), to_index(last)) else { return false };
        if to >= self.window {
            return false;
        }
        let from = to_index(first).unwrap_or(0);
        if to >= self.slots.len() {
            self.slots.resize_with(to.saturating_add(1), Slot::default);
        }
        for slot in self.slots.range_mut(from..=to).filter(|slot| slot.payload.is_none()) {
            slot.given_up = true;
        }
        self.complete_from(self.complete);
        true
    }

    /// Restarts an empty buffer at `seq`, which is beyond the window. Returns the number of packets that are given up.
    pub(crate) fn jump(&mut self, seq: Seq) -> u32 {
        let count = seq.ahead_of(self.base).unwrap_or(0);
        self.slots.clear();
        (self.base, self.complete, self.first, self.bytes) = (seq, 0, None, 0);
        count
    }

    /// True if there is nothing left to deliver.
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the time, on our clock, of the next packet that has arrived.
    pub(crate) fn next_moment(&self) -> Option<i64> {
        self.first.and_then(|first| self.slots.get(first)).map(|slot| slot.moment_us)
    }

    /// Delivers the next packet if `is_due` returns true for its time. Missing packets before it are given up first.
    pub(crate) fn deliver(&mut self, is_due: impl FnOnce(i64) -> bool) -> Option<Delivery> {
        if let Some(count) = self.given_up_ahead() {
            self.pop(count);
            return Some(Delivery::Skipped(u32::try_from(count).unwrap_or(u32::MAX)));
        }
        let (first, moment) = (self.first?, self.next_moment()?);
        if !is_due(moment) {
            return None;
        }
        if first > 0 {
            self.pop(first);
            return Some(Delivery::Skipped(u32::try_from(first).unwrap_or(u32::MAX)));
        }
        let payload = self.slots.front_mut().and_then(|slot| slot.payload.take())?;
        self.bytes = self.bytes.saturating_sub(payload.len());
        self.pop(1);
        Some(Delivery::Payload(payload))
    }

    /// Returns the number of packets at the front that the sender has given up; `None` if there are none.
    fn given_up_ahead(&self) -> Option<usize> {
        let count = self.slots.iter().take_while(|slot| slot.given_up && slot.payload.is_none()).count();
        (count > 0).then_some(count)
    }

    fn pop(&mut self, count: usize) {
        self.slots.drain(..count.min(self.slots.len()));
        self.base = self.base.plus(u32::try_from(count).unwrap_or(u32::MAX));
        self.first = self.slots.iter().position(|slot| slot.payload.is_some());
        self.complete_from(self.complete.saturating_sub(count));
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            self.slots = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seq = Seq::new(0x7fff_fffe);

    fn buffer() -> ReceiveBuffer {
        ReceiveBuffer::new(FIRST, 100, 1000)
    }

    fn arrive(buffer: &mut ReceiveBuffer, n: u32) -> Arrival {
        let arrival = buffer.look(FIRST.plus(n), 1);
        if matches!(arrival, Arrival::New(_) | Arrival::Filled) {
            buffer.insert(FIRST.plus(n), i64::from(n) * 10, Bytes::from(vec![u8::try_from(n).unwrap()]));
        }
        arrival
    }

    fn drain(buffer: &mut ReceiveBuffer, until: i64) -> Vec<String> {
        std::iter::from_fn(|| buffer.deliver(|moment| moment <= until))
            .map(|delivery| match delivery {
                Delivery::Payload(payload) => payload[0].to_string(),
                Delivery::Skipped(count) => format!("-{count}"),
            })
            .collect()
    }

    #[test]
    fn packets_come_out_in_order_and_in_time() {
        let mut b = buffer();
        assert_eq!(arrive(&mut b, 0), Arrival::New(None));
        assert_eq!(arrive(&mut b, 4), Arrival::New(Some((FIRST.plus(1), FIRST.plus(3)))));
        assert_eq!(b.next_missing(), FIRST.plus(1));
        assert_eq!((arrive(&mut b, 2), arrive(&mut b, 2)), (Arrival::Filled, Arrival::Duplicate));
        assert_eq!(drain(&mut b, 19), ["0"]);
        assert_eq!((arrive(&mut b, 0), b.next_moment()), (Arrival::Belated, Some(20)));
        assert_eq!(arrive(&mut b, 1), Arrival::Filled);
        assert_eq!(b.next_missing(), FIRST.plus(3));
        // The missing packet 3 is given up only when packet 4 is due, at 40.
        assert_eq!(drain(&mut b, 39), ["1", "2"]);
        assert_eq!(drain(&mut b, 40), ["-1", "4"]);
        assert_eq!((b.base(), b.next_missing(), b.bytes()), (FIRST.plus(5), FIRST.plus(5), 0));
    }

    #[test]
    fn s_08_the_window_and_the_bytes_are_bounds() {
        let mut b = buffer();
        assert_eq!(arrive(&mut b, 100), Arrival::NoRoom);
        assert_eq!(arrive(&mut b, 0x3fff_ffff), Arrival::NoRoom);
        assert_eq!(arrive(&mut b, 0x4000_0000), Arrival::Belated);
        assert_eq!(arrive(&mut b, 99), Arrival::New(Some((FIRST, FIRST.plus(98)))));
        assert_eq!((b.room(), b.look(FIRST, 1000)), (0, Arrival::NoRoom));
        assert_eq!(drain(&mut b, i64::MAX), ["-99", "99"]);
        assert_eq!((b.jump(FIRST.plus(500)), b.is_empty()), (400, true));
        assert_eq!(arrive(&mut b, 500 - 256), Arrival::Belated);
    }

    #[test]
    fn s_23_drop_requests_are_for_what_is_missing_in_the_window() {
        let mut b = buffer();
        arrive(&mut b, 2);
        assert!(!b.give_up(FIRST.plus(3), FIRST.plus(1)));
        assert!(!b.give_up(FIRST, FIRST.plus(100)));
        assert!(!b.give_up(FIRST.plus(0x2000_0000), FIRST.plus(0x2000_0001)));
        assert!(b.give_up(FIRST.plus(1), FIRST.plus(4)));
        assert_eq!((b.next_missing(), b.end()), (FIRST, FIRST.plus(5)));
        assert_eq!(arrive(&mut b, 3), Arrival::Belated);
        arrive(&mut b, 0);
        assert_eq!(drain(&mut b, 20), ["0", "-1", "2", "-2"]);
        assert!(b.give_up(FIRST.plus(1), FIRST.plus(6)), "begins before the window");
        assert_eq!(drain(&mut b, 0), ["-2"]);
    }
}
