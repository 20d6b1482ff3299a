//! A publisher over RTMP: the client machine of `proto-impl/rtmp`, and a clip that goes out in real time.
//!
//! 1. The dialogue of [`rtmp::Client`] up to its consent: [`PeerEvent::Ready`].
//! 2. Metadata and parameter sets; after the phase, each unit at its time, counted from the first.
//! 3. `finish` stops behind the next picture, `close` says goodbye.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use rtmp::{Client, ClientConfig, ClientEvent, CloseReason, MediaKind, MediaMessage};
use wire::SendQueue;

use super::{Clip, Now, Peer, PeerEvent, Role, Score, Source, Tally, Target, Unit};

/// Units sent in one go, when much is due at once.
const BURST: usize = 64;

/// What to publish, and where.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// The stream.
    pub target: Target,
    /// The media.
    pub clip: Arc<Clip>,
    /// From the server's consent to the first unit.
    pub phase: Duration,
    /// Time to become ready.
    pub timeout: Duration,
}

/// Gives a clip out in real time, whatever the protocol.
#[derive(Debug)]
pub(super) struct Pacer {
    source: Source,
    phase: Duration,
    /// When the first unit was due; from then on.
    began: Option<Instant>,
    finishing: bool,
}

impl Pacer {
    pub(super) fn new(options: &PublisherOptions) -> Self {
        let source = Source::new(Arc::clone(&options.clip));
        Self { source, phase: options.phase, began: None, finishing: false }
    }

    /// The server has consented: what goes before the units.
    pub(super) fn begin(&mut self, now: Now) -> Vec<(TagKind, Bytes)> {
        self.began = Some(now.mono + self.phase);
        self.source.clip().heads().to_vec()
    }

    pub(super) fn stop(&mut self) {
        self.began = None;
    }

    /// Stops behind the next picture.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
    }

    /// When the next unit is due.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.began? + Duration::from_millis(self.source.due_ms()))
    }

    /// The units that are due, stamped.
    pub(super) fn due_units(&mut self, now: Now, tally: &mut Tally) -> Vec<Unit> {
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

    pub(super) fn score(&self) -> Score {
        Score::Made(self.source.made())
    }
}

/// One publishing connection.
#[derive(Debug)]
pub struct Publisher {
    client: Client,
    pacer: Pacer,
    events: VecDeque<PeerEvent>,
}

impl Publisher {
    /// On a connection that is being made.
    #[must_use]
    pub fn new(now: Now, options: &PublisherOptions, seed: Seed) -> Self {
        let client = Client::publish(now.mono, config(&options.target, options.timeout), seed);
        Self { client, pacer: Pacer::new(options), events: VecDeque::new() }
    }

    fn drain(&mut self, now: Now) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Ready { .. } => self.begin(now),
                ClientEvent::Media(_) => {}
                ClientEvent::Rejected { code, description } => {
                    self.end(&format!("{code}: {description}"));
                }
                ClientEvent::Closed(reason) => self.end(&format!("{reason:?}")),
            }
        }
    }

    fn begin(&mut self, now: Now) {
        for (kind, body) in self.pacer.begin(now) {
            self.send(now, kind, 0, body);
        }
        self.events.push_back(PeerEvent::Ready);
    }

    /// The first reason counts.
    fn end(&mut self, why: &str) {
        self.pacer.stop();
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }

    fn send_unit(&mut self, now: Now, unit: Unit) {
        // RTMP counts milliseconds in 32 bits, and wraps.
        let timestamp = u32::try_from(unit.dts_ms & u64::from(u32::MAX)).unwrap_or(0);
        if let Some(message) = unit.message {
            self.send(now, TagKind::Data, timestamp, message);
        }
        self.send(now, unit.kind, timestamp, unit.body);
    }

    fn send(&mut self, now: Now, kind: TagKind, timestamp: u32, payload: Bytes) {
        let kind = match kind {
            TagKind::Audio => MediaKind::Audio,
            TagKind::Video => MediaKind::Video,
            TagKind::Data | TagKind::Other(_) => MediaKind::Data,
        };
        self.client.send(now.mono, &MediaMessage { message_stream: 0, kind, timestamp, payload });
    }
}

impl Peer for Publisher {
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], _tally: &mut Tally) {
        // An error is also the last event.
        let _ = self.client.handle_bytes(now.mono, bytes);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        let _ = self.client.handle_timeout(now.mono);
        self.drain(now);
        for unit in self.pacer.due_units(now, tally) {
            self.send_unit(now, unit);
        }
    }

    fn handle_hangup(&mut self, now: Now, why: Option<&str>) {
        self.drain(now);
        self.end(why.unwrap_or("the server closed the connection"));
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        self.client.poll_transmit(out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.client.poll_timeout(), self.pacer.due()].into_iter().flatten().min()
    }

    fn finish(&mut self) {
        self.pacer.finish();
    }

    fn close(&mut self, now: Now) {
        self.pacer.stop();
        self.client.close(now.mono, CloseReason::Requested);
    }

    fn role(&self) -> Role {
        Role::Publish
    }

    fn score(&self) -> Score {
        self.pacer.score()
    }
}

/// What both roles ask an RTMP server for.
pub(super) fn config(target: &Target, timeout: Duration) -> Arc<ClientConfig> {
    Arc::new(ClientConfig {
        app: target.app.clone(),
        tc_url: target.authority.clone(),
        stream: target.name.clone(),
        handshake_timeout: timeout,
        ready_timeout: timeout,
        stall_timeout: super::player::STALL,
        ..ClientConfig::default()
    })
}
