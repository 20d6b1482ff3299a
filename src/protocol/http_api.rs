//! HTTP connections: for now the API. Each request goes to control, which answers; one is outstanding at a time.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::Seed;
use wire::SendQueue;

use super::{Context, Event, Session};
use crate::http;
use crate::mail::Now;

/// The limits of robustness.md §5, the same for all connections.
static LIMITS: LazyLock<Arc<http::Limits>> = LazyLock::new(Arc::default);

/// A connection of the API.
#[derive(Debug)]
pub(super) struct ApiSession {
    connection: http::Connection,
    /// A request of it was answered with success: it is no stranger.
    served: bool,
    closed: bool,
}

impl ApiSession {
    /// An accepted connection.
    #[must_use]
    pub(super) fn new(now: Now, _peer: SocketAddr, _seed: Seed) -> Self {
        Self {
            connection: http::Connection::new(now.mono, Arc::clone(&LIMITS)),
            served: false,
            closed: false,
        }
    }

    fn drop_on(&mut self, result: Result<(), http::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "HTTP connection dropped");
            self.connection.close();
        }
    }
}

impl Session for ApiSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        let result = self.connection.handle_bytes(ctx.now.mono, bytes);
        self.drop_on(result);
    }

    fn handle_hangup(&mut self, ctx: &Context<'_>, error: Option<&str>) {
        match error {
            None => self.connection.handle_eof(ctx.now.mono),
            Some(_) => self.connection.close(),
        }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let result = self.connection.handle_timeout(ctx.now.mono);
        self.drop_on(result);
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize) {
        self.connection.handle_sent(ctx.now.mono, bytes);
    }

    fn wants_bytes(&self) -> bool {
        self.connection.wants_bytes()
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if self.closed {
            return None;
        }
        Some(match self.connection.poll_event()? {
            http::Event::Request(request) => Event::Rest(Box::new(request)),
            http::Event::Closed(reason) => {
                self.closed = true;
                Event::Closed(format!("{reason:?}"))
            }
        })
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn rest_reply(&mut self, ctx: &Context<'_>, response: http::Response) {
        self.served |= response.status < 400;
        self.connection.respond(ctx.now.mono, ctx.now.wall_ms, response);
    }

    fn close(&mut self, _ctx: &Context<'_>, _reason: &str) {
        self.connection.close();
    }

    fn is_authenticated(&self) -> bool {
        self.served
    }

    fn protocol(&self) -> &'static str {
        "http"
    }

    fn is_media(&self) -> bool {
        false
    }
}
