//! Responders, which answer outstanding requests, and [`Link`], through which they use the connection.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crypto::{Random, Seed};
use wire::SendQueue;

use super::Fields;
use super::mounts::{Asked, Handler};
use crate::auth::proxy::Passed;
use crate::http::websocket::{self, WebSocket};
use crate::http::{self, Connection, Response, StreamAnswer, cors};
use crate::protocol::{Context, Event, Reply, RequestNews};
use crate::types::Now;

/// The result of a step of a responder.
#[derive(Debug)]
pub(in crate::protocol) enum Next {
    /// The responder continues.
    Stay,
    /// The request is answered.
    Over,
    /// Another responder continues.
    Become(Box<dyn Responder>),
    /// The handler of the request starts.
    Route(Box<(Handler, Asked)>),
}

impl Next {
    /// Makes another responder continue.
    pub(in crate::protocol) fn become_one(responder: impl Responder + 'static) -> Self {
        Self::Become(Box::new(responder))
    }
}

/// The answer to one request, such as control's response, a file, a stream, or the conversation of a
/// protocol.
pub(in crate::protocol) trait Responder: Debug + Send {
    /// Handles an answer or news of the worker.
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next;
    /// Continues after input from the peer, or after output was sent. Called whenever no event is left.
    fn advance(&mut self, _ctx: &Context<'_>, _link: &mut Link) -> Next {
        Next::Stay
    }
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, _ctx: &Context<'_>, _link: &mut Link) -> Next {
        Next::Stay
    }
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Closes the connection because the server is shutting down.
    fn close(&mut self, ctx: &Context<'_>, link: &mut Link) {
        link.close(ctx.now);
    }
    /// True if the responder receives the request's body as a file ([`RequestNews::Upload`]).
    fn takes_upload(&self) -> bool {
        false
    }
}

/// Responds with control's response. The header fields of the request's mount are added.
#[derive(Debug)]
pub(in crate::protocol) struct OfControl(pub(in crate::protocol) Fields);

impl Responder for OfControl {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        let Reply::Request(RequestNews::Response(response)) = reply else { return Next::Stay };
        link.respond(ctx.now, &self.0, response);
        Next::Over
    }
}

/// A connection as responders use it: it speaks HTTP, and may become a WebSocket later.
#[derive(Debug)]
pub(in crate::protocol) struct Link {
    pub(in crate::protocol) connection: Connection,
    /// The WebSocket that the connection has become.
    pub(in crate::protocol) socket: Option<Box<WebSocket>>,
    /// Events for the worker.
    pub(in crate::protocol) events: VecDeque<Event>,
    /// The protocol of the session, for logs and counters.
    pub(in crate::protocol) protocol: &'static str,
    /// True if the peer has been sent a stream or has published. It then counts as authenticated.
    pub(in crate::protocol) granted: bool,
    /// True if the peer has been a viewer.
    pub(in crate::protocol) watched: bool,
    /// The client and the URL of the request before it was forwarded, according to trusted proxies. To the
    /// worker, this client is the peer, not the proxy.
    pub(in crate::protocol) passed: Passed,
    /// Random source for the names of sessions and viewers.
    random: Random,
    /// True if [`Event::Closed`] was queued.
    closed: bool,
}

impl Link {
    /// Makes the link of an accepted connection.
    pub(in crate::protocol) fn new(connection: Connection, peer: IpAddr, seed: &Seed) -> Self {
        Self {
            connection,
            socket: None,
            events: VecDeque::new(),
            protocol: "http",
            granted: false,
            watched: false,
            passed: Passed::direct(peer),
            random: seed.derive("http", 0).random(),
            closed: false,
        }
    }

    /// Draws a random number that no other session has.
    pub(in crate::protocol) fn draw(&mut self) -> u64 {
        self.random.u64()
    }

    /// Queues an event for the worker.
    pub(in crate::protocol) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Answers the request. `fields` are added to the response.
    pub(in crate::protocol) fn respond(&mut self, now: Now, fields: &Fields, mut response: Response) {
        cors::add(fields, &mut response.headers);
        self.connection.respond(now.mono, now.wall_ms, response);
    }

    /// Answers the request with 101. After this, the connection carries WebSocket messages. Returns `None`
    /// if the peer has gone.
    pub(in crate::protocol) fn upgrade(
        &mut self,
        now: Now,
        response: &Response,
        limits: &Arc<websocket::Limits>,
    ) -> Option<&mut WebSocket> {
        let held = self.connection.upgrade(now.mono, now.wall_ms, response)?;
        let socket = WebSocket::server(now.mono, Arc::clone(limits), &held);
        Some(self.socket.insert(Box::new(socket)))
    }

    /// Queues the last event; further calls do nothing.
    pub(in crate::protocol) fn end(&mut self, reason: String) {
        if !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed(reason));
        }
    }

    /// True if the last event was queued.
    pub(in crate::protocol) const fn has_ended(&self) -> bool {
        self.closed
    }

    /// Closes the connection as its protocol requires.
    pub(in crate::protocol) fn close(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.close(now.mono, websocket::code::AWAY, ""),
            None => self.connection.close(now.mono),
        }
    }

    /// Handles the end of the peer's side.
    pub(in crate::protocol) fn handle_eof(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.handle_eof(now.mono),
        }
    }

    /// Handles a broken connection.
    pub(in crate::protocol) fn break_off(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.close(now.mono),
        }
    }

    /// Takes bytes of the peer.
    pub(in crate::protocol) fn handle_bytes(&mut self, now: Now, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket {
            return socket.handle_bytes(now.mono, bytes);
        }
        let result = self.connection.handle_bytes(now.mono, bytes);
        self.drop_on(now, result);
    }

    /// Handles progress of a write: the transport has accepted this many bytes.
    pub(in crate::protocol) fn handle_sent(&mut self, now: Now, bytes: usize) {
        self.connection.handle_sent(now.mono, bytes);
        if let Some(socket) = &mut self.socket {
            socket.handle_sent(now.mono, bytes);
        }
    }

    /// True if the transport should be read.
    pub(in crate::protocol) fn wants_bytes(&self) -> bool {
        self.socket.as_ref().map_or_else(|| self.connection.wants_bytes(), |socket| socket.wants_bytes())
    }

    /// Moves output to `out`.
    pub(in crate::protocol) fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(out);
        if let Some(socket) = &mut self.socket {
            socket.poll_transmit(out);
        }
    }

    /// Handles the end of the request's body on an HTTP/2 stream. For a WebSocket, no more messages follow.
    pub(in crate::protocol) fn handle_body_end(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.handle_end(now.mono),
        }
    }

    /// Returns the part of the response of an HTTP/2 stream that was made since the last call.
    pub(in crate::protocol) fn poll_answer(&mut self) -> StreamAnswer {
        let mut answer = self.connection.poll_answer();
        if let Some(socket) = &mut self.socket {
            let mut out = SendQueue::new();
            socket.poll_transmit(&mut out);
            answer.parts.extend(out.take_parts());
        }
        answer
    }

    /// Handles deadlines that have passed.
    pub(in crate::protocol) fn handle_timeout(&mut self, now: Now) {
        let result = self.connection.handle_timeout(now.mono);
        self.drop_on(now, result);
        if let Some(socket) = &mut self.socket
            && let Err(error) = socket.handle_timeout(now.mono)
        {
            tracing::debug!(%error, "WebSocket dropped");
        }
    }

    /// Returns the next deadline.
    pub(in crate::protocol) fn poll_timeout(&self) -> Option<Instant> {
        let socket = self.socket.as_ref().and_then(|socket| socket.poll_timeout());
        [self.connection.poll_timeout(), socket].into_iter().flatten().min()
    }

    fn drop_on(&mut self, now: Now, result: Result<(), http::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "HTTP connection dropped");
            self.connection.close(now.mono);
        }
    }
}
