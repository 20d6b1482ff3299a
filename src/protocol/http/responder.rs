//! Responders: the answers to outstanding requests, and the connection as they use it.

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

/// The state of a request after a step of its responder.
#[derive(Debug)]
pub(in crate::protocol) enum Next {
    /// The responder goes on.
    Stay,
    /// The request is answered.
    Over,
    /// Another responder goes on.
    Become(Box<dyn Responder>),
    /// The handler of the request begins.
    Route(Box<(Handler, Asked)>),
}

impl Next {
    /// Another responder goes on.
    pub(in crate::protocol) fn become_one(responder: impl Responder + 'static) -> Self {
        Self::Become(Box::new(responder))
    }
}

/// The answer to one request: control's, a file, a stream, the conversation of a protocol.
pub(in crate::protocol) trait Responder: Debug + Send {
    /// An answer of the worker, or news.
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next;
    /// Goes on with what the peer has sent and with what it takes. Called whenever no event is left.
    fn advance(&mut self, _ctx: &Context<'_>, _link: &mut Link) -> Next {
        Next::Stay
    }
    /// A deadline may have passed.
    fn handle_timeout(&mut self, _ctx: &Context<'_>, _link: &mut Link) -> Next {
        Next::Stay
    }
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// The server closes the connection.
    fn close(&mut self, ctx: &Context<'_>, link: &mut Link) {
        link.close(ctx.now);
    }
    /// Whether it takes the body of its request in as a file ([`RequestNews::Upload`]).
    fn takes_upload(&self) -> bool {
        false
    }
}

/// Control's answer, with the fields that came with the request.
#[derive(Debug)]
pub(in crate::protocol) struct OfControl(pub(in crate::protocol) Fields);

impl Responder for OfControl {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        let Reply::Request(RequestNews::Response(response)) = reply else { return Next::Stay };
        link.respond(ctx.now, &self.0, response);
        Next::Over
    }
}

/// A connection as responders use it: over HTTP, and later maybe as a WebSocket.
#[derive(Debug)]
pub(in crate::protocol) struct Link {
    pub(in crate::protocol) connection: Connection,
    /// The WebSocket that the connection has become.
    pub(in crate::protocol) socket: Option<Box<WebSocket>>,
    /// Events for the worker.
    pub(in crate::protocol) events: VecDeque<Event>,
    /// The protocol of the session, for logs and counters.
    pub(in crate::protocol) protocol: &'static str,
    /// Whether the peer is or was sent a stream, or has published: it counts as authenticated.
    pub(in crate::protocol) granted: bool,
    /// Whether the peer is or was a viewer.
    pub(in crate::protocol) watched: bool,
    /// The request as its client sent it, by the word of proxies. The worker knows of this client.
    pub(in crate::protocol) passed: Passed,
    /// Names sessions and viewers.
    random: Random,
    /// Whether [`Event::Closed`] has gone.
    closed: bool,
}

impl Link {
    /// An accepted connection.
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

    /// A number that nobody else has.
    pub(in crate::protocol) fn draw(&mut self) -> u64 {
        self.random.u64()
    }

    /// Queues an event for the worker.
    pub(in crate::protocol) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Answers the request, with the fields that came with it.
    pub(in crate::protocol) fn respond(&mut self, now: Now, fields: &Fields, mut response: Response) {
        cors::add(fields, &mut response.headers);
        self.connection.respond(now.mono, now.wall_ms, response);
    }

    /// Answers the request with 101: messages follow. `None`: the peer has gone.
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

    /// Queues the last event, once.
    pub(in crate::protocol) fn end(&mut self, reason: String) {
        if !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed(reason));
        }
    }

    /// Whether the last event was queued.
    pub(in crate::protocol) const fn has_ended(&self) -> bool {
        self.closed
    }

    /// Closes in the way of what is spoken.
    pub(in crate::protocol) fn close(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.close(now.mono, websocket::code::AWAY, ""),
            None => self.connection.close(),
        }
    }

    /// The peer has closed its side.
    pub(in crate::protocol) fn handle_eof(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.handle_eof(now.mono),
        }
    }

    /// The connection is broken.
    pub(in crate::protocol) fn break_off(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.close(),
        }
    }

    /// Bytes of the peer.
    pub(in crate::protocol) fn handle_bytes(&mut self, now: Now, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket {
            return socket.handle_bytes(now.mono, bytes);
        }
        let result = self.connection.handle_bytes(now.mono, bytes);
        self.drop_on(result);
    }

    /// The transport took this many bytes.
    pub(in crate::protocol) fn handle_sent(&mut self, now: Now, bytes: usize) {
        self.connection.handle_sent(now.mono, bytes);
        if let Some(socket) = &mut self.socket {
            socket.handle_sent(now.mono, bytes);
        }
    }

    /// Whether the transport should be read.
    pub(in crate::protocol) fn wants_bytes(&self) -> bool {
        self.socket.as_ref().map_or_else(|| self.connection.wants_bytes(), |socket| socket.wants_bytes())
    }

    /// Moves what is to be sent.
    pub(in crate::protocol) fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(out);
        if let Some(socket) = &mut self.socket {
            socket.poll_transmit(out);
        }
    }

    /// The body of a stream's request is complete; a WebSocket has no more messages.
    pub(in crate::protocol) fn handle_body_end(&mut self, now: Now) {
        match &mut self.socket {
            Some(socket) => socket.handle_eof(now.mono),
            None => self.connection.handle_end(now.mono),
        }
    }

    /// The part of a stream's answer that there is.
    pub(in crate::protocol) fn poll_answer(&mut self) -> StreamAnswer {
        let mut answer = self.connection.poll_answer();
        if let Some(socket) = &mut self.socket {
            let mut out = SendQueue::new();
            socket.poll_transmit(&mut out);
            answer.parts.extend(out.take_parts());
        }
        answer
    }

    /// A deadline may have passed.
    pub(in crate::protocol) fn handle_timeout(&mut self, now: Now) {
        let result = self.connection.handle_timeout(now.mono);
        self.drop_on(result);
        if let Some(socket) = &mut self.socket
            && let Err(error) = socket.handle_timeout(now.mono)
        {
            tracing::debug!(%error, "WebSocket dropped");
        }
    }

    /// The next deadline.
    pub(in crate::protocol) fn poll_timeout(&self) -> Option<Instant> {
        let socket = self.socket.as_ref().and_then(|socket| socket.poll_timeout());
        [self.connection.poll_timeout(), socket].into_iter().flatten().min()
    }

    fn drop_on(&mut self, result: Result<(), http::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "HTTP connection dropped");
            self.connection.close();
        }
    }
}
