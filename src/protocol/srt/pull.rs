//! SRT pulls: receives a stream from another server, as caller or as listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use super::outbound::{OutboundConnection, OutboundEvent};
use super::settings::SrtSettings;
use super::statistics::SrtFigures;
use super::url::SrtAddress;
use crate::protocol::pull::{Client, ClientDatagrams, ClientEvent, Media, Start};
use crate::protocol::{PathId, To};
use crate::stats::Figures;

/// A pull's client.
#[derive(Debug)]
pub(super) struct SrtPull {
    address: SrtAddress,
    seed: Seed,
    /// The connection, made when the socket is open.
    connection: Option<Box<OutboundConnection>>,
}

impl SrtPull {
    pub(super) fn new(address: &SrtAddress, seed: Seed) -> Self {
        Self { address: address.clone(), seed, connection: None }
    }
}

impl ClientDatagrams for SrtPull {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {
        // Nothing to do: the server learns the local address from the datagrams.
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        if let Some(connection) = &mut self.connection {
            connection.handle_datagram(now, from, datagram);
        }
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        To::of_socket(self.connection.as_mut().and_then(|connection| connection.poll_datagrams(now, out)))
    }
}

impl Client for SrtPull {
    fn begin(&mut self, start: &Start<'_>) {
        let settings = SrtSettings::of(start.server);
        let connection = OutboundConnection::new(start.now, settings, &self.address, self.seed.clone());
        self.connection = Some(Box::new(connection));
    }

    fn waits(&self) -> bool {
        self.address.listens
    }

    fn handle_end(&mut self, now: Instant) {
        self.close(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        Some(match self.connection.as_mut()?.poll_event()? {
            OutboundEvent::Connected { .. } => ClientEvent::Connected,
            OutboundEvent::Payload(payload) => ClientEvent::Media(Media::Payload(payload)),
            OutboundEvent::Lost => ClientEvent::Media(Media::Lost),
            OutboundEvent::Closed(reason) => ClientEvent::Ended(reason),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(|connection| connection.poll_timeout())
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        let stats = self.connection.as_ref()?.stats()?;
        Some(Arc::new(SrtFigures(stats)))
    }

    fn close(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.close(now);
        }
    }

    fn name(&self) -> &'static str {
        "srt-pull"
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }
}
