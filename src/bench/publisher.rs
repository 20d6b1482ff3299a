//! A publisher: a client of its protocol, and a clip that is sent in real time.
//!
//! 1. The client talks to the server until it accepts the publisher: [`PeerEvent::Ready`].
//! 2. Metadata and parameter sets are sent; after the delay `phase`, each unit is sent at its time, counted from the
//!    first.
//! 3. `finish` stops after the next video frame; `close` closes the connection as its protocol requires.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use wire::{Datagrams, SendQueue};

use super::player::STALL;
use super::{
    Clip, Now, Participant, Peer, PeerDatagrams, PeerEvent, PeerMedia, PeerStream, Role, Score, Source,
    Tally, Target, Unit,
};
use crate::protocol::load::{self, LoadPublisher, PublisherEvent};
use crate::protocol::{PathId, To};

/// Maximum number of units sent in one step, when many are due.
const BURST: usize = 64;

/// Options of a publisher.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// Stream to publish.
    pub target: Target,
    /// Media to send.
    pub clip: Arc<Clip>,
    /// Delay from the server's acceptance to the first unit.
    pub phase: Duration,
    /// Time limit to become ready.
    pub timeout: Duration,
}

/// Paces a clip in real time, for any protocol.
#[derive(Debug)]
struct Pacer {
    source: Source,
    phase: Duration,
    /// Time at which the first unit is due; `None` before the start and after the end.
    began: Option<Instant>,
    finishing: bool,
}

impl Pacer {
    fn new(options: &PublisherOptions, carries: impl Fn(TagKind) -> bool) -> Self {
        let source = Source::new(Arc::clone(&options.clip));
        let source = source.carrying(carries(TagKind::Video), carries(TagKind::Audio));
        Self { source, phase: options.phase, began: None, finishing: false }
    }

    /// Starts the clock once the server has accepted. Returns the heads to send before the units.
    fn begin(&mut self, now: Now) -> Vec<(TagKind, Bytes)> {
        self.began = Some(now.mono + self.phase);
        self.source.clip().heads().to_vec()
    }

    fn stop(&mut self) {
        self.began = None;
    }

    /// Stops after the next video frame.
    fn finish(&mut self) {
        self.finishing = true;
    }

    /// Returns the time at which the next unit is due.
    fn due(&self) -> Option<Instant> {
        Some(self.began? + Duration::from_millis(self.source.due_ms()))
    }

    /// Returns the due units, stamped.
    fn due_units(&mut self, now: Now, tally: &mut Tally) -> Vec<Unit> {
        let mut units = Vec::new();
        while units.len() < BURST
            && let Some(due) = self.due().filter(|due| *due <= now.mono)
            && let Some(unit) = self.source.next_unit(now.unix_nanos)
        {
            let late = now.mono.saturating_duration_since(due);
            tally.behind.record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
            tally.count(unit.is_video());
            tally.stamped += 1;
            if self.finishing && unit.is_video() {
                self.began = None;
            }
            units.push(unit);
        }
        units
    }

    fn score(&self) -> Score {
        Score::Made(self.source.made())
    }
}

/// A publishing connection.
#[derive(Debug)]
pub struct Publisher {
    /// Client of the protocol; `None` if the protocol has no publishers.
    client: Option<Box<dyn LoadPublisher>>,
    pacer: Pacer,
    /// The participant of a room that publishes.
    participant: Option<Participant>,
    /// Deadline for the server to accept the publisher.
    deadline: Option<Instant>,
    events: VecDeque<PeerEvent>,
}

impl Publisher {
    /// Creates a publisher on a connection in progress.
    #[must_use]
    pub fn new(now: Now, options: &PublisherOptions, seed: Seed) -> Self {
        let patience = load::patience(options.timeout, STALL);
        let heads = options.clip.heads();
        let client = options.target.clients().publish(now.mono, patience, seed, heads);
        let deadline = Some(now.mono + options.timeout);
        let carries = |kind| client.as_ref().is_none_or(|client| client.carries(kind));
        let pacer = Pacer::new(options, carries);
        let mut new = Self { client, pacer, participant: None, deadline, events: VecDeque::new() };
        // The client may need sockets first.
        new.drain(now);
        new
    }

    /// Makes the publisher a participant of a room.
    #[must_use]
    pub fn in_room(mut self, participant: Participant) -> Self {
        self.pacer.source = self.pacer.source.of_participant(participant.number);
        self.participant = Some(participant);
        self
    }

    fn drain(&mut self, now: Now) {
        while let Some(event) = self.client.as_mut().and_then(|client| client.poll_event()) {
            match event {
                PublisherEvent::Ready => self.begin(now),
                PublisherEvent::Reconnect => self.events.push_back(PeerEvent::Reconnect),
                PublisherEvent::OpenPath(wanted) => self.events.push_back(PeerEvent::OpenPath(wanted)),
                PublisherEvent::ClosePath(path) => self.events.push_back(PeerEvent::ClosePath(path)),
                PublisherEvent::KeyFrameWanted => self.pacer.source.restart(),
                PublisherEvent::Closed(reason) => self.end(&reason),
            }
        }
    }

    fn begin(&mut self, now: Now) {
        self.deadline = None;
        for (kind, body) in self.pacer.begin(now) {
            self.send(now, kind, 0, body);
        }
        self.events.push_back(PeerEvent::Ready);
    }

    /// Ends the publisher; only the first reason is kept.
    fn end(&mut self, why: &str) {
        self.pacer.stop();
        self.deadline = None;
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }

    fn send_unit(&mut self, now: Now, unit: Unit) {
        // Timestamps are milliseconds in 32 bits, and wrap.
        let timestamp = u32::try_from(unit.dts_ms & u64::from(u32::MAX)).unwrap_or(0);
        if let Some(message) = unit.message {
            self.send(now, TagKind::Data, timestamp, message);
        }
        if let Some(participant) = self.participant
            && let Some(voice) = self.client.as_mut().and_then(|client| client.voice())
        {
            voice.speak(participant.speaks(now.mono));
        }
        self.send(now, unit.kind, timestamp, unit.body);
    }

    fn send(&mut self, now: Now, kind: TagKind, timestamp: u32, body: Bytes) {
        if let Some(client) = &mut self.client {
            client.send(now.mono, kind, timestamp, body);
        }
    }
}

impl Peer for Publisher {
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        if let Some(client) = &mut self.client {
            client.handle_timeout(now.mono);
        }
        self.drain(now);
        for unit in self.pacer.due_units(now, tally) {
            self.send_unit(now, unit);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            self.end("no answer");
        }
    }

    fn handle_hangup(&mut self, now: Now, why: Option<&str>) {
        let goes_on = self.datagrams().is_some();
        if let Some(client) = self.client.as_mut().filter(|_| goes_on) {
            client.handle_end(now.mono);
        }
        self.drain(now);
        if !goes_on {
            self.end(why.unwrap_or("the server closed the connection"));
        }
    }

    fn close(&mut self, now: Now) {
        self.pacer.stop();
        if let Some(client) = &mut self.client {
            client.close(now.mono);
        }
        self.drain(now);
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let client = self.client.as_ref().and_then(|client| client.poll_timeout());
        [client, self.pacer.due(), self.deadline].into_iter().flatten().min()
    }

    fn role(&self) -> Role {
        Role::Publish
    }

    fn score(&self) -> Score {
        self.pacer.score()
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        self.client.as_mut()?.byte_stream()?;
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        self.client.as_mut()?.datagrams()?;
        Some(self)
    }

    fn media(&mut self) -> Option<&mut dyn PeerMedia> {
        Some(self)
    }
}

impl PeerStream for Publisher {
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], _tally: &mut Tally) {
        if let Some(stream) = self.client.as_mut().and_then(|client| client.byte_stream()) {
            stream.handle_bytes(now.mono, bytes);
        }
        self.drain(now);
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(stream) = self.client.as_mut().and_then(|client| client.byte_stream()) {
            stream.poll_transmit(out);
        }
    }
}

impl PeerDatagrams for Publisher {
    fn handle_datagram(
        &mut self,
        now: Now,
        path: PathId,
        from: SocketAddr,
        datagram: &mut [u8],
        _tally: &mut Tally,
    ) {
        if let Some(datagrams) = self.client.as_mut().and_then(|client| client.datagrams()) {
            datagrams.handle_datagram(now.mono, path, from, datagram);
        }
        self.drain(now);
    }

    fn handle_local(&mut self, now: Now, path: PathId, local: Option<SocketAddr>, _tally: &mut Tally) {
        if let Some(datagrams) = self.client.as_mut().and_then(|client| client.datagrams()) {
            datagrams.handle_local(now.mono, path, local);
        }
        self.drain(now);
    }

    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) -> To {
        let datagrams = self.client.as_mut().and_then(|client| client.datagrams());
        datagrams.map_or(To::PEER, |datagrams| datagrams.poll_datagrams(now.mono, out))
    }
}

impl PeerMedia for Publisher {
    fn finish(&mut self) {
        self.pacer.finish();
    }
}
