//! Input from the peer, record by record.
//!
//! Trust: a record of epoch 1 is authentic. A record of epoch 0 may come from anyone, and is only accepted
//! until the peer's keys are in use. Until then, a fatal alert ends the handshake, because this is how a peer
//! reports that it cannot continue, and waiting for the timeout would be worse. An attacker who forges alerts
//! could disrupt an unencrypted handshake anyway.

use std::time::Instant;

use bytes::Bytes;
use wire::Reader;

use super::{Connection, EVENTS_MAX, Phase, Role};
use crate::alert::{Alert, AlertDescription};
use crate::cookie::Checked;
use crate::event::{CloseReason, Event};
use crate::handshake::{FragmentHead, MessageType};
use crate::reassembly::{Message, Taken};
use crate::record::{ContentType, HEAD_BYTES, NotOpened, RecordHead, VERSION_1_0, VERSION_1_2};

/// Placeholder address to which cookies within a connection are bound; only the owner knows the peer's real
/// address.
const NO_ADDRESS: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

impl Connection {
    /// Handles a datagram of the peer, and decrypts it in place. Invalid records are dropped and counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        count(&mut self.stats.datagrams);
        if matches!(self.phase, Phase::Idle { .. } | Phase::Closed) {
            return count(&mut self.stats.dropped_idle);
        }
        if !self.passes_verifier(datagram) {
            return;
        }
        let mut rest = datagram;
        while !rest.is_empty() && !matches!(self.phase, Phase::Closed) {
            if matches!(self.phase, Phase::Modern(_)) {
                let Some(tail) = self.handle_modern_record(now, rest) else { return };
                rest = tail;
                continue;
            }
            let Some((head, fragment, tail)) = split(rest) else {
                return count(&mut self.stats.dropped_malformed);
            };
            self.handle_record(now, &head, fragment);
            rest = tail;
        }
    }

    /// Answers hellos without a valid cookie while the server requires one. Returns true if the datagram may be
    /// processed.
    fn passes_verifier(&mut self, datagram: &[u8]) -> bool {
        let Some(verifier) = &self.verifier else { return true };
        let mut reply = Vec::new();
        match verifier.check(NO_ADDRESS, datagram, &mut reply) {
            Checked::Pass => {
                self.verifier = None;
                match &mut self.phase {
                    Phase::Handshaking(handshaking) => handshaking.reassembly.begin_at(1),
                    Phase::Modern(session) => session.begin_behind_cookie(),
                    Phase::Idle { .. } | Phase::Connected(_) | Phase::Closed => {}
                }
                true
            }
            Checked::Reply => {
                if self.out.is_empty() {
                    self.out.push_back(reply);
                }
                false
            }
            Checked::Drop => {
                count(&mut self.stats.dropped_early);
                false
            }
        }
    }

    fn handle_record(&mut self, now: Instant, head: &RecordHead, fragment: &mut [u8]) {
        if !self.speaks(head.version) {
            return count(&mut self.stats.dropped_malformed);
        }
        let protected = head.epoch > 0;
        if !protected && self.records.reads_protected() {
            return count(&mut self.stats.dropped_early);
        }
        let clear = match self.records.open(head, fragment) {
            Ok(clear) => clear,
            Err(NotOpened::Epoch) => return count(&mut self.stats.dropped_early),
            Err(NotOpened::Replayed) => return count(&mut self.stats.dropped_replayed),
            Err(NotOpened::Forged | NotOpened::Worn) => return count(&mut self.stats.dropped_forged),
            Err(NotOpened::TooLong | NotOpened::Typeless) => return count(&mut self.stats.dropped_malformed),
        };
        match head.kind {
            ContentType::HANDSHAKE => {
                if let Phase::Handshaking(handshaking) = &self.phase
                    && handshaking.follows
                    && handshaking.side.as_ref().is_some_and(|side| side.awaits_hello())
                {
                    self.records.follow(head.sequence);
                }
                self.handle_handshake(now, clear, protected);
            }
            ContentType::CHANGE_CIPHER_SPEC => self.handle_change_cipher_spec(clear, protected),
            ContentType::ALERT => self.handle_alert(clear),
            ContentType::APPLICATION_DATA => self.handle_data(clear, protected),
            _ => count(&mut self.stats.dropped_malformed),
        }
    }

    /// True if a record's version is acceptable: DTLS 1.0 or 1.2 for hellos, and the negotiated version
    /// afterwards.
    fn speaks(&self, version: u16) -> bool {
        let hello = match &self.phase {
            Phase::Handshaking(handshaking) => {
                handshaking.side.as_ref().is_some_and(|side| side.awaits_hello())
            }
            Phase::Idle { .. } | Phase::Connected(_) | Phase::Modern(_) | Phase::Closed => false,
        };
        version == VERSION_1_2 || (hello && version == VERSION_1_0)
    }

    fn handle_handshake(&mut self, now: Instant, clear: &[u8], protected: bool) {
        let Phase::Handshaking(handshaking) = &mut self.phase else {
            return self.handle_late_handshake(clear);
        };
        let mut r = Reader::new(clear);
        let mut repeats = false;
        while !r.is_empty() {
            let fragment = FragmentHead::read(&mut r).and_then(|head| Ok((head, r.take(head.fragment)?)));
            let Ok((head, fragment)) = fragment else {
                count(&mut self.stats.dropped_malformed);
                break;
            };
            match handshaking.reassembly.insert(&head, fragment, protected) {
                Ok(Taken::Kept) => {}
                Ok(Taken::Old) => repeats = true,
                Ok(Taken::Ahead) => count(&mut self.stats.dropped_ahead),
                Ok(Taken::Malformed) => count(&mut self.stats.dropped_malformed),
                Err(failure) => return self.fail(failure),
            }
        }
        if repeats && handshaking.timer.takes_hint(now) && !handshaking.exchange.flight.is_pending() {
            handshaking.timer.repeat(now);
            handshaking.exchange.flight.rewind();
            count(&mut self.stats.retransmits);
        }
        self.pump(now);
    }

    /// Handles the complete messages in order.
    pub(super) fn pump(&mut self, now: Instant) {
        while let Phase::Handshaking(handshaking) = &mut self.phase {
            let next = handshaking.reassembly.peek();
            let waits = handshaking.exchange.waits_for_fingerprints();
            if next.is_none() || (next == Some(MessageType::CERTIFICATE) && waits) {
                return;
            }
            let Some(message) = handshaking.reassembly.take() else { return };
            if !self.handle_message(now, &message) {
                return;
            }
        }
    }

    /// Handles a message. Returns false if the handshake does not continue.
    pub(super) fn handle_message(&mut self, now: Instant, message: &Message) -> bool {
        let Phase::Handshaking(handshaking) = &mut self.phase else { return false };
        let Some(side) = handshaking.side.take() else { return false };
        tracing::trace!(kind = ?message.kind, sequence = message.sequence, "message");
        let side = match side.handle(&mut handshaking.exchange, message) {
            Ok(side) => side,
            Err(failure) => {
                self.fail(failure);
                return false;
            }
        };
        if handshaking.exchange.take_fresh() {
            handshaking.timer.start(now);
            if handshaking.exchange.flight.is_protected()
                && let Some(cipher) = handshaking.exchange.write.take()
            {
                self.records.set_write(cipher);
            }
        }
        let done = side.is_done();
        handshaking.side = Some(side);
        if done {
            self.connect(message.sequence);
        }
        true
    }

    /// Switches to the peer's keys if a `ChangeCipherSpec` is expected. An unexpected one is ignored
    /// (accepting premature ones was CVE-2014-0224).
    fn handle_change_cipher_spec(&mut self, clear: &[u8], protected: bool) {
        let Phase::Handshaking(handshaking) = &mut self.phase else {
            return count(&mut self.stats.dropped_early);
        };
        let due = handshaking.side.as_ref().is_some_and(|side| side.awaits_finished());
        if protected || *clear != [1] || !due {
            return count(&mut self.stats.dropped_early);
        }
        if let Some(cipher) = handshaking.exchange.read.take() {
            self.records.set_read(cipher);
        }
    }

    /// Handles a handshake message after the handshake. Renegotiation is refused. A repeated Finished means
    /// that the client has not received the server's Finished.
    fn handle_late_handshake(&mut self, clear: &[u8]) {
        let Phase::Connected(established) = &mut self.phase else { return };
        let Ok(head) = FragmentHead::read(&mut Reader::new(clear)) else {
            return count(&mut self.stats.dropped_malformed);
        };
        match (self.role, head.kind) {
            // Only the first fragment of a repeated Finished counts.
            (Role::Server, MessageType::FINISHED)
                if head.sequence == established.finished && head.offset == 0 =>
            {
                established.flight.rewind();
                count(&mut self.stats.retransmits);
            }
            (Role::Server, MessageType::CLIENT_HELLO) | (Role::Client, MessageType::HELLO_REQUEST) => {
                if !std::mem::replace(&mut established.refused, true) {
                    self.push_alert(Alert::warning(AlertDescription::NO_RENEGOTIATION));
                }
            }
            _ => count(&mut self.stats.dropped_malformed),
        }
    }

    fn handle_alert(&mut self, clear: &[u8]) {
        let Ok(Some(alert)) = Alert::read(clear) else {
            return count(&mut self.stats.dropped_malformed);
        };
        if alert.description == AlertDescription::CLOSE_NOTIFY {
            if self.is_connected() {
                self.push_alert(Alert::warning(AlertDescription::CLOSE_NOTIFY));
            }
            return self.end(CloseReason::Peer);
        }
        if alert.fatal {
            return self.end(CloseReason::Alert(alert.description));
        }
        count(&mut self.stats.ignored_alerts);
    }

    fn handle_data(&mut self, clear: &[u8], protected: bool) {
        if !protected || !self.is_connected() {
            return count(&mut self.stats.dropped_early);
        }
        if !self.config.receives_data || self.events.len() >= EVENTS_MAX {
            return count(&mut self.stats.dropped_data);
        }
        self.events.push_back(Event::Data(Bytes::copy_from_slice(clear)));
    }
}

/// Splits off the first record of a datagram: its header, its contents, and the rest of the datagram.
fn split(datagram: &mut [u8]) -> Option<(RecordHead, &mut [u8], &mut [u8])> {
    let (head, rest) = datagram.split_at_mut_checked(HEAD_BYTES)?;
    let head = RecordHead::read(&mut Reader::new(head)).ok()?;
    let (fragment, tail) = rest.split_at_mut_checked(head.length)?;
    Some((head, fragment, tail))
}
