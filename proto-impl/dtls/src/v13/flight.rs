//! Flights of DTLS 1.3: messages divided into records; unacknowledged parts are retransmitted (RFC 9147 §5.8,
//! §7).

use std::collections::VecDeque;

use super::ack::RecordNumber;
use super::record::{OVERHEAD_BYTES, Records};
use crate::handshake::{self, FragmentHead, MessageType};
use crate::record::{ContentType, Exhausted, FRAGMENT_BYTES_MAX, HEAD_BYTES};

/// Maximum number of sent parts that are remembered. Parts sent before these are sent again even if they are
/// acknowledged.
const SENT_MAX: usize = 128;

/// A message of a flight.
#[derive(Debug)]
struct Message {
    kind: MessageType,
    sequence: u16,
    body: Vec<u8>,
    epoch: u16,
    /// Acknowledged parts of the message, ordered and disjoint.
    acked: Vec<(usize, usize)>,
    /// True if the whole message is acknowledged; needed for messages without a body.
    is_done: bool,
}

impl Message {
    /// Returns the first unacknowledged part at or after `offset`.
    fn gap(&self, offset: usize) -> Option<(usize, usize)> {
        if self.is_done {
            return None;
        }
        let mut start = offset;
        for (from, to) in &self.acked {
            if start < *from {
                return Some((start, *from));
            }
            start = start.max(*to);
        }
        (start < self.body.len() || (self.body.is_empty() && offset == 0)).then_some((start, self.body.len()))
    }

    fn acknowledge(&mut self, start: usize, end: usize) {
        let (mut start, mut end) = (start, end);
        // Merges the part with all parts that it touches.
        self.acked.retain(|(from, to)| {
            let touches = *from <= end && start <= *to;
            if touches {
                (start, end) = (start.min(*from), end.max(*to));
            }
            !touches
        });
        let at = self.acked.partition_point(|(from, _)| *from < start);
        self.acked.insert(at, (start, end));
        self.is_done = start == 0 && end >= self.body.len();
    }
}

/// The part of a message that was sent in a record.
#[derive(Debug, Clone, Copy)]
struct Sent {
    number: RecordNumber,
    message: usize,
    start: usize,
    end: usize,
}

/// The flight that awaits an answer or an acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    messages: Vec<Message>,
    sent: VecDeque<Sent>,
    /// Next message to send, and the offset of its next byte.
    at: (usize, usize),
}

impl Flight {
    pub(crate) fn push(&mut self, kind: MessageType, sequence: u16, body: Vec<u8>, epoch: u16) {
        self.messages.push(Message { kind, sequence, body, epoch, acked: Vec::new(), is_done: false });
    }

    /// Empties the flight, because all of it has arrived.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Restarts sending with the unacknowledged parts.
    pub(crate) const fn rewind(&mut self) {
        self.at = (0, 0);
    }

    /// True if there is no flight.
    pub(crate) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// True if part of the flight is still to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.next_part().is_some()
    }

    fn next_part(&self) -> Option<(usize, (usize, usize))> {
        let (index, offset) = self.at;
        let later = self.messages.iter().enumerate().skip(index);
        later
            .map(|(number, message)| (number, message.gap(if number == index { offset } else { 0 })))
            .find_map(|(number, gap)| Some((number, gap?)))
    }

    /// Marks the parts in a record as acknowledged. Returns true if the whole flight is acknowledged.
    pub(crate) fn acknowledge(&mut self, number: RecordNumber) -> bool {
        let before = self.sent.len();
        let messages = &mut self.messages;
        self.sent.retain(|sent| {
            let heard = sent.number == number;
            if heard && let Some(message) = messages.get_mut(sent.message) {
                message.acknowledge(sent.start, sent.end);
            }
            !heard
        });
        let done = self.sent.len() < before && self.messages.iter().all(|message| message.is_done);
        if done {
            self.clear();
        }
        done
    }

    /// Fills a datagram of at most `mtu` bytes with the next part of the flight, using one record per epoch.
    pub(crate) fn write(
        &mut self,
        records: &mut Records,
        mtu: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted> {
        while let Some(epoch) = self.next_epoch() {
            let over = if epoch == 0 { HEAD_BYTES } else { OVERHEAD_BYTES };
            let room = mtu.saturating_sub(out.len());
            if room <= over.saturating_add(handshake::HEAD_BYTES) && !out.is_empty() {
                break;
            }
            let first = self.sent.len();
            let clear = self.gather(epoch, room.saturating_sub(over).min(FRAGMENT_BYTES_MAX));
            if clear.is_empty() {
                break;
            }
            let number = records.write(epoch, ContentType::HANDSHAKE, &clear, out)?;
            self.sent.iter_mut().skip(first).for_each(|sent| sent.number = number);
            let over = self.sent.len().saturating_sub(SENT_MAX);
            self.sent.drain(..over);
        }
        Ok(())
    }

    fn next_epoch(&self) -> Option<u16> {
        let (index, _) = self.next_part()?;
        self.messages.get(index).map(|message| message.epoch)
    }

    /// Returns the content of a record: the next message parts of one epoch.
    fn gather(&mut self, epoch: u16, room: usize) -> Vec<u8> {
        let mut clear = Vec::new();
        while let Some((index, (start, end))) = self.next_part() {
            let Some(message) = self.messages.get(index).filter(|message| message.epoch == epoch) else {
                break;
            };
            let left = room.saturating_sub(clear.len()).saturating_sub(handshake::HEAD_BYTES);
            // At least one byte is put into a record, however small the datagram is.
            let space = left.max(usize::from(clear.is_empty()));
            if (space == 0 && start < end)
                || (clear.len().saturating_add(handshake::HEAD_BYTES) > room && !clear.is_empty())
            {
                break;
            }
            let end = end.min(start.saturating_add(space));
            let head = FragmentHead {
                kind: message.kind,
                length: message.body.len(),
                sequence: message.sequence,
                offset: start,
                fragment: end.saturating_sub(start),
            };
            head.write(&mut clear);
            clear.extend_from_slice(message.body.get(start..end).unwrap_or_default());
            self.at = if end >= message.body.len() { (index.saturating_add(1), 0) } else { (index, end) };
            // The record number is set when the record is written.
            let number = RecordNumber { epoch: 0, sequence: u64::MAX };
            self.sent.push_back(Sent { number, message: index, start, end });
        }
        clear
    }

    /// Changes a message, to simulate a misbehaving peer.
    #[cfg(test)]
    pub(crate) fn change(&mut self, kind: MessageType, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(message) = self.messages.iter_mut().find(|message| message.kind == kind) {
            change(&mut message.body);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let messages: usize = self
            .messages
            .iter()
            .map(|message| {
                let parts = message.acked.capacity().saturating_mul(size_of::<(usize, usize)>());
                message.body.capacity().saturating_add(parts)
            })
            .sum();
        let list = self.messages.capacity().saturating_mul(size_of::<Message>());
        let sent = self.sent.capacity().saturating_mul(size_of::<Sent>());
        messages.saturating_add(list).saturating_add(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(lengths: &[usize]) -> Flight {
        let mut flight = Flight::default();
        for (sequence, length) in lengths.iter().enumerate() {
            flight.push(MessageType(1), u16::try_from(sequence).unwrap(), vec![0; *length], 0);
        }
        flight
    }

    fn write_all(flight: &mut Flight, records: &mut Records, mtu: usize) -> usize {
        let mut datagrams = 0;
        while flight.is_pending() {
            let mut out = Vec::new();
            flight.write(records, mtu, &mut out).unwrap();
            assert!(!out.is_empty() && out.len() <= mtu);
            datagrams += 1;
        }
        datagrams
    }

    #[test]
    fn datagrams_are_full_and_never_longer_than_the_mtu() {
        for mtu in 100..1300 {
            let mut flight = flight(&[0, 90, 900, 0, 33]);
            let mut records = Records::new();
            for _ in 0..2 {
                let datagrams = write_all(&mut flight, &mut records, mtu);
                assert!(datagrams <= 1 + 1200 / (mtu - 25) * 2, "{mtu}: {datagrams}");
                flight.rewind();
            }
        }
    }

    /// Acknowledged parts are not sent again, in whatever order they were acknowledged; all other parts are.
    #[test]
    fn what_is_acknowledged_is_not_sent_again() {
        for pattern in 0..32u32 {
            let (mut flight, mut records) = (flight(&[0, 300, 20]), Records::new());
            let sent = write_all(&mut flight, &mut records, 100);
            assert_eq!(sent, 5);
            let numbers = |from: u64, count: usize| {
                (from..).take(count).map(|sequence| RecordNumber { epoch: 0, sequence })
            };
            let is_heard = |number: &RecordNumber| pattern >> number.sequence & 1 == 1;
            let heard: Vec<_> = numbers(0, sent).filter(is_heard).collect();
            for (at, number) in heard.iter().rev().enumerate() {
                assert_eq!(flight.acknowledge(*number), at == 4, "{pattern:05b}");
                assert!(!flight.acknowledge(*number));
            }
            flight.rewind();
            assert_eq!(flight.is_pending(), heard.len() < sent, "{pattern:05b}");
            let again = write_all(&mut flight, &mut records, 100);
            assert!(again <= sent - heard.len(), "{pattern:05b}");
            let done: Vec<bool> = numbers(5, again).map(|number| flight.acknowledge(number)).collect();
            assert_eq!(done.iter().filter(|done| **done).count(), usize::from(again > 0), "{pattern:05b}");
            assert!(flight.is_empty());
        }
    }

    #[test]
    fn d_29_sent_records_are_remembered_in_part_and_others_are_ignored() {
        let (mut flight, mut records) = (flight(&[1000]), Records::new());
        for _ in 0..100 {
            write_all(&mut flight, &mut records, 100);
            flight.rewind();
        }
        assert_eq!(flight.sent.len(), SENT_MAX);
        assert!(flight.held_bytes() < 16 * 1024, "{}", flight.held_bytes());
        for sequence in 0..1000 {
            assert!(!flight.acknowledge(RecordNumber { epoch: 7, sequence }));
        }
        assert!(flight.is_pending());
    }
}
