//! A conversation of a protocol that is spoken over HTTP: about one request, and on the WebSocket that it may become. WHIP
//! answers an offer when its peer is admitted; a signalling socket stays.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use wire::SendQueue;

use crate::http::websocket::{self, WebSocket};
use crate::http::{Connection, Response, cors};
use crate::protocol::{Context, Event, Reply};
use crate::types::Now;

/// The limits of docs/robustness.md, the same for all connections.
static LIMITS: LazyLock<Arc<websocket::Limits>> = LazyLock::new(Arc::default);

/// A protocol's handling of a request.
pub trait Conversation: Debug + Send {
    /// A text message of the peer: only after [`Action::Upgrade`].
    fn handle_message(&mut self, ctx: &Context<'_>, text: &str);
    /// An answer of the worker, or news.
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// The next thing the worker must know.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// The next thing to do with the connection.
    fn poll_action(&mut self) -> Option<Action>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Whether the peer was granted anything: from then on it counts as known.
    fn is_granted(&self) -> bool {
        false
    }
    /// What a WebSocket is told when the server closes it.
    fn farewell(&self) -> Option<String> {
        None
    }
}

/// What a conversation does with its connection.
#[derive(Debug)]
pub enum Action {
    /// Answers the request. The conversation is over.
    Respond(Response),
    /// Answers the request with 101 (see [`websocket::accept`]): messages follow.
    Upgrade(Response),
    /// Sends a text message.
    Send(String),
    /// Closes the WebSocket with a code (RFC 6455 §7.4) and a reason.
    Close(u16, String),
}

/// A conversation and the connection's part in it.
#[derive(Debug)]
pub(super) struct Signalling {
    conversation: Box<dyn Conversation>,
    /// Fields that the answer gets.
    fields: Vec<(&'static str, String)>,
    socket: Option<Box<WebSocket>>,
    is_over: bool,
}

impl Signalling {
    pub(super) const fn new(
        conversation: Box<dyn Conversation>,
        fields: Vec<(&'static str, String)>,
    ) -> Self {
        Self { conversation, fields, socket: None, is_over: false }
    }

    pub(super) fn socket(&mut self) -> Option<&mut WebSocket> {
        self.socket.as_deref_mut()
    }

    pub(super) fn wants_bytes(&self, connection: &Connection) -> bool {
        self.socket.as_ref().map_or_else(|| connection.wants_bytes(), |socket| socket.wants_bytes())
    }

    pub(super) fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        self.conversation.handle_reply(ctx, reply);
    }

    pub(super) fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if let Some(socket) = &mut self.socket
            && let Err(error) = socket.handle_timeout(ctx.now.mono)
        {
            tracing::debug!(%error, "WebSocket dropped");
        }
        self.conversation.handle_timeout(ctx);
    }

    /// Hands messages over and does what the conversation wants. Returns why the WebSocket has ended, once.
    pub(super) fn drive(&mut self, ctx: &Context<'_>, connection: &mut Connection) -> Option<String> {
        let mut ended = None;
        while let Some(event) = self.socket.as_mut().and_then(|socket| socket.poll_event()) {
            match event {
                websocket::Event::Text(text) => self.conversation.handle_message(ctx, &text),
                websocket::Event::Binary(_) => {}
                // Its queued output is still to be sent, so it stays.
                websocket::Event::Closed(reason) => ended = Some(reason.to_string()),
            }
        }
        while let Some(action) = self.conversation.poll_action().filter(|_| !self.is_over) {
            self.act(ctx.now, connection, action);
        }
        ended
    }

    fn act(&mut self, now: Now, connection: &mut Connection, action: Action) {
        match (action, &mut self.socket) {
            (Action::Respond(mut response), None) => {
                cors::add(&self.fields, &mut response.headers);
                connection.respond(now.mono, now.wall_ms, response);
                self.is_over = true;
            }
            (Action::Upgrade(response), None) => {
                let Some(held) = connection.upgrade(now.mono, now.wall_ms, &response) else {
                    self.is_over = true;
                    return;
                };
                self.socket = Some(Box::new(WebSocket::server(now.mono, Arc::clone(&LIMITS), &held)));
            }
            (Action::Send(text), Some(socket)) => {
                if let Err(error) = socket.send_text(now.mono, &text) {
                    tracing::debug!(%error, "WebSocket dropped");
                }
            }
            (Action::Close(code, reason), Some(socket)) => socket.close(now.mono, code, &reason),
            (Action::Respond(_) | Action::Upgrade(_), Some(_))
            | (Action::Send(_) | Action::Close(..), None) => {
                tracing::debug!("signalling out of order");
            }
        }
    }

    pub(super) fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.conversation.poll_event(ctx)
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(socket) = &mut self.socket {
            socket.poll_transmit(out);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let socket = self.socket.as_ref().and_then(|socket| socket.poll_timeout());
        [socket, self.conversation.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn is_granted(&self) -> bool {
        self.conversation.is_granted()
    }

    /// The server closes the connection.
    pub(super) fn say_farewell(&mut self, now: Now) {
        if let (Some(socket), Some(text)) = (&mut self.socket, self.conversation.farewell())
            && let Err(error) = socket.send_text(now.mono, &text)
        {
            tracing::debug!(%error, "WebSocket dropped");
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }
}
