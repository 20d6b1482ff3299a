//! The client that publishes to another RTMP server, for a push or for the load generator.

use std::time::Instant;

use crypto::Seed;
use rtmp::{Client, ClientConfig, ClientEvent};
use wire::SendQueue;

/// An event of the publisher.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The server accepts the stream.
    Ready {
        /// Id of the message stream to publish in.
        message_stream: u32,
    },
    /// The connection has ended, for this reason.
    Closed(String),
}

/// A publishing client of the `rtmp` crate, for one stream. A violation of the protocol is only logged where it occurs,
/// because the client's last event reports it too.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) client: Client,
}

impl Publishing {
    /// Makes a publisher for a connection that is open or being opened.
    pub(super) fn new(now: Instant, config: ClientConfig, seed: Seed) -> Self {
        Self { client: Client::publish(now, config.into(), seed) }
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Err(error) = self.client.handle_bytes(now, bytes) {
            tracing::debug!(%error, "the server broke the protocol");
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
    }

    pub(super) fn poll_event(&mut self) -> Option<Published> {
        loop {
            return Some(match self.client.poll_event()? {
                ClientEvent::Ready { message_stream } => Published::Ready { message_stream },
                // Media that a server sends to its publisher is ignored.
                ClientEvent::Media(_) => continue,
                ClientEvent::Rejected { code, description } => {
                    Published::Closed(format!("{code}: {description}"))
                }
                ClientEvent::Closed(reason) => Published::Closed(reason.to_string()),
            });
        }
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.client.poll_transmit(out);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }
}
