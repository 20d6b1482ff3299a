//! Handling of packets from the peer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Reader;

use super::timers::later;
use super::{Association, Phase};
use crate::config::CHUNKS_PER_PACKET_MAX;
use crate::event::CloseReason;
use crate::inbound::{Arrival, Fragment, Violation, flag};
use crate::outbound::Sack;
use crate::packet::{
    Chunk, FLAG_REFLECTED, Head, chunk, next_chunk, next_parameter, parameter, write_chunk, write_parameter,
};
use crate::seq;
use crate::stats::count;

/// Maximum delay of an acknowledgement (RFC 9260 §6.2).
const ACK_DELAY: Duration = Duration::from_millis(200);
/// Number of packets with data after which an acknowledgement is sent immediately.
const ACK_PACKETS: u32 = 2;

/// Effects that one packet may have only once, however many chunks it contains.
#[derive(Debug, Default)]
struct Once {
    sack: bool,
    heartbeat: bool,
    report: bool,
    reset: bool,
    data: bool,
    /// True if an acknowledgement must be sent immediately.
    immediate: bool,
}

impl Association {
    /// Handles a packet of the peer. Malformed packets, and those of other associations, are counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, packet: &[u8]) {
        if self.phase == Phase::Closed {
            return;
        }
        count(&mut self.stats.packets.received, 1);
        let ours = |head: &Head| head.destination == self.config.port && head.source == self.remote.port;
        let Some((head, mut rest)) = Head::read(packet).filter(|(head, _)| ours(head)) else {
            return count(&mut self.stats.dropped, 1);
        };
        let mut once = Once::default();
        for index in 0..CHUNKS_PER_PACKET_MAX {
            let Some(found) = next_chunk(&mut rest) else { break };
            if !self.may_come(&head, &found, index == 0 && rest.is_empty()) {
                count(&mut self.stats.dropped, 1);
                break;
            }
            if !self.handle_chunk(now, found, &mut once) {
                break;
            }
        }
        if !rest.is_empty() {
            count(&mut self.stats.dropped, 1);
        }
        self.schedule_ack(now, &once);
        self.settle(now);
    }

    /// True if a chunk is allowed under the packet's verification tag (§8.5).
    fn may_come(&self, head: &Head, found: &Chunk<'_>, is_alone: bool) -> bool {
        let is_reflected = matches!(found.kind, chunk::ABORT | chunk::SHUTDOWN_COMPLETE)
            && found.flags & FLAG_REFLECTED != 0
            && self.session.as_ref().is_some_and(|session| session.agreed.tag == head.tag);
        match found.kind {
            chunk::INIT => head.tag == 0 && is_alone,
            _ => head.tag == self.local.tag || is_reflected,
        }
    }

    /// Handles a chunk. Returns false if the rest of the packet must be ignored.
    fn handle_chunk(&mut self, now: Instant, found: Chunk<'_>, once: &mut Once) -> bool {
        match found.kind {
            chunk::DATA => self.handle_data(now, found, once),
            chunk::INIT => self.handle_init(now, found.value),
            chunk::INIT_ACK => self.handle_init_ack(now, found.value),
            chunk::SACK if std::mem::replace(&mut once.sack, true) => {}
            chunk::SACK => {
                if let Some(sack) = Sack::read(found.value) {
                    self.acknowledge(now, &sack);
                }
            }
            chunk::HEARTBEAT if std::mem::replace(&mut once.heartbeat, true) => {}
            chunk::HEARTBEAT if self.phase >= Phase::CookieEchoed => {
                self.push_control(chunk::HEARTBEAT_ACK, 0, found.value);
            }
            chunk::HEARTBEAT => {}
            chunk::HEARTBEAT_ACK => self.handle_heartbeat_ack(now, found.value),
            chunk::ABORT => self.handle_abort(),
            chunk::SHUTDOWN => self.handle_shutdown(now, found.value),
            chunk::SHUTDOWN_ACK => self.handle_shutdown_ack(),
            chunk::ERROR => self.handle_error(now, found.value),
            chunk::COOKIE_ECHO => self.handle_cookie_echo(now, found.value),
            chunk::COOKIE_ACK => self.handle_cookie_ack(now),
            chunk::SHUTDOWN_COMPLETE => self.handle_shutdown_complete(),
            chunk::RE_CONFIG if std::mem::replace(&mut once.reset, true) => {}
            chunk::RE_CONFIG => self.handle_reset(now, found.value),
            chunk::FORWARD_TSN => self.handle_forward(now, found.value, once),
            _ => return self.handle_unknown(found, once),
        }
        self.phase != Phase::Closed
    }

    /// Handles an unknown chunk as specified by the upper two bits of its type (§3.2).
    fn handle_unknown(&mut self, found: Chunk<'_>, once: &mut Once) -> bool {
        count(&mut self.stats.dropped, 1);
        let is_known_peer = self.session.is_some();
        if found.kind & 0x40 != 0 && is_known_peer && !std::mem::replace(&mut once.report, true) {
            let mut chunk = Vec::new();
            write_chunk(&mut chunk, found.kind, found.flags, &[found.value.get(..64).unwrap_or(found.value)]);
            let mut cause = Vec::new();
            write_parameter(&mut cause, parameter::CAUSE_UNRECOGNIZED_CHUNK, &chunk);
            self.push_control(chunk::ERROR, 0, &cause);
        }
        found.kind & 0x80 != 0
    }

    /// Handles `ABORT`, which ends the association, or the connection attempt during the handshake.
    fn handle_abort(&mut self) {
        if self.phase != Phase::Idle {
            self.control.clear();
            self.end(CloseReason::Aborted);
        }
    }

    fn handle_heartbeat_ack(&mut self, now: Instant, mut value: &[u8]) {
        let info = next_parameter(&mut value).filter(|info| info.kind == parameter::HEARTBEAT_INFO);
        let number = info.and_then(|info| Reader::new(info.value).u64().ok());
        if let Some((_, sent)) = self.timers.beat.take_if(|(known, _)| number == Some(*known)) {
            self.timers.errors = 0;
            self.rto.measure(now.saturating_duration_since(sent));
        }
    }

    /// Handles an acknowledgement.
    pub(super) fn acknowledge(&mut self, now: Instant, sack: &Sack<'_>) {
        if self.phase < Phase::Established {
            return;
        }
        let Some(session) = &mut self.session else { return };
        let result = session.flight.acknowledge(now, sack, &mut self.queues);
        if !result.is_current {
            return;
        }
        self.timers.errors = 0;
        match result.round_trip {
            Some(round_trip) => self.rto.measure(round_trip),
            None if result.advanced => self.rto.recover(),
            None => {}
        }
        if session.flight.is_empty() {
            self.timers.retransmit = None;
        } else if result.advanced {
            self.timers.retransmit = Some(later(now, self.rto.current()));
        }
    }

    fn handle_data(&mut self, now: Instant, found: Chunk<'_>, once: &mut Once) {
        if !self.phase.receives() {
            return;
        }
        let waiting = self.received_bytes().saturating_sub(self.events.held);
        let Some(session) = &mut self.session else { return };
        let near = session.received.cumulative();
        let Some(fragment) = Fragment::read(near, found.flags, found.value) else {
            // A DATA chunk without user data violates §6.2.
            return self.abort_for(CloseReason::Violation);
        };
        once.data = true;
        once.immediate |= fragment.has(flag::IMMEDIATE);
        let arrival = session.received.judge(fragment.tsn);
        let wanted = waiting.saturating_add(fragment.charge());
        let most = self.config.receive_buffer_bytes;
        let is_over = wanted.saturating_add(self.events.held) > most;
        match arrival {
            Arrival::Duplicate => {
                once.immediate = true;
                return;
            }
            Arrival::NoRoom => return count(&mut self.stats.no_room, 1),
            // A chunk that fills the first gap is accepted even if the receive buffer is full, because it lets waiting
            // data leave.
            Arrival::Next if is_over && self.events.held == 0 => {
                if wanted > most.saturating_add(self.config.message_bytes_max) {
                    return self.abort_for(CloseReason::Limit);
                }
            }
            Arrival::Next | Arrival::Ahead if is_over => {
                // The peer sends although the receive window is closed, so announce the window again.
                once.immediate = true;
                return count(&mut self.stats.no_room, 1);
            }
            Arrival::Next | Arrival::Ahead => {}
        }
        session.received.insert(fragment.tsn);
        match session.reassembly.insert(fragment, self.config.message_bytes_max) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let mut ready = VecDeque::new();
                if !session.order.push(message, &mut ready) {
                    count(&mut self.stats.refused, 1);
                }
                self.deliver(now, &mut ready);
            }
            Err(Violation::Fragments) => self.abort_for(CloseReason::Violation),
            Err(Violation::TooLong) => self.abort_for(CloseReason::Limit),
        }
    }

    /// Handles `FORWARD TSN` (RFC 3758 §3.6).
    fn handle_forward(&mut self, now: Instant, value: &[u8], once: &mut Once) {
        let Some(session) = self.session.as_mut().filter(|_| self.phase.receives()) else { return };
        let mut reader = Reader::new(value);
        let Ok(tsn) = reader.u32() else { return };
        let tsn = seq::unwrap_tsn(session.received.cumulative(), tsn);
        (once.data, once.immediate) = (true, true);
        if !session.received.forward(tsn) {
            return;
        }
        session.reassembly.forward(tsn);
        let mut ready = VecDeque::new();
        while let (Ok(stream), Ok(ssn)) = (reader.u16(), reader.u16()) {
            session.order.forward(stream, ssn, &mut ready);
        }
        self.deliver(now, &mut ready);
    }

    /// Schedules an acknowledgement (§6.2): immediately for gaps, duplicates and every second packet; otherwise
    /// after a short delay.
    fn schedule_ack(&mut self, now: Instant, once: &Once) {
        if once.data && self.phase == Phase::ShutdownSent {
            self.send_shutdown();
        }
        let Some(session) = self.session.as_mut().filter(|_| once.data) else { return };
        session.ack_packets = session.ack_packets.saturating_add(1);
        if once.immediate || session.received.has_gaps() || session.ack_packets >= ACK_PACKETS {
            session.ack_due = true;
            self.timers.ack = None;
        } else {
            self.timers.ack.get_or_insert_with(|| later(now, ACK_DELAY));
        }
    }
}
