//! The packet filter of an established connection: sends parity packets, and rebuilds lost packets from received
//! parity.

use std::time::Instant;

use wire::Datagrams;

use crate::arq::receive::Arrival;
use crate::arq::send::Acked;
use crate::config::HEAD_BYTES;
use crate::connection::link::Link;
use crate::filter::{ArqLevel, Rebuilt};
use crate::packet::{DataHead, KeyFlag, POSITION_SOLO};
use crate::seq::Seq;
use crate::stats::count;

/// Message number given to rebuilt packets, because parity does not contain the real one. Each packet is a whole
/// message.
const REBUILT_MESSAGE: u32 = 1;

/// Margin added to the two round trips of two retransmissions, for timers and for the time until a packet
/// is actually sent.
const ATTEMPT_MARGIN_US: i64 = 20_000;

impl Link {
    /// Returns the time at which a loss that is noticed now must be reported if the packet is still missing then;
    /// `None` for never. With `ArqLevel::OnRequest`, the filter itself requests packets that it cannot rebuild. If the
    /// stream pauses, or is too slow to complete a group, packets are reported at the last moment at which a
    /// retransmission can arrive in time.
    pub(super) fn report_losses_at(&self, now_us: i64) -> Option<i64> {
        let Some(filter) = &self.receiving.filter else { return Some(now_us) };
        match filter.arq() {
            ArqLevel::Always => Some(now_us),
            ArqLevel::OnRequest => {
                let latency = i64::try_from(self.latencies().0.as_micros()).unwrap_or(0);
                let attempt = i64::from(self.rtt.us()) + 4 * i64::from(self.rtt.var_us());
                let pause = latency.saturating_sub(2 * attempt + ATTEMPT_MARGIN_US).max(latency / 2);
                Some(now_us.saturating_add(pause))
            }
            ArqLevel::Never => None,
        }
    }

    /// True if packets that we sent may be retransmitted.
    pub(super) fn sends_again(&self) -> bool {
        self.sending.filter.as_ref().is_none_or(|filter| filter.arq() != ArqLevel::Never)
    }

    /// Handles a data packet or parity packet of the peer on a connection with a filter.
    #[inline(never)]
    pub(super) fn handle_filtered(&mut self, now_us: i64, head: DataHead, payload: &[u8], bytes: usize) {
        let is_foreign = self.is_foreign(head.key);
        let Some(filter) = &mut self.receiving.filter else { return };
        if head.message == 0 {
            if !filter.handle_parity(head.seq, head.timestamp, payload) {
                return self.count_malformed();
            }
            count(&mut self.stats.filter.pkt_rcv_extra, 1);
        } else {
            if !is_foreign && self.receiving.buffer.look(head.seq, payload.len()) != Arrival::NoRoom {
                filter.handle_data(head.seq, head.key, head.timestamp, payload);
            }
            self.arrive(now_us, head, payload, bytes);
        }
        self.take_from_filter(now_us);
    }

    fn take_from_filter(&mut self, now_us: i64) {
        let Some(filter) = &mut self.receiving.filter else { return };
        let (rebuilt, beyond_repair) = (filter.take_rebuilt(), filter.take_beyond_repair());
        rebuilt.into_iter().for_each(|packet| self.take_rebuilt(now_us, &packet));
        beyond_repair.into_iter().for_each(|(first, last)| self.ask_for(now_us, first, last));
    }

    fn take_rebuilt(&mut self, now_us: i64, packet: &Rebuilt) {
        if self.is_foreign(packet.key) {
            return count(&mut self.stats.pkt_rcv_undecrypt, 1);
        }
        count(&mut self.stats.filter.pkt_rcv_supply, 1);
        let head = DataHead {
            seq: packet.seq,
            position: POSITION_SOLO,
            in_order: false,
            key: packet.key,
            retransmitted: true,
            message: REBUILT_MESSAGE,
            timestamp: packet.timestamp,
            to: self.agreed.peer,
        };
        self.take(now_us, head, &packet.payload, packet.payload.len().saturating_add(HEAD_BYTES));
    }

    /// Reports the packets from `first` to `last`, which the filter cannot rebuild, as lost. Skips packets that have
    /// arrived in the meantime.
    fn ask_for(&mut self, now_us: i64, first: Seq, last: Seq) {
        let buffer = &self.receiving.buffer;
        let (base, end) = (buffer.base(), buffer.end());
        let first = if first.ahead_of(base).is_some() { first } else { base };
        let last = if last.ahead_of(end).is_some() { end.previous() } else { last };
        let Some(distance) = last.ahead_of(first) else { return };
        let mut run = None::<(Seq, Seq)>;
        for seq in (0..=distance).map(|n| first.plus(n)) {
            let is_missing = buffer.look(seq, 0) == Arrival::Filled;
            match &mut run {
                Some((_, last)) if is_missing => *last = seq,
                None if is_missing => run = Some((seq, seq)),
                Some(_) | None => {
                    if let Some(ended) = run.take() {
                        self.receiving.losses.report_now(now_us, base, ended);
                    }
                }
            }
            count(&mut self.stats.filter.pkt_rcv_loss, usize::from(is_missing));
        }
        if let Some(ended) = run {
            self.receiving.losses.report_now(now_us, base, ended);
        }
    }

    /// True if packets with this key are not expected: unencrypted ones on an encrypted connection, or encrypted ones
    /// on an unencrypted connection.
    pub(super) fn is_foreign(&self, key: KeyFlag) -> bool {
        (key == KeyFlag::Clear) != self.keying.keys.is_none()
    }

    /// Adds parity to the bytes that an acknowledgement covers, since parity uses the path too. Removes the
    /// acknowledgement's delay unless every loss is reported at once: otherwise the peer waits for parity before it
    /// acknowledges, so the delay does not measure the path.
    #[inline(never)]
    pub(super) fn with_parity(&self, acked: Acked) -> Acked {
        let Some(filter) = &self.sending.filter else { return acked };
        Acked {
            bytes: filter.with_parity(acked.bytes),
            delay_us: acked.delay_us.filter(|_| filter.arq() == ArqLevel::Always),
            ..acked
        }
    }

    /// Passes the last datagram of `out` to the filter. It is a packet sent for the first time.
    #[inline(never)]
    pub(super) fn filter_sent(&mut self, head: &DataHead, out: &Datagrams) {
        let Some(filter) = &mut self.sending.filter else { return };
        let datagram = out.get(out.len().saturating_sub(1));
        filter.sent(head.seq, head.key, head.timestamp, datagram.get(HEAD_BYTES..).unwrap_or_default());
    }

    /// Writes the next parity packet if one is due. Returns false if there is none.
    #[inline(never)]
    pub(super) fn write_parity(&mut self, now: Instant, out: &mut Datagrams) -> bool {
        let Some(filter) = &mut self.sending.filter else { return false };
        let Some(parity) = filter.take() else { return false };
        let head = DataHead {
            seq: parity.seq,
            position: POSITION_SOLO,
            in_order: false,
            key: self.keying.keys.as_ref().map_or(KeyFlag::Clear, |keys| keys.current()),
            retransmitted: false,
            message: 0,
            timestamp: parity.recovery.timestamp(),
            to: self.agreed.peer,
        };
        let bytes = HEAD_BYTES.saturating_add(parity.recovery.wire_bytes());
        out.push_made(|out| {
            out.extend_from_slice(&head.write());
            parity.recovery.write(parity.index, out);
        });
        filter.done(parity);
        self.sending.pacer.sent(now, bytes);
        count(&mut self.stats.pkt_sent, 1);
        count(&mut self.stats.byte_sent, bytes);
        count(&mut self.stats.filter.pkt_snd_extra, 1);
        true
    }
}
