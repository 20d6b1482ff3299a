//! A log of sent packets, for retransmissions.
//!
//! Many viewers receive the same packets, so data is shared where possible: the [`PacketLog`] of a track
//! contains the payloads, by reference count, and their timestamps. A viewer's [`ResendHistory`] only maps its
//! own sequence numbers to packets of the log; while it receives all of them, this takes a single entry,
//! however long it watches. A viewer costs about 130 bytes, 24 for each gap (up to 32), and about 40 for each
//! packet retransmitted to it in the last second (up to 512).

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::number::{ExtendedSequence, SequenceNumber};

/// Maximum number of packets in a log.
pub const LOG_PACKETS_MAX: usize = 16_384;
/// Time for which a packet stays in a log if it is not held.
pub const LOG_AGE_MAX: Duration = Duration::from_secs(1);
/// Maximum payload bytes in a log: a GOP of six seconds at 20 Mb/s.
pub const LOG_BYTES_MAX: usize = 16 << 20;
/// Maximum number of retransmissions of one packet to one viewer.
pub const RESENDS_MAX: u8 = 10;
/// Maximum number of runs of sequence numbers kept for a viewer. Gaps within the last second divide the runs.
const RUNS_MAX: usize = 32;
/// Maximum number of retransmitted packets remembered for a viewer. Further ones are refused until the log drops the
/// oldest. With packets of 1200 bytes, this is half a second of a 10 Mb/s stream.
const RESENT_MAX: usize = 512;
/// Budget in bytes below which requests are refused without a lookup, so that a flood of requests costs one
/// comparison each.
const BUDGET_BYTES_LEAST: usize = 1000;
/// Share of the sent bytes that may be retransmitted, in eighths: a quarter, unless the path loses more.
const BUDGET_SHARE: u8 = 2;
/// Maximum share of the sent bytes that may be retransmitted, in eighths: one and a half times the bytes
/// sent.
const BUDGET_SHARE_MAX: u8 = 12;
/// Loss in thousandths above which retransmissions get a larger budget.
const HEAVY_LOSS: u16 = 200;
/// Maximum and initial budget in bytes, doubled under heavy loss: enough to repair a key frame.
const BUDGET_BYTES_MAX: usize = 64 << 10;
/// Minimum time between two retransmissions of one packet; matters for very short round trips.
const RESEND_AFTER_MIN: Duration = Duration::from_millis(20);

/// Position of a packet in the log of its track; increases by one for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(u64);

impl PacketId {
    /// Returns the id of the next packet.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the id `count` packets earlier; `None` before the first.
    #[must_use]
    pub fn back(self, count: usize) -> Option<Self> {
        self.0.checked_sub(u64::try_from(count).ok()?).map(Self)
    }

    /// Returns the number of packets from this one up to but not including `end`.
    #[must_use]
    pub const fn distance(self, end: Self) -> u64 {
        end.0.saturating_sub(self.0)
    }
}

/// A packet, shared by all its viewers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPacket {
    /// Unencrypted payload.
    pub payload: Bytes,
    /// Timestamp on the track's clock, without a viewer's offset.
    pub timestamp: u32,
    /// The marker bit.
    pub marker: bool,
    /// Padding that gives the packet the same length as the packets before it, in bytes. Only for peers that remove
    /// padding.
    pub padding: u8,
    /// True if the packet may be combined with the next packet into a single one.
    pub joins: bool,
}

/// A unit in the log of a track, shared by all viewers of the track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedUnit {
    /// Ids of the unit's packets.
    pub packets: Range<PacketId>,
    /// RTP timestamp on the track's clock.
    pub timestamp: u32,
    /// Size of the unit in bytes, before it was packetized.
    pub bytes: u64,
}

/// First packet id of the next log. Each log has its own range of ids.
static NEXT_LOG: AtomicU64 = AtomicU64::new(0);
/// Number of ids reserved for one log: more than any track has packets.
const LOG_NUMBERS: u64 = 1 << 36;

/// The most recent packets of a track. Ids are unique across logs, so a viewer that changes tracks never
/// receives a packet of the wrong track.
#[derive(Debug)]
pub struct PacketLog {
    packets: VecDeque<(Instant, LoggedPacket)>,
    first: u64,
    bytes: usize,
    /// First held packet; this packet and later ones are not dropped by age.
    held: Option<u64>,
}

impl Default for PacketLog {
    fn default() -> Self {
        let first = NEXT_LOG.fetch_add(LOG_NUMBERS, Ordering::Relaxed);
        Self { packets: VecDeque::new(), first, bytes: 0, held: None }
    }
}

impl PacketLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet and drops those that are too old or too many.
    pub fn push(&mut self, now: Instant, packet: LoggedPacket) -> PacketId {
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        self.packets.push_back((now, packet));
        let id = PacketId(
            self.first.saturating_add(u64::try_from(self.packets.len()).unwrap_or(0).saturating_sub(1)),
        );
        self.trim(now);
        id
    }

    /// Returns the id of the next packet.
    #[must_use]
    pub fn next_id(&self) -> PacketId {
        PacketId(self.first.saturating_add(u64::try_from(self.packets.len()).unwrap_or(0)))
    }

    /// Until the next call, keeps the packet `from` and all later ones at any age, so that new viewers can start with
    /// them. The limits on packets and bytes still apply.
    pub const fn hold(&mut self, from: PacketId) {
        self.held = Some(from.0);
    }

    fn is_held(&self, id: u64) -> bool {
        self.held.is_some_and(|held| id >= held)
    }

    /// Returns the id of the oldest packet; [`Self::next_id`] if the log is empty.
    #[must_use]
    pub const fn first_id(&self) -> PacketId {
        PacketId(self.first)
    }

    /// Drops packets that are too old.
    pub fn trim(&mut self, now: Instant) {
        while let Some((at, packet)) = self.packets.front() {
            let old = now.saturating_duration_since(*at) > LOG_AGE_MAX && !self.is_held(self.first);
            if !old && self.packets.len() <= LOG_PACKETS_MAX && self.bytes <= LOG_BYTES_MAX {
                return;
            }
            self.bytes = self.bytes.saturating_sub(packet.payload.len());
            self.first = self.first.saturating_add(1);
            self.packets.pop_front();
        }
    }

    /// Returns a packet; `None` if it was dropped.
    #[must_use]
    pub fn get(&self, id: PacketId) -> Option<&LoggedPacket> {
        let at = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.packets.get(at).map(|(_, packet)| packet)
    }

    /// Returns a packet, unless it was dropped or is too old.
    fn fresh(&self, now: Instant, id: u64) -> Option<&LoggedPacket> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let (since, packet) = self.packets.get(at)?;
        (now.saturating_duration_since(*since) <= LOG_AGE_MAX || self.is_held(id)).then_some(packet)
    }

    /// The number of packets in the log.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True if the log is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Total payload bytes in the log.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A run of a viewer's sequence numbers that correspond to consecutive packets of the log.
#[derive(Debug, Clone, Copy)]
struct Run {
    number: ExtendedSequence,
    id: u64,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Resent {
    last: Instant,
    times: u8,
    fate: Fate,
}

/// State of the newest retransmission of a packet, as transport-wide feedback reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Unknown: the retransmission has no transport-wide sequence number.
    Unnumbered,
    /// Sent with this transport-wide sequence number; not reported as arrived yet.
    Sent(u16),
    Arrived,
}

/// Counters of retransmission requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResendStats {
    /// Packets retransmitted.
    pub resent: u64,
    /// Payload bytes of retransmitted packets.
    pub resent_bytes: u64,
    /// Requests for packets that are no longer kept or were never sent.
    pub unknown: u64,
    /// Requests that came too early or too often.
    pub repeated: u64,
    /// Requests refused because the budget was used up.
    pub over_budget: u64,
}

/// The packets of a log that were sent to one viewer from one source, and their retransmissions.
#[derive(Debug)]
pub struct ResendHistory {
    runs: VecDeque<Run>,
    /// Retransmissions by log position.
    resent: BTreeMap<u64, Resent>,
    budget: usize,
    /// Maximum budget in bytes.
    saved_max: usize,
    /// Share of the sent bytes that may be retransmitted, in eighths.
    share: u8,
    stats: ResendStats,
}

impl Default for ResendHistory {
    fn default() -> Self {
        Self {
            runs: VecDeque::new(),
            resent: BTreeMap::new(),
            budget: BUDGET_BYTES_MAX,
            saved_max: BUDGET_BYTES_MAX,
            share: BUDGET_SHARE,
            stats: ResendStats::default(),
        }
    }
}

impl ResendHistory {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that packet `id` of the log was sent under `number`, with this many payload bytes. `number`
    /// and `id` must increase with each call.
    pub fn sent(&mut self, number: ExtendedSequence, id: PacketId, bytes: usize) {
        let more = bytes.saturating_mul(self.share.into()) / 8;
        self.budget = self.budget.saturating_add(more).min(self.saved_max);
        if let Some(run) = self.runs.back_mut() {
            let next = u64::from(run.count);
            if run.number.plus(next) == number && run.id.saturating_add(next) == id.0 && run.count < u32::MAX
            {
                run.count = run.count.saturating_add(1);
                return;
            }
        }
        if self.runs.len() >= RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(Run { number, id: id.0, count: 1 });
    }

    /// Sets the viewer's loss in thousandths, which determines how much may be retransmitted: a quarter of
    /// the sent bytes, plus twice the loss. (If a third of the packets is lost, and a third of their repairs,
    /// repairs take more than half of the sent bytes.) From a loss of a fifth on, the share is a quarter plus
    /// three times the loss, and twice as much may be saved up, because each retransmission is sent twice.
    pub fn set_loss(&mut self, thousandths: u16) {
        let eighths = if thousandths < HEAVY_LOSS { 16 } else { 24 };
        let share =
            u16::from(BUDGET_SHARE).saturating_add(thousandths.saturating_mul(eighths).div_ceil(1000));
        self.saved_max = if thousandths < HEAVY_LOSS { BUDGET_BYTES_MAX } else { 2 * BUDGET_BYTES_MAX };
        self.share = u8::try_from(share).unwrap_or(BUDGET_SHARE_MAX).min(BUDGET_SHARE_MAX);
    }

    /// Returns the packet to retransmit for a requested number, and counts it as sent; `None` if it must not
    /// be sent. `has_arrived` returns true if the packet with a transport-wide sequence number has arrived. A packet
    /// whose retransmission has arrived is not sent again: some receivers (pion) do not notice retransmissions that
    /// have an SSRC of their own (RTX), and repeat their requests.
    pub fn resend<'l>(
        &mut self,
        now: Instant,
        number: SequenceNumber,
        round_trip: Duration,
        log: &'l PacketLog,
        has_arrived: impl Fn(u16) -> bool,
    ) -> Option<&'l LoggedPacket> {
        if self.budget < BUDGET_BYTES_LEAST {
            self.stats.over_budget = self.stats.over_budget.saturating_add(1);
            return None;
        }
        let found = self.find(number).and_then(|id| Some((id, log.fresh(now, id)?)));
        let Some((id, packet)) = found else {
            self.stats.unknown = self.stats.unknown.saturating_add(1);
            return None;
        };
        // Held packets may be requested at any age, so the number of their retransmissions is remembered as
        // long as there is room.
        let is_full = self.resent.len() >= RESENT_MAX;
        let is_over = |(id, resent): (&u64, &Resent)| {
            let is_old = now.saturating_duration_since(resent.last) > LOG_AGE_MAX;
            log.fresh(now, *id).is_none() || (is_old && is_full)
        };
        while self.resent.first_key_value().is_some_and(is_over) {
            self.resent.pop_first();
        }
        let known = self.resent.get_mut(&id).map(|resent| {
            // Feedback is forgotten soon, so what it says is kept.
            if let Fate::Sent(number) = resent.fate
                && has_arrived(number)
            {
                resent.fate = Fate::Arrived;
            }
            *resent
        });
        let again = round_trip.max(RESEND_AFTER_MIN);
        let repeated = known.is_some_and(|resent| {
            resent.times >= RESENDS_MAX
                || resent.fate == Fate::Arrived
                || now.saturating_duration_since(resent.last) < again
        });
        if repeated || (known.is_none() && self.resent.len() >= RESENT_MAX) {
            self.stats.repeated = self.stats.repeated.saturating_add(1);
            return None;
        }
        let Some(budget) = self.budget.checked_sub(packet.payload.len()) else {
            self.stats.over_budget = self.stats.over_budget.saturating_add(1);
            return None;
        };
        self.budget = budget;
        let times = known.map_or(1, |resent| resent.times.saturating_add(1));
        self.resent.insert(id, Resent { last: now, times, fate: Fate::Unnumbered });
        self.stats.resent = self.stats.resent.saturating_add(1);
        let bytes = u64::try_from(packet.payload.len()).unwrap_or(0);
        self.stats.resent_bytes = self.stats.resent_bytes.saturating_add(bytes);
        Some(packet)
    }

    /// Records the transport-wide sequence number with which a packet was just retransmitted.
    pub fn resent(&mut self, number: SequenceNumber, transport: u16) {
        if let Some(resent) = self.find(number).and_then(|id| self.resent.get_mut(&id)) {
            resent.fate = Fate::Sent(transport);
        }
    }

    /// Forgets whether the retransmission of a packet has arrived, so that the packet may be sent again: the
    /// receiver may have dropped it.
    pub fn doubt(&mut self, number: SequenceNumber) {
        if let Some(resent) = self.find(number).and_then(|id| self.resent.get_mut(&id)) {
            resent.fate = Fate::Unnumbered;
        }
    }

    /// Returns a packet that was just retransmitted, to be sent once more, and counts it as sent; `None` if
    /// the budget does not allow that.
    pub fn repeat<'l>(&mut self, number: SequenceNumber, log: &'l PacketLog) -> Option<&'l LoggedPacket> {
        let id = self.find(number)?;
        let packet = log.get(PacketId(id))?;
        let resent = self.resent.get_mut(&id).filter(|resent| resent.times < RESENDS_MAX)?;
        self.budget = self.budget.checked_sub(packet.payload.len())?;
        resent.times = resent.times.saturating_add(1);
        self.stats.resent = self.stats.resent.saturating_add(1);
        let bytes = u64::try_from(packet.payload.len()).unwrap_or(0);
        self.stats.resent_bytes = self.stats.resent_bytes.saturating_add(bytes);
        Some(packet)
    }

    /// Returns the packet sent `back` packets before the newest, and its sequence number. Used to probe a path.
    #[must_use]
    pub fn recent<'l>(&self, back: u32, log: &'l PacketLog) -> Option<(SequenceNumber, &'l LoggedPacket)> {
        let run = self.runs.back()?;
        let into = u64::from(run.count.checked_sub(1)?.checked_sub(back)?);
        let packet = log.get(PacketId(run.id.saturating_add(into)))?;
        Some((run.number.plus(into).number(), packet))
    }

    /// Returns the counters so far.
    #[must_use]
    pub const fn stats(&self) -> ResendStats {
        self.stats
    }

    /// Returns the log position of a sequence number.
    fn find(&self, number: SequenceNumber) -> Option<u64> {
        let newest = self.runs.back()?;
        let last = newest.number.plus(u64::from(newest.count).saturating_sub(1));
        let wanted = last.nearest(number).filter(|&wanted| wanted <= last)?;
        let run = self.runs.iter().rev().find(|run| run.number <= wanted)?;
        let into = wanted.since(run.number);
        (into < u64::from(run.count)).then(|| run.id.saturating_add(into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    fn packet(payload: &Bytes, timestamp: u32) -> LoggedPacket {
        LoggedPacket { payload: payload.clone(), timestamp, marker: false, padding: 0, joins: false }
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn two_viewers_share_a_log_under_their_own_numbers() {
        let start = netsim::Clock::new().now();
        let payload = Bytes::from(vec![1; 1000]);
        let mut log = PacketLog::new();
        let (mut first, mut second) = (ResendHistory::new(), ResendHistory::new());
        let mut numbers =
            [ExtendedSequence::first(SequenceNumber(65_500)), ExtendedSequence::first(SequenceNumber(7))];
        for n in 0..100u32 {
            let id = log.push(at(start, n.into()), packet(&payload, n));
            first.sent(numbers[0], id, 1000);
            numbers[0] = numbers[0].next();
            // The second viewer skips some packets.
            if !(40..50).contains(&n) {
                second.sent(numbers[1], id, 1000);
                numbers[1] = numbers[1].next();
            }
        }
        let now = at(start, 200);
        let ask = |history: &mut ResendHistory, number| {
            history.resend(now, SequenceNumber(number), RTT, &log, |_| false).map(|packet| packet.timestamp)
        };
        assert_eq!(
            [65_500, 65_535, 0, 63].map(|n| ask(&mut first, n)),
            [Some(0), Some(35), Some(36), Some(99)]
        );
        assert_eq!([7, 46, 47, 96].map(|n| ask(&mut second, n)), [Some(0), Some(39), Some(50), Some(99)]);
        assert_eq!([64, 65_499, 30_000].map(|n| ask(&mut first, n)), [None; 3]);
        assert_eq!([6, 97].map(|n| ask(&mut second, n)), [None; 2]);
        assert_eq!((first.runs.len(), second.runs.len(), first.stats().unknown), (1, 2, 3));
    }

    #[test]
    fn a_packet_of_one_log_is_not_in_another() {
        let start = netsim::Clock::new().now();
        let payload = Bytes::from(vec![1; 1000]);
        let (mut one, mut other) = (PacketLog::new(), PacketLog::new());
        let id = one.push(start, packet(&payload, 1));
        other.push(start, packet(&payload, 2));
        assert!(one.get(id).is_some() && other.get(id).is_none());
        let mut history = ResendHistory::new();
        history.sent(ExtendedSequence::first(SequenceNumber(7)), id, 1000);
        assert!(history.resend(start, SequenceNumber(7), RTT, &other, |_| false).is_none());
        assert!(history.resend(start, SequenceNumber(7), RTT, &one, |_| false).is_some());
    }

    #[test]
    fn what_is_held_gets_old_and_is_repeated() {
        let start = netsim::Clock::new().now();
        let mut log = PacketLog::new();
        let payload = Bytes::from(vec![1; 100]);
        let ids: Vec<PacketId> = (0..6).map(|n| log.push(at(start, n * 1000), packet(&payload, 0))).collect();
        assert_eq!(log.len(), 2, "two are a second apart");
        log.hold(ids[4]);
        let late = at(start, 9000);
        log.trim(late);
        assert_eq!((log.len(), log.first_id()), (2, ids[4]));
        let mut history = ResendHistory::new();
        history.sent(ExtendedSequence::first(SequenceNumber(7)), ids[4], 100);
        // The packet is retransmitted ten times in total, although it is requested only every two seconds.
        let asked = (0..30).map(|n| at(late, n * 2000));
        let resent = asked
            .filter(|now| history.resend(*now, SequenceNumber(7), RTT, &log, |_| false).is_some())
            .count();
        assert_eq!(resent, usize::from(RESENDS_MAX));
        log.hold(ids[5]);
        log.trim(late);
        assert_eq!(log.first_id(), ids[5]);
    }

    #[test]
    fn a_log_is_bounded_in_packets_bytes_and_age() {
        let start = netsim::Clock::new().now();
        let mut log = PacketLog::new();
        let small = Bytes::from_static(b"x");
        let ids: Vec<PacketId> = (0..20_000).map(|n| log.push(start, packet(&small, n))).collect();
        assert_eq!((log.len(), log.bytes()), (LOG_PACKETS_MAX, LOG_PACKETS_MAX));
        let gone = ids.len() - LOG_PACKETS_MAX;
        assert!(log.get(ids[gone - 1]).is_none() && log.get(ids[gone]).is_some());
        assert_eq!(log.first_id(), ids[gone]);
        log.trim(at(start, 1000));
        assert_eq!(log.len(), LOG_PACKETS_MAX);
        log.trim(at(start, 1001));
        assert!(log.is_empty() && log.bytes() == 0 && log.get(ids[19_999]).is_none());
        let id = log.push(at(start, 1001), packet(&small, 9));
        assert_eq!((ids[0].distance(id), log.get(id).unwrap().timestamp), (20_000, 9));
        let large = Bytes::from(vec![0; 60_000]);
        for n in 0..500 {
            log.push(at(start, 1002), packet(&large, n));
        }
        assert!(log.bytes() <= LOG_BYTES_MAX);
    }

    /// A receiver that does not notice retransmissions requests each lost packet ten times a second.
    #[test]
    fn a_packet_whose_retransmission_arrived_is_not_sent_again() {
        let start = netsim::Clock::new().now();
        let payload = Bytes::from(vec![1; 1000]);
        // The transport-wide sequence number of the retransmission, whether it arrives, and how often it is sent.
        for (transport, arrives, times) in [(Some(9), true, 1), (Some(9), false, 5), (None, true, 5)] {
            let (mut log, mut history) = (PacketLog::new(), ResendHistory::new());
            history.sent(
                ExtendedSequence::first(SequenceNumber(5)),
                log.push(start, packet(&payload, 0)),
                1000,
            );
            let mut sent = 0;
            for n in 1..=5 {
                let now = at(start, 100 * n);
                // Feedback about the retransmission has been forgotten when the third request arrives.
                let has_arrived = |number| arrives && n < 3 && number == 9;
                if history.resend(now, SequenceNumber(5), RTT, &log, has_arrived).is_some() {
                    sent += 1;
                    transport.into_iter().for_each(|number| history.resent(SequenceNumber(5), number));
                }
            }
            assert_eq!((sent, history.stats().repeated), (times, 5 - times), "{transport:?} {arrives}");
            // The receiver may have dropped it.
            history.doubt(SequenceNumber(5));
            let again = history.resend(at(start, 900), SequenceNumber(5), RTT, &log, |_| true);
            assert!(again.is_some());
        }
    }

    /// everything is requested a thousand times a second.
    #[test]
    fn x_11_resends_are_bounded_for_each_packet_and_in_sum() {
        let start = netsim::Clock::new().now();
        let payload = Bytes::from(vec![1; 1000]);
        let (mut log, mut history) = (PacketLog::new(), ResendHistory::new());
        let mut number = ExtendedSequence::first(SequenceNumber(0));
        let mut sent_bytes = 0;
        let mut times = BTreeMap::<u32, Vec<u64>>::new();
        for ms in 0..3000u64 {
            let now = at(start, ms);
            if ms % 4 == 0 {
                let id = log.push(now, packet(&payload, u32::try_from(ms).unwrap()));
                history.sent(number, id, 1000);
                number = number.next();
                sent_bytes += 1000;
            }
            // Requests numbers that were sent and numbers that were not; part of the number space is enough,
            // because old ones are cheap to refuse.
            for wanted in (0..800u16).chain(65_000..65_100) {
                if let Some(packet) = history.resend(now, SequenceNumber(wanted), RTT, &log, |_| false) {
                    times.entry(packet.timestamp).or_default().push(ms);
                }
            }
        }
        let resent: usize = times.values().map(|times| times.len() * 1000).sum();
        assert!(resent <= sent_bytes / 4 + BUDGET_BYTES_MAX, "{resent} of {sent_bytes}");
        assert!(resent >= sent_bytes / 5, "{resent} of {sent_bytes}");
        for times in times.values() {
            assert!(times.len() <= usize::from(RESENDS_MAX));
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 50), "{times:?}");
        }
        let stats = history.stats();
        assert!(stats.over_budget > 0 && stats.unknown > 0 && stats.repeated > 0);
        assert!(history.resent.len() <= RESENT_MAX && history.runs.len() == 1);
    }

    /// Checks that with a loss of a third, more than a third of the sent bytes may be retransmitted, up to
    /// one and a half times the sent bytes.
    #[test]
    fn repairs_have_the_room_that_the_loss_needs() {
        for (loss, eighths) in [(0, 2), (10, 3), (100, 4), (350, 11), (1000, 12)] {
            let start = netsim::Clock::new().now();
            let payload = Bytes::from(vec![1; 1000]);
            let (mut log, mut history) = (PacketLog::new(), ResendHistory::new());
            history.set_loss(loss);
            let mut number = ExtendedSequence::first(SequenceNumber(0));
            for ms in 0..4000 {
                let now = at(start, ms * 5);
                let id = log.push(now, packet(&payload, 0));
                history.sent(number, id, 1000);
                for behind in [0, 30] {
                    let asked = number.number().0.wrapping_sub(behind);
                    history.resend(now, SequenceNumber(asked), RTT, &log, |_| false);
                }
                number = number.next();
            }
            let resent = history.stats().resent - if loss < HEAVY_LOSS { 64 } else { 128 };
            assert!((4000 * eighths / 8 - 70..=4000 * eighths / 8 + 2).contains(&resent), "{loss}: {resent}");
        }
    }

    #[test]
    fn x_11_one_packet_is_sent_again_ten_times() {
        let start = netsim::Clock::new().now();
        let payload = Bytes::from_static(b"small");
        let (mut log, mut history) = (PacketLog::new(), ResendHistory::new());
        let id = log.push(start, packet(&payload, 0));
        history.sent(ExtendedSequence::first(SequenceNumber(5)), id, 5);
        let resent = (0..1000)
            .filter(|&ms| {
                history.resend(at(start, ms), SequenceNumber(5), Duration::ZERO, &log, |_| false).is_some()
            })
            .count();
        assert_eq!((resent, history.stats().repeated), (10, 990));
        assert!(history.repeat(SequenceNumber(5), &log).is_none(), "second sendings count");
    }

    #[test]
    fn gaps_of_a_viewer_are_bounded() {
        let mut history = ResendHistory::new();
        for n in 0..1000u64 {
            history.sent(ExtendedSequence::first(SequenceNumber(0)).plus(n), PacketId(n * 2), 1);
        }
        assert_eq!(history.runs.len(), RUNS_MAX);
        assert_eq!(
            (history.find(SequenceNumber(999)), history.find(SequenceNumber(900))),
            (Some(1998), None)
        );
        // Memory used per viewer, as stated in the docs.
        assert!(size_of::<ResendHistory>() <= 128 && size_of::<Run>() == 24);
    }
}
