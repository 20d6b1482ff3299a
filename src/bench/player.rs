//! A player: a client that receives a stream over its protocol, and reads the stamps.
//!
//! 1. [`PeerEvent::Ready`] once the server accepts.
//! 2. Every unit is counted, and its stamp is compared with the time of the read that completed it. Over SRT that
//!    time includes the connection's latency, for which received data is held.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use wire::{Datagrams, SendQueue};

use super::viewing::Viewing;
use super::{
    Now, Participant, Peer, PeerDatagrams, PeerEvent, PeerStream, Role, Score, Stamp, Tally, Target,
};
use crate::protocol::load::{self, LoadEvent, LoadPlayer};
use crate::protocol::{PathId, To};

/// The time without media after which a connection counts as lost.
pub(super) const STALL: Duration = Duration::from_secs(10);

/// Options of a player.
#[derive(Debug, Clone)]
pub struct PlayerOptions {
    /// Stream to play.
    pub target: Target,
    /// Time limit to become ready.
    pub timeout: Duration,
    /// True to stop reading once ready.
    pub stalled: bool,
}

/// A playing connection.
#[derive(Debug)]
pub struct Player {
    /// Client of the protocol; `None` if the protocol has no players.
    client: Option<Box<dyn LoadPlayer>>,
    viewing: Viewing,
    ready: bool,
    stalled: bool,
    /// Deadline for the server to accept the player, then for the next media.
    deadline: Option<Instant>,
    /// A stamp that was received as a message and belongs to the next unit.
    announced: Option<Stamp>,
    /// Packets of media that were counted.
    packets: u64,
    events: VecDeque<PeerEvent>,
}

impl Player {
    /// Creates a player on a connection in progress.
    #[must_use]
    pub fn new(now: Now, options: &PlayerOptions, seed: Seed) -> Self {
        let patience = load::patience(options.timeout, STALL);
        Self {
            client: options.target.clients().play(now.mono, patience, seed),
            viewing: Viewing::new(now),
            ready: false,
            stalled: options.stalled,
            deadline: Some(now.mono + options.timeout),
            announced: None,
            packets: 0,
            events: VecDeque::new(),
        }
    }

    /// Makes the player a participant of a room.
    #[must_use]
    pub fn in_room(mut self, participant: Participant) -> Self {
        self.viewing.in_room(participant);
        self
    }

    /// True if the player no longer reads.
    const fn is_stalled(&self) -> bool {
        self.stalled && self.ready
    }

    /// Ends the player; only the first reason is kept.
    fn end(&mut self, why: &str) {
        self.deadline = None;
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }

    fn drain(&mut self, now: Now, tally: &mut Tally) {
        let packets = self.client.as_ref().map_or(0, |client| client.packets());
        tally.packets += packets.saturating_sub(std::mem::replace(&mut self.packets, packets));
        while let Some(event) = self.client.as_mut().and_then(|client| client.poll_event()) {
            match event {
                LoadEvent::Ready => {
                    self.ready = true;
                    self.deadline = Some(now.mono + STALL);
                    self.events.push_back(PeerEvent::Ready);
                }
                LoadEvent::Reconnect => self.events.push_back(PeerEvent::Reconnect),
                LoadEvent::OpenPath(wanted) => self.events.push_back(PeerEvent::OpenPath(wanted)),
                LoadEvent::ClosePath(path) => self.events.push_back(PeerEvent::ClosePath(path)),
                LoadEvent::Tag { kind, body } => {
                    self.deadline = Some(now.mono + STALL);
                    self.take(now, kind, &body, tally);
                }
                LoadEvent::Unit { is_video, place, payload } => {
                    self.deadline = Some(now.mono + STALL);
                    let stamp = if is_video { Stamp::in_nals(&payload) } else { Stamp::in_aac(&payload) };
                    self.viewing.unit(now, (is_video, place), stamp, tally);
                }
                LoadEvent::Piece { is_video, number, made_ms, at } => {
                    self.deadline = Some(now.mono + STALL);
                    self.viewing.piece(now.at(at), is_video, number, nanos(made_ms), tally);
                }
                LoadEvent::Playlist { asked, made_ms, pause } => {
                    self.deadline = Some(now.mono + STALL + pause);
                    tally.take_playlist(now, asked, nanos(made_ms));
                }
                LoadEvent::Closed(reason) => self.end(&reason),
            }
        }
    }

    /// Handles a complete body.
    fn take(&mut self, now: Now, kind: TagKind, body: &Bytes, tally: &mut Tally) {
        let is_video = match kind {
            TagKind::Video => true,
            TagKind::Audio => false,
            TagKind::Data | TagKind::Other(_) => {
                self.announced = Stamp::in_message(body).or(self.announced);
                return;
            }
        };
        let Some(payload) = payload(is_video, body) else { return };
        let inside = if is_video { Stamp::in_nals(payload) } else { Stamp::in_aac(payload) };
        let stamp = inside.or_else(|| self.announced.take());
        self.viewing.unit(now, (is_video, 0), stamp, tally);
    }
}

impl Peer for Player {
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        if self.is_stalled() {
            return;
        }
        if let Some(client) = &mut self.client {
            client.handle_timeout(now.mono);
        }
        self.drain(now, tally);
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            self.end(if self.ready { "no media came" } else { "no answer" });
        }
    }

    fn handle_hangup(&mut self, now: Now, why: Option<&str>) {
        let outlives = self.client.as_ref().is_some_and(|client| client.outlives_stream());
        let goes_on = outlives || self.datagrams().is_some();
        if let Some(why) = why.filter(|_| !goes_on) {
            return self.end(why);
        }
        if let Some(client) = &mut self.client {
            client.handle_end(now.mono);
        }
        self.end_of_client();
        if !goes_on {
            self.end("the server closed the connection");
        }
    }

    fn close(&mut self, now: Now) {
        self.deadline = None;
        if let Some(client) = &mut self.client {
            client.close(now.mono);
        }
        self.note_reconnect();
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_stalled() {
            return None;
        }
        let client = self.client.as_ref().and_then(|client| client.poll_timeout());
        [client, self.deadline].into_iter().flatten().min()
    }

    fn role(&self) -> Role {
        Role::Play
    }

    fn score(&self) -> Score {
        self.viewing.score()
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        self.client.as_mut()?.byte_stream()?;
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        self.client.as_mut()?.datagrams()?;
        Some(self)
    }
}

impl PeerStream for Player {
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], tally: &mut Tally) {
        if let Some(stream) = self.client.as_mut().and_then(|client| client.byte_stream()) {
            stream.handle_bytes(now.mono, bytes);
        }
        self.drain(now, tally);
    }

    fn wants_bytes(&self) -> bool {
        !self.is_stalled()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(stream) = self.client.as_mut().and_then(|client| client.byte_stream()) {
            stream.poll_transmit(out);
        }
    }
}

impl PeerDatagrams for Player {
    fn handle_datagram(
        &mut self,
        now: Now,
        path: PathId,
        from: SocketAddr,
        datagram: &mut [u8],
        tally: &mut Tally,
    ) {
        if self.is_stalled() {
            return;
        }
        if let Some(datagrams) = self.client.as_mut().and_then(|client| client.datagrams()) {
            datagrams.handle_datagram(now.mono, path, from, datagram);
        }
        self.drain(now, tally);
    }

    fn handle_local(&mut self, now: Now, path: PathId, local: Option<SocketAddr>, tally: &mut Tally) {
        if let Some(datagrams) = self.client.as_mut().and_then(|client| client.datagrams()) {
            datagrams.handle_local(now.mono, path, local);
        }
        self.drain(now, tally);
    }

    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) -> To {
        let datagrams = self.client.as_mut().and_then(|client| client.datagrams());
        datagrams.map_or(To::PEER, |datagrams| datagrams.poll_datagrams(now.mono, out))
    }
}

impl Player {
    /// Requests a new connection if the client needs one to close properly.
    fn note_reconnect(&mut self) {
        while let Some(event) = self.client.as_mut().and_then(|client| client.poll_event()) {
            if matches!(event, LoadEvent::Reconnect) {
                self.events.push_back(PeerEvent::Reconnect);
            }
        }
    }

    /// Ends the player with the client's reason, if the client has ended.
    fn end_of_client(&mut self) {
        while let Some(event) = self.client.as_mut().and_then(|client| client.poll_event()) {
            if let LoadEvent::Closed(reason) = event {
                self.end(&reason);
            }
        }
    }
}

/// Converts Unix milliseconds to the nanoseconds of a stamp.
fn nanos(unix_ms: Option<i64>) -> Option<u64> {
    u64::try_from(unix_ms?).ok()?.checked_mul(1_000_000)
}

/// Returns the media after the head of a body; `None` for parameter sets and the end of a sequence. The offsets are
/// those of H.264 and AAC: other codecs have no stamps and are only counted.
fn payload(is_video: bool, body: &[u8]) -> Option<&[u8]> {
    let (first, packet) = (*body.first()?, body.get(1).copied());
    match (is_video, first) {
        // Enhanced RTMP (veovera, §Defining Additional Video Codecs): packet types 1 and 3 are coded frames.
        (true, first) if first & 0x80 != 0 => matches!(first & 0x0f, 1 | 3).then_some(&[]),
        (true, first) if first & 0x0f == 7 => (packet? == 1).then(|| body.get(5..)).flatten(),
        (false, first) if first >> 4 == 10 => (packet? == 1).then(|| body.get(2..)).flatten(),
        (false, first) if first >> 4 == 9 => (first & 0x0f == 1).then_some(&[]),
        (true | false, _) => Some(&[]),
    }
}
