//! The sending half of a connection: chooses the packets to send, and their order.
//!
//! Control packets are sent first, because they are small and other packets depend on them. They are followed by
//! retransmissions as far as the overhead allows, then by parity packets of the packet filter, then by new packets as
//! far as the window allows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::Datagrams;

use crate::arq::send::SendBuffer;
use crate::cipher::SessionKeys;
use crate::config::{Config, HEAD_BYTES};
use crate::congestion::Congestion;
use crate::connection::link::{CHECK_MIN_US, Link, PROBE_MIN_US, stamp};
use crate::event::SendError;
use crate::filter::{FILTER_HEAD_BYTES, FilterSender};
use crate::handshake::extension;
use crate::pacing::{Overhead, Pacer};
use crate::packet::{Control, ControlWriter, DataHead, KeyFlag, POSITION_SOLO, losses};
use crate::seq::Seq;
use crate::stats::count;

/// Size of the largest control packet, in bytes.
const CONTROL_BYTES_MAX: usize = 1456;

/// Writes control packets.
struct Controls<'a> {
    writer: ControlWriter,
    out: &'a mut Datagrams,
}

impl Controls<'_> {
    const fn has_room(&self) -> bool {
        self.out.has_room(CONTROL_BYTES_MAX)
    }

    fn write(&mut self, control: &Control<'_>) {
        let writer = self.writer;
        self.out.push_made(|bytes| writer.write(control, bytes));
    }
}

/// Confirmations of the peer's acknowledgements (ACKACK).
#[derive(Debug)]
pub(super) struct Confirmations {
    /// Number of the acknowledgement to confirm next.
    pub(super) due: Option<u32>,
    pub(super) count: u32,
    pub(super) last_us: i64,
}

/// The sending side: keeps messages until they are acknowledged, and determines the pace at which they are sent.
#[derive(Debug)]
pub(super) struct SendSide {
    pub(super) buffer: SendBuffer,
    /// Flow window in packets: the initial window, or later the room that the peer has last announced.
    pub(super) window: u32,
    pub(super) overhead: Overhead,
    pub(super) pacer: Pacer,
    /// Congestion control, created with the first packet sent if [`Config::adapts`](crate::Config::adapts) is on.
    pub(super) congestion: Option<Box<Congestion>>,
    /// Time at which pacing allows the next packet; `None` if no packet is held back by pacing.
    pub(super) pace_at: Option<Instant>,
    /// First and last packet of ranges that were given up. The peer must still be informed of them.
    pub(super) drops: Vec<(Seq, Seq)>,
    /// Time of the last acknowledgement that covered new packets.
    pub(super) progress_us: i64,
    pub(super) probe_pause_us: i64,
    pub(super) confirm: Confirmations,
    /// The packet filter, if one was agreed on.
    pub(super) filter: Option<Box<FilterSender>>,
    /// Number of packets per second that the path could carry, as estimated by the peer.
    pub(super) bandwidth_packets: u32,
}

impl SendSide {
    pub(super) fn new(first: Seq, config: &Config, peer_window: u32, now_us: i64) -> Self {
        Self {
            buffer: SendBuffer::new(first),
            window: config.flow_window.min(peer_window),
            overhead: Overhead::new(config.overhead_percent),
            pacer: Pacer::new(config.max_bandwidth),
            congestion: None,
            pace_at: None,
            drops: Vec::new(),
            progress_us: now_us,
            probe_pause_us: PROBE_MIN_US,
            confirm: Confirmations { due: None, count: 0, last_us: i64::MIN / 2 },
            filter: None,
            bandwidth_packets: 0,
        }
    }

    /// True if packets wait because the sending rate is limited.
    fn is_behind(&self) -> bool {
        self.is_paced() && self.has_data()
    }

    /// True if the sending rate is limited to the rate at which the path was found to carry packets.
    fn is_paced(&self) -> bool {
        self.congestion.as_ref().is_some_and(|congestion| congestion.rate().is_some())
    }

    /// True if there are packets to send, new or retransmitted.
    fn has_data(&self) -> bool {
        self.buffer.has_lost() || self.buffer.unsent() > 0 || self.has_parity()
    }

    /// Returns the time at which the next packet may leave; `None` if it may leave now. A large burst is sent in steps,
    /// but retransmissions do not wait for the next step.
    fn wait(&self, now: Instant) -> Option<Instant> {
        self.pacer.wait(now, self.buffer.has_lost())
    }

    /// Makes `pace_at` earlier after a loss report: unlike new packets, a retransmission does not wait for the next
    /// step of a burst.
    pub(super) fn hurry(&mut self) {
        self.pace_at = self.pace_at.map(|at| self.pacer.next_at().map_or(at, |next_at| next_at.min(at)));
    }

    fn has_parity(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.is_due())
    }
}

impl Link {
    pub(super) fn send(&mut self, now: Instant, payload: Bytes) -> Result<(), SendError> {
        let (length, most) = (payload.len(), self.agreed.payload_max);
        if length == 0 || length > most {
            return Err(SendError::Length { length, most });
        }
        let now_us = self.micros(now);
        self.liveness.horizon_us = self.liveness.horizon_us.max(now_us);
        self.drop_too_late(now_us);
        if length > self.send_room() {
            return Err(SendError::Full);
        }
        if self.sending.buffer.len() == 0 {
            self.sending.progress_us = now_us;
            self.sending.probe_pause_us = self.probe_us();
            self.liveness.check_by(now_us.saturating_add(self.sending.probe_pause_us));
        }
        if self.agreed.config.adapts && self.sending.congestion.is_none() {
            self.sending.congestion = Some(Box::new(Congestion::new(now_us)));
        }
        self.sending.buffer.push(payload, stamp(now_us));
        if self.agreed.config.adapts {
            self.sending.pacer.spread(self.sending.buffer.unsent_bytes(), self.send_latency());
        }
        Ok(())
    }

    /// True if packets wait because the sending rate is limited.
    pub(super) fn is_behind(&self) -> bool {
        self.sending.is_behind()
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.sending.buffer.bytes()
    }

    pub(super) fn send_room(&self) -> usize {
        let window = usize::try_from(self.agreed.config.flow_window).unwrap_or(usize::MAX);
        if self.sending.buffer.len() >= window {
            return 0;
        }
        self.agreed.config.buffer_bytes.saturating_sub(self.sending.buffer.bytes())
    }

    /// Gives up packets that would arrive too late, so that the peer would discard them.
    pub(super) fn drop_too_late(&mut self, now_us: i64) {
        // While the rate is limited, a packet gets its timestamp when it leaves, so packets that are not sent yet have
        // no age.
        let (limit, sent_only) = (self.too_late_us(), self.sending.is_paced());
        let dropped = self.sending.buffer.drop_older(stamp(now_us), limit, sent_only);
        count(&mut self.stats.pkt_snd_drop, dropped);
    }

    /// True if [`Link::poll_transmit`] may have something to write.
    pub(super) fn has_transmit(&self, now: Instant) -> bool {
        let now_us = self.micros(now);
        let is_due = |at: Option<i64>| at.is_some_and(|at| at <= now_us);
        // Data that pacing holds back does not count: `pace_at` is its deadline.
        let has_data =
            self.sending.has_data() && (self.sending.pace_at.is_none() || self.sending.wait(now).is_none());
        has_data
            || self.sending.confirm.due.is_some()
            || self.receiving.acks.light
            || is_due(self.receiving.acks.due_us)
            || is_due(self.receiving.losses.next_at())
            || self.liveness.keep_alive
            || self.keying.reply.is_some()
            || self.keying.tell.is_some()
            || !self.sending.drops.is_empty()
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Datagrams) {
        let now_us = self.micros(now);
        self.liveness.horizon_us = self.liveness.horizon_us.max(now_us);
        let before = out.len();
        if self.write_controls(now_us, out) {
            self.write_data(now, now_us, out);
        }
        if out.len() > before {
            self.liveness.spoken_us = now_us;
            self.liveness.keep_alive = false;
        }
        if self.keying.keys.as_ref().is_some_and(|keys| keys.is_untold()) {
            self.liveness.check_by(now_us.saturating_add(CHECK_MIN_US));
        }
    }

    /// Writes the control packets that are due. Returns false if `out` has no room left; the remaining packets stay
    /// queued.
    fn write_controls(&mut self, now_us: i64, out: &mut Datagrams) -> bool {
        let before = out.len();
        let mut controls =
            Controls { writer: ControlWriter { timestamp: stamp(now_us), to: self.agreed.peer }, out };
        if let Some(number) = self.sending.confirm.due.filter(|_| controls.has_room()) {
            self.sending.confirm.due = None;
            controls.write(&Control::AckAck(number));
        }
        if controls.has_room()
            && let Some((number, ack)) = self.receiving.take_ack(now_us, self.rtt)
        {
            count(&mut self.stats.pkt_sent_ack, 1);
            controls.write(&Control::Ack(number, ack));
        }
        for (kind, message) in
            [(extension::KM_RESPONSE, &mut self.keying.reply), (extension::KM_REQUEST, &mut self.keying.tell)]
        {
            if controls.has_room()
                && let Some(message) = message.take()
            {
                controls.write(&Control::User(kind, &message));
            }
        }
        while controls.has_room()
            && let Some((first, last)) = self.sending.drops.pop()
        {
            controls.write(&Control::DropRequest(0, first, last));
        }
        if controls.has_room() && self.receiving.losses.next_at().is_some_and(|at| at <= now_us) {
            let mut body = Vec::new();
            self.receiving.losses.report(now_us, self.rtt, &mut body);
            if !body.is_empty() {
                count(&mut self.stats.pkt_sent_nak, 1);
                controls.write(&Control::Nak(losses(&body)));
            }
        }
        if self.liveness.keep_alive && controls.out.len() == before && controls.has_room() {
            controls.write(&Control::KeepAlive);
        }
        controls.has_room()
    }

    fn write_data(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) {
        let is_filtered = self.sending.filter.is_some();
        let filter_head = if is_filtered { FILTER_HEAD_BYTES } else { 0 };
        let packet_max = HEAD_BYTES.saturating_add(self.agreed.payload_max).saturating_add(filter_head);
        while out.has_room(packet_max) {
            if let Some(at) = self.sending.wait(now) {
                let waits = self.sending.has_data();
                self.sending.pace_at = waits.then_some(at);
                if let Some(congestion) = &mut self.sending.congestion {
                    congestion.wait(now_us, waits);
                }
                return;
            }
            let has_written = self.write_lost(now, now_us, out)
                || (is_filtered && self.write_parity(now, out))
                || self.write_new(now, now_us, out);
            if !has_written {
                break;
            }
        }
        if self.sending.buffer.unsent() == 0 {
            self.sending.pacer.spread(0, Duration::ZERO);
            if let Some(congestion) = &mut self.sending.congestion {
                congestion.wait(now_us, false);
            }
        }
        self.sending.pace_at = None;
    }

    fn write_lost(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) -> bool {
        let Some((seq, entry)) = self.sending.buffer.next_lost() else { return false };
        let bytes = HEAD_BYTES.saturating_add(entry.payload.len());
        if !self.sending.overhead.allows(bytes) {
            return false;
        }
        let head = DataHead {
            seq,
            position: POSITION_SOLO,
            in_order: false,
            key: entry.key,
            retransmitted: true,
            message: entry.message,
            timestamp: entry.timestamp,
            to: self.agreed.peer,
        };
        write_packet(self.keying.keys.as_deref_mut(), head, &entry.payload, out);
        self.sending.buffer.lost_sent(stamp(now_us), self.sending.overhead.is_ample());
        self.sending.overhead.spend(bytes);
        self.sending.pacer.sent(now, bytes);
        count(&mut self.stats.pkt_sent, 1);
        count(&mut self.stats.byte_sent, bytes);
        count(&mut self.stats.pkt_retrans, 1);
        count(&mut self.stats.byte_retrans, bytes);
        true
    }

    fn write_new(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) -> bool {
        if self.sending.buffer.in_flight() >= usize::try_from(self.sending.window).unwrap_or(usize::MAX) {
            return false;
        }
        let key = self.keying.keys.as_ref().map_or(KeyFlag::Clear, |keys| keys.current());
        let is_paced = self.sending.is_paced();
        let Some((seq, entry)) = self.sending.buffer.next_new() else { return false };
        entry.key = key;
        if is_paced {
            // The receiver delivers a packet at a fixed time after its timestamp. A paced packet gets its timestamp
            // only now, so that the time it has waited does not make it late.
            entry.timestamp = stamp(now_us);
        }
        let head = DataHead {
            seq,
            position: POSITION_SOLO,
            in_order: false,
            key,
            retransmitted: false,
            message: entry.message,
            timestamp: entry.timestamp,
            to: self.agreed.peer,
        };
        let bytes = HEAD_BYTES.saturating_add(entry.payload.len());
        write_packet(self.keying.keys.as_deref_mut(), head, &entry.payload, out);
        if self.sending.filter.is_some() {
            self.filter_sent(&head, out);
        }
        self.sending.buffer.new_sent();
        self.sending.overhead.earn(now_us, bytes);
        self.sending.pacer.sent(now, bytes);
        if self.keying.keys.is_some() {
            let (refresh, oldest) = (self.refresh(), self.sending.buffer.oldest_key().unwrap_or(key));
            if let Some(keys) = &mut self.keying.keys {
                keys.count(refresh, oldest);
            }
        }
        count(&mut self.stats.pkt_sent, 1);
        count(&mut self.stats.byte_sent, bytes);
        count(&mut self.stats.pkt_sent_unique, 1);
        count(&mut self.stats.byte_sent_unique, bytes);
        true
    }
}

/// Writes a data packet, encrypted if there are keys. This is the only copy made of the payload when it is sent.
#[inline]
fn write_packet(keys: Option<&mut SessionKeys>, head: DataHead, payload: &[u8], out: &mut Datagrams) {
    match keys {
        None => out.push(&head.write(), payload),
        Some(keys) => out.push_made(|bytes| {
            bytes.extend_from_slice(&head.write());
            keys.seal(head.key, head.seq, payload, bytes);
        }),
    }
}
