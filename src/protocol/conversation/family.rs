//! Events for other sessions, and news of them: those that a session creates, and those that it sends messages.

use std::any::Any;

use crate::mail::Message;
use crate::protocol::Session;
use crate::types::{Handle, SessionRef, StreamKey};

/// An event for another session.
#[derive(Debug)]
pub enum FamilyEvent {
    /// Creates a session on this worker, which ends with its parent; answered by [`FamilyNews::Spawned`].
    Spawn {
        /// The parent's name for it.
        child: Handle,
        /// The new session.
        session: Box<dyn Session>,
    },
    /// Wants a session at a shared port of this worker; answered by [`FamilyNews::Spawned`].
    SpawnAt {
        /// The parent's name for it.
        child: Handle,
        /// The name of the port.
        port: &'static str,
        /// The purpose, as of [`crate::protocol::Wanted::what`].
        what: Box<dyn Any + Send>,
        /// Whether it goes on when its parent ends.
        outlives: bool,
    },
    /// Sends a message to another session of any worker: [`FamilyNews::Message`] there.
    Tell {
        /// The receiver.
        to: SessionRef,
        /// The message.
        message: Message,
    },
    /// Sends a message to the publisher and the viewers of a stream, wherever they are, but not to the sender:
    /// [`FamilyNews::Message`] there, once for each session. Nothing happens when the stream is not live.
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
    /// The answer to [`FamilyEvent::Spawn`] and [`FamilyEvent::SpawnAt`]; `None`: there are too many.
    Spawned {
        /// The parent's name for it.
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
    /// A receiver of messages is not there, or a child has ended.
    Ended(SessionRef),
}
