//! Publisher and player over SRT: the connection of `proto-impl/srt`, and the server's own way between units and
//! MPEG-TS.
//!
//! A player's latency has the connection's in it: what arrives is held until its time (`latency` in the URL).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use media::TrackId;
use wire::{Datagrams, SendQueue};

use super::player::STALL;
use super::publisher::Pacer;
use super::viewing::Viewing;
use super::{Now, Peer, PeerEvent, PlayerOptions, PublisherOptions, Role, Score, Stamp, Tally, Target, Unit};
use crate::config::AppSettings;
use crate::hub::{Chosen, Entry, Package, Parts, Selection};
use crate::mail::Grant;
use crate::protocol::bench::{
    OutboundConnection, OutboundEvent, Outcome, Packer, SrtSettings, TagIngest, TsIngest, TsPackage,
};
use crate::types::StreamId;

/// A stream's beginning, for the mappings of the server.
fn grant() -> Grant {
    #[allow(clippy::expect_used, reason = "the defaults are checked by a test of theirs")]
    let settings = Arc::new(AppSettings::defaults("bench").expect("the defaults of an application"));
    Grant { stream: StreamId(0), position: media::Position::default(), epoch: 0, settings }
}

fn connection(now: Now, target: &Target, seed: Seed) -> OutboundConnection {
    let address = target.srt.clone().unwrap_or_default();
    let latency = Duration::from_millis(120);
    let settings =
        SrtSettings { key_bytes: 16, latency, latency_max: Duration::from_secs(8), ..SrtSettings::default() };
    OutboundConnection::new(now.mono, &settings, &address, seed)
}

/// Units of a clip as packets of MPEG-TS.
#[derive(Debug)]
pub struct TsMux {
    ingest: TagIngest,
    package: TsPackage,
    chosen: Chosen,
}

impl Default for TsMux {
    fn default() -> Self {
        Self::new()
    }
}

impl TsMux {
    /// Without parameter sets.
    #[must_use]
    pub fn new() -> Self {
        Self { ingest: TagIngest::new(&grant()), package: TsPackage::new(), chosen: Chosen::default() }
    }

    /// The packets of a picture or sound; `None` for parameter sets, which go with the pictures, and for data.
    pub fn packets(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: &Bytes) -> Option<Bytes> {
        Some(self.parts(now, kind, timestamp, body)?.slices().concat().into())
    }

    fn parts(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: &Bytes) -> Option<Parts> {
        let outcome = match kind {
            TagKind::Video => self.ingest.video(timestamp, body),
            TagKind::Audio => self.ingest.audio(timestamp, body),
            TagKind::Data | TagKind::Other(_) => return None,
        };
        let Outcome::Unit(unit) = outcome else { return None };
        let tracks = self.ingest.tracks();
        if !Arc::ptr_eq(tracks, self.chosen.all()) {
            self.chosen.update(Selection::DEFAULT, tracks, &|track| self.package.carries(track));
        }
        Some(self.package.unit(&Entry::new(now, 0, unit, Arc::clone(tracks)), &self.chosen))
    }
}

/// One playing connection.
#[derive(Debug)]
pub struct SrtPlayer {
    connection: OutboundConnection,
    ingest: TsIngest,
    viewing: Viewing,
    deadline: Instant,
    ready: bool,
    stalled: bool,
    events: VecDeque<PeerEvent>,
}

impl SrtPlayer {
    /// On a socket that is open.
    #[must_use]
    pub fn new(now: Now, options: &PlayerOptions, seed: Seed) -> Self {
        Self {
            connection: connection(now, &options.target, seed),
            ingest: TsIngest::new(&grant()),
            viewing: Viewing::new(now),
            deadline: now.mono + options.timeout,
            ready: false,
            stalled: options.stalled,
            events: VecDeque::new(),
        }
    }

    fn drain(&mut self, now: Now, tally: &mut Tally) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                OutboundEvent::Connected { .. } => {
                    self.ready = true;
                    self.deadline = now.mono + STALL;
                    self.events.push_back(PeerEvent::Ready);
                }
                OutboundEvent::Payload(payload) => {
                    self.deadline = now.mono + STALL;
                    self.ingest.handle(&payload);
                    while let Some((unit, _)) = self.ingest.poll_unit() {
                        let is_video = unit.track == TrackId::VIDEO;
                        let stamp = if is_video {
                            Stamp::in_nals(&unit.payload)
                        } else {
                            Stamp::in_aac(&unit.payload)
                        };
                        self.viewing.unit(now, is_video, stamp, tally);
                    }
                }
                OutboundEvent::Lost => self.ingest.lost(),
                OutboundEvent::Closed(reason) => self.end(&reason),
            }
        }
    }

    /// The first reason counts.
    fn end(&mut self, why: &str) {
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }
}

impl Peer for SrtPlayer {
    fn handle_bytes(&mut self, _now: Now, _bytes: &[u8], _tally: &mut Tally) {}

    fn handle_datagram(&mut self, now: Now, from: SocketAddr, datagram: &[u8], tally: &mut Tally) {
        if self.stalled && self.ready {
            return;
        }
        self.connection.handle_datagram(now.mono, from, datagram);
        self.drain(now, tally);
    }

    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        self.connection.handle_timeout(now.mono);
        self.drain(now, tally);
        if self.deadline <= now.mono {
            self.end(if self.ready { "no media came" } else { "no answer" });
        }
    }

    fn handle_hangup(&mut self, _now: Now, why: Option<&str>) {
        self.end(why.unwrap_or("the socket is gone"));
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) -> bool {
        false
    }

    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) {
        self.connection.poll_datagrams(now.mono, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.connection.poll_timeout(), Some(self.deadline)].into_iter().flatten().min()
    }

    fn close(&mut self, now: Now) {
        self.connection.close(now.mono);
    }

    fn role(&self) -> Role {
        Role::Play
    }

    fn score(&self) -> Score {
        self.viewing.score()
    }
}

/// One publishing connection.
#[derive(Debug)]
pub struct SrtPublisher {
    connection: OutboundConnection,
    pacer: Pacer,
    mux: TsMux,
    packer: Option<Packer>,
    deadline: Option<Instant>,
    events: VecDeque<PeerEvent>,
}

impl SrtPublisher {
    /// On a socket that is open.
    #[must_use]
    pub fn new(now: Now, options: &PublisherOptions, seed: Seed) -> Self {
        Self {
            connection: connection(now, &options.target, seed),
            pacer: Pacer::new(options),
            mux: TsMux::new(),
            packer: None,
            deadline: Some(now.mono + options.timeout),
            events: VecDeque::new(),
        }
    }

    fn drain(&mut self, now: Now) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                OutboundEvent::Connected { payload_bytes } => {
                    self.deadline = None;
                    self.packer = Some(Packer::new(payload_bytes));
                    for (kind, body) in self.pacer.begin(now) {
                        self.send(now, kind, 0, &body);
                    }
                    self.events.push_back(PeerEvent::Ready);
                }
                OutboundEvent::Payload(_) | OutboundEvent::Lost => {}
                OutboundEvent::Closed(reason) => self.end(&reason),
            }
        }
    }

    /// The first reason counts.
    fn end(&mut self, why: &str) {
        self.pacer.stop();
        self.deadline = None;
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }

    fn send_unit(&mut self, now: Now, unit: &Unit) {
        let timestamp = u32::try_from(unit.dts_ms & u64::from(u32::MAX)).unwrap_or(0);
        self.send(now, unit.kind, timestamp, &unit.body);
    }

    fn send(&mut self, now: Now, kind: TagKind, timestamp: u32, body: &Bytes) {
        let Some(parts) = self.mux.parts(now.mono, kind, timestamp, body) else { return };
        let Some(packer) = &mut self.packer else { return };
        let connection = &mut self.connection;
        packer.push(&parts, |payload| connection.send(now.mono, payload));
        if let Some(payload) = packer.finish() {
            connection.send(now.mono, payload);
        }
    }
}

impl Peer for SrtPublisher {
    fn handle_bytes(&mut self, _now: Now, _bytes: &[u8], _tally: &mut Tally) {}

    fn handle_datagram(&mut self, now: Now, from: SocketAddr, datagram: &[u8], _tally: &mut Tally) {
        self.connection.handle_datagram(now.mono, from, datagram);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        self.connection.handle_timeout(now.mono);
        self.drain(now);
        for unit in self.pacer.due_units(now, tally) {
            self.send_unit(now, &unit);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            self.end("no answer");
        }
    }

    fn handle_hangup(&mut self, _now: Now, why: Option<&str>) {
        self.end(why.unwrap_or("the socket is gone"));
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) -> bool {
        false
    }

    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) {
        self.connection.poll_datagrams(now.mono, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.connection.poll_timeout(), self.pacer.due(), self.deadline].into_iter().flatten().min()
    }

    fn finish(&mut self) {
        self.pacer.finish();
    }

    fn close(&mut self, now: Now) {
        self.pacer.stop();
        self.connection.close(now.mono);
    }

    fn role(&self) -> Role {
        Role::Publish
    }

    fn score(&self) -> Score {
        self.pacer.score()
    }
}
