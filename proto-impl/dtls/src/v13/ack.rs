//! Acknowledgements (RFC 9147 §7): reads and writes record numbers, and keeps the peer's records that must be
//! acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Reader;

use crate::error::Failure;
use crate::handshake::vec16;
use crate::put;

/// Length of a record number in an acknowledgement.
const NUMBER_BYTES: usize = 16;
/// Maximum number of records remembered for acknowledgement; the latest ones are kept.
const WAITING_MAX: usize = 32;

/// The number of a record (RFC 9147 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordNumber {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
}

/// Reads the record numbers in an acknowledgement. Fails if a number has a later epoch than the record
/// containing the acknowledgement (RFC 9147 §7.2).
pub(crate) fn read(clear: &[u8], carrier: RecordNumber) -> Result<Vec<RecordNumber>, Failure> {
    let mut r = Reader::new(clear);
    let list = vec16(&mut r)?;
    let (numbers, rest) = list.as_chunks::<NUMBER_BYTES>();
    if !(rest.is_empty() && r.is_empty()) {
        return Err(Failure::Malformed);
    }
    let mut all = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut r = Reader::new(number);
        let number = RecordNumber { epoch: r.u64()?, sequence: r.u64()? };
        // After the handshake, records may overtake each other, so a record of an old epoch may acknowledge a record
        // of a later epoch.
        if number.epoch > carrier.epoch && carrier.epoch < FIRST_OF_APPLICATION {
            return Err(Failure::Illegal("an acknowledgement of a later epoch"));
        }
        all.push(number);
    }
    Ok(all)
}

/// First epoch of application data (RFC 9147 §6.1).
const FIRST_OF_APPLICATION: u64 = 3;

/// Records of the peer that must be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    records: VecDeque<RecordNumber>,
    /// True if some records have not been in any acknowledgement yet.
    has_news: bool,
    due: Option<Instant>,
    /// True if an acknowledgement must be sent now.
    is_pending: bool,
}

impl Acks {
    /// Records an accepted record that contains handshake messages.
    pub(crate) fn insert(&mut self, number: RecordNumber) {
        if self.records.len() >= WAITING_MAX {
            self.records.pop_front();
        }
        self.records.push_back(number);
        self.has_news = true;
    }

    /// Schedules an acknowledgement after a pause, in case no answer replaces it.
    pub(crate) fn schedule(&mut self, now: Instant, pause: Duration) {
        if self.has_news && self.due.is_none() && !self.is_pending {
            self.due = now.checked_add(pause);
        }
    }

    /// Requests an immediate acknowledgement, because no answer will follow.
    pub(crate) fn hurry(&mut self) {
        self.due = None;
        self.is_pending = !self.records.is_empty();
    }

    /// Forgets all records, because an answer acknowledges them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Handles an expired deadline.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|at| at <= now) {
            self.hurry();
        }
    }

    /// True if an acknowledgement must be sent now.
    pub(crate) const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns an acknowledgement of the latest records, as many as fit into `room` bytes. The records are
    /// kept, to be acknowledged again if they are retransmitted.
    pub(crate) fn take(&mut self, room: usize) -> Vec<u8> {
        self.due = None;
        self.is_pending = false;
        self.has_news = false;
        let most = room.saturating_sub(2) / NUMBER_BYTES;
        let behind = self.records.len().saturating_sub(most);
        let mut latest: Vec<RecordNumber> = self.records.iter().skip(behind).copied().collect();
        latest.sort_unstable();
        let list: Vec<u8> = latest
            .iter()
            .flat_map(|number| [number.epoch.to_be_bytes(), number.sequence.to_be_bytes()])
            .flatten()
            .collect();
        let mut clear = Vec::with_capacity(list.len().saturating_add(2));
        put::vec16(&mut clear, &list);
        clear
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.records.capacity().saturating_mul(size_of::<RecordNumber>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn number(epoch: u64, sequence: u64) -> RecordNumber {
        RecordNumber { epoch, sequence }
    }

    #[test]
    fn numbers_are_read_as_written_in_order() {
        let now = netsim::Clock::new().now();
        let mut acks = Acks::default();
        for (epoch, sequence) in [(2, 5), (2, 1), (0, 7)] {
            acks.insert(number(epoch, sequence));
        }
        assert_eq!(acks.deadline(), None);
        acks.schedule(now, Duration::from_millis(10));
        assert!(!acks.is_pending());
        acks.handle_timeout(now + Duration::from_millis(10));
        assert!(acks.is_pending());
        let clear = acks.take(1000);
        let expected = vec![number(0, 7), number(2, 1), number(2, 5)];
        assert_eq!(read(&clear, number(2, 0)), Ok(expected));
        assert_eq!(acks.deadline(), None);
        // With room for a single number, the latest record is acknowledged.
        assert_eq!(read(&acks.take(20), number(2, 0)), Ok(vec![number(0, 7)]));
        for cut in 0..clear.len() {
            assert_eq!(read(&clear[..cut], number(2, 0)), Err(Failure::Malformed));
        }
        assert_eq!(read(&[0, 0], number(2, 0)), Ok(vec![]));
    }

    #[test]
    fn d_29_acknowledgements_of_later_epochs_are_refused_in_a_handshake() {
        let mut acks = Acks::default();
        acks.insert(number(3, 1));
        let clear = acks.take(100);
        let refused = Err(Failure::Illegal("an acknowledgement of a later epoch"));
        assert_eq!(read(&clear, number(2, 0)), refused);
        assert_eq!(read(&clear, number(0, 0)), refused);
        assert!(read(&clear, number(3, 0)).is_ok() && read(&clear, number(4, 0)).is_ok());
    }

    #[test]
    fn d_29_a_flood_of_records_is_remembered_in_part() {
        let now = netsim::Clock::new().now();
        let mut acks = Acks::default();
        for sequence in 0..10_000 {
            acks.insert(number(3, sequence));
            acks.schedule(now, Duration::from_millis(12));
        }
        assert_eq!(acks.deadline(), Some(now + Duration::from_millis(12)));
        let latest = read(&acks.take(10_000), number(3, 0)).unwrap();
        assert_eq!(latest.len(), WAITING_MAX);
        assert_eq!(latest.last(), Some(&number(3, 9_999)));
        assert!(acks.held_bytes() <= 1024);
        acks.clear();
        acks.hurry();
        assert_eq!((acks.deadline(), acks.is_pending()), (None, false));
    }
}
