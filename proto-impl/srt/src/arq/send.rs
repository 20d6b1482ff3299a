//! The send buffer: packets that are not yet sent or not yet acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::config::HEAD_BYTES;
use crate::packet::{KeyFlag, Losses, MESSAGE_MASK};
use crate::seq::Seq;

/// Maximum length of the retransmission queue, as a multiple of the packets in the buffer. The queue may still contain
/// packets that were acknowledged in the meantime.
const LOST_PER_ENTRY: usize = 2;
/// From its second retransmission on, a packet is sent twice each time; the second copy follows the next
/// new packet. A packet that was lost this often has little time left until it is too late.
const TWICE_FROM: u8 = 2;
/// Capacity in entries up to which the buffer keeps its memory. A larger capacity was only needed for a key frame, or
/// for the backlog that a new viewer is sent, so it is reduced when three quarters of it are unused.
const KEPT_ENTRIES: usize = 16;

/// A packet in the send buffer.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) payload: Bytes,
    /// Time of the call that sent the message, or time at which the packet left if it was paced; in microseconds since
    /// the start of the connection.
    pub(crate) timestamp: u32,
    pub(crate) message: u32,
    pub(crate) key: KeyFlag,
    /// Time of the packet's last retransmission; `None` if there was none.
    again_at: Option<u32>,
    /// Number of retransmissions. Second copies are not counted.
    times: u8,
    /// True if a second copy of the packet is still to be sent.
    twin: bool,
    lost: bool,
}

/// The result of a loss report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Number of packets in flight that the report contains.
    pub(crate) named: u32,
    /// Number of packets among `named` that were never reported before.
    pub(crate) fresh: u32,
    /// First and last packet of a reported range that this side had already given up.
    pub(crate) gone: Option<(Seq, Seq)>,
}

/// The packets that an acknowledgement removes from the buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) packets: usize,
    /// Bytes of the acknowledged packets, headers included, except for packets waiting for retransmission: the peer
    /// acknowledges those only because it has given them up.
    pub(crate) bytes: u64,
    /// Microseconds since the last acknowledged packet was sent. `None` if one of the acknowledged packets was
    /// retransmitted, because later packets may have waited for it.
    pub(crate) delay_us: Option<u32>,
}

/// Packets from the first unacknowledged one on, including unsent ones.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    first: Seq,
    /// Sequence number up to which the peer has acknowledged. Packets between it and `first` were given up.
    acknowledged: Seq,
    entries: VecDeque<Entry>,
    /// Number of entries that were sent at least once.
    sent: usize,
    bytes: usize,
    /// Number of payload bytes that were never sent.
    unsent_bytes: usize,
    message: u32,
    lost: VecDeque<Seq>,
    /// Packets whose second copy is to be sent.
    twins: Vec<Seq>,
}

impl SendBuffer {
    pub(crate) const fn new(first: Seq) -> Self {
        Self {
            first,
            acknowledged: first,
            entries: VecDeque::new(),
            sent: 0,
            bytes: 0,
            unsent_bytes: 0,
            message: 0,
            lost: VecDeque::new(),
            twins: Vec::new(),
        }
    }

    /// Appends a message. Its sequence number is one above that of the newest entry.
    pub(crate) fn push(&mut self, payload: Bytes, timestamp: u32) {
        // Message number 0 is reserved for packets that are not messages (packet filter).
        self.message = (self.message.wrapping_add(1) & MESSAGE_MASK).max(1);
        self.bytes = self.bytes.saturating_add(payload.len());
        self.unsent_bytes = self.unsent_bytes.saturating_add(payload.len());
        let message = self.message;
        self.entries.push_back(Entry {
            payload,
            timestamp,
            message,
            key: KeyFlag::Clear,
            again_at: None,
            times: 0,
            twin: false,
            lost: false,
        });
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of packets in flight.
    pub(crate) const fn in_flight(&self) -> usize {
        self.sent
    }

    /// Number of packets never sent.
    pub(crate) fn unsent(&self) -> usize {
        self.entries.len().saturating_sub(self.sent)
    }

    /// Bytes of the packets never sent.
    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Key of the oldest packet that was sent.
    pub(crate) fn oldest_key(&self) -> Option<KeyFlag> {
        self.entries.front().filter(|_| self.sent > 0).map(|entry| entry.key)
    }

    fn seq_at(&self, index: usize) -> Seq {
        self.first.plus(u32::try_from(index).unwrap_or(u32::MAX))
    }

    fn index_of(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.ahead_of(self.first)?).ok().filter(|index| *index < self.sent)
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes = self.bytes.saturating_sub(entry.payload.len());
            if self.sent == 0 {
                self.unsent_bytes = self.unsent_bytes.saturating_sub(entry.payload.len());
            }
            self.first = self.first.next();
            self.sent = self.sent.saturating_sub(1);
        }
        if self.entries.is_empty() {
            self.lost.clear();
            self.twins.clear();
        }
    }

    /// Returns memory that is no longer needed.
    fn shrink(&mut self) {
        let capacity = self.entries.capacity();
        if capacity <= KEPT_ENTRIES || self.entries.len() > capacity / 4 {
            return;
        }
        self.entries.shrink_to(self.entries.len().saturating_mul(2).max(KEPT_ENTRIES));
        if self.lost.is_empty() {
            self.lost = VecDeque::new();
        }
        // A second copy may wait here after the list of lost packets has become empty.
        if self.twins.is_empty() {
            self.twins = Vec::new();
        }
    }

    /// Returns the bytes of memory that the buffer occupies beyond its payloads.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + (self.lost.capacity() + self.twins.capacity()) * size_of::<Seq>()
    }

    /// Handles the peer's acknowledgement of all packets before `next`. Returns `None` if `next` is beyond the packets
    /// sent.
    pub(crate) fn acknowledge(&mut self, next: Seq, now: u32) -> Option<Acked> {
        let Some(count) = next.ahead_of(self.first).and_then(|count| usize::try_from(count).ok()) else {
            // `next` is before the first packet in the buffer: the acknowledgement is old, or is for packets that were
            // given up.
            if next.ahead_of(self.acknowledged).is_some() {
                self.acknowledged = next;
            }
            return Some(Acked::default());
        };
        if count > self.sent {
            return None;
        }
        let mut acked = Acked { packets: count, ..Acked::default() };
        let mut is_mended = false;
        for entry in self.entries.iter().take(count) {
            let bytes = if entry.lost { 0 } else { entry.payload.len().saturating_add(HEAD_BYTES) };
            acked.bytes = acked.bytes.saturating_add(u64::try_from(bytes).unwrap_or(0));
            is_mended |= entry.again_at.is_some() || entry.lost;
            acked.delay_us = Some(now.wrapping_sub(entry.timestamp)).filter(|_| !is_mended);
        }
        (0..count).for_each(|_| self.pop());
        self.shrink();
        self.acknowledged = next;
        Some(acked)
    }

    /// Queues the ranges that the peer misses for retransmission. A packet retransmitted less than `pause_us` ago may
    /// still be in flight and is not queued. Stops reading at the first invalid range.
    pub(crate) fn report(&mut self, ranges: Losses<'_>, now: u32, pause_us: u32) -> Reported {
        let mut reported = Reported::default();
        let mut floor = self.acknowledged;
        let end = self.seq_at(self.sent);
        for (first, last) in ranges {
            let in_order = first.ahead_of(floor).is_some() && last.ahead_of(first).is_some();
            if !in_order || end.previous().ahead_of(last).is_none() {
                break;
            }
            floor = last.next();
            if self.first.ahead_of(first).is_some_and(|distance| distance > 0) {
                let gone_to = if last.ahead_of(self.first).is_some() { self.first.previous() } else { last };
                let gone_from = reported.gone.map_or(first, |(from, _)| from);
                reported.gone = Some((gone_from, gone_to));
            }
            self.mark(first, last, now, pause_us, &mut reported);
        }
        reported
    }

    fn mark(&mut self, first: Seq, last: Seq, now: u32, pause_us: u32, reported: &mut Reported) {
        let Some(to) = self.index_of(last) else { return };
        let from = self.index_of(first).unwrap_or(0);
        for (offset, entry) in self.entries.range_mut(from..=to).enumerate() {
            reported.named = reported.named.saturating_add(1);
            let on_its_way = entry.again_at.is_some_and(|at| now.wrapping_sub(at) < pause_us);
            if entry.lost || on_its_way {
                continue;
            }
            reported.fresh = reported.fresh.saturating_add(u32::from(entry.again_at.is_none()));
            entry.lost = true;
            let offset = u32::try_from(from.saturating_add(offset)).unwrap_or(u32::MAX);
            self.lost.push_back(self.first.plus(offset));
        }
        let most = self.entries.len().saturating_mul(LOST_PER_ENTRY);
        if self.lost.len() > most {
            // Removes acknowledged packets from the list. Afterwards the list contains each packet at most once, so it
            // is below the limit.
            let first = self.first;
            self.lost.retain(|seq| seq.ahead_of(first).is_some());
        }
    }

    /// Retransmits the last packet sent. To be called when no acknowledgement has arrived for a long time: when this
    /// packet arrives, the peer notices which earlier ones are missing.
    pub(crate) fn probe(&mut self) {
        let Some(index) = self.sent.checked_sub(1) else { return };
        let seq = self.seq_at(index);
        if let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.lost) {
            entry.lost = true;
            self.lost.push_back(seq);
        }
    }

    /// Gives up packets older than `limit_us`; with `sent_only`, only packets that were already sent. Returns their
    /// number.
    pub(crate) fn drop_older(&mut self, now: u32, limit_us: u32, sent_only: bool) -> usize {
        let mut count: usize = 0;
        while (self.sent > 0 || !sent_only)
            && self.entries.front().is_some_and(|entry| now.wrapping_sub(entry.timestamp) > limit_us)
        {
            self.pop();
            count = count.saturating_add(1);
        }
        if count > 0 {
            self.shrink();
        }
        count
    }

    /// Returns the next packet to retransmit and its sequence number. The packet stays queued.
    pub(crate) fn next_lost(&mut self) -> Option<(Seq, &mut Entry)> {
        loop {
            let seq = *self.lost.front()?;
            if let Some(index) = self.index_of(seq) {
                return self.entries.get_mut(index).map(|entry| (seq, entry));
            }
            // The packet was acknowledged or given up in the meantime.
            self.lost.pop_front();
        }
    }

    /// Records that the packet returned by [`Self::next_lost`] was sent. With `twice`, a second copy may follow.
    pub(crate) fn lost_sent(&mut self, now: u32, twice: bool) {
        let Some(seq) = self.lost.pop_front() else { return };
        let Some(index) = self.index_of(seq) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let is_twin = entry.twin;
        (entry.lost, entry.again_at, entry.twin) = (false, Some(now), false);
        if is_twin {
            return;
        }
        entry.times = entry.times.saturating_add(1);
        if twice && entry.times >= TWICE_FROM {
            entry.twin = true;
            self.twins.push(seq);
        }
    }

    /// True if packets wait for retransmission.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the next packet that was never sent and its sequence number. The packet stays unsent.
    pub(crate) fn next_new(&mut self) -> Option<(Seq, &mut Entry)> {
        let seq = self.seq_at(self.sent);
        self.entries.get_mut(self.sent).map(|entry| (seq, entry))
    }

    /// Records that the packet returned by [`Self::next_new`] was sent.
    pub(crate) fn new_sent(&mut self) {
        if let Some(entry) = self.entries.get(self.sent) {
            self.unsent_bytes = self.unsent_bytes.saturating_sub(entry.payload.len());
            self.sent = self.sent.saturating_add(1);
        }
        while let Some(seq) = self.twins.pop() {
            let Some(index) = self.index_of(seq) else { continue };
            if let Some(entry) = self.entries.get_mut(index).filter(|entry| entry.twin && !entry.lost) {
                entry.lost = true;
                self.lost.push_back(seq);
            }
        }
    }

    /// Age of the oldest packet, in microseconds.
    pub(crate) fn age_us(&self, now: u32) -> u32 {
        self.entries.front().map_or(0, |entry| now.wrapping_sub(entry.timestamp))
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        assert!(self.sent <= self.entries.len());
        assert!(self.lost.len() <= self.entries.len() * LOST_PER_ENTRY + 1);
        let unsent = self.entries.iter().skip(self.sent).map(|entry| entry.payload.len()).sum::<usize>();
        assert_eq!(self.unsent_bytes, unsent);
        assert_eq!(self.bytes, self.entries.iter().map(|entry| entry.payload.len()).sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{losses, write_loss};

    const FIRST: Seq = Seq::new(0x7fff_fffa);

    fn sent(count: u32) -> SendBuffer {
        let mut buffer = SendBuffer::new(FIRST);
        for n in 0..count {
            buffer.push(Bytes::from_static(b"payload"), n * 1000);
            buffer.next_new().unwrap();
            buffer.new_sent();
        }
        buffer
    }

    /// Returns how many packets an acknowledgement removes.
    fn acknowledge(buffer: &mut SendBuffer, next: Seq) -> Option<usize> {
        buffer.acknowledge(next, 0).map(|acked| acked.packets)
    }

    fn report(buffer: &mut SendBuffer, ranges: &[(u32, u32)], now: u32) -> Reported {
        let mut body = Vec::new();
        ranges.iter().for_each(|(a, b)| write_loss(FIRST.plus(*a), FIRST.plus(*b), &mut body));
        let reported = buffer.report(losses(&body), now, 50_000);
        buffer.check_invariants();
        reported
    }

    fn send_lost(buffer: &mut SendBuffer, now: u32) -> Vec<u32> {
        let mut out = Vec::new();
        while let Some((seq, _)) = buffer.next_lost() {
            out.push(seq.ahead_of(FIRST).unwrap());
            buffer.lost_sent(now, true);
        }
        out
    }

    #[test]
    fn what_is_reported_is_sent_again_once_in_a_round_trip() {
        let mut buffer = sent(20);
        report(&mut buffer, &[(2, 4), (9, 9)], 0);
        report(&mut buffer, &[(3, 3)], 0);
        assert!(buffer.has_lost());
        assert_eq!(send_lost(&mut buffer, 1_000_000), [2, 3, 4, 9]);
        report(&mut buffer, &[(2, 2), (9, 9)], 1_049_999);
        assert!(!buffer.has_lost());
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(9)), Some(9));
        assert_eq!(report(&mut buffer, &[(9, 9)], 1_050_000).named, 1);
        assert_eq!(send_lost(&mut buffer, 1_050_000), [9]);
        assert_eq!((buffer.in_flight(), buffer.bytes()), (11, 77));
    }

    #[test]
    fn returning_memory_forgets_no_second_copy() {
        let mut buffer = sent(20 * u32::try_from(KEPT_ENTRIES).unwrap());
        let last = u32::try_from(buffer.in_flight()).unwrap() - 1;
        for at in [0, 100_000] {
            report(&mut buffer, &[(last, last)], at);
            assert_eq!(send_lost(&mut buffer, at), [last]);
        }
        let before = buffer.entries.capacity();
        acknowledge(&mut buffer, FIRST.plus(last)).unwrap();
        assert!(buffer.entries.capacity() < before);
        buffer.push(Bytes::from_static(b"payload"), 0);
        buffer.new_sent();
        assert_eq!(send_lost(&mut buffer, 100_000), [last]);
    }

    #[test]
    fn what_is_lost_again_goes_out_twice() {
        let mut buffer = sent(20);
        for (at, wanted) in [(0, &[][..]), (100_000, &[7]), (200_000, &[7])] {
            report(&mut buffer, &[(7, 7)], at);
            assert_eq!(send_lost(&mut buffer, at), [7]);
            buffer.push(Bytes::from_static(b"payload"), at);
            buffer.new_sent();
            assert_eq!(send_lost(&mut buffer, at + 1), wanted);
            buffer.push(Bytes::from_static(b"payload"), at);
            buffer.new_sent();
            assert!(!buffer.has_lost());
        }
    }

    #[test]
    fn s_23_reports_that_make_no_sense_are_ignored() {
        for ranges in
            [&[(30, 30)][..], &[(4, 2)], &[(0, 20)], &[(0x3fff_ffff, 0x3fff_ffff)], &[(0, 0x7000_0000)]]
        {
            let mut buffer = sent(20);
            assert_eq!(report(&mut buffer, ranges, 0), Reported::default(), "{ranges:?}");
        }
        // The second range overlaps the first, so the report is read no further. This limits the work for one datagram:
        // each packet in the buffer is visited at most once.
        let mut buffer = sent(20);
        report(&mut buffer, &[(5, 9), (7, 12), (15, 15)], 0);
        assert_eq!(send_lost(&mut buffer, 1), [5, 6, 7, 8, 9]);
    }

    #[test]
    fn s_23_acknowledgements_of_what_was_never_sent_are_ignored() {
        let mut buffer = sent(5);
        buffer.push(Bytes::new(), 0);
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(6)), None);
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(0x3fff_0000)), None);
        assert_eq!(
            (acknowledge(&mut buffer, FIRST.plus(3)), acknowledge(&mut buffer, FIRST.plus(1))),
            (Some(3), Some(0))
        );
        assert_eq!((buffer.in_flight(), buffer.unsent()), (2, 1));
    }

    #[test]
    fn what_is_too_old_is_given_up_and_told_when_asked_for() {
        let mut buffer = sent(20);
        report(&mut buffer, &[(1, 1)], 0);
        assert_eq!(buffer.drop_older(1_005_000, 1_000_000, false), 5);
        assert_eq!(buffer.next_lost().map(|(seq, _)| seq), None);
        let reported = report(&mut buffer, &[(1, 2), (4, 6)], 0);
        assert_eq!(reported, Reported { named: 2, fresh: 2, gone: Some((FIRST.plus(1), FIRST.plus(4))) });
        assert_eq!(send_lost(&mut buffer, 0), [5, 6]);
        // Packets that the peer itself has skipped are not reported to the peer.
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(4)), Some(0));
        assert_eq!(report(&mut buffer, &[(1, 2)], 0).gone, None);
    }

    #[test]
    fn a_probe_sends_the_last_one_again() {
        let mut buffer = sent(3);
        buffer.probe();
        buffer.probe();
        assert_eq!(send_lost(&mut buffer, 0), [2]);
        SendBuffer::new(FIRST).probe();
    }

    #[test]
    fn messages_are_numbered_from_one_and_again_from_one() {
        let mut buffer = SendBuffer::new(FIRST);
        let next = |buffer: &mut SendBuffer| {
            buffer.push(Bytes::new(), 0);
            let number = buffer.next_new().unwrap().1.message;
            buffer.new_sent();
            number
        };
        assert_eq!([next(&mut buffer), next(&mut buffer)], [1, 2]);
        buffer.message = MESSAGE_MASK - 1;
        assert_eq!([next(&mut buffer), next(&mut buffer), next(&mut buffer)], [MESSAGE_MASK, 1, 2]);
    }

    #[test]
    fn what_was_never_sent_is_not_on_its_way() {
        let mut buffer = sent(2);
        (0..3).for_each(|_| buffer.push(Bytes::from_static(b"new"), 0));
        assert_eq!((buffer.len(), buffer.in_flight(), buffer.unsent(), buffer.bytes()), (5, 2, 3, 23));
        assert_eq!(report(&mut buffer, &[(2, 2)], 0), Reported::default(), "nobody can miss it");
        assert_eq!(report(&mut buffer, &[(0, 1)], 0).named, 2);
        assert_eq!(buffer.next_new().map(|(seq, _)| seq), Some(FIRST.plus(2)));
        // Further calls have no effect, because no packet is unsent.
        (0..9).for_each(|_| buffer.new_sent());
        assert_eq!((buffer.in_flight(), buffer.unsent()), (5, 0));
        assert!(buffer.next_new().is_none());
    }

    #[test]
    fn the_key_of_the_oldest_packet_is_known_once_it_was_sent() {
        let mut buffer = SendBuffer::new(FIRST);
        buffer.push(Bytes::new(), 0);
        assert_eq!(buffer.oldest_key(), None);
        buffer.next_new().unwrap().1.key = KeyFlag::Even;
        buffer.new_sent();
        buffer.push(Bytes::new(), 0);
        assert_eq!(buffer.oldest_key(), Some(KeyFlag::Even));
    }

    #[test]
    fn a_buffer_that_has_become_empty_gives_large_room_back_and_forgets_its_losses() {
        for (count, keeps) in [(15, true), (17, false), (65, false)] {
            let mut buffer = sent(count);
            report(&mut buffer, &[(0, count - 1)], 0);
            let room = buffer.entries.capacity();
            assert_eq!(acknowledge(&mut buffer, FIRST.plus(count)), Some(count as usize));
            assert_eq!(buffer.entries.capacity(), if keeps { room } else { KEPT_ENTRIES });
            assert!(!buffer.has_lost() && buffer.next_lost().is_none());
        }
        assert!(sent(16).entries.capacity() <= KEPT_ENTRIES, "it would not be kept");
    }

    #[test]
    fn s_06_what_a_backlog_needed_is_given_back_although_packets_are_always_on_their_way() {
        let mut buffer = sent(1000);
        report(&mut buffer, &[(0, 999)], 0);
        assert!(buffer.held_bytes() >= 1000 * size_of::<Entry>());
        send_lost(&mut buffer, 0);
        for n in 1..=4 {
            assert_eq!(acknowledge(&mut buffer, FIRST.plus(n * 245)), Some(245));
        }
        assert_eq!(buffer.len(), 20);
        assert!(buffer.held_bytes() <= 40 * size_of::<Entry>(), "{}", buffer.held_bytes());
    }

    #[test]
    fn a_report_begins_at_what_the_peer_has_acknowledged() {
        let mut buffer = sent(20);
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(5)), Some(5));
        assert_eq!(report(&mut buffer, &[(4, 6)], 0), Reported::default());
        assert_eq!(report(&mut buffer, &[(5, 6)], 0), Reported { named: 2, fresh: 2, gone: None });
        // An older acknowledgement has no effect.
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(3)), Some(0));
        assert_eq!(report(&mut buffer, &[(3, 3)], 0), Reported::default());
        // Dropped packets are reported to the peer until it acknowledges that it continues without them.
        assert_eq!(buffer.drop_older(1_008_000, 1_000_000, false), 3);
        assert_eq!(report(&mut buffer, &[(6, 6)], 0).gone, Some((FIRST.plus(6), FIRST.plus(6))));
        assert_eq!(report(&mut buffer, &[(5, 7), (9, 9)], 0).gone, Some((FIRST.plus(5), FIRST.plus(7))));
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(7)), Some(0));
        assert_eq!(report(&mut buffer, &[(6, 6)], 0), Reported::default());
        assert_eq!(report(&mut buffer, &[(8, 8)], 0), Reported { named: 1, fresh: 1, gone: None });
        // A report may contain packet 19, the last one sent, but not packet 20.
        assert_eq!(report(&mut buffer, &[(19, 19)], 0).named, 1);
        assert_eq!(report(&mut buffer, &[(19, 20)], 0), Reported::default());
    }

    #[test]
    fn what_was_acknowledged_makes_room_in_the_list_of_losses_and_what_is_missing_stays() {
        let mut buffer = sent(60);
        report(&mut buffer, &[(50, 50)], 0);
        report(&mut buffer, &[(10, 49)], 0);
        assert_eq!(acknowledge(&mut buffer, FIRST.plus(50)), Some(50));
        assert_eq!(buffer.lost.len(), 41);
        report(&mut buffer, &[(55, 55)], 0);
        assert_eq!(buffer.lost.len(), 2);
        assert_eq!(send_lost(&mut buffer, 0), [50, 55]);
    }

    #[test]
    fn what_was_lost_and_not_sent_again_has_not_arrived_although_it_is_acknowledged() {
        let mut buffer = sent(20);
        report(&mut buffer, &[(2, 4)], 0);
        let bytes = |packets: u64| packets * (7 + 16);
        let acked = buffer.acknowledge(FIRST.plus(2), 5_000).unwrap();
        assert_eq!(acked, Acked { packets: 2, bytes: bytes(2), delay_us: Some(4_000) });
        let acked = buffer.acknowledge(FIRST.plus(10), 30_000).unwrap();
        assert_eq!(acked, Acked { packets: 8, bytes: bytes(5), delay_us: None });
        let acked = buffer.acknowledge(FIRST.plus(12), 30_000).unwrap();
        assert_eq!(acked.delay_us, Some(19_000), "those behind come again without a hole");
    }

    #[test]
    fn what_waits_for_its_pace_does_not_age() {
        let mut buffer = sent(2);
        (0..3).for_each(|_| buffer.push(Bytes::from_static(b"new"), 0));
        assert_eq!(buffer.drop_older(9_000_000, 1_000_000, true), 2);
        assert_eq!((buffer.unsent(), buffer.unsent_bytes()), (3, 9));
        assert_eq!(buffer.drop_older(9_000_000, 1_000_000, false), 3);
        assert_eq!((buffer.unsent(), buffer.unsent_bytes()), (0, 0));
    }

    #[test]
    fn what_is_exactly_as_old_as_the_limit_is_kept() {
        let mut buffer = sent(3);
        assert_eq!(buffer.drop_older(1_001_000, 1_000_000, false), 1);
        assert_eq!((buffer.len(), buffer.age_us(1_001_000)), (2, 1_000_000));
        assert_eq!(buffer.drop_older(9_000_000, 1_000_000, false), 2);
        assert_eq!(buffer.age_us(9_000_000), 0);
    }

    #[test]
    fn a_second_copy_is_for_what_is_still_missing_and_only_where_there_is_room() {
        let lost_twice = |twice: bool| {
            let mut buffer = sent(5);
            for at in [0, 100_000] {
                report(&mut buffer, &[(3, 3)], at);
                buffer.next_lost().unwrap();
                buffer.lost_sent(at, twice);
            }
            buffer.push(Bytes::new(), 0);
            buffer
        };
        let mut buffer = lost_twice(true);
        buffer.new_sent();
        assert_eq!(send_lost(&mut buffer, 100_001), [3]);
        let mut buffer = lost_twice(false);
        buffer.new_sent();
        assert!(!buffer.has_lost(), "no room");
        // No second copy is sent if the packet was acknowledged in the meantime. If it was requested again,
        // only the retransmission is sent.
        let mut buffer = lost_twice(true);
        acknowledge(&mut buffer, FIRST.plus(4));
        buffer.new_sent();
        assert!(!buffer.has_lost());
        let mut buffer = lost_twice(true);
        report(&mut buffer, &[(3, 3)], 200_000);
        buffer.new_sent();
        assert_eq!(send_lost(&mut buffer, 200_001), [3]);
    }
}
