//! Which packets left, under which number of the transport, and when.

use std::collections::VecDeque;

/// Packets that are remembered: two seconds of 20 Mb/s.
const PACKETS_MAX: usize = 4096;
/// For so long, in microseconds: feedback comes several times a second.
const AGE_MAX: u32 = 2_000_000;

/// A packet as it is remembered: eight bytes, since each viewer has hundreds of them.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Microseconds; wraps after 71 minutes, and only distances count.
    sent: u32,
    bytes: u16,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Lost,
    Arrived,
}

/// A packet that feedback is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentPacket {
    /// Counts all packets of the transport.
    pub(super) number: u64,
    /// When it left, in microseconds since the log began.
    pub(super) sent: i64,
    pub(super) bytes: u16,
}

/// The last packets of a transport.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// When the newest packet left.
    newest: i64,
}

impl SentLog {
    /// The number that the next packet will have.
    pub(super) fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.entries.len()).unwrap_or(0))
    }

    /// Notes a packet; the number that goes with it.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the lower bits, as the draft has them"
    )]
    pub(super) fn push(&mut self, micros: i64, bytes: usize) -> u16 {
        let number = self.next() as u16;
        let sent = micros as u32;
        self.newest = micros;
        self.entries.push_back(Entry {
            sent,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            state: State::Unknown,
        });
        while let Some(oldest) = self.entries.front()
            && (self.entries.len() > PACKETS_MAX || sent.wrapping_sub(oldest.sent) > AGE_MAX)
        {
            self.entries.pop_front();
            self.first = self.first.saturating_add(1);
        }
        number
    }

    /// The packet that a number in feedback means, with what is said of it; `None` when it is not known, or all is known
    /// already.
    pub(super) fn take(&mut self, number: u16, arrived: bool) -> Option<SentPacket> {
        let number = self.widen(number);
        let newest = self.newest;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(at)?;
        let is_news = match entry.state {
            State::Unknown => true,
            // It came nevertheless; as a loss it was counted.
            State::Lost => arrived,
            State::Arrived => false,
        };
        if !is_news {
            return None;
        }
        entry.state = if arrived { State::Arrived } else { State::Lost };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits")]
        let behind = (newest as u32).wrapping_sub(entry.sent);
        Some(SentPacket { number, sent: newest.saturating_sub(i64::from(behind)), bytes: entry.bytes })
    }

    /// The count of all packets that a number of 16 bits means: the one nearest to the next.
    pub(super) fn widen(&self, number: u16) -> u64 {
        let next = self.next();
        #[allow(clippy::cast_possible_truncation, reason = "the lower bits")]
        let behind = (next as u16).wrapping_sub(number);
        match i16::from_ne_bytes(behind.to_ne_bytes()) {
            back @ 0.. => next.saturating_sub(u64::from(back.unsigned_abs())),
            ahead => next.saturating_add(u64::from(ahead.unsigned_abs())),
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.entries.capacity().saturating_mul(size_of::<Entry>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_taken_once_and_a_loss_may_be_corrected() {
        let mut log = SentLog::default();
        let numbers: Vec<u16> = (0..70_000).map(|n| log.push(n * 100, 1000)).collect();
        assert_eq!((numbers[0], numbers[65_536], log.next()), (0, 0, 70_000));
        assert_eq!(log.entries.len(), PACKETS_MAX);
        let last = log.take(numbers[69_999], true).unwrap();
        assert_eq!(last, SentPacket { number: 69_999, sent: 6_999_900, bytes: 1000 });
        assert_eq!(log.take(numbers[69_999], true), None);
        assert_eq!(log.take(numbers[69_990], false).unwrap().sent, 6_999_000);
        assert_eq!(log.take(numbers[69_990], false), None);
        assert!(log.take(numbers[69_990], true).is_some());
        // What is forgotten, and what was never sent.
        assert_eq!(log.take(numbers[60_000], true), None);
        assert_eq!(log.take(numbers[69_999].wrapping_add(1), true), None);
        assert_eq!(size_of::<Entry>(), 8);
    }

    #[test]
    fn packets_of_two_seconds_ago_are_forgotten() {
        let mut log = SentLog::default();
        for n in 0..100 {
            log.push(n * 100_000, 10);
        }
        assert_eq!(log.entries.len(), 21);
        assert_eq!(log.take(98, true).unwrap().sent, 9_800_000);
    }
}
