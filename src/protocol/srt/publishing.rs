//! The connection that publishes to another SRT server, for a push or for the load generator.

use std::time::Instant;

use super::outbound::{OutboundConnection, OutboundEvent};
use super::packer::Packer;
use crate::hub::Parts;
use crate::protocol::publisher::PublisherEvent;

/// A connection, and the payloads being filled for it.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) connection: OutboundConnection,
    /// The packer, made when the handshake is complete.
    packer: Option<Packer>,
}

impl Publishing {
    pub(super) const fn new(connection: OutboundConnection) -> Self {
        Self { connection, packer: None }
    }

    /// Adds a unit and sends every full payload. Without a connection the unit is dropped.
    pub(super) fn send(&mut self, now: Instant, parts: &Parts) {
        let Some(packer) = &mut self.packer else { return };
        let connection = &mut self.connection;
        packer.push(parts, |payload| connection.send(now, payload));
    }

    /// Sends the remainder of the last unit.
    pub(super) fn flush(&mut self, now: Instant) {
        if let Some(payload) = self.packer.as_mut().and_then(Packer::finish) {
            self.connection.send(now, payload);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<PublisherEvent> {
        loop {
            return Some(match self.connection.poll_event()? {
                OutboundEvent::Connected { payload_bytes } => {
                    self.packer = Some(Packer::new(payload_bytes));
                    PublisherEvent::Ready
                }
                // Media that a server sends to its publisher is ignored.
                OutboundEvent::Payload(_) | OutboundEvent::Lost => continue,
                OutboundEvent::Closed(reason) => PublisherEvent::Closed(reason),
            });
        }
    }
}
