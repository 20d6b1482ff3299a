//! The receiving side of one source.

use std::collections::VecDeque;
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

/// A leap ahead beyond this is another stream, or a very long outage (RFC 3550 §A.1 has 3000 too).
const LEAP_MAX: u64 = 3000;
/// A packet this far behind is late rather than of another stream. Larger than the RFC's 100: repaired packets come
/// late.
const LATE_MAX: u64 = 3000;
/// Time after which a request is repeated before the round trip was measured.
const REPEAT_FIRST: Duration = Duration::from_millis(100);

/// Events that wait for the owner; one that drains after each input never sees it reached.
const EVENTS_MAX: usize = 4096;

/// Settings for the reception of a source.
#[derive(Debug, Clone)]
pub struct ReceiveConfig {
    /// Ticks per second of its timestamps.
    pub clock_rate: u32,
    /// Whether the sender repeats what is asked for.
    pub nack: bool,
    /// The time a packet may be late before it is requested.
    pub nack_tolerance: Duration,
    /// The longest time that packets wait for a missing one. If a repair takes longer, only reordered ones are waited for.
    pub hold_max: Duration,
}

impl ReceiveConfig {
    /// Settings for a source with retransmissions: missing packets are waited for as long as a few requests take, up to
    /// [`HOLD_REPAIR_MAX`].
    #[must_use]
    pub const fn with_nack(clock_rate: u32) -> Self {
        Self { clock_rate, nack: true, nack_tolerance: Duration::from_millis(10), hold_max: HOLD_REPAIR_MAX }
    }

    /// Settings for a source without retransmissions: reordered packets are waited for as long as they were late before,
    /// up to [`HOLD_REORDER_MAX`].
    #[must_use]
    pub const fn without_nack(clock_rate: u32) -> Self {
        let hold_max = HOLD_REORDER_MAX;
        Self { clock_rate, nack: false, nack_tolerance: Duration::from_millis(10), hold_max }
    }
}

/// An event of a receiver, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiveEvent {
    /// The next packet.
    Packet(Received),
    /// Packets before the next one are missing for good. What they were part of is spoilt: of video, a key frame is
    /// needed.
    Lost {
        /// The number of packets, as far as known.
        packets: u64,
    },
    /// The numbers began anew: another stream, as far as anybody can tell.
    Restarted,
}

/// Counts of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Packets that came, repaired ones not counted.
    pub packets: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Packets that came by repair and were of use.
    pub recovered: u64,
    /// Packets that were there before or came too late.
    pub useless: u64,
    /// Packets that were given up.
    pub lost: u64,
    /// Requests for packets; one packet may be asked for several times.
    pub nacked: u64,
    /// The number of times the sequence numbers restarted.
    pub restarts: u64,
    /// Variance of the time between packets, in ticks.
    pub jitter: u32,
    /// Packets that wait for others.
    pub waiting: usize,
    /// Packets that are missed.
    pub missing: usize,
}

/// Receives one source.
#[derive(Debug)]
pub struct Receiver {
    ssrc: Ssrc,
    config: ReceiveConfig,
    stream: Option<Stream>,
    path: Hold,
    events: VecDeque<ReceiveEvent>,
    stats: ReceiveStats,
}

/// The state from the first packet on.
#[derive(Debug)]
struct Stream {
    highest: ExtendedSequence,
    statistics: Statistics,
    reorder: ReorderBuffer,
    nacks: NackList,
    /// A packet that was out of all order; when the one behind it follows, the numbers began anew (RFC 3550 §A.1).
    suspect: Option<SequenceNumber>,
}

/// The position of a packet relative to earlier ones.
enum Standing {
    Ahead(ExtendedSequence),
    Late(ExtendedSequence),
    OutOfOrder,
}

impl Receiver {
    /// Creates a receiver for a source; it starts with the first packet, whatever its number.
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

    /// A packet of this source came.
    pub fn handle_packet(&mut self, now: Instant, header: &Header<'_>, payload: Bytes) {
        self.handle_covering(now, header, payload, 0);
    }

    /// A packet of this source came that carries the media of so many packets right before it too: nobody waits for those.
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
                let missing_from = stream.highest.next();
                stream.highest = stream.highest.max(sequence);
                // The first packet of all is its own highest.
                self.path.advanced(now, missing_from.min(sequence), sequence);
                if self.config.nack
                    && sequence > missing_from
                    && !stream.nacks.lost(now, missing_from, sequence)
                {
                    // More than can be asked for: nobody waits for them.
                    let lost = sequence.since(stream.reorder.next());
                    stream.reorder.restart(sequence);
                    self.lose(lost);
                }
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

    /// A packet of this source came by repair. It is taken only if it is missed: a sender of repairs cannot lead the
    /// count of packets.
    pub fn handle_recovered(&mut self, now: Instant, header: &Header<'_>, payload: Bytes) {
        let place = self.stream.as_ref().and_then(|stream| {
            let sequence = stream.highest.nearest(header.sequence_number)?;
            (sequence < stream.highest).then_some(sequence)
        });
        match place {
            Some(sequence) => self.take(now, header, (payload, 0), sequence, true),
            None => self.stats.useless = self.stats.useless.saturating_add(1),
        }
        self.release(now);
    }

    /// A sender report of this source came.
    pub fn handle_sender_report(&mut self, now: Instant, info: &SenderInfo) {
        if let Some(stream) = &mut self.stream {
            stream.statistics.sender_report(now, info.ntp);
        }
    }

    /// The round trip to the sender, when it was measured. Until then it is learnt from the times that repairs take.
    pub const fn set_round_trip(&mut self, round_trip: Duration) {
        self.path.set_round_trip(round_trip);
    }

    /// Gives up what has been waited for long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.release(now);
    }

    /// The report block for the sender; `None` before the first packet. Each call starts another interval.
    pub fn report(&mut self, now: Instant) -> Option<ReportBlock> {
        let stream = self.stream.as_mut()?;
        Some(stream.statistics.report(now, self.ssrc, stream.highest))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ReceiveEvent> {
        self.events.pop_front()
    }

    /// Adds what is to be asked for now, in rising order.
    pub fn poll_nacks(&mut self, now: Instant, out: &mut Vec<SequenceNumber>) {
        if let Some(stream) = &mut self.stream {
            let before = out.len();
            let repeat = self.path.repeat(stream.statistics.jitter_time()).unwrap_or(REPEAT_FIRST);
            stream.nacks.poll(now, repeat, out);
            let asked = u64::try_from(out.len().saturating_sub(before)).unwrap_or(u64::MAX);
            self.stats.nacked = self.stats.nacked.saturating_add(asked);
        }
    }

    /// The time at which there is something to give up or to ask for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        [stream.reorder.deadline(), stream.nacks.poll_timeout()].into_iter().flatten().min()
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> ReceiveStats {
        let mut stats = self.stats;
        if let Some(stream) = &self.stream {
            stats.jitter = stream.statistics.jitter();
            (stats.waiting, stats.missing) = (stream.reorder.len(), stream.nacks.len());
        }
        stats
    }

    /// Packets that a report counts as lost so far, without regard to repair; negative where packets came twice.
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
        match asked {
            // A packet that is repeated under its own number cannot be told from one that is late.
            Some(asked) if recovered => self.path.repaired(now, now.saturating_duration_since(asked)),
            None if sequence < stream.highest && !recovered => self.path.reordered(now, sequence),
            Some(_) | None => {}
        }
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
        let counter = match is_new {
            false => &mut self.stats.useless,
            true if recovered => &mut self.stats.recovered,
            true => return,
        };
        *counter = counter.saturating_add(1);
    }

    fn release(&mut self, now: Instant) {
        if let Some(stream) = &mut self.stream {
            let jitter = stream.statistics.jitter_time();
            stream.reorder.set_wait(if self.config.nack {
                self.path.of_repair(self.config.nack_tolerance, jitter, self.config.hold_max)
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
            nacks: NackList::new(config.nack_tolerance),
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
