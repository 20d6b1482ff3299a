//! The receiving side of one source.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::hold::{HOLD_REORDER_MAX, HOLD_REPAIR_MAX, Hold};
use super::nack::NackList;
use super::received::Received;
use super::reorder::{Released, ReorderBuffer};
use super::statistics::Statistics;
use crate::header::Header;
use crate::number::{ExtendedSequence, SequenceNumber, Ssrc};
use crate::rtcp::{ReportBlock, SenderInfo};

/// A retransmitted packet is accepted if it is ahead of the newest packet by at most this many packets.
const RECOVERED_AHEAD_MAX: u64 = 64;
/// Jump ahead, in packets, beyond which another stream or a very long outage is assumed (3000 as in RFC 3550
/// §A.1).
const LEAP_MAX: u64 = 3000;
/// Maximum distance behind the newest packet, in packets, at which a packet counts as late. One farther
/// behind belongs to another stream. Larger than the 100 of RFC 3550, because repairs arrive late.
const LATE_MAX: u64 = 3000;

/// Maximum number of events waiting for the owner. Never reached if the owner polls after each input.
const EVENTS_MAX: usize = 4096;

/// Settings for the reception of a source.
#[derive(Debug, Clone)]
pub struct ReceiveConfig {
    /// Clock rate of the source, in ticks per second.
    pub clock_rate: u32,
    /// The sender retransmits requested packets.
    pub nack: bool,
    /// Minimum time for which a packet may be late before it is requested. Where packets overtake each other, the time
    /// is longer, depending on how late they usually are.
    pub nack_tolerance: Duration,
    /// Maximum time for which packets wait for a missing one. If repairs take longer, only reordered packets
    /// are waited for.
    pub hold_max: Duration,
}

impl ReceiveConfig {
    /// Settings for a source with retransmissions: packets wait for a missing one for the time of a few
    /// requests, up to [`HOLD_REPAIR_MAX`].
    #[must_use]
    pub const fn with_nack(clock_rate: u32) -> Self {
        Self { clock_rate, nack: true, nack_tolerance: Duration::from_millis(10), hold_max: HOLD_REPAIR_MAX }
    }

    /// Settings for a source without retransmissions: packets wait for a missing one for the lateness of
    /// earlier reordered packets, up to [`HOLD_REORDER_MAX`].
    #[must_use]
    pub const fn without_nack(clock_rate: u32) -> Self {
        let hold_max = HOLD_REORDER_MAX;
        Self { clock_rate, nack: false, nack_tolerance: Duration::from_millis(10), hold_max }
    }
}

/// An event of a receiver, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiveEvent {
    /// The next packet in order.
    Packet(Received),
    /// Packets before the next one are lost for good, so the frames that they belonged to are damaged, and
    /// video needs a key frame.
    Lost {
        /// Number of lost packets, as far as known.
        packets: u64,
    },
    /// The sequence numbers restarted, presumably with another stream.
    Restarted,
}

/// Counters of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Packets received, without repairs.
    pub packets: u64,
    /// Payload bytes of received packets, without repairs.
    pub bytes: u64,
    /// Packets recovered by retransmission while they were still needed.
    pub recovered: u64,
    /// Duplicate packets, and packets that arrived too late.
    pub useless: u64,
    /// Packets given up.
    pub lost: u64,
    /// Number of requests sent; one packet may be requested several times.
    pub nacked: u64,
    /// Number of restarts of the sequence numbers.
    pub restarts: u64,
    /// Interarrival jitter (RFC 3550 §6.4.1), in ticks.
    pub jitter: u32,
    /// Packets waiting for earlier ones.
    pub waiting: usize,
    /// Packets currently missing.
    pub missing: usize,
}

/// Receiver of one source.
#[derive(Debug)]
pub struct Receiver {
    ssrc: Ssrc,
    config: ReceiveConfig,
    stream: Option<Stream>,
    path: Hold,
    events: VecDeque<ReceiveEvent>,
    stats: ReceiveStats,
}

/// State that exists from the first packet on.
#[derive(Debug)]
struct Stream {
    highest: ExtendedSequence,
    statistics: Statistics,
    reorder: ReorderBuffer,
    nacks: NackList,
    /// A packet far out of order. If the next packet follows it in sequence, the sequence numbers have
    /// restarted (RFC 3550 §A.1).
    suspect: Option<SequenceNumber>,
}

/// Position of a packet relative to earlier ones.
enum Standing {
    Ahead(ExtendedSequence),
    Late(ExtendedSequence),
    OutOfOrder,
}

impl Receiver {
    /// Creates a receiver for a source. Any sequence number may be the first.
    #[must_use]
    pub fn new(ssrc: Ssrc, config: ReceiveConfig) -> Self {
        Self {
            ssrc,
            config,
            stream: None,
            path: Hold::default(),
            events: VecDeque::new(),
            stats: ReceiveStats::default(),
        }
    }

    /// Handles a packet of this source.
    pub fn handle_packet(&mut self, now: Instant, header: &Header<'_>, payload: Bytes) {
        self.handle_covering(now, header, payload, 0);
    }

    /// Handles a packet that also contains the media of the `covers` packets before it, which are then not
    /// waited for.
    pub fn handle_covering(&mut self, now: Instant, header: &Header<'_>, payload: Bytes, covers: u16) {
        self.stats.packets = self.stats.packets.saturating_add(1);
        self.stats.bytes = self.stats.bytes.saturating_add(u64::try_from(payload.len()).unwrap_or(u64::MAX));
        if self.events.len() >= EVENTS_MAX {
            self.stats.useless = self.stats.useless.saturating_add(1);
            return;
        }
        let number = header.sequence_number;
        let stream = self.stream.get_or_insert_with(|| Stream::new(now, &self.config, number));
        let sequence = match stream.standing(number) {
            Standing::Ahead(sequence) => {
                self.advance(now, sequence);
                sequence
            }
            Standing::Late(sequence) => sequence,
            Standing::OutOfOrder => {
                if stream.suspect != Some(number) {
                    stream.suspect = Some(number.next());
                    self.stats.useless = self.stats.useless.saturating_add(1);
                    return;
                }
                let sequence = ExtendedSequence::first(number);
                stream.restart(sequence);
                self.path.restart();
                self.stats.restarts = self.stats.restarts.saturating_add(1);
                self.events.push_back(ReceiveEvent::Restarted);
                sequence
            }
        };
        self.take(now, header, (payload, covers), sequence, false);
        self.release(now);
    }

    /// Handles a packet recovered by retransmission. Accepted only if it is missing, or ahead of the newest
    /// packet by at most [`RECOVERED_AHEAD_MAX`], because senders repeat the last packets before a pause.
    pub fn handle_recovered(&mut self, now: Instant, header: &Header<'_>, payload: Bytes) {
        self.path.set_repairs_apart();
        let ahead = |stream: &Stream| {
            let sequence = stream.highest.nearest(header.sequence_number)?;
            let ahead = sequence.since(stream.highest);
            (sequence != stream.highest && ahead <= RECOVERED_AHEAD_MAX).then_some((sequence, ahead > 0))
        };
        match self.stream.as_ref().and_then(ahead) {
            Some((sequence, is_ahead)) => {
                if is_ahead {
                    self.advance(now, sequence);
                }
                self.take(now, header, (payload, 0), sequence, true);
            }
            None => self.stats.useless = self.stats.useless.saturating_add(1),
        }
        self.release(now);
    }

    /// Advances the highest number, and records missing packets before it.
    fn advance(&mut self, now: Instant, sequence: ExtendedSequence) {
        let Some(stream) = &mut self.stream else { return };
        let missing_from = stream.highest.next();
        stream.highest = stream.highest.max(sequence);
        // For the very first packet, `highest` already is its own number.
        self.path.advanced(now, missing_from.min(sequence), sequence);
        let tolerance = self.tolerance();
        let Some(stream) = &mut self.stream else { return };
        let next = now + tolerance;
        if self.config.nack
            && sequence > missing_from
            && !stream.nacks.lost(now, next, missing_from, sequence)
        {
            // Too many packets are missing to request them, so the receiver waits for none of them.
            let lost = sequence.since(stream.reorder.next());
            stream.reorder.restart(sequence);
            self.lose(lost);
        }
    }

    /// Handles a sender report of this source.
    pub fn handle_sender_report(&mut self, now: Instant, info: &SenderInfo) {
        if let Some(stream) = &mut self.stream {
            stream.statistics.sender_report(now, info.ntp);
        }
    }

    /// Sets a measured round trip to the sender. Without it, the round trip is estimated from the times of
    /// repairs.
    pub const fn set_round_trip(&mut self, round_trip: Duration) {
        self.path.set_round_trip(round_trip);
    }

    /// Gives up packets that have been waited for long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.release(now);
    }

    /// Returns the report block for the sender, and starts the next interval; `None` before the first packet.
    pub fn report(&mut self, now: Instant) -> Option<ReportBlock> {
        let stream = self.stream.as_mut()?;
        Some(stream.statistics.report(now, self.ssrc, stream.highest))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ReceiveEvent> {
        self.events.pop_front()
    }

    /// Adds the packets to request now to `out`, in ascending order.
    pub fn poll_nacks(&mut self, now: Instant, out: &mut Vec<SequenceNumber>) {
        if let Some(stream) = &mut self.stream {
            let before = out.len();
            stream.nacks.poll(now, self.path.requests(stream.statistics.jitter_time()), out);
            let asked = u64::try_from(out.len().saturating_sub(before)).unwrap_or(u64::MAX);
            self.stats.nacked = self.stats.nacked.saturating_add(asked);
        }
    }

    /// Returns the time at which a packet must be given up or requested.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        [stream.reorder.deadline(), stream.nacks.poll_timeout()].into_iter().flatten().min()
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> ReceiveStats {
        let mut stats = self.stats;
        if let Some(stream) = &self.stream {
            stats.jitter = stream.statistics.jitter();
            (stats.waiting, stats.missing) = (stream.reorder.len(), stream.nacks.len());
        }
        stats
    }

    /// Returns the number of packets lost on the path so far, as in reports: repairs do not reduce it. Negative
    /// if packets were duplicated.
    #[must_use]
    pub fn lost_on_the_way(&self) -> i64 {
        self.stream.as_ref().map_or(0, |stream| stream.statistics.lost(stream.highest))
    }

    fn take(
        &mut self,
        now: Instant,
        header: &Header<'_>,
        (payload, covers): (Bytes, u16),
        sequence: ExtendedSequence,
        recovered: bool,
    ) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        stream.suspect = None;
        if !recovered {
            stream.statistics.packet(now, header.timestamp);
        }
        let asked = stream.nacks.arrived(sequence).and_then(|arrived| arrived.first_asked);
        let packet = Received {
            sequence,
            timestamp: header.timestamp,
            marker: header.marker,
            payload_type: header.payload_type,
            payload,
            covers,
            arrival: now,
        };
        let is_new = if stream.reorder.passes(sequence) {
            self.events.push_back(ReceiveEvent::Packet(packet));
            true
        } else {
            stream.reorder.insert(now, packet)
        };
        match asked {
            Some(asked) if recovered => self.path.repaired(now, now.saturating_duration_since(asked)),
            Some(asked) if self.path.is_original(now.saturating_duration_since(asked)) => {
                self.path.reordered(now, sequence, is_new);
            }
            None if sequence < stream.highest && !recovered => self.path.reordered(now, sequence, is_new),
            Some(_) | None => {}
        }
        let counter = match is_new {
            false => &mut self.stats.useless,
            true if recovered => &mut self.stats.recovered,
            true => return,
        };
        *counter = counter.saturating_add(1);
    }

    /// Returns the time for which a packet may be late before it is requested.
    fn tolerance(&self) -> Duration {
        let jitter = self.stream.as_ref().map_or(Duration::ZERO, |stream| stream.statistics.jitter_time());
        self.path.tolerance(self.config.nack_tolerance, jitter, self.config.hold_max)
    }

    fn release(&mut self, now: Instant) {
        let tolerance = self.tolerance();
        if let Some(stream) = &mut self.stream {
            let jitter = stream.statistics.jitter_time();
            stream.reorder.set_wait(if self.config.nack {
                self.path.of_repair(tolerance, jitter, self.config.hold_max)
            } else {
                self.path.of_reordering(jitter)
            });
        }
        while let Some(stream) = &mut self.stream {
            match stream.reorder.release(now) {
                Some(Released::Packet(packet)) => self.events.push_back(ReceiveEvent::Packet(packet)),
                Some(Released::Covered(packets)) => {
                    stream.nacks.forget_before(stream.reorder.next());
                    self.stats.recovered = self.stats.recovered.saturating_add(packets);
                }
                Some(Released::Lost(packets)) => {
                    stream.nacks.forget_before(stream.reorder.next());
                    self.lose(packets);
                }
                None => return,
            }
        }
    }

    fn lose(&mut self, packets: u64) {
        self.stats.lost = self.stats.lost.saturating_add(packets);
        tracing::debug!(ssrc = %self.ssrc, packets, "lost for good");
        self.events.push_back(ReceiveEvent::Lost { packets });
    }
}

impl Stream {
    fn new(now: Instant, config: &ReceiveConfig, number: SequenceNumber) -> Self {
        let first = ExtendedSequence::first(number);
        Self {
            highest: first,
            statistics: Statistics::new(now, config.clock_rate, first),
            reorder: ReorderBuffer::new(first),
            nacks: NackList::new(),
            suspect: None,
        }
    }

    fn restart(&mut self, first: ExtendedSequence) {
        self.highest = first;
        self.statistics.restart(first);
        self.reorder.restart(first);
        self.nacks.clear();
        self.suspect = None;
    }

    fn standing(&self, number: SequenceNumber) -> Standing {
        match self.highest.nearest(number) {
            Some(sequence) if sequence >= self.highest && sequence.since(self.highest) <= LEAP_MAX => {
                Standing::Ahead(sequence)
            }
            Some(sequence) if sequence < self.highest && self.highest.since(sequence) <= LATE_MAX => {
                Standing::Late(sequence)
            }
            _ => Standing::OutOfOrder,
        }
    }
}
