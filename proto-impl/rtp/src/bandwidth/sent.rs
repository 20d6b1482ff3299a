//! Which packets left, under which number of the transport, and when.

use std::collections::VecDeque;

/// Packets that are remembered: a second and a half of 30 Mb/s.
const PACKETS_MAX: usize = 4096;
/// Times are kept in such steps, in microseconds: feedback has steps of 250.
const STEP: i64 = 64;
/// How long a packet is remembered, in steps: 1.5 s. Feedback comes several times a second.
const AGE_MAX: u16 = 23_437;
/// What is known of a packet, above its length.
const UNKNOWN: u16 = 0;
const LOST: u16 = 1 << 14;
const ARRIVED: u16 = 2 << 14;
const BYTES: u16 = LOST - 1;

/// A packet as it is remembered: four bytes, since each viewer has hundreds of them.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// In steps; wraps after four seconds, and only distances count.
    sent: u16,
    /// Its length, and what is known of it.
    bytes: u16,
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
    /// When the newest packet left, in steps.
    newest: i64,
}

impl SentLog {
    /// The number that the next packet will have.
    pub(super) fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.entries.len()).unwrap_or(0))
    }

    /// Notes a packet; the number that goes with it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits: both wrap")]
    pub(super) fn push(&mut self, micros: i64, bytes: usize) -> u16 {
        let number = self.next() as u16;
        let before = std::mem::replace(&mut self.newest, micros / STEP);
        // Behind a pause nothing is left, however the times have wrapped.
        let paused = self.newest.saturating_sub(before) > AGE_MAX.into();
        let sent = self.newest as u16;
        let bytes = u16::try_from(bytes).unwrap_or(BYTES).min(BYTES);
        self.entries.push_back(Entry { sent, bytes: bytes | UNKNOWN });
        while let Some(oldest) = self.entries.front()
            && self.entries.len() > 1
            && (paused || self.entries.len() > PACKETS_MAX || sent.wrapping_sub(oldest.sent) > AGE_MAX)
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
        let is_news = match entry.bytes & !BYTES {
            UNKNOWN => true,
            // It came nevertheless; as a loss it was counted.
            LOST => arrived,
            _ => false,
        };
        if !is_news {
            return None;
        }
        entry.bytes = entry.bytes & BYTES | if arrived { ARRIVED } else { LOST };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits")]
        let behind = (newest as u16).wrapping_sub(entry.sent);
        let sent = newest.saturating_sub(behind.into()).saturating_mul(STEP);
        Some(SentPacket { number, sent, bytes: entry.bytes & BYTES })
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
        let numbers: Vec<u16> = (0..70_000).map(|n| log.push(n * 128, 1000)).collect();
        assert_eq!((numbers[0], numbers[65_536], log.next()), (0, 0, 70_000));
        assert_eq!(log.entries.len(), PACKETS_MAX);
        let last = log.take(numbers[69_999], true).unwrap();
        assert_eq!(last, SentPacket { number: 69_999, sent: 69_999 * 128, bytes: 1000 });
        assert_eq!(log.take(numbers[69_999], true), None);
        assert_eq!(log.take(numbers[69_990], false).unwrap().sent, 69_990 * 128);
        assert_eq!(log.take(numbers[69_990], false), None);
        assert_eq!(log.take(numbers[69_990], true).unwrap().bytes, 1000);
        assert_eq!(log.take(numbers[69_990], false), None, "what came has come");
        // What is forgotten, and what was never sent.
        assert_eq!(log.take(numbers[60_000], true), None);
        assert_eq!(log.take(numbers[69_999].wrapping_add(1), true), None);
        assert_eq!(size_of::<Entry>(), 4);
    }

    #[test]
    fn packets_are_forgotten_with_time_and_behind_a_pause() {
        let mut log = SentLog::default();
        for n in 0..100 {
            log.push(n * 100_000, 10);
        }
        assert_eq!(log.entries.len(), 16);
        assert!((log.take(98, true).unwrap().sent - 9_800_000).abs() < STEP);
        // Exactly as long as times take to wrap.
        let wrap = i64::from(u16::MAX) + 1;
        log.push(9_900_000 / STEP * STEP + wrap * STEP, 10);
        assert_eq!((log.entries.len(), log.take(99, true)), (1, None));
    }
}
