//! Events and news between sessions: a session can create other sessions and send messages to sessions.

use std::any::Any;

use crate::mail::Message;
use crate::protocol::Session;
use crate::types::{Handle, SessionRef, StreamKey};

/// An event for another session.
#[derive(Debug)]
pub enum FamilyEvent {
    /// Creates a session on this worker that ends with its parent; answered by [`FamilyNews::Spawned`].
    Spawn {
        /// The parent's handle for the child.
        child: Handle,
        /// The new session.
        session: Box<dyn Session>,
    },
    /// Creates a session at a shared port of this worker; answered by [`FamilyNews::Spawned`].
    SpawnAt {
        /// The parent's handle for the child.
        child: Handle,
        /// The name of the port.
        port: &'static str,
        /// The purpose of the session, as in [`crate::protocol::Wanted::what`].
        what: Box<dyn Any + Send>,
        /// True if the session continues after its parent has ended.
        outlives: bool,
    },
    /// Sends a message to another session on any worker, which gets [`FamilyNews::Message`].
    Tell {
        /// The receiver.
        to: SessionRef,
        /// The message.
        message: Message,
    },
    /// Sends a message to the publisher and all viewers of a stream, wherever they are, except the sender; each session
    /// gets [`FamilyNews::Message`] once. Nothing happens if the stream is not live.
    TellStream {
        /// The stream.
        stream: StreamKey,
        /// The message.
        message: Message,
    },
}

/// News of another session.
#[derive(Debug)]
pub enum FamilyNews {
    /// The answer to [`FamilyEvent::Spawn`] and [`FamilyEvent::SpawnAt`]; the session is `None` if there are too many.
    Spawned {
        /// The parent's handle for the child.
        child: Handle,
        /// The new session.
        session: Option<SessionRef>,
    },
    /// A message of another session ([`FamilyEvent::Tell`], [`FamilyEvent::TellStream`]).
    Message {
        /// The sender.
        from: SessionRef,
        /// The message.
        message: Message,
    },
    /// The receiver of a message does not exist, or a child has ended.
    Ended(SessionRef),
}
