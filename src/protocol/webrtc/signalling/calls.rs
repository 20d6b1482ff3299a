//! Calls between two browsers: descriptions and candidates are relayed unchanged between the two sockets.
//!
//! ```text
//!     first: join -> joined          second: join -> joined
//!     first: start, makes the offer  -> second answers
//!     either: leave -> leaved        the other: stop
//! ```

use super::command::Command;
use super::{Socket, answer};
use crate::mail::{CallEvent, CallNews, Message, NoSubscription};
use crate::protocol::{Event, FamilyEvent, RequestEvent};
use crate::types::{SessionRef, StreamKey};

/// A message from one party of a call to the other, as the other party's page receives it.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) id: String,
    pub(super) text: String,
}

/// A call that the socket has joined.
#[derive(Debug)]
pub(super) struct Call {
    id: String,
    /// The other party's socket, while there is one.
    with: Option<SessionRef>,
}

impl Socket {
    pub(super) fn call(&mut self, id: &str) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    /// Joins a call.
    pub(super) fn join_call(&mut self, id: &str, command: &Command) {
        if self.stream(id).is_some() {
            return self.send(answer::error("streamIdInUse", Some(id)));
        }
        if self.call(id).is_none() {
            if self.is_full() {
                return self.send(answer::error("highResourceUsage", Some(id)));
            }
            self.calls.push(Call { id: id.to_owned(), with: None });
        }
        let (key, params) = (StreamKey::new(&self.app, id), command.params());
        let join = CallEvent::Join { key, params, origin: self.origin.clone() };
        self.events.push_back(Event::Request(RequestEvent::Call(join)));
    }

    /// Leaves a call. Returns false if the socket is in no call with that id.
    pub(super) fn leave_call(&mut self, id: &str) -> bool {
        let Some(at) = self.calls.iter().position(|call| call.id == id) else { return false };
        self.calls.remove(at);
        let leave = CallEvent::Leave(StreamKey::new(&self.app, id));
        self.events.push_back(Event::Request(RequestEvent::Call(leave)));
        self.send(answer::left_call(id));
        true
    }

    /// Relays a message to the other party. Returns false if the socket is in no call with that id.
    pub(super) fn relay(&mut self, id: &str, command: &Command) -> bool {
        let Some(call) = self.call(id) else { return false };
        match call.with {
            Some(to) => {
                let message = Message::new(Relayed { id: id.to_owned(), text: command.to_text() });
                self.events.push_back(Event::Family(FamilyEvent::Tell { to, message }));
            }
            None => self.send(answer::error("no_peer_associated_before", Some(id))),
        }
        true
    }

    /// Passes a message of the other party to the client.
    pub(super) fn relayed(&mut self, from: SessionRef, relayed: &Relayed) {
        let is_with = |with: SessionRef| with.worker == from.worker && with.conn == from.conn;
        if self.call(&relayed.id).is_some_and(|call| call.with.is_some_and(is_with)) {
            self.send(relayed.text.clone());
        }
    }

    /// Handles news of a call.
    pub(super) fn call_news(&mut self, key: &StreamKey, news: CallNews) {
        let Some(at) = self.calls.iter().position(|call| *call.id == *key.id) else { return };
        match news {
            CallNews::Joined => {
                self.granted = true;
                self.send(answer::joined_call(&key.id));
            }
            CallNews::Full => {
                self.calls.remove(at);
                self.send(answer::error("streamIdInUse", Some(&key.id)));
            }
            CallNews::Refused(why) => {
                self.calls.remove(at);
                let definition = match &why {
                    NoSubscription::Denied(denial) => answer::denial(denial),
                    NoSubscription::NotFound => "not_initialized_yet",
                    NoSubscription::Disabled => return self.send(answer::not_enabled(&key.id)),
                    NoSubscription::Draining | NoSubscription::Resources => "highResourceUsage",
                };
                self.send(answer::error(definition, Some(&key.id)));
            }
            CallNews::Paired { with, begins } => {
                if let Some(call) = self.calls.get_mut(at) {
                    call.with = Some(with);
                }
                if begins {
                    self.send(answer::start(&key.id));
                }
            }
            CallNews::Alone => {
                if let Some(call) = self.calls.get_mut(at) {
                    call.with = None;
                }
                self.send(answer::stop(&key.id));
            }
        }
    }
}
