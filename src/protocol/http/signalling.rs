//! A conversation of a protocol over HTTP: about one request, and over the WebSocket that the connection may become.
//! WHIP, for example, answers an offer once its peer is admitted, while a signalling socket stays open.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use super::Fields;
use super::responder::{Link, Next, Responder};
use crate::http::Response;
use crate::http::websocket::{self, WebSocket};
use crate::protocol::{Context, Event, PublicationNews, Reply, SubscriptionNews};
use crate::types::Now;

/// The limits of docs/robustness.md, shared by all connections.
static LIMITS: LazyLock<Arc<websocket::Limits>> = LazyLock::new(Arc::default);

/// A protocol's conversation about a request.
pub trait Conversation: Debug + Send {
    /// Handles a text message of the peer; only after [`Action::Upgrade`].
    fn handle_message(&mut self, ctx: &Context<'_>, text: &str);
    /// Handles an answer or news of the worker.
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>);
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// Returns the next event for the worker.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// Returns the next action on the connection.
    fn poll_action(&mut self) -> Option<Action>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// True if the peer has been granted anything. It then counts as authenticated.
    fn is_granted(&self) -> bool {
        false
    }
    /// Returns the last message to send on a WebSocket that the server closes.
    fn farewell(&self) -> Option<String> {
        None
    }
}

/// An action of a conversation on its connection.
#[derive(Debug)]
pub enum Action {
    /// Answers the request, which ends the conversation.
    Respond(Response),
    /// Answers the request with 101 (see [`websocket::accept`]). After this, the connection carries messages.
    Upgrade(Response),
    /// Sends a text message.
    Send(String),
    /// Closes the WebSocket with a code (RFC 6455 §7.4) and a reason.
    Close(u16, String),
}

/// The responder of a conversation.
#[derive(Debug)]
pub(super) struct Signalling {
    conversation: Box<dyn Conversation>,
    /// Header fields of the response.
    fields: Fields,
    is_over: bool,
}

impl Signalling {
    pub(super) const fn new(conversation: Box<dyn Conversation>, fields: Fields) -> Self {
        Self { conversation, fields, is_over: false }
    }

    /// Passes the peer's messages on to the conversation. If the WebSocket has ended, returns the reason, but only
    /// once.
    fn take_messages(&mut self, ctx: &Context<'_>, link: &mut Link) -> Option<String> {
        let mut ended = None;
        while let Some(event) = link.socket.as_mut().and_then(|socket| socket.poll_event()) {
            match event {
                websocket::Event::Text(text) => self.conversation.handle_message(ctx, &text),
                websocket::Event::Binary(_) => {}
                // The WebSocket stays, because its queued output still has to be sent.
                websocket::Event::Closed(reason) => ended = Some(reason.to_string()),
            }
        }
        ended
    }

    fn act(&mut self, now: Now, link: &mut Link, action: Action) {
        match (action, &mut link.socket) {
            (Action::Respond(response), None) => {
                link.respond(now, &self.fields, response);
                self.is_over = true;
            }
            (Action::Upgrade(response), None) => {
                self.is_over = link.upgrade(now, &response, &LIMITS).is_none();
            }
            (Action::Send(text), Some(socket)) => send(now, socket, &text),
            (Action::Close(code, reason), Some(socket)) => socket.close(now.mono, code, &reason),
            (Action::Respond(_) | Action::Upgrade(_), Some(_))
            | (Action::Send(_) | Action::Close(..), None) => {
                tracing::debug!("signalling out of order");
            }
        }
    }
}

fn send(now: Now, socket: &mut WebSocket, text: &str) {
    if let Err(error) = socket.send_text(now.mono, text) {
        tracing::debug!(%error, "WebSocket dropped");
    }
}

impl Responder for Signalling {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        link.granted |= matches!(
            reply,
            Reply::Publication(_, PublicationNews::Verdict(Ok(_)))
                | Reply::Subscription(_, SubscriptionNews::Verdict(Ok(_)))
        );
        self.conversation.handle_reply(ctx, reply);
        link.granted |= self.conversation.is_granted();
        Next::Stay
    }

    fn advance(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        let ended = self.take_messages(ctx, link);
        while let Some(action) = self.conversation.poll_action().filter(|_| !self.is_over) {
            self.act(ctx.now, link, action);
        }
        link.events.extend(self.conversation.poll_event(ctx));
        if let Some(reason) = ended {
            link.end(reason);
        }
        if self.is_over { Next::Over } else { Next::Stay }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>, _link: &mut Link) -> Next {
        self.conversation.handle_timeout(ctx);
        Next::Stay
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conversation.poll_timeout()
    }

    fn close(&mut self, ctx: &Context<'_>, link: &mut Link) {
        if let (Some(socket), Some(text)) = (&mut link.socket, self.conversation.farewell()) {
            send(ctx.now, socket, &text);
        }
        link.close(ctx.now);
    }
}
