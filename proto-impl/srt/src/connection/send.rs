//! The sending half: which packets leave, in which order.
//!
//! Control packets first: they are small, and others wait for them. Then what is to be sent again, as far as the
//! overhead allows, then what is new, as far as the window does.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::Datagrams;

use crate::cipher::SessionKeys;
use crate::config::HEAD_BYTES;
use crate::congestion::Congestion;
use crate::connection::link::{CHECK_MIN_US, Link, stamp};
use crate::event::SendError;
use crate::handshake::extension;
use crate::packet::{Control, ControlWriter, DataHead, KeyFlag, POSITION_SOLO, losses};
use crate::stats::count;

/// Room of the largest control packet.
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

impl Link {
    pub(super) fn send(&mut self, now: Instant, payload: Bytes) -> Result<(), SendError> {
        let (length, most) = (payload.len(), self.payload_max);
        if length == 0 || length > most {
            return Err(SendError::Length { length, most });
        }
        let now_us = self.micros(now);
        self.horizon_us = self.horizon_us.max(now_us);
        self.drop_too_late(now_us);
        if length > self.send_room() {
            return Err(SendError::Full);
        }
        if self.sender.len() == 0 {
            self.progress_us = now_us;
            self.probe_pause_us = self.probe_us();
            self.check_by(now_us.saturating_add(self.probe_pause_us));
        }
        if self.config.adapts && self.congestion.is_none() {
            self.congestion = Some(Box::new(Congestion::new(now_us)));
        }
        self.sender.push(payload, stamp(now_us));
        if self.config.adapts {
            self.pacer.spread(self.sender.unsent_bytes(), self.send_latency());
        }
        Ok(())
    }

    /// Whether messages wait for their time.
    pub(super) fn is_behind(&self) -> bool {
        self.is_paced() && (self.sender.unsent() > 0 || self.sender.has_lost())
    }

    /// Whether packets leave no faster than the path has been found to carry them.
    fn is_paced(&self) -> bool {
        self.congestion.as_ref().is_some_and(|congestion| congestion.rate().is_some())
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.sender.bytes()
    }

    pub(super) fn send_room(&self) -> usize {
        let window = usize::try_from(self.config.flow_window).unwrap_or(usize::MAX);
        if self.sender.len() >= window {
            return 0;
        }
        self.config.buffer_bytes.saturating_sub(self.sender.bytes())
    }

    /// Drops packets that the peer would discard on arrival.
    pub(super) fn drop_too_late(&mut self, now_us: i64) {
        let limit = u32::try_from(self.too_late_us()).unwrap_or(u32::MAX / 2);
        // What the pace holds back has not begun to age.
        let dropped = self.sender.drop_older(stamp(now_us), limit, self.is_paced());
        count(&mut self.stats.pkt_snd_drop, dropped);
    }

    /// Whether there may be something for [`Link::poll_transmit`].
    pub(super) fn has_transmit(&self, now: Instant) -> bool {
        let now_us = self.micros(now);
        let is_due = |at: Option<i64>| at.is_some_and(|at| at <= now_us);
        // What the pace holds back has its deadline.
        let has_data = (self.sender.has_lost() || self.sender.unsent() > 0)
            && (self.pace_at.is_none() || self.pacer.wait(now).is_none());
        has_data
            || self.ackack.is_some()
            || self.acks.light
            || is_due(self.acks.due_us)
            || is_due(self.losses.next_at())
            || self.keep_alive
            || self.reply.is_some()
            || self.tell.is_some()
            || !self.drops.is_empty()
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Datagrams) {
        let now_us = self.micros(now);
        self.horizon_us = self.horizon_us.max(now_us);
        let before = out.len();
        if self.write_controls(now_us, out) {
            self.write_data(now, now_us, out);
        }
        if out.len() > before {
            self.spoken_us = now_us;
            self.keep_alive = false;
        }
        if self.keys.as_ref().is_some_and(|keys| keys.is_untold()) {
            self.check_by(now_us.saturating_add(CHECK_MIN_US));
        }
    }

    /// False when there is no room left; what did not fit stays for the next time.
    fn write_controls(&mut self, now_us: i64, out: &mut Datagrams) -> bool {
        let before = out.len();
        let mut controls =
            Controls { writer: ControlWriter { timestamp: stamp(now_us), to: self.peer }, out };
        if let Some(number) = self.ackack.filter(|_| controls.has_room()) {
            self.ackack = None;
            controls.write(&Control::AckAck(number));
        }
        if controls.has_room()
            && let Some((number, ack)) = self.take_ack(now_us)
        {
            count(&mut self.stats.pkt_sent_ack, 1);
            controls.write(&Control::Ack(number, ack));
        }
        for (kind, message) in
            [(extension::KM_RESPONSE, &mut self.reply), (extension::KM_REQUEST, &mut self.tell)]
        {
            if controls.has_room()
                && let Some(message) = message.take()
            {
                controls.write(&Control::User(kind, &message));
            }
        }
        while controls.has_room()
            && let Some((first, last)) = self.drops.pop()
        {
            controls.write(&Control::DropRequest(0, first, last));
        }
        if controls.has_room() && self.losses.next_at().is_some_and(|at| at <= now_us) {
            let mut body = Vec::new();
            self.losses.report(now_us, self.rtt, &mut body);
            if !body.is_empty() {
                count(&mut self.stats.pkt_sent_nak, 1);
                controls.write(&Control::Nak(losses(&body)));
            }
        }
        if self.keep_alive && controls.out.len() == before && controls.has_room() {
            controls.write(&Control::KeepAlive);
        }
        controls.has_room()
    }

    fn write_data(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) {
        while out.has_room(HEAD_BYTES.saturating_add(self.payload_max)) {
            if let Some(at) = self.pacer.wait(now) {
                let waits = self.sender.has_lost() || self.sender.unsent() > 0;
                self.pace_at = waits.then_some(at);
                if let Some(congestion) = &mut self.congestion {
                    congestion.wait(now_us, waits);
                }
                return;
            }
            if !self.write_lost(now, now_us, out) && !self.write_new(now, now_us, out) {
                break;
            }
        }
        if self.sender.unsent() == 0 {
            self.pacer.spread(0, Duration::ZERO);
            if let Some(congestion) = &mut self.congestion {
                congestion.wait(now_us, false);
            }
        }
        self.pace_at = None;
    }

    fn write_lost(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) -> bool {
        let Some((seq, entry)) = self.sender.next_lost() else { return false };
        let bytes = HEAD_BYTES.saturating_add(entry.payload.len());
        if !self.overhead.allows(bytes) {
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
            to: self.peer,
        };
        write_packet(self.keys.as_deref_mut(), head, &entry.payload, out);
        self.sender.lost_sent(stamp(now_us), self.overhead.is_ample());
        self.overhead.spend(bytes);
        self.pacer.sent(now, bytes);
        count(&mut self.stats.pkt_sent, 1);
        count(&mut self.stats.byte_sent, bytes);
        count(&mut self.stats.pkt_retrans, 1);
        count(&mut self.stats.byte_retrans, bytes);
        true
    }

    fn write_new(&mut self, now: Instant, now_us: i64, out: &mut Datagrams) -> bool {
        if self.sender.in_flight() >= usize::try_from(self.window).unwrap_or(usize::MAX) {
            return false;
        }
        let key = self.keys.as_ref().map_or(KeyFlag::Clear, |keys| keys.current());
        let is_paced = self.is_paced();
        let Some((seq, entry)) = self.sender.next_new() else { return false };
        entry.key = key;
        if is_paced {
            // The receiver plays it so long after its departure: what waited here is not too late there.
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
            to: self.peer,
        };
        let bytes = HEAD_BYTES.saturating_add(entry.payload.len());
        write_packet(self.keys.as_deref_mut(), head, &entry.payload, out);
        self.sender.new_sent();
        self.overhead.earn(now_us, bytes);
        self.pacer.sent(now, bytes);
        let (refresh, oldest) = (self.refresh(), self.sender.oldest_key().unwrap_or(key));
        if let Some(keys) = &mut self.keys {
            keys.count(refresh, oldest);
        }
        count(&mut self.stats.pkt_sent, 1);
        count(&mut self.stats.byte_sent, bytes);
        count(&mut self.stats.pkt_sent_unique, 1);
        count(&mut self.stats.byte_sent_unique, bytes);
        true
    }
}

/// The one copy of the payload on its way out; encrypted where there are keys.
fn write_packet(keys: Option<&mut SessionKeys>, head: DataHead, payload: &[u8], out: &mut Datagrams) {
    match keys {
        None => out.push(&head.write(), payload),
        Some(keys) => out.push_made(|bytes| {
            bytes.extend_from_slice(&head.write());
            keys.seal(head.key, head.seq, payload, bytes);
        }),
    }
}
