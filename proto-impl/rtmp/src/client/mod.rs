//! The client's state machine, for pushes and pulls.
//!
//! 1. handshake ([`crate::handshake`]);
//! 2. `connect`; `_result` -> sends Window Ack Size and Set Chunk Size;
//! 3. a push sends `releaseStream`, `FCPublish`, `createStream`, as ffmpeg does; a pull sends only `createStream`;
//! 4. the answer to `createStream` contains an id -> `publish` or `play`;
//! 5. `NetStream.Publish.Start` or `NetStream.Play.Start` (or media) -> [`ClientEvent::Ready`];
//! 6. media, written by the owner or read as [`ClientEvent::Media`];
//! 7. `close` -> sends `FCUnpublish` and `deleteStream`.
//!
//! An `onStatus` of level `error`, or an `_error` to a command that must succeed, causes [`ClientEvent::Rejected`]
//! and ends the connection. The server is not trusted: all limits of an accepted connection apply.

mod answers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use flv::amf0::Value;
use wire::SendQueue;

use crate::chunk::Message;
use crate::link::Link;
use crate::message::{self, kind};
use crate::timers::{self, Timers};
use crate::{ClientConfig, CloseReason, Config, Error, FourCcs, MediaMessage, Stats, Timer, handshake};

/// Transaction ids. They are fixed, because each command is sent only once.
mod transaction {
    pub(super) const CONNECT: f64 = 1.0;
    pub(super) const RELEASE_STREAM: f64 = 2.0;
    pub(super) const FC_PUBLISH: f64 = 3.0;
    pub(super) const CREATE_STREAM: f64 = 4.0;
    pub(super) const REQUEST: f64 = 5.0;
    pub(super) const FC_UNPUBLISH: f64 = 6.0;
}

/// An event of a [`Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The server accepted the request. A push may now write media for this message stream. A pull now receives
    /// media.
    Ready {
        /// Message stream id given by the server, usually 1.
        message_stream: u32,
    },
    /// A media message of the pulled stream.
    Media(MediaMessage),
    /// The server refused.
    Rejected {
        /// Status code such as `NetStream.Publish.BadName`.
        code: String,
        /// The server's human-readable reason.
        description: String,
    },
    /// The connection has ended; always the last event. Send the rest of `poll_transmit`, then close the connection.
    Closed(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Publish,
    Play,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<handshake::Client>),
    /// `connect` was sent.
    Connecting,
    /// `createStream` was sent.
    Creating,
    /// `publish` or `play` was sent.
    Requesting {
        message_stream: u32,
    },
    Ready {
        message_stream: u32,
    },
    Closed,
}

/// An outgoing connection.
pub struct Client {
    config: Arc<ClientConfig>,
    role: Role,
    phase: Phase,
    link: Link,
    timers: Timers,
    events: VecDeque<ClientEvent>,
    four_ccs: Option<FourCcs>,
    multitrack: bool,
}

impl Client {
    /// Creates a push on a new connection; the first bytes are already queued.
    #[must_use]
    pub fn publish(now: Instant, config: Arc<ClientConfig>, seed: Seed) -> Self {
        Self::new(now, config, &seed, Role::Publish)
    }

    /// Creates a pull on a new connection; the first bytes are already queued.
    #[must_use]
    pub fn play(now: Instant, config: Arc<ClientConfig>, seed: Seed) -> Self {
        Self::new(now, config, &seed, Role::Play)
    }

    fn new(now: Instant, config: Arc<ClientConfig>, seed: &Seed, role: Role) -> Self {
        let mut link = Link::new(&Config::default());
        let handshake = handshake::Client::new(seed.random(), config.digest, &mut link.out);
        let mut timers = timers::stopped();
        timers.set(Timer::Handshake, now, config.handshake_timeout);
        let phase = Phase::Handshake(Box::new(handshake));
        Self { config, role, phase, link, timers, events: VecDeque::new(), four_ccs: None, multitrack: false }
    }

    /// Handles bytes from the server, split anywhere. Bytes after the end of the connection are dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        let mut input = bytes;
        self.process(now, &mut input).inspect_err(|error| {
            tracing::debug!(%error, "connection failed");
            self.finish(CloseReason::Failed(error.clone()));
        })
    }

    /// Handles an expired deadline: ends the connection with [`CloseReason::Timeout`]. Does nothing if no deadline
    /// has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(timer) = self.timers.expired(now) {
            self.finish(CloseReason::Timeout(timer));
        }
    }

    /// True if the owner should read from the socket.
    #[must_use]
    pub const fn wants_bytes(&self) -> bool {
        !matches!(self.phase, Phase::Closed)
    }

    /// Sends one media message of a push, on the message stream that the server assigned. Meant for messages such as
    /// metadata. The owner may also write audio and video to the socket itself, as chunks.
    pub fn send(&mut self, _now: Instant, message: &MediaMessage) {
        if let Phase::Ready { message_stream } = self.phase
            && self.role == Role::Publish
        {
            self.link.send_media(&MediaMessage { message_stream, ..message.clone() });
        }
    }

    /// Ends the connection. If the publish or play was requested, the server is informed.
    pub fn close(&mut self, _now: Instant, reason: CloseReason) {
        if let Phase::Requesting { message_stream } | Phase::Ready { message_stream } = self.phase {
            if self.role == Role::Publish {
                let name = Value::string(self.config.stream.as_str());
                self.link.send_command("FCUnpublish", transaction::FC_UNPUBLISH, &[Value::Null, name]);
            }
            let id = Value::Number(f64::from(message_stream));
            self.link.send_command("deleteStream", 0.0, &[Value::Null, id]);
        }
        self.finish(reason);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.events.pop_front();
        if event.is_none() {
            // Return the memory that a burst of events took.
            self.events.shrink_to(8);
        }
        event
    }

    /// Appends all queued output to `out`. Returns true if there was any.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        if self.link.out.is_empty() {
            return false;
        }
        out.append(&mut self.link.out);
        true
    }

    /// Returns the time at which `handle_timeout` must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.deadline()
    }

    /// Returns the FourCCs that the server announced in its answer to `connect`; `None` if it announced none.
    #[must_use]
    pub const fn four_ccs(&self) -> Option<FourCcs> {
        self.four_ccs
    }

    /// True if the server's answer to `connect` announces support for several tracks of a kind.
    #[must_use]
    pub const fn takes_multitrack(&self) -> bool {
        self.multitrack
    }

    /// Counters of the connection.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.link.stats
    }

    fn process(&mut self, now: Instant, input: &mut &[u8]) -> Result<(), Error> {
        loop {
            let before = input.len();
            let message = self.next_message(now, input);
            let taken = u64::try_from(before.saturating_sub(input.len())).unwrap_or(0);
            self.link.stats.bytes_received = self.link.stats.bytes_received.saturating_add(taken);
            let Some(message) = message? else { break };
            self.handle_message(now, &message)?;
        }
        if !matches!(self.phase, Phase::Closed) {
            self.link.acknowledge();
        }
        Ok(())
    }

    fn next_message(&mut self, now: Instant, input: &mut &[u8]) -> Result<Option<Message>, Error> {
        match &mut self.phase {
            Phase::Closed => return Ok(None),
            Phase::Handshake(handshake) => {
                let done = handshake.read(input, &mut self.link.out);
                if !done.map_err(|violation| self.link.fault(violation))? {
                    return Ok(None);
                }
                self.phase = Phase::Connecting;
                self.timers.clear(Timer::Handshake);
                self.timers.set(Timer::Command, now, self.config.ready_timeout);
                self.send_connect();
            }
            Phase::Connecting | Phase::Creating | Phase::Requesting { .. } | Phase::Ready { .. } => {}
        }
        self.link.read(now, input)
    }

    fn handle_message(&mut self, now: Instant, message: &Message) -> Result<(), Error> {
        match message.kind {
            kind::COMMAND_AMF0 | kind::COMMAND_AMF3 => self.handle_command(now, message),
            kind::AGGREGATE => {
                let parts = message::split_aggregate(message).map_err(|limit| self.link.fault(limit))?;
                parts.into_iter().try_for_each(|part| self.handle_media(now, part))
            }
            _ => match MediaMessage::of(message) {
                Some(media) => self.handle_media(now, media),
                None => self.link.count_bad(now),
            },
        }
    }

    /// Handles a media message. Some servers send media before the status that accepts the request.
    fn handle_media(&mut self, now: Instant, media: MediaMessage) -> Result<(), Error> {
        self.link.stats.media_received = self.link.stats.media_received.saturating_add(1);
        if self.role == Role::Publish {
            return self.link.count_bad(now);
        }
        self.ready(now);
        if !matches!(self.phase, Phase::Ready { .. }) {
            return self.link.count_bad(now);
        }
        self.timers.set(Timer::Player, now, self.config.stall_timeout);
        self.events.push_back(ClientEvent::Media(media));
        Ok(())
    }

    fn ready(&mut self, now: Instant) {
        if let Phase::Requesting { message_stream } = self.phase {
            self.phase = Phase::Ready { message_stream };
            self.timers.clear(Timer::Command);
            if self.role == Role::Play {
                self.timers.set(Timer::Player, now, self.config.ready_timeout);
            }
            self.events.push_back(ClientEvent::Ready { message_stream });
        }
    }

    /// Ends the connection; later calls do nothing. Queued output can still be sent.
    fn finish(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.phase = Phase::Closed;
        self.timers.clear_all();
        self.link.reader = crate::chunk::Reader::new((&Config::default()).into());
        self.events.push_back(ClientEvent::Closed(reason));
    }
}

/// Does not print the stream name, because on the other server it is a secret stream key.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("role", &self.role)
            .field("stats", &self.link.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
