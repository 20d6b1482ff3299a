//! The receiving half of a connection, and the handling of the peer's reports about packets that this side has sent.

use std::collections::VecDeque;
use std::time::Instant;

use crate::arq::losses::Losses as Missing;
use crate::arq::receive::{Arrival, Delivery, ReceiveBuffer};
use crate::arq::rtt::Rtt;
use crate::arq::tsbpd::Tsbpd;
use crate::config::PAYLOAD_MAX;
use crate::connection::link::{Link, stamp};
use crate::event::{CloseReason, Event};
use crate::filter::FilterReceiver;
use crate::handshake::extension;
use crate::packet::{Ack, AckFigures, Control, DataHead, Losses, Packet};
use crate::seq::Seq;
use crate::stats::count;

/// Longest delay of an acknowledgement after the first packet that it covers (draft-sharabayko-srt-01 §4.8.1).
const ACK_US: i64 = 10_000;
/// Number of packets after which a light acknowledgement is sent.
const LIGHT_ACK_PACKETS: u32 = 64;
/// Number of times that an unconfirmed acknowledgement is repeated.
const ACK_REPEATS_MAX: u32 = 8;
/// Number of the latest acknowledgements whose confirmation is still accepted.
const ACKS_KEPT: usize = 256;
/// Number of acknowledgements at the start that are confirmed more often, to give the peer its first samples of the
/// round trip.
const ACKACK_FIRST: u32 = 32;
/// Interval between the first [`ACKACK_FIRST`] confirmations, as in libsrt.
const ACKACK_FIRST_US: i64 = 10_000;
/// Interval between later confirmations. The peer smooths its round-trip time over eight samples and its drift over a
/// thousand. Ten samples per second suffice for both, and a confirmation costs as much as sending a packet. Unconfirmed
/// acknowledgements do little harm: libsrt repeats one only if a round trip has passed and there is nothing new to
/// acknowledge.
const ACKACK_US: i64 = 100_000;
/// Number of data packets from one probing pair to the next (libsrt sends the two packets of a pair back to back).
const PAIR_EVERY: u32 = 16;
/// A second packet confirms a jump of sequence numbers if it is at most this far ahead of the first one.
const JUMP_WITNESS: u32 = 16;
/// Maximum number of ranges that wait to be reported to the peer as given up.
pub(super) const DROPS_MAX: usize = 16;

/// The acknowledgements sent by this side.
#[derive(Debug)]
pub(super) struct Acks {
    pub(super) number: u32,
    pub(super) last: Seq,
    pub(super) last_us: i64,
    pub(super) confirmed: Seq,
    pub(super) due_us: Option<i64>,
    /// Number and time of each acknowledgement that may still be confirmed, and the sequence number that it
    /// acknowledged.
    pub(super) sent: VecDeque<(u32, i64, Seq)>,
    pub(super) repeats: u32,
    pub(super) packets_since: u32,
    pub(super) light: bool,
}

impl Acks {
    const fn new(first: Seq) -> Self {
        Self {
            number: 0,
            last: first,
            last_us: 0,
            confirmed: first,
            due_us: None,
            sent: VecDeque::new(),
            repeats: 0,
            packets_since: 0,
            light: false,
        }
    }

    /// Returns the number for an acknowledgement of `next` that is sent now, and remembers the acknowledgement.
    fn number(&mut self, now_us: i64, next: Seq) -> u32 {
        self.number = self.number.wrapping_add(1).max(1);
        (self.last, self.last_us, self.packets_since) = (next, now_us, 0);
        if self.sent.len() >= ACKS_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, now_us, next));
        self.number
    }
}

/// The receive rate, measured per second.
#[derive(Debug, Default)]
pub(super) struct Rate {
    pub(super) since_us: i64,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    pub(super) packets_per_second: u32,
    pub(super) bytes_per_second: u32,
    /// Second packet of a probing pair, which is expected next, and the arrival time of the first.
    pub(super) pair: Option<(Seq, i64)>,
    /// Smoothed time between the packets of a pair.
    pub(super) pair_us: u32,
}

impl Rate {
    /// Returns the packets per second that the path could carry; 0 before the first pair.
    pub(super) const fn bandwidth(&self) -> u32 {
        match 1_000_000u32.checked_div(self.pair_us) {
            Some(rate) => rate,
            None => 0,
        }
    }

    fn arrived(&mut self, now_us: i64, seq: Seq, bytes: usize) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let elapsed = now_us.saturating_sub(self.since_us);
        if elapsed >= 1_000_000 {
            let per_second =
                |n: u32| u32::try_from(i64::from(n).saturating_mul(1_000_000) / elapsed).unwrap_or(u32::MAX);
            self.packets_per_second = per_second(self.packets);
            self.bytes_per_second = per_second(self.bytes);
            (self.since_us, self.packets, self.bytes) = (now_us, 0, 0);
        }
        if seq.value().is_multiple_of(PAIR_EVERY) {
            self.pair = Some((seq.next(), now_us));
        } else if let Some((_, at)) = self.pair.take().filter(|(second, _)| *second == seq) {
            let gap = u32::try_from(now_us.saturating_sub(at)).unwrap_or(u32::MAX).clamp(1, 1_000_000);
            self.pair_us =
                if self.pair_us == 0 { gap } else { self.pair_us.saturating_mul(7).saturating_add(gap) / 8 };
        }
    }
}

/// The receiving side: packets of the peer until they are delivered, and our acknowledgements and loss reports.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    pub(super) buffer: ReceiveBuffer,
    pub(super) losses: Missing,
    pub(super) tsbpd: Tsbpd,
    pub(super) acks: Acks,
    pub(super) rate: Rate,
    /// The packet filter, if one was agreed on.
    pub(super) filter: Option<Box<FilterReceiver>>,
    /// A packet beyond the window. If further packets near it follow, the stream continues there.
    jump: Option<Seq>,
    /// Number of packets skipped by a jump that the owner does not know of yet.
    skipped: u32,
    /// Time up to which due messages may be delivered. Only calls with input advance this time. Messages that become
    /// due between two such calls have a deadline of their own.
    pub(super) due_us: i64,
}

impl ReceiveSide {
    /// Creates the receiving side. `window` limits the buffer in packets, `bytes` in bytes.
    pub(super) fn new(first: Seq, window: usize, bytes: usize, tsbpd: Tsbpd, now_us: i64) -> Self {
        Self {
            buffer: ReceiveBuffer::new(first, window, bytes),
            losses: Missing::default(),
            tsbpd,
            acks: Acks::new(first),
            rate: Rate::default(),
            filter: None,
            jump: None,
            skipped: 0,
            due_us: now_us,
        }
    }

    /// Handles a packet beyond the window while the buffer is empty. The packet may come after a long outage, or from a
    /// forger, so the window moves only after a second packet close to the first.
    fn consider_jump(&mut self, seq: Seq) {
        let follows = self.jump.is_some_and(|before| {
            seq.ahead_of(before).is_some_and(|distance| (1..=JUMP_WITNESS).contains(&distance))
        });
        self.jump = Some(seq);
        if follows && self.buffer.is_empty() {
            self.skipped = self.skipped.saturating_add(self.buffer.jump(seq.next()));
            self.losses.remove_before(seq.next());
            self.jump = None;
        }
    }

    fn ack_soon(&mut self, now_us: i64) {
        let soon = now_us.saturating_add(ACK_US);
        self.acks.due_us = Some(self.acks.due_us.map_or(soon, |due| due.min(soon)));
        self.acks.repeats = 0;
    }

    pub(super) fn next_delivery_us(&self) -> Option<i64> {
        self.buffer.next_moment().map(|moment| self.tsbpd.delivery(moment))
    }

    /// True if there is nothing to deliver, acknowledge or report.
    pub(super) fn is_quiet(&self) -> bool {
        self.buffer.base() == self.buffer.end()
            && self.skipped == 0
            && self.acks.due_us.is_none()
            && self.losses.next_at().is_none()
    }

    /// Returns the earliest time at which something must be delivered, acknowledged or reported.
    #[inline]
    pub(super) fn deadline_us(&self) -> Option<i64> {
        // A packet that is already due needs no deadline: the owner can poll it at any time.
        let delivery = self.next_delivery_us().filter(|us| *us > self.due_us);
        [self.acks.due_us, self.losses.next_at(), delivery].into_iter().flatten().min()
    }

    /// Returns the acknowledgement to send and its number, if one is due.
    pub(super) fn take_ack(&mut self, now_us: i64, rtt: Rtt) -> Option<(u32, Ack)> {
        let next = self.buffer.next_missing();
        if self.acks.due_us.is_none_or(|due| due > now_us) {
            let light = std::mem::take(&mut self.acks.light) && next != self.acks.last;
            return light.then_some((0, Ack { next, figures: None }));
        }
        self.acks.due_us = None;
        self.acks.light = false;
        if next == self.acks.confirmed {
            return None;
        }
        let pause = i64::from(rtt.us()) + 4 * i64::from(rtt.var_us());
        let repeat_us = self.acks.last_us.saturating_add(pause.max(ACK_US));
        if next == self.acks.last {
            if self.acks.repeats >= ACK_REPEATS_MAX {
                return None;
            }
            if now_us < repeat_us {
                self.acks.due_us = Some(repeat_us);
                return None;
            }
            self.acks.repeats = self.acks.repeats.saturating_add(1);
        }
        self.acks.due_us = Some(now_us.saturating_add(pause.max(ACK_US)));
        Some((self.acks.number(now_us, next), Ack { next, figures: Some(self.figures(rtt)) }))
    }

    fn figures(&self, rtt: Rtt) -> AckFigures {
        AckFigures {
            rtt_us: rtt.us(),
            rtt_var_us: rtt.var_us(),
            room_packets: u32::try_from(self.buffer.room()).unwrap_or(u32::MAX).max(2),
            rate_packets: self.rate.packets_per_second,
            bandwidth_packets: self.rate.bandwidth(),
            rate_bytes: self.rate.bytes_per_second,
        }
    }
}

impl Link {
    /// Handles a packet of the peer. If the packet ends the connection, returns the reason.
    pub(super) fn handle_packet(
        &mut self,
        now: Instant,
        packet: Packet<'_>,
        bytes: usize,
    ) -> Option<CloseReason> {
        let now_us = self.micros(now);
        self.heard_of(now_us);
        self.liveness.heard_us = now_us;
        match packet {
            Packet::Data(head, payload) => self.handle_data(now_us, head, payload, bytes),
            Packet::Control { timestamp, control, .. } => {
                return self.handle_control(now, now_us, timestamp, control);
            }
        }
        None
    }

    fn handle_control(
        &mut self,
        now: Instant,
        now_us: i64,
        timestamp: u32,
        control: Control<'_>,
    ) -> Option<CloseReason> {
        match control {
            Control::Ack(number, ack) => self.handle_ack(now_us, number, ack),
            Control::Nak(losses) => self.handle_nak(now_us, losses),
            Control::AckAck(number) => self.handle_ackack(now_us, timestamp, number),
            Control::DropRequest(_, first, last) => self.handle_drop_request(now_us, first, last),
            Control::Shutdown => return Some(CloseReason::Peer),
            Control::User(extension::KM_REQUEST, body) => {
                if !self.keying.handle_request(now, body) {
                    self.count_malformed();
                }
            }
            Control::User(extension::KM_RESPONSE, body) => {
                if !self.keying.handle_response(body) {
                    self.count_malformed();
                }
            }
            Control::KeepAlive
            | Control::Handshake(_)
            | Control::CongestionWarning
            | Control::PeerError(_) => {}
            Control::User(..) | Control::Unknown(_) => self.count_malformed(),
        }
        None
    }

    fn handle_data(&mut self, now_us: i64, head: DataHead, payload: &[u8], bytes: usize) {
        count(&mut self.stats.pkt_recv, 1);
        count(&mut self.stats.byte_recv, bytes);
        if payload.is_empty() || payload.len() > PAYLOAD_MAX {
            return self.count_malformed();
        }
        if !self.agreed.config.receives {
            return count(&mut self.stats.pkt_rcv_no_room, 1);
        }
        if self.receiving.filter.is_some() {
            return self.handle_filtered(now_us, head, payload, bytes);
        }
        self.arrive(now_us, head, payload, bytes);
    }

    /// Handles a received data packet that is not parity.
    pub(super) fn arrive(&mut self, now_us: i64, head: DataHead, payload: &[u8], bytes: usize) {
        if self.is_foreign(head.key) {
            return count(&mut self.stats.pkt_rcv_undecrypt, 1);
        }
        if head.retransmitted {
            count(&mut self.stats.pkt_rcv_retrans, 1);
        }
        self.take(now_us, head, payload, bytes);
    }

    /// Handles a data packet that was received or rebuilt.
    pub(super) fn take(&mut self, now_us: i64, head: DataHead, payload: &[u8], bytes: usize) {
        let arrival = self.receiving.buffer.look(head.seq, payload.len());
        match arrival {
            Arrival::New(_) | Arrival::Filled => {}
            Arrival::Duplicate => return,
            Arrival::Belated => return count(&mut self.stats.pkt_rcv_belated, 1),
            Arrival::NoRoom => {
                count(&mut self.stats.pkt_rcv_no_room, 1);
                return self.receiving.consider_jump(head.seq);
            }
        }
        let Some(payload) = self.keying.open(&head, payload) else {
            return count(&mut self.stats.pkt_rcv_undecrypt, 1);
        };
        count(&mut self.stats.pkt_recv_unique, 1);
        count(&mut self.stats.byte_recv_unique, bytes);
        if !head.retransmitted {
            self.receiving.rate.arrived(now_us, head.seq, bytes);
        }
        self.receiving.jump = None;
        match arrival {
            Arrival::New(Some((first, last))) => self.missing(now_us, first, last),
            Arrival::Filled => self.receiving.losses.remove(self.receiving.buffer.base(), head.seq),
            Arrival::New(None) | Arrival::Duplicate | Arrival::Belated | Arrival::NoRoom => {}
        }
        let moment = self.receiving.tsbpd.moment(now_us, head.timestamp);
        self.receiving.buffer.insert(head.seq, moment, payload);
        self.receiving.acks.packets_since = self.receiving.acks.packets_since.saturating_add(1);
        self.receiving.acks.light |= self.receiving.acks.packets_since.is_multiple_of(LIGHT_ACK_PACKETS);
        self.receiving.ack_soon(now_us);
    }

    fn missing(&mut self, now_us: i64, first: Seq, last: Seq) {
        let missing = last.ahead_of(first).unwrap_or(0).saturating_add(1);
        count(&mut self.stats.pkt_rcv_loss, usize::try_from(missing).unwrap_or(0));
        if let Some(report_at) = self.report_losses_at(now_us) {
            self.receiving.losses.push(report_at, first, last);
        }
    }

    /// Returns the next message that is due, or everything left if `flush` is true.
    pub(super) fn deliver(&mut self, flush: bool) -> Option<Event> {
        let skipped = std::mem::take(&mut self.receiving.skipped);
        if skipped > 0 {
            return Some(self.skip(skipped));
        }
        let (due, tsbpd) = (self.receiving.due_us, &self.receiving.tsbpd);
        match self.receiving.buffer.deliver(|moment| flush || tsbpd.delivery(moment) <= due)? {
            Delivery::Payload(payload) => Some(Event::Payload(payload)),
            Delivery::Skipped(packets) => Some(self.skip(packets)),
        }
    }

    fn skip(&mut self, packets: u32) -> Event {
        count(&mut self.stats.pkt_rcv_drop, usize::try_from(packets).unwrap_or(0));
        self.receiving.losses.remove_before(self.receiving.buffer.base());
        self.receiving.ack_soon(self.liveness.horizon_us);
        Event::Skipped(packets)
    }

    /// Handles the peer's confirmation of an acknowledgement, which gives a sample of the round trip.
    fn handle_ackack(&mut self, now_us: i64, timestamp: u32, number: u32) {
        let sent = &mut self.receiving.acks.sent;
        let index = sent.iter().position(|(of, _, _)| *of == number);
        let Some((_, at, next)) = index.and_then(|index| sent.get(index).copied()) else { return };
        sent.drain(..=index.unwrap_or(0));
        self.receiving.acks.confirmed = next;
        let rtt_us = u32::try_from(now_us.saturating_sub(at)).unwrap_or(u32::MAX);
        self.rtt.update(rtt_us);
        self.receiving.tsbpd.sample_drift(now_us, timestamp, rtt_us);
    }

    fn handle_ack(&mut self, now_us: i64, number: u32, ack: Ack) {
        count(&mut self.stats.pkt_recv_ack, 1);
        let Some(mut acked) = self.sending.buffer.acknowledge(ack.next, stamp(now_us)) else {
            return self.count_malformed();
        };
        if acked.packets > 0 {
            self.sending.progress_us = now_us;
            self.sending.probe_pause_us = self.probe_us();
        }
        if self.sending.filter.is_some() {
            acked = self.with_parity(acked);
        }
        if let Some(congestion) = &mut self.sending.congestion {
            congestion.acked(now_us, &acked, ack.figures);
            self.sending.pacer.limit(self.agreed.config.max_bandwidth, congestion.rate());
        }
        let Some(figures) = ack.figures else { return };
        self.sending.window = self.agreed.peer_window.min(figures.room_packets.max(2));
        self.sending.bandwidth_packets = figures.bandwidth_packets;
        self.rtt.update_from_peer(figures.rtt_us, figures.rtt_var_us);
        let pause = if self.sending.confirm.count < ACKACK_FIRST { ACKACK_FIRST_US } else { ACKACK_US };
        if number != 0 && now_us.saturating_sub(self.sending.confirm.last_us) >= pause {
            self.sending.confirm.count = self.sending.confirm.count.saturating_add(1);
            self.sending.confirm.last_us = now_us;
            self.sending.confirm.due = Some(number);
        }
    }

    fn handle_nak(&mut self, now_us: i64, losses: Losses<'_>) {
        count(&mut self.stats.pkt_recv_nak, 1);
        if !self.sends_again() {
            return;
        }
        let reported = self.sending.buffer.report(losses, stamp(now_us), self.rtt.us());
        count(&mut self.stats.pkt_snd_loss, usize::try_from(reported.named).unwrap_or(0));
        self.sending.hurry();
        if let Some(congestion) = &mut self.sending.congestion {
            congestion.lost(reported.fresh);
        }
        if let Some(gone) = reported.gone.filter(|_| self.sending.drops.len() < DROPS_MAX) {
            self.sending.drops.push(gone);
        }
    }

    fn handle_drop_request(&mut self, now_us: i64, first: Seq, last: Seq) {
        let end = self.receiving.buffer.end();
        let behind_end = first.ahead_of(end).filter(|distance| *distance > 0);
        if !self.agreed.config.receives || !self.receiving.buffer.give_up(first, last) {
            return self.count_malformed();
        }
        if behind_end.is_some() {
            self.missing(now_us, end, first.previous());
        }
        // The range may begin before the first packet that this side still expects.
        let base = self.receiving.buffer.base();
        let first = if first.ahead_of(base).is_some() { first } else { base };
        self.receiving.losses.remove_range(base, first, last);
        self.receiving.ack_soon(now_us);
    }
}
