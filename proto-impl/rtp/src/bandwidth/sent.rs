//! Log of sent packets with their transport-wide numbers and times.

use alloc::collections::VecDeque;

/// Maximum number of packets remembered: more than are in flight for four seconds at 10 Mb/s, or for fifteen at
/// 2.5 Mb/s.
const PACKETS_MAX: usize = 4096;
/// Number of packets kept before the newest one with feedback, because their feedback may be lost or corrected
/// later.
const TOLD_KEPT: u64 = 256;
/// Resolution of times, in microseconds; feedback has a resolution of 250.
const STEP: i64 = 64;
/// Maximum time by which a packet may be overtaken, in microseconds.
const OVERTAKEN_MAX: i64 = 400_000;
/// At each feedback, the remembered overtaking time is reduced by its value divided by this.
const OVERTAKEN_FALLS: i64 = 256;
/// Number of bits of a stored time, which wraps around after 33 s; only differences matter.
const TIME_BITS: u32 = 19;
const TIME: u32 = (1 << TIME_BITS) - 1;
/// Age in steps at which times would become ambiguous: 32 s. Older packets are dropped even if no feedback
/// has covered them.
const AGE_MAX: u32 = 500_000;
/// Bit offset of a packet's state, above its time.
const STATE_SHIFT: u32 = TIME_BITS;
const STATE: u32 = 3 << STATE_SHIFT;
const UNKNOWN: u32 = 0;
const LOST: u32 = 1 << STATE_SHIFT;
const ARRIVED: u32 = 2 << STATE_SHIFT;
/// Bit offset of a packet's length, above its state.
const BYTES_SHIFT: u32 = TIME_BITS + 2;
const BYTES_MAX: u32 = u32::MAX >> BYTES_SHIFT;

/// A remembered packet, packed into four bytes, since each viewer has hundreds of them.
///
/// ```text
///     bytes (11)  state (2)  time in steps (19)
/// ```
#[derive(Debug, Clone, Copy)]
struct Entry(u32);

impl Entry {
    fn new(time: u32, bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(BYTES_MAX).min(BYTES_MAX);
        Self(bytes << BYTES_SHIFT | UNKNOWN | time & TIME)
    }

    /// Returns the number of steps from the packet's time to another one.
    const fn age(self, time: u32) -> u32 {
        time.wrapping_sub(self.0) & TIME
    }

    const fn bytes(self) -> u32 {
        self.0 >> BYTES_SHIFT
    }
}

/// A sent packet, found by its number in feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentPacket {
    /// Transport-wide sequence number, without wrapping.
    pub(super) number: u64,
    /// Departure time, in microseconds since the log began.
    pub(super) sent: i64,
    pub(super) bytes: u32,
}

/// The most recent packets of a transport.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// Departure time of the newest packet, in steps.
    newest: i64,
    /// Number after the newest packet with feedback.
    told: u64,
    /// First packet without a final result ([`SentLog::settle`]).
    settled: u64,
    /// Departure time of the newest packet that arrived, in microseconds.
    arrived: i64,
    /// Time by which later packets have overtaken earlier ones on the path, in microseconds.
    overtaken: i64,
}

impl SentLog {
    /// Returns the number of the next packet.
    pub(super) fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.entries.len()).unwrap_or(0))
    }

    /// True if feedback has covered the last packet.
    pub(super) fn all_told(&self) -> bool {
        self.told >= self.next()
    }

    /// Adds a packet and returns its number.
    #[allow(clippy::cast_possible_truncation, reason = "the lower bits: both wrap")]
    pub(super) fn push(&mut self, micros: i64, bytes: usize) -> u16 {
        let number = self.next() as u16;
        let before = core::mem::replace(&mut self.newest, micros / STEP);
        // After a pause, all entries are dropped, regardless of how often the times have wrapped around.
        let paused = self.newest.saturating_sub(before) > AGE_MAX.into();
        let time = self.time();
        self.entries.push_back(Entry::new(time, bytes));
        while let Some(oldest) = self.entries.front()
            && self.entries.len() > 1
            && (paused
                || self.entries.len() > PACKETS_MAX
                || oldest.age(time) > AGE_MAX
                || self.first.saturating_add(TOLD_KEPT) < self.told)
        {
            self.entries.pop_front();
            self.first = self.first.saturating_add(1);
        }
        number
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits")]
    const fn time(&self) -> u32 {
        self.newest as u32 & TIME
    }

    /// Stores the result that feedback reports for a packet number, and returns the packet. `None` if the
    /// packet is unknown or the result is not new.
    pub(super) fn take(&mut self, number: u16, arrived: bool) -> Option<SentPacket> {
        let number = self.widen(number);
        let (newest, time) = (self.newest, self.time());
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(at)?;
        let is_news = match entry.0 & STATE {
            UNKNOWN => true,
            // A packet that was reported as lost has arrived after all.
            LOST => arrived,
            _ => false,
        };
        if !is_news {
            return None;
        }
        let was_missing = entry.0 & STATE == LOST;
        entry.0 = entry.0 & !STATE | if arrived { ARRIVED } else { LOST };
        self.told = self.told.max(number.saturating_add(1));
        let sent = newest.saturating_sub(entry.age(time).into()).saturating_mul(STEP);
        let packet = SentPacket { number, sent, bytes: entry.bytes() };
        if arrived {
            self.arrives(sent, was_missing);
        }
        Some(packet)
    }

    /// True if a packet is remembered and has arrived.
    pub(super) fn has_arrived(&self, number: u16) -> bool {
        let at = self.widen(number).checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.entries.get(at)).is_some_and(|entry| entry.0 & STATE == ARRIVED)
    }

    /// Records the arrival of a packet sent at this time. `was_missing` is true if earlier feedback reported it
    /// as missing.
    fn arrives(&mut self, sent: i64, was_missing: bool) {
        if was_missing {
            let by = self.arrived.saturating_sub(sent);
            self.overtaken = self.overtaken.max(by.saturating_add(by / 4)).min(OVERTAKEN_MAX);
        }
        self.arrived = self.arrived.max(sent);
    }

    /// Returns the time by which later packets have recently overtaken earlier ones on the path, in microseconds.
    pub(super) const fn overtaken(&self) -> i64 {
        self.overtaken
    }

    /// Passes the final result of each packet to `result`, once and in order: the packet's number, and true if the
    /// packet is lost. `newest` is the departure time of the newest packet that feedback covers. A missing packet
    /// counts as lost once a packet has arrived that was sent later by more than the recent overtaking time. Packets
    /// without feedback are skipped.
    pub(super) fn settle(&mut self, newest: i64, mut result: impl FnMut(u64, bool)) {
        self.overtaken = self.overtaken.saturating_sub(self.overtaken / OVERTAKEN_FALLS);
        let before = newest.max(self.arrived).saturating_sub(self.overtaken);
        let (newest, time) = (self.newest, self.time());
        let from = self.settled.max(self.first);
        let skipped = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let ahead = usize::try_from(self.told.saturating_sub(from)).unwrap_or(0);
        self.settled = from;
        for entry in self.entries.iter().skip(skipped).take(ahead) {
            if newest.saturating_sub(entry.age(time).into()).saturating_mul(STEP) > before {
                break;
            }
            if entry.0 & STATE != UNKNOWN {
                result(self.settled, entry.0 & STATE == LOST);
            }
            self.settled = self.settled.saturating_add(1);
        }
    }

    /// Extends a 16-bit number to the full number that is closest to the number of the next packet.
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
        assert_eq!((log.overtaken(), log.take(numbers[69_990], true).unwrap().bytes), (0, 1000));
        assert_eq!(log.overtaken(), 9 * 128 * 5 / 4, "nine packets later");
        assert_eq!(log.take(numbers[69_990], false), None, "what came has come");
        // Numbers of forgotten packets, and of packets never sent.
        assert_eq!(log.take(numbers[60_000], true), None);
        assert_eq!(log.take(numbers[69_999].wrapping_add(1), true), None);
        assert_eq!(size_of::<Entry>(), 4);
    }

    /// An overtaken packet counts as lost only if it is later than any packet before, and each result is
    /// final.
    #[test]
    fn what_is_late_is_not_lost_once_that_was_seen() {
        let mut log = SentLog::default();
        let mut results = Vec::new();
        for n in 0..200u16 {
            log.push(i64::from(n) * 6_400, 1000);
            // Every tenth packet arrives five packets late; every fiftieth never arrives.
            let is_late = |n: u16| n % 10 == 9;
            log.take(n, !is_late(n));
            if n >= 5 && is_late(n - 5) && (n - 5) % 50 != 49 {
                log.take(n - 5, true);
            }
            log.settle(i64::from(n) * 6_400, |number, is_lost| results.push((number, is_lost)));
        }
        assert!(results.iter().zip(0..).all(|((number, _), n)| *number == n), "in order, each once");
        let lost: Vec<u64> =
            results.iter().filter(|(_, is_lost)| *is_lost).map(|(number, _)| *number).collect();
        // Packet 9 counts as lost, because no packet was late before it.
        assert_eq!(lost, [9, 49, 99, 149]);
        assert!((30_000..=40_000).contains(&log.overtaken()), "{}", log.overtaken());
    }

    /// Checks that packets that are in flight for long are still known when their feedback arrives, within
    /// the memory limit.
    #[test]
    fn packets_are_known_for_as_long_as_they_are_on_their_way() {
        for (apart, delay, known) in
            [(5_000, 15_000_000, true), (5_000, 25_000_000, false), (20_000, 31_000_000, true)]
        {
            let mut log = SentLog::default();
            let (mut missed, mut most) = (0, 0);
            for n in 0..20_000i64 {
                let at = n * apart;
                log.push(at, 1200);
                most = most.max(log.entries.len());
                if at >= delay {
                    let told = (at - delay) / apart;
                    let found = log.take(u16::try_from(told % 65_536).unwrap(), true);
                    let is_right = found.is_some_and(|found| (found.sent - told * apart).abs() < STEP);
                    missed += i64::from(!is_right);
                }
            }
            assert_eq!(missed == 0, known, "{apart} {delay}: {missed}");
            assert!(most <= PACKETS_MAX && log.held_bytes() <= PACKETS_MAX * 8, "{most}");
        }
    }

    /// Checks that packets with feedback are dropped, so that a nearby viewer needs little memory.
    #[test]
    fn what_was_told_is_forgotten() {
        let mut log = SentLog::default();
        for n in 0..10_000i64 {
            log.push(n * 5_000, 1200);
            assert!(!log.all_told());
            log.take(u16::try_from((n - 20).max(0)).unwrap(), true);
        }
        assert!(log.entries.len() <= 280 && log.held_bytes() <= 2048, "{}", log.entries.len());
        log.take(9_999, false);
        assert!(log.all_told());
    }

    #[test]
    fn packets_are_forgotten_with_time_and_behind_a_pause() {
        let mut log = SentLog::default();
        for n in 0..100 {
            log.push(n * 1_000_000, 10);
        }
        assert_eq!(log.entries.len(), 33);
        assert!((log.take(98, true).unwrap().sent - 98_000_000).abs() < STEP);
        // A pause of exactly the wrap-around time.
        let wrap = i64::from(TIME) + 1;
        log.push(99_000_000 / STEP * STEP + wrap * STEP, 10);
        assert_eq!((log.entries.len(), log.take(99, true)), (1, None));
        // A packet longer than any datagram is stored with the maximum length.
        log.push(99_000_000 / STEP * STEP + wrap * STEP, 70_000);
        assert_eq!(log.take(101, true).unwrap().bytes, 2047);
    }
}
