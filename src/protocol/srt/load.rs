//! A publisher for the load generator: it connects like a push, but sends the load generator's units instead of a
//! stream's.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use wire::Datagrams;

use super::outbound::OutboundConnection;
use super::publishing::Publishing;
use super::settings::SrtSettings;
use super::url::SrtAddress;
use crate::mail::SessionSettings;
use crate::protocol::publisher::{LoadPublisher, PublisherEvent, TsMux};
use crate::protocol::pull::{ClientDatagrams, ClientStream};
use crate::protocol::{PathId, To};

/// The publisher.
#[derive(Debug)]
pub(super) struct SrtLoad {
    publishing: Publishing,
    mux: TsMux,
}

impl SrtLoad {
    pub(super) fn new(now: Instant, address: &SrtAddress, seed: Seed) -> Self {
        let settings = SessionSettings::default();
        let connection = OutboundConnection::new(now, SrtSettings::of(&settings), address, seed);
        Self { publishing: Publishing::new(connection), mux: TsMux::new() }
    }
}

impl ClientDatagrams for SrtLoad {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {
        // Nothing to do: the server learns the local address from the datagrams.
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        self.publishing.connection.handle_datagram(now, from, datagram);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        To::of_socket(self.publishing.connection.poll_datagrams(now, out))
    }
}

impl LoadPublisher for SrtLoad {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _now: Instant) {
        // Nothing to do: SRT has no byte stream.
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.publishing.connection.handle_timeout(now);
    }

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        if let Some(parts) = self.mux.parts(now, kind, timestamp, &body) {
            self.publishing.send(now, &parts);
            self.publishing.flush(now);
        }
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.publishing.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.publishing.connection.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.publishing.connection.close(now);
    }
}
