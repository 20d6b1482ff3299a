//! Input from the peer, record by record.
//!
//! Trust: a record of epoch 1 or later is authentic. An unencrypted record may come from anyone, and is only
//! accepted until the first keys are in use.

use std::time::Instant;

use bytes::Bytes;
use wire::Reader;

use super::ack::{self, RecordNumber};
use super::record::Opened;
use super::{EPOCH_OF_APPLICATION, Handshaking, Reports, Session, Side, State, Stop};
use crate::alert::{Alert, AlertDescription};
use crate::connection::{EVENTS_MAX, Role};
use crate::error::Failure;
use crate::event::{CloseReason, Event};
use crate::handshake::{FragmentHead, MessageType};
use crate::reassembly::{Message, Taken};
use crate::record::{ContentType, NotOpened};
use crate::stats::Stats;

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// Result of processing the fragments of a record.
struct Taking {
    /// True if all fragments were stored or already known, so that the record may be acknowledged.
    whole: bool,
    /// True if a fragment belonged to a message that has not been taken yet.
    news: bool,
}

impl Session {
    /// Handles the first record of a datagram, which is decrypted in place. Returns the rest of the datagram;
    /// `None` if nothing can follow.
    #[allow(clippy::type_complexity, reason = "the rest, and how the record was taken")]
    pub(crate) fn handle_record<'a>(
        &mut self,
        now: Instant,
        datagram: &'a mut [u8],
        reports: &mut Reports<'_>,
    ) -> (Option<&'a mut [u8]>, Result<(), Stop>) {
        let Some((opened, tail)) = self.link.records.take(now, datagram) else {
            count(&mut reports.stats.dropped_malformed);
            return (None, Ok(()));
        };
        let done = match opened {
            Ok(opened) => self.handle_opened(now, &opened, reports),
            Err(NotOpened::Worn) => Err(Stop::Ended(CloseReason::Exhausted)),
            Err(NotOpened::Typeless) => Err(Failure::Typeless.into()),
            Err(reason) => {
                count(dropped(reports.stats, reason));
                Ok(())
            }
        };
        (Some(tail), done)
    }

    fn handle_opened(
        &mut self,
        now: Instant,
        opened: &Opened<'_>,
        reports: &mut Reports<'_>,
    ) -> Result<(), Stop> {
        match opened.kind {
            ContentType::HANDSHAKE => self.handle_handshake(now, opened.number, opened.clear, reports),
            ContentType::ACK => self.handle_ack(now, opened.number, opened.clear, reports),
            ContentType::ALERT => Self::handle_alert(opened.clear, reports),
            ContentType::APPLICATION_DATA => {
                self.handle_data(opened, reports);
                Ok(())
            }
            _ => {
                count(&mut reports.stats.dropped_malformed);
                Ok(())
            }
        }
    }

    fn handle_handshake(
        &mut self,
        now: Instant,
        number: RecordNumber,
        clear: &[u8],
        reports: &mut Reports<'_>,
    ) -> Result<(), Stop> {
        let protected = number.epoch > 0;
        if let State::Handshaking(handshaking) = &self.state
            && handshaking.exchange.is_behind_cookie
            && !protected
        {
            // The verifier's reply used the sequence number of the hello it answered, and no number may be used
            // twice.
            self.link.records.follow(number.sequence);
        }
        let Taking { whole, news } = self.take_fragments(number, clear, reports)?;
        if news && self.heard() && !self.is_connected() {
            // Any part of the peer's next flight confirms that our previous one has arrived (RFC 9147 §7.1).
            self.flight_arrived();
        }
        if whole {
            self.link.acks.insert(number);
        }
        self.pump(now, reports)?;
        if self.heard() {
            // The version is known, so the record may be acknowledged (RFC 9147 §7).
            self.link.acks.schedule(now, self.timer.quarter());
        }
        Ok(())
    }

    /// Adds the fragments of a record to their messages.
    fn take_fragments(
        &mut self,
        number: RecordNumber,
        clear: &[u8],
        reports: &mut Reports<'_>,
    ) -> Result<Taking, Stop> {
        let protected = number.epoch > 0;
        let mut r = Reader::new(clear);
        let mut taking = Taking { whole: true, news: false };
        while !r.is_empty() {
            let fragment = FragmentHead::read(&mut r).and_then(|head| Ok((head, r.take(head.fragment)?)));
            let Ok((head, fragment)) = fragment else {
                // An authentic peer that sends malformed data gets an alert.
                if protected {
                    return Err(Failure::Malformed.into());
                }
                count(&mut reports.stats.dropped_malformed);
                taking.whole = false;
                break;
            };
            if fragment.is_empty() && head.offset <= head.length && head.length > 0 {
                // An empty fragment of a non-empty message contains nothing.
                continue;
            }
            let is_new = !self.reassembly.is_old(head.sequence);
            if is_new && number.epoch != u64::from(self.link.records.read_epoch()) {
                // New messages must use the latest keys.
                return Err(Failure::Unexpected(head.kind).into());
            }
            match self.reassembly.insert(&head, fragment, protected)? {
                Taken::Kept => taking.news = true,
                Taken::Old => {}
                Taken::Ahead => {
                    taking.whole = false;
                    count(&mut reports.stats.dropped_ahead);
                }
                Taken::Malformed if protected => {
                    return Err(Failure::Illegal("a fragment beyond its message").into());
                }
                Taken::Malformed => {
                    taking.whole = false;
                    count(&mut reports.stats.dropped_malformed);
                }
            }
        }
        Ok(taking)
    }

    /// Ends the flight, because all of it has arrived.
    fn flight_arrived(&mut self) {
        self.link.flight.clear();
        self.timer.stop();
    }

    /// Handles the complete messages in order.
    pub(super) fn pump(&mut self, now: Instant, reports: &mut Reports<'_>) -> Result<(), Stop> {
        loop {
            let next = self.reassembly.peek();
            let waits = match &self.state {
                State::Handshaking(handshaking) => handshaking.exchange.waits_for_fingerprints(),
                State::Connected(_) => false,
            };
            if next.is_none() || (next == Some(MessageType::CERTIFICATE) && waits) {
                return Ok(());
            }
            let Some(message) = self.reassembly.take() else { return Ok(()) };
            tracing::trace!(kind = ?message.kind, sequence = message.sequence, "message");
            match &self.state {
                State::Handshaking(_) => self.handle_message(now, &message, reports)?,
                State::Connected(_) => self.handle_late_message(now, &message)?,
            }
        }
    }

    fn handle_message(
        &mut self,
        now: Instant,
        message: &Message,
        reports: &mut Reports<'_>,
    ) -> Result<(), Stop> {
        let State::Handshaking(handshaking) = &mut self.state else { return Ok(()) };
        let Handshaking { exchange, side } = &mut **handshaking;
        let Some(before) = side.take() else { return Ok(()) };
        let epoch = self.link.records.read_epoch();
        if message.protected != (epoch > 0) {
            return Err(Failure::Unexpected(message.kind).into());
        }
        let after = before.handle(exchange, &mut self.link, message)?;
        let done = after.is_done();
        let is_server = matches!(after, Side::Server(_));
        *side = Some(after);
        if self.link.records.read_epoch() != epoch {
            self.reassembly.drop_unprotected();
            if !self.reassembly.is_empty() {
                // Messages of the old epoch must not follow the message that ended this epoch (RFC 8446 §5.1).
                return Err(Failure::Unexpected(message.kind).into());
            }
        }
        if std::mem::take(&mut self.link.is_fresh) {
            self.timer.start(now);
        } else if !self.link.flight.is_empty() {
            self.flight_arrived();
        }
        if done {
            if is_server {
                // No answer follows that would acknowledge the client's last flight, so an acknowledgement is sent now.
                self.link.acks.hurry();
            }
            self.connect(reports)?;
        }
        Ok(())
    }

    fn handle_ack(
        &mut self,
        now: Instant,
        carrier: RecordNumber,
        clear: &[u8],
        reports: &mut Reports<'_>,
    ) -> Result<(), Stop> {
        if !self.heard() {
            // The peer sends no acknowledgement before the version is known (RFC 9147 §7), so an earlier one is
            // dropped.
            count(&mut reports.stats.dropped_early);
            return Ok(());
        }
        let numbers = match ack::read(clear, carrier) {
            Ok(numbers) => numbers,
            Err(failure) if carrier.epoch > 0 => return Err(failure.into()),
            Err(_) => {
                count(&mut reports.stats.dropped_malformed);
                return Ok(());
            }
        };
        let done = numbers.into_iter().any(|number| self.link.flight.acknowledge(number));
        if done {
            self.timer.stop();
            if self.is_connected() {
                self.deadline = None;
                self.finish_update(now)?;
            }
        }
        Ok(())
    }

    fn handle_alert(clear: &[u8], reports: &mut Reports<'_>) -> Result<(), Stop> {
        let Ok(Some(alert)) = Alert::read(clear) else {
            count(&mut reports.stats.dropped_malformed);
            return Ok(());
        };
        // The level is ignored: every alert except these two ends the connection (RFC 8446 §6).
        match alert.description {
            AlertDescription::CLOSE_NOTIFY => Err(Stop::Ended(CloseReason::Peer)),
            AlertDescription::USER_CANCELED => {
                count(&mut reports.stats.ignored_alerts);
                Ok(())
            }
            description => Err(Stop::Ended(CloseReason::Alert(description))),
        }
    }

    fn handle_data(&self, opened: &Opened<'_>, reports: &mut Reports<'_>) {
        if opened.number.epoch < u64::from(EPOCH_OF_APPLICATION) || !self.is_connected() {
            return count(&mut reports.stats.dropped_early);
        }
        if !self.config.receives_data || reports.events.len() >= EVENTS_MAX {
            return count(&mut reports.stats.dropped_data);
        }
        reports.events.push_back(Event::Data(Bytes::copy_from_slice(opened.clear)));
    }

    /// Handles a message after the handshake.
    fn handle_late_message(&mut self, now: Instant, message: &Message) -> Result<(), Stop> {
        let State::Connected(established) = &self.state else { return Ok(()) };
        match (established.role, message.kind) {
            (_, MessageType::KEY_UPDATE) => self.handle_key_update(now, message),
            // Sessions are not resumed, so tickets are ignored.
            (Role::Client, MessageType::NEW_SESSION_TICKET) => Ok(()),
            (_, kind) => Err(Failure::Unexpected(kind).into()),
        }
    }
}

const fn dropped(stats: &mut Stats, reason: NotOpened) -> &mut u64 {
    match reason {
        NotOpened::Epoch => &mut stats.dropped_early,
        NotOpened::Replayed => &mut stats.dropped_replayed,
        NotOpened::Forged | NotOpened::Worn => &mut stats.dropped_forged,
        NotOpened::TooLong | NotOpened::Typeless => &mut stats.dropped_malformed,
    }
}
