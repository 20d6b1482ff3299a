//! The client's state machine, for pushes and pulls.
//!
//! 1. `OPTIONS`; the client remembers the methods in `Public`;
//! 2. a pull: `DESCRIBE` -> [`ClientEvent::Described`], the owner chooses tracks with `setup`; a push: `ANNOUNCE`;
//! 3. for each track `SETUP`, over UDP or interleaved -> [`ClientEvent::SetUp`]; if the server refuses UDP (461),
//!    `SETUP` is sent again, interleaved; if it refuses to interleave, the owner may choose again
//!    ([`ClientEvent::NotInterleaved`]);
//! 4. `PLAY` or `RECORD` -> [`ClientEvent::Ready`];
//! 5. media; after half of the session's timeout `GET_PARAMETER`, or `OPTIONS` for a server without it;
//! 6. `close` -> sends `TEARDOWN`.
//!
//! Requests are sent one at a time. A 401 is answered with credentials once, and again if the server marks its nonce as
//! stale. Any other refusal causes [`ClientEvent::Rejected`] and ends the connection. The server is not trusted: all
//! limits of an accepted connection apply.

mod answers;
mod dialog;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use sdp::{Attribute, Description};
use wire::SendQueue;

use crate::auth::Answerer;
use crate::link::Link;
use crate::presentation::Presentation;
use crate::timers::{self, Timers};
use crate::{
    Channels, ClientConfig, ClientEvent, CloseReason, Config, Error, Item, Method, Mode, Stats, Timer,
    TrackSetup, Transport,
};
use dialog::Dialog;

/// The answer that is expected next.
#[derive(Debug)]
enum Phase {
    Options,
    Describe,
    /// The owner must choose the tracks to set up.
    Described,
    Announce,
    Setup {
        track: usize,
        offer: Transport,
    },
    /// `PLAY` or `RECORD` was sent; its answer is expected.
    Start,
    Ready,
    Closed,
}

/// An outgoing connection.
pub struct Client {
    config: Arc<ClientConfig>,
    mode: Mode,
    phase: Phase,
    link: Link,
    timers: Timers,
    events: VecDeque<ClientEvent>,
    dialog: Dialog,
    presentation: Option<Presentation>,
    /// Tracks that have not been set up yet.
    wanted: VecDeque<TrackSetup>,
    /// Body of `ANNOUNCE`.
    announced: Bytes,
}

impl Client {
    /// Creates a pull on a new connection; the first bytes are already queued.
    #[must_use]
    pub fn play(now: Instant, config: Arc<ClientConfig>, seed: Seed) -> Self {
        let mut client = Self::new(now, config, &seed, Mode::Play);
        client.request(now, Method::Options);
        client
    }

    /// Creates a push on a new connection; the first bytes are already queued. Sets up the sections of the description
    /// whose index is in `tracks`. Sections without a `control` attribute get `streamid=0` and so on, as with ffmpeg.
    #[must_use]
    pub fn publish(
        now: Instant,
        config: Arc<ClientConfig>,
        mut description: Description,
        tracks: &[TrackSetup],
        seed: Seed,
    ) -> Self {
        let mut client = Self::new(now, config, &seed, Mode::Record);
        for (index, media) in description.media.iter_mut().enumerate() {
            if media.attributes.control().is_none() {
                media.attributes.push(Attribute::Control(format!("streamid={index}")));
            }
        }
        let base = client.config.uri.to_string();
        client.presentation = Presentation::new(Mode::Record, &base, &description);
        client.announced = description.write().into();
        client.want(tracks);
        client.request(now, Method::Options);
        client
    }

    fn new(now: Instant, config: Arc<ClientConfig>, seed: &Seed, mode: Mode) -> Self {
        let answerer = config
            .credentials
            .clone()
            .map(|credentials| Answerer::new(credentials, config.allows_basic, seed));
        let mut timers = timers::stopped();
        timers.set(Timer::Request, now, config.request_timeout);
        Self {
            mode,
            phase: Phase::Options,
            link: Link::new(&Config::default()),
            timers,
            events: VecDeque::new(),
            dialog: Dialog::new(answerer),
            presentation: None,
            wanted: VecDeque::new(),
            announced: Bytes::new(),
            config,
        }
    }

    /// Handles bytes from the server, split anywhere. Bytes after the end of the connection are dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        let mut input = bytes;
        self.process(now, &mut input).inspect_err(|error| {
            tracing::debug!(%error, "connection failed");
            self.finish(CloseReason::Failed(error.clone()));
        })
    }

    /// Handles an expired deadline. If a keep-alive is due, sends it; any other deadline ends the connection with
    /// [`CloseReason::Timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.timers.expired(now) {
            Some(Timer::KeepAlive) => self.send_keep_alive(now),
            Some(timer @ (Timer::Request | Timer::Session | Timer::Media)) => {
                self.finish(CloseReason::Timeout(timer));
            }
            None => {}
        }
    }

    /// True if the owner should read from the socket.
    #[must_use]
    pub const fn wants_bytes(&self) -> bool {
        !matches!(self.phase, Phase::Closed)
    }

    /// Sets up tracks of the described stream. Ignored if the client is not waiting for the owner's choice of tracks,
    /// or if none of these tracks exists.
    pub fn setup(&mut self, now: Instant, tracks: &[TrackSetup]) {
        if matches!(self.phase, Phase::Described) {
            self.want(tracks);
            if !self.wanted.is_empty() {
                self.set_up_next(now);
            }
        }
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

    /// Returns the channels of an interleaved track.
    #[must_use]
    pub fn channels(&self, track: usize) -> Option<Channels> {
        self.presentation.as_ref()?.channels(track)
    }

    /// Sends a packet as an interleaved frame. Returns false if the track is not interleaved, if the packet is too long
    /// for a frame, or if media may not be sent yet.
    pub fn send_frame(&mut self, track: usize, is_rtcp: bool, packet: Bytes) -> bool {
        let Some(Channels { rtp, rtcp }) = self.channels(track) else { return false };
        matches!(self.phase, Phase::Ready) && self.link.send_frame(if is_rtcp { rtcp } else { rtp }, packet)
    }

    /// Records that media of the stream arrived, in a frame or a datagram. The owner must call this, because only the
    /// owner can tell media from other packets: a server that sends only reports, or packets of undescribed formats,
    /// has stalled.
    pub fn media_progress(&mut self, now: Instant) {
        if let Some(timeout) = self.config.stall_timeout
            && matches!(self.phase, Phase::Ready)
            && self.mode == Mode::Play
        {
            self.timers.set(Timer::Media, now, timeout);
        }
    }

    /// Ends the connection, with `TEARDOWN` if there is a session.
    pub fn close(&mut self, _now: Instant, reason: CloseReason) {
        if self.dialog.session().is_some() && !matches!(self.phase, Phase::Closed) {
            let request = self.make_request(Method::Teardown);
            self.dialog.send(&mut self.link, request);
        }
        self.finish(reason);
    }

    /// Adds the tracks that exist in the description, each once, in the order given.
    fn want(&mut self, tracks: &[TrackSetup]) {
        let count = self.presentation.as_ref().map_or(0, |presentation| presentation.tracks.len());
        for setup in tracks {
            if setup.track < count && self.wanted.iter().all(|wanted| wanted.track != setup.track) {
                self.wanted.push_back(*setup);
            }
        }
    }

    fn process(&mut self, now: Instant, input: &mut &[u8]) -> Result<(), Error> {
        while self.wants_bytes() {
            let Some(item) = self.link.read(input)? else { break };
            match item {
                Item::Response(response) => self.handle_response(now, response)?,
                Item::Request(request) => self.handle_request(now, &request)?,
                Item::Interleaved { channel, payload } => self.handle_frame(channel, payload),
            }
        }
        Ok(())
    }

    fn handle_frame(&mut self, channel: u8, payload: Bytes) {
        let frame = self.presentation.as_ref().and_then(|presentation| presentation.frame(channel, payload));
        // Some servers send media before they answer PLAY.
        match (frame, &self.phase) {
            (Some(frame), Phase::Start | Phase::Ready) => {
                self.link.stats.frames_received = self.link.stats.frames_received.saturating_add(1);
                self.events.push_back(ClientEvent::Interleaved(frame));
            }
            (Some(_) | None, _) => self.link.count_ignored(),
        }
    }

    /// Ends the connection; later calls do nothing. Queued output can still be sent.
    fn finish(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.phase = Phase::Closed;
        self.timers.clear_all();
        self.presentation = None;
        self.wanted = VecDeque::new();
        self.announced = Bytes::new();
        self.link.reader = crate::Reader::new();
        self.events.push_back(ClientEvent::Closed(reason));
    }
}

/// Does not print the URL, since it may contain the key of a stream on another server.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("mode", &self.mode)
            .field("stats", &self.link.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
