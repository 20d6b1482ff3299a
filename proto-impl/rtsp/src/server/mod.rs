//! The server's state machine, for one accepted connection.
//!
//! A publish (ffmpeg, rtspclientsink):
//! 1. `OPTIONS` -> `Public`;
//! 2. `ANNOUNCE` with a description -> [`Event::Announce`], reading stops; `accept_announce` -> 200;
//! 3. for each track `SETUP` with `mode=record` -> [`Event::Setup`], reading stops; `accept_setup` -> 200 with `Transport`
//!    and `Session`;
//! 4. `RECORD` -> [`Event::Record`], reading stops; `accept_record` -> 200;
//! 5. frames -> [`Event::Interleaved`], or datagrams, which the owner receives without this state machine;
//! 6. `TEARDOWN` -> 200, [`Event::Teardown`].
//!
//! A play: `OPTIONS`, `DESCRIBE` -> [`Event::Describe`]; `accept_describe` -> 200 with the description; `SETUP` as
//! above, then `PLAY` -> [`Event::Play`]; `accept_play` -> 200. After that the owner sends media.
//!
//! States (RFC 2326 §A.2): until a track is set up the session is in Init, then in Ready; `PLAY` and `RECORD` lead on
//! to Playing and Recording, `PAUSE` leads back. A request that is not allowed in the current state is answered with
//! 454, 455, 459 or 460 and has no effect.

mod requests;
mod verbs;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};
use wire::SendQueue;

use crate::auth::{Authorization, Gatekeeper};
use crate::link::Link;
use crate::presentation::Presentation;
use crate::timers::{self, Timers};
use crate::{
    Channels, CloseReason, Config, Error, Event, Item, Limit, Mode, Request, Response, Stats, Timer,
    Transport,
};

/// State of the session (RFC 2326 §A.2), or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Init,
    Ready,
    Playing,
    Recording,
    Closed,
}

/// A request that waits for the owner's decision.
#[derive(Debug)]
struct Pending {
    request: Request,
    authorization: Option<Authorization>,
    /// True if the credentials were right, but the nonce was too old.
    stale: bool,
    step: Step,
}

/// Effect of accepting a pending request.
#[derive(Debug)]
enum Step {
    Describe,
    Announce(Presentation),
    Setup { track: usize },
    Play,
    Record,
}

/// An accepted connection.
pub struct Server {
    config: Arc<Config>,
    state: State,
    link: Link,
    timers: Timers,
    events: VecDeque<Event>,
    pending: Option<Pending>,
    presentation: Option<Presentation>,
    session_id: Option<String>,
    random: Random,
    gatekeeper: Gatekeeper,
    failed_authentications: u32,
    /// Remaining time of the request timer. The timer is stopped while a decision is pending.
    request_left: Option<Duration>,
    /// Input received while a request waits for the owner's decision.
    held: Vec<u8>,
}

impl Server {
    /// Creates the state machine for a newly accepted connection.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>, seed: Seed) -> Self {
        let mut timers = timers::stopped();
        timers.set(Timer::Request, now, config.request_timeout);
        Self {
            state: State::Init,
            link: Link::new(&config),
            timers,
            events: VecDeque::new(),
            pending: None,
            presentation: None,
            session_id: None,
            random: seed.derive("rtsp session", 0).random(),
            gatekeeper: Gatekeeper::new(now, &seed, &config.realm, config.allows_basic),
            failed_authentications: 0,
            request_left: None,
            held: Vec::new(),
            config,
        }
    }

    /// Handles bytes from the peer, split anywhere. While a request waits for a decision the bytes are buffered, up to
    /// [`Config::held_bytes_max`]. Bytes after the end of the connection are dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        if self.state == State::Closed {
            return Ok(());
        }
        let mut input = bytes;
        self.process(now, &mut input).and_then(|()| self.hold(input)).inspect_err(|error| self.fail(error))
    }

    /// Handles an expired deadline: ends the connection with [`CloseReason::Timeout`]. Harmless if no deadline has
    /// passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(timer) = self.timers.expired(now) {
            self.finish(CloseReason::Timeout(timer));
        }
    }

    /// True if the owner should read from the socket. False while a decision is pending and after the connection has
    /// ended.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        self.state != State::Closed && self.pending.is_none()
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

    /// Appends all queued output to `out`. Returns true if there was any. The output consists of whole
    /// messages and interleaved frames. The owner may write it before or after a frame that the owner
    /// writes itself, but not within such a frame.
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

    /// Returns the transport of a track that was set up.
    #[must_use]
    pub fn transport(&self, track: usize) -> Option<&Transport> {
        self.presentation.as_ref()?.transport(track)
    }

    /// Returns the channels of an interleaved track.
    #[must_use]
    pub fn channels(&self, track: usize) -> Option<Channels> {
        self.presentation.as_ref()?.channels(track)
    }

    /// Sends a packet as an interleaved frame. Meant for RTCP and other single packets; the owner writes media for many
    /// viewers itself. Returns false if the track is not interleaved, or if the packet is too long for a frame.
    pub fn send_frame(&mut self, track: usize, is_rtcp: bool, packet: Bytes) -> bool {
        let Some(Channels { rtp, rtcp }) = self.channels(track) else { return false };
        self.state != State::Closed && self.link.send_frame(if is_rtcp { rtcp } else { rtp }, packet)
    }

    /// Extends the session because of activity that only the owner sees: a datagram was received, or the peer has
    /// accepted media.
    pub fn keep_alive(&mut self, now: Instant) {
        if self.session_id.is_some() && self.state != State::Closed {
            self.timers.set(Timer::Session, now, self.config.session_timeout);
        }
    }

    /// Handles items from the front of `input` until it is used up, a decision is needed, or the connection ends.
    fn process(&mut self, now: Instant, input: &mut &[u8]) -> Result<(), Error> {
        while self.wants_bytes() {
            let Some(item) = self.link.read(input)? else { break };
            match item {
                Item::Request(request) => self.handle_request(now, request)?,
                // The server sends no requests, so a response is out of place.
                Item::Response(_) => {
                    self.link.count_message(now)?;
                    self.link.count_bad(now)?;
                }
                Item::Interleaved { channel, payload } => self.handle_frame(now, channel, payload),
            }
        }
        if self.state == State::Closed {
            *input = &[];
        } else {
            self.rearm(now);
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Instant, channel: u8, payload: Bytes) {
        let frame = self.presentation.as_ref().and_then(|presentation| presentation.frame(channel, payload));
        let Some(frame) = frame else { return self.link.count_ignored() };
        self.keep_alive(now);
        self.link.stats.frames_received = self.link.stats.frames_received.saturating_add(1);
        // Frames that were in flight when the session paused are dropped without an error.
        if matches!(self.state, State::Playing | State::Recording) {
            self.events.push_back(Event::Interleaved(frame));
        }
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

    /// Runs the session timer if there is a session; otherwise the request timer, except while a decision is pending.
    /// Requests do not extend the request timer, because refused requests could keep a connection open forever.
    fn rearm(&mut self, now: Instant) {
        if self.session_id.is_some() {
            self.timers.clear(Timer::Request);
            self.request_left = None;
            self.timers.start(Timer::Session, now, self.config.session_timeout);
        } else if self.pending.is_some() {
            self.request_left = self.timers.pause(Timer::Request, now).or(self.request_left);
        } else {
            self.timers.clear(Timer::Session);
            let left = self.request_left.take().unwrap_or(self.config.request_timeout);
            self.timers.start(Timer::Request, now, left);
        }
    }

    fn has_mode(&self, mode: Mode) -> bool {
        self.presentation.as_ref().is_some_and(|presentation| presentation.mode == mode)
    }

    fn fail(&mut self, error: &Error) {
        tracing::debug!(%error, "connection failed");
        // If a request is pending, the peer would take an answer sent now for the answer to that request.
        if self.pending.is_none() && self.state != State::Closed {
            self.link.send_response(&Response::new(error.status(), None));
        }
        self.finish(CloseReason::Failed(error.clone()));
    }

    /// Ends the connection; later calls do nothing. Queued output can still be sent.
    fn finish(&mut self, reason: CloseReason) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.held = Vec::new();
        self.timers.clear_all();
        self.pending = None;
        self.presentation = None;
        self.session_id = None;
        self.link.reader = crate::Reader::new();
        self.events.push_back(Event::Closed(reason));
    }
}

/// Prints neither URLs, which may contain a stream's key, nor payloads.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("state", &self.state)
            .field("stats", &self.link.stats)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
