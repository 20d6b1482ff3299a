//! A publisher for the load generator: a push's connection, and units of its own instead of a stream's.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use wire::Datagrams;

use super::outbound::{OutboundConnection, OutboundEvent};
use super::packer::Packer;
use super::settings::SrtSettings;
use super::url::SrtAddress;
use crate::mail::SessionSettings;
use crate::protocol::publisher::{LoadPublisher, PublisherEvent, TsMux};
use crate::protocol::pull::{ClientDatagrams, ClientStream};

/// The publisher.
#[derive(Debug)]
pub(super) struct SrtLoad {
    connection: OutboundConnection,
    mux: TsMux,
    packer: Option<Packer>,
}

impl SrtLoad {
    pub(super) fn new(now: Instant, address: &SrtAddress, seed: Seed) -> Self {
        let settings = SessionSettings::default();
        let connection = OutboundConnection::new(now, SrtSettings::of(&settings), address, seed);
        Self { connection, mux: TsMux::new(), packer: None }
    }
}

impl ClientDatagrams for SrtLoad {
    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        self.connection.handle_datagram(now, from, datagram);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> Option<SocketAddr> {
        self.connection.poll_datagrams(now, out)
    }
}

impl LoadPublisher for SrtLoad {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        let Some(parts) = self.mux.parts(now, kind, timestamp, &body) else { return };
        let Some(packer) = &mut self.packer else { return };
        let connection = &mut self.connection;
        packer.push(&parts, |payload| connection.send(now, payload));
        if let Some(payload) = packer.finish() {
            connection.send(now, payload);
        }
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        loop {
            return Some(match self.connection.poll_event()? {
                OutboundEvent::Connected { payload_bytes } => {
                    self.packer = Some(Packer::new(payload_bytes));
                    PublisherEvent::Ready
                }
                OutboundEvent::Payload(_) | OutboundEvent::Lost => continue,
                OutboundEvent::Closed(reason) => PublisherEvent::Closed(reason),
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.connection.close(now);
    }
}
