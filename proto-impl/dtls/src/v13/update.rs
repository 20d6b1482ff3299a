//! Changes of keys after the handshake (RFC 9147 §8, RFC 8446 §4.6.3).
//!
//! The sender of a `KeyUpdate` uses its old keys until the message is acknowledged. The receiver accepts the
//! new keys immediately, and keeps the old ones for late records.

use std::time::Instant;

use super::keys::Secret;
use super::{Session, State, Stop};
use crate::error::Failure;
use crate::event::CloseReason;
use crate::handshake::MessageType;
use crate::reassembly::Message;

/// Value of a `KeyUpdate` that does not ask the receiver to update its own keys.
const UPDATE_NOT_REQUESTED: u8 = 0;
/// Value of a `KeyUpdate` that asks the receiver to update its own keys, too.
const UPDATE_REQUESTED: u8 = 1;

/// Secrets for both directions, and the state of the change of our keys.
#[derive(Debug)]
pub(super) struct Updates {
    own: Secret,
    peer: Secret,
    own_state: Own,
}

/// State of the change of our keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Rests,
    /// A `KeyUpdate` is requested, and will be sent once the previous flight has arrived.
    Wanted,
    /// A `KeyUpdate` was sent, and awaits its acknowledgement.
    Sent,
    /// A `KeyUpdate` was sent, and awaits its acknowledgement. Another change has been requested.
    SentAndWanted,
}

impl Updates {
    pub(super) const fn new(own: Secret, peer: Secret) -> Self {
        Self { own, peer, own_state: Own::Rests }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.own.held_bytes().saturating_add(self.peer.held_bytes())
    }
}

impl Session {
    /// Changes our keys.
    pub(crate) fn update_keys(&mut self, now: Instant) -> Result<(), Stop> {
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        let updates = &mut established.updates;
        updates.own_state = match updates.own_state {
            Own::Rests | Own::Wanted => Own::Wanted,
            Own::Sent | Own::SentAndWanted => Own::SentAndWanted,
        };
        self.send_update(now)
    }

    /// Changes our keys if half of the records allowed for them have been written.
    pub(crate) fn renew_keys(&mut self, now: Instant) -> Result<(), Stop> {
        let State::Connected(established) = &self.state else { return Ok(()) };
        let rests = established.updates.own_state == Own::Rests;
        if rests && self.link.records.are_wearing() { self.update_keys(now) } else { Ok(()) }
    }

    fn send_update(&mut self, now: Instant) -> Result<(), Stop> {
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        if established.updates.own_state != Own::Wanted || !self.link.flight.is_empty() {
            return Ok(());
        }
        let epoch = self.link.records.write_epoch();
        if epoch == u16::MAX || self.link.sequence > u32::from(u16::MAX) {
            // There is no further epoch, or no further sequence number for the message.
            return Err(Stop::Ended(CloseReason::Exhausted));
        }
        established.updates.own_state = Own::Sent;
        self.link.push(MessageType::KEY_UPDATE, vec![UPDATE_NOT_REQUESTED], epoch);
        self.timer.start(now);
        self.deadline = now.checked_add(self.config.handshake_timeout);
        Ok(())
    }

    /// Called when the peer has received one of our flights. If it was our key update, we use the new keys from
    /// now on.
    pub(super) fn finish_update(&mut self, now: Instant) -> Result<(), Stop> {
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        let updates = &mut established.updates;
        let next = match updates.own_state {
            Own::Sent => Some(Own::Rests),
            Own::SentAndWanted => Some(Own::Wanted),
            Own::Rests | Own::Wanted => None,
        };
        if let Some(next) = next {
            updates.own_state = next;
            updates.own = updates.own.next().ok_or(Failure::Internal)?;
            let keys = updates.own.keys(established.suite).ok_or(Failure::Internal)?;
            let epoch = self.link.records.write_epoch().checked_add(1);
            let epoch = epoch.ok_or(Stop::Ended(CloseReason::Exhausted))?;
            self.link.records.add_write(epoch, keys);
        }
        self.link.records.drop_old_write();
        self.send_update(now)
    }

    /// Handles the peer's change of its keys.
    pub(super) fn handle_key_update(&mut self, now: Instant, message: &Message) -> Result<(), Stop> {
        let asks = match message.body[..] {
            [UPDATE_NOT_REQUESTED] => false,
            [UPDATE_REQUESTED] => true,
            [_] => return Err(Failure::Illegal("a request for an update that is none").into()),
            _ => return Err(Failure::Malformed.into()),
        };
        if !self.reassembly.is_empty() {
            // A `KeyUpdate` is the last message protected with the old keys, so no message may be incomplete.
            return Err(Failure::Unexpected(message.kind).into());
        }
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        let updates = &mut established.updates;
        updates.peer = updates.peer.next().ok_or(Failure::Internal)?;
        let keys = updates.peer.keys(established.suite).ok_or(Failure::Internal)?;
        let epoch = self.link.records.read_epoch().checked_add(1);
        self.link.records.add_read(epoch.ok_or(Failure::TooManyUpdates)?, keys);
        // A single update answers all requests received before it (RFC 8446 §4.6.3).
        let answers = asks && matches!(established.updates.own_state, Own::Rests | Own::Wanted);
        if answers { self.update_keys(now) } else { Ok(()) }
    }
}
