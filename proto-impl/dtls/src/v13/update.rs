//! Changes of keys after the handshake (RFC 9147 §8, RFC 8446 §4.6.3).
//!
//! The sender of a `KeyUpdate` goes on with its old keys until it is acknowledged; the receiver takes the new ones at once,
//! and keeps the old ones for what comes late.

use std::time::Instant;

use super::keys::Secret;
use super::{Session, State, Stop};
use crate::error::Failure;
use crate::event::CloseReason;
use crate::handshake::MessageType;
use crate::reassembly::Message;

/// Whether the sender wants the receiver to change its keys too.
const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;

/// The secrets of both directions, and the change of one's own that is wanted or on its way.
#[derive(Debug)]
pub(super) struct Updates {
    own: Secret,
    peer: Secret,
    own_state: Own,
}

/// A change of one's own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Rests,
    /// As soon as the flight before it has arrived.
    Wanted,
    /// Waits for its acknowledgement.
    Sent,
    /// Waits for its acknowledgement, and another one is wanted.
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
    /// Changes one's own keys.
    pub(crate) fn update_keys(&mut self, now: Instant) -> Result<(), Stop> {
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        let updates = &mut established.updates;
        updates.own_state = match updates.own_state {
            Own::Rests | Own::Wanted => Own::Wanted,
            Own::Sent | Own::SentAndWanted => Own::SentAndWanted,
        };
        self.send_update(now)
    }

    /// Changes the keys when half of what they may do is done.
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
            // There is no epoch behind it, or no number for the message.
            return Err(Stop::Ended(CloseReason::Exhausted));
        }
        established.updates.own_state = Own::Sent;
        self.link.push(MessageType::KEY_UPDATE, vec![UPDATE_NOT_REQUESTED], epoch);
        self.timer.start(now);
        self.deadline = now.checked_add(self.config.handshake_timeout);
        Ok(())
    }

    /// The flight has arrived: new keys are on, if it was an update.
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

    /// The peer changes its keys.
    pub(super) fn handle_key_update(&mut self, now: Instant, message: &Message) -> Result<(), Stop> {
        let asks = match message.body[..] {
            [UPDATE_NOT_REQUESTED] => false,
            [UPDATE_REQUESTED] => true,
            [_] => return Err(Failure::Illegal("a request for an update that is none").into()),
            _ => return Err(Failure::Malformed.into()),
        };
        if !self.reassembly.is_empty() {
            // It is the last message under its keys.
            return Err(Failure::Unexpected(message.kind).into());
        }
        let State::Connected(established) = &mut self.state else { return Ok(()) };
        let updates = &mut established.updates;
        updates.peer = updates.peer.next().ok_or(Failure::Internal)?;
        let keys = updates.peer.keys(established.suite).ok_or(Failure::Internal)?;
        let epoch = self.link.records.read_epoch().checked_add(1);
        self.link.records.add_read(epoch.ok_or(Failure::TooManyUpdates)?, keys);
        // One change answers any number of requests that come before it (RFC 8446 §4.6.3).
        let answers = asks && matches!(established.updates.own_state, Own::Rests | Own::Wanted);
        if answers { self.update_keys(now) } else { Ok(()) }
    }
}
