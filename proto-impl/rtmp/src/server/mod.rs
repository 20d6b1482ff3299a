//! The server's state machine, for one accepted connection.
//!
//! A publish:
//! 1. handshake ([`crate::handshake`]);
//! 2. `connect` -> [`Event::Connect`], reading stops; `accept_connect` -> Window Ack Size, Set Peer Bandwidth, Set
//!    Chunk Size, StreamBegin 0, `_result` `NetConnection.Connect.Success`;
//! 3. `releaseStream`, `FCPublish` -> `_result`, `onFCPublish`; `createStream` -> `_result` with the id (ffmpeg
//!    sends these back to back);
//! 4. `publish` -> [`Event::Publish`], reading stops; `accept_publish` -> StreamBegin, `NetStream.Publish.Start`;
//! 5. media -> [`Event::Media`];
//! 6. `FCUnpublish`, `closeStream` or `deleteStream` -> [`Event::PublishEnded`], `NetStream.Unpublish.Success`.
//!
//! A play: steps 1 and 2 as above, `createStream`, then `play` -> [`Event::Play`]; `accept_play` -> StreamBegin,
//! `NetStream.Play.Reset`, `NetStream.Play.Start`, `|RtmpSampleAccess`, `NetStream.Data.Start`; the owner then writes
//! media. At the end `end_play` -> StreamEOF, `NetStream.Play.UnpublishNotify`, `NetStream.Play.Stop`.
//!
//! A refusal is an `onStatus` of level `error`, queued before [`Event::Closed`] (RTMP 1.0 §7.2.2).

mod commands;
mod streams;
mod verbs;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use wire::SendQueue;

use crate::chunk::Message;
use crate::link::Link;
use crate::message::{self, kind};
use crate::timers::{self, Timers};
use crate::{CloseReason, Config, Error, Event, Limit, MediaKind, MediaMessage, Stats, Timer, handshake};
use streams::{State, Streams};

/// The phase of the connection. Publishing and playing are states of its message streams.
#[derive(Debug)]
enum Phase {
    Handshake(Box<handshake::Server>),
    /// The peer must send `connect`.
    Unconnected,
    /// `connect` waits for the owner's decision.
    ConnectPending {
        transaction: f64,
        app: String,
        /// True if the peer announced FourCCs. The answer then announces ours.
        negotiates: bool,
    },
    /// Commands are handled; `app` is that of `connect`, with all its components.
    Connected {
        app: String,
    },
    Closed,
}

/// An accepted connection.
pub struct Server {
    config: Arc<Config>,
    phase: Phase,
    link: Link,
    streams: Streams,
    timers: Timers,
    /// Time at which the player last sent a byte or was last sent media.
    player_seen: Instant,
    /// True from a ping until bytes are sent. These are the ping, and no sign of a player.
    sends_ping: bool,
    events: VecDeque<Event>,
    /// Input received while a request waits for the owner's decision.
    held: Vec<u8>,
}

impl Server {
    /// Creates the state machine for a newly accepted connection.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>, seed: Seed) -> Self {
        let mut timers = timers::stopped();
        timers.set(Timer::Handshake, now, config.handshake_timeout);
        Self {
            phase: Phase::Handshake(Box::new(handshake::Server::new(seed.random()))),
            link: Link::new(&config),
            streams: Streams::new(config.message_streams_max),
            timers,
            player_seen: now,
            sends_ping: false,
            events: VecDeque::new(),
            held: Vec::new(),
            config,
        }
    }

    /// Handles bytes from the peer, split anywhere. While a request waits for a decision the bytes are buffered, up to
    /// [`Config::held_bytes_max`]. Bytes after the end of the connection are dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        if matches!(self.phase, Phase::Closed) {
            return Ok(());
        }
        if !bytes.is_empty() {
            self.see_player(now);
        }
        let mut input = bytes;
        self.process(now, &mut input).and_then(|()| self.hold(input)).inspect_err(|error| self.fail(error))
    }

    /// Handles an expired deadline: pings a silent player if there is still time for an answer, otherwise ends the
    /// connection with [`CloseReason::Timeout`]. Does nothing if no deadline has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.timers.expired(now) {
            Some(Timer::Player) if self.ping_player(now) => {}
            Some(timer) => self.finish(CloseReason::Timeout(timer)),
            None => {}
        }
    }

    /// True if the owner should read from the socket. False while a decision is pending and after the connection has
    /// ended.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && !self.awaits_verdict()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
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

    /// Counters of the connection.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.link.stats
    }

    fn awaits_verdict(&self) -> bool {
        matches!(self.phase, Phase::ConnectPending { .. }) || self.streams.has_request()
    }

    /// Handles messages from the front of `input` until it is used up, a decision is needed, or the connection ends.
    fn process(&mut self, now: Instant, input: &mut &[u8]) -> Result<(), Error> {
        while !self.awaits_verdict() {
            let before = input.len();
            let message = self.next_message(now, input);
            let taken = u64::try_from(before.saturating_sub(input.len())).unwrap_or(0);
            self.link.stats.bytes_received = self.link.stats.bytes_received.saturating_add(taken);
            let Some(message) = message? else { break };
            self.handle_message(now, &message)?;
        }
        if matches!(self.phase, Phase::Closed) {
            *input = &[];
        } else {
            self.link.acknowledge();
            self.rearm(now);
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
                self.phase = Phase::Unconnected;
                self.timers.clear(Timer::Handshake);
            }
            Phase::Unconnected | Phase::ConnectPending { .. } | Phase::Connected { .. } => {}
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

    /// Passes on media of a message stream that is publishing. Some encoders send data messages on message stream 0: if
    /// only one message stream is publishing, they belong to it.
    fn handle_media(&mut self, now: Instant, mut media: MediaMessage) -> Result<(), Error> {
        self.link.stats.media_received = self.link.stats.media_received.saturating_add(1);
        if media.message_stream == 0
            && media.kind == MediaKind::Data
            && let Some(only) = self.streams.only_publisher()
        {
            media.message_stream = only;
        }
        if !matches!(self.streams.state(media.message_stream), Some(State::Publishing { .. })) {
            return self.link.count_bad(now);
        }
        // Script data is no sign that the encoder still has anything to play.
        if media.kind != MediaKind::Data {
            self.timers.set(Timer::Publisher, now, self.config.publisher_idle_timeout);
        }
        self.events.push_back(Event::Media(media));
        Ok(())
    }

    /// Buffers input that must not be processed before the owner's decision.
    fn hold(&mut self, rest: &[u8]) -> Result<(), Error> {
        if rest.is_empty() {
            return Ok(());
        }
        if self.held.len().saturating_add(rest.len()) > self.config.held_bytes_max {
            return Err(self.link.fault(Limit::HeldBytes));
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }

    /// Processes the buffered input after the owner's decision.
    fn resume(&mut self, now: Instant) {
        let held = std::mem::take(&mut self.held);
        let mut input = held.as_slice();
        if let Err(error) = self.process(now, &mut input).and_then(|()| self.hold(input)) {
            self.fail(&error);
        }
    }

    /// Runs the command timer as long as the peer neither publishes nor plays, and no such request waits for a
    /// decision. Other activity does not extend the deadline.
    fn rearm(&mut self, now: Instant) {
        let idle = match self.phase {
            Phase::Unconnected | Phase::Connected { .. } => !self.streams.is_active(),
            Phase::Handshake(_) | Phase::ConnectPending { .. } | Phase::Closed => false,
        };
        if idle {
            self.timers.start(Timer::Command, now, self.config.command_timeout);
        } else {
            self.timers.clear(Timer::Command);
        }
        if !self.streams.has_publisher() {
            self.timers.clear(Timer::Publisher);
        }
        if !self.streams.has_player() {
            self.timers.clear(Timer::Player);
        }
        self.link.reader.grant(self.streams.has_publisher());
    }

    /// Pings a player if nothing was sent to it or by it for half of its timeout: its stream may be silent although the
    /// player is still there. Returns true if there is time left for an answer.
    fn ping_player(&mut self, now: Instant) -> bool {
        let silent = now.saturating_duration_since(self.player_seen);
        let left = self.config.player_idle_timeout.saturating_sub(silent);
        if left.is_zero() {
            return false;
        }
        self.link.send_ping();
        self.sends_ping = true;
        self.timers.set(Timer::Player, now, left);
        true
    }

    fn fail(&mut self, error: &Error) {
        tracing::debug!(%error, "connection failed");
        self.finish(CloseReason::Failed(error.clone()));
    }

    /// Ends the connection; later calls do nothing. Queued output can still be sent.
    fn finish(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.phase = Phase::Closed;
        self.held = Vec::new();
        self.timers.clear_all();
        self.streams = Streams::new(0);
        self.link.reader = crate::chunk::Reader::new((&*self.config).into());
        self.events.push_back(Event::Closed(reason));
    }
}

/// Prints neither stream names, which may contain credentials, nor payloads.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("stats", &self.link.stats)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
