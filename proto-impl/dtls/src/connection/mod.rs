//! End of a DTLS association: handles records, and returns events and datagrams. `input` handles data from
//! the peer; `modern` connects this module to a DTLS 1.3 session.

mod input;
mod modern;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use crate::alert::{Alert, AlertDescription};
use crate::certificate::Fingerprint;
use crate::config::{Config, Expected};
use crate::cookie::CookieVerifier;
use crate::error::{Error, Failure};
use crate::event::{CloseReason, Connected, Event};
use crate::flight::{Flight, Timer};
use crate::reassembly::Reassembly;
use crate::record::{
    ContentType, FRAGMENT_BYTES_MAX, HEAD_BYTES, PROTECTION_BYTES, RecordLayer, VERSION_1_2,
};
use crate::srtp::SrtpKeys;
use crate::stats::Stats;
use crate::v12::client::Client;
use crate::v12::keys::Secrets;
use crate::v12::server::Server;
use crate::v12::{Exchange, Side};
use crate::v13;

/// Maximum number of queued datagrams with application data and alerts; flights are not counted.
const OUT_MAX: usize = 64;
/// Maximum number of events waiting to be polled; beyond it, application data is dropped.
pub(crate) const EVENTS_MAX: usize = 64;
/// Minimum MTU, in bytes; record headers alone take 50.
const MTU_MIN: usize = 128;
/// Maximum MTU: one record of maximum length.
const MTU_MAX: usize = FRAGMENT_BYTES_MAX + HEAD_BYTES + PROTECTION_BYTES;

/// Labels used by the protocol itself, which [`Connection::export`] refuses (RFC 5705 §4).
const LABELS_OF_TLS: [&str; 5] =
    ["client finished", "server finished", "master secret", "extended master secret", "key expansion"];
/// Label of the SRTP keying material (RFC 5764 §4.2).
const LABEL_OF_SRTP: &[u8] = b"EXTRACTOR-dtls_srtp";

/// The role in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends the first `ClientHello`.
    Client,
    /// Waits for a `ClientHello`.
    Server,
}

/// End of a DTLS association.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    role: Role,
    phase: Phase,
    /// Cookie verifier of a server, until the client has returned its cookie.
    verifier: Option<CookieVerifier>,
    records: RecordLayer,
    /// Maximum datagram to send, in bytes.
    mtu: usize,
    /// Queued datagrams with application data and alerts; flights are stored elsewhere.
    out: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    /// Reason of the final event, until it is polled.
    closed: Option<CloseReason>,
    stats: Stats,
}

#[derive(Debug)]
enum Phase {
    Idle {
        seed: Seed,
        expected: Expected,
        cookie_verified: bool,
    },
    Handshaking(Box<Handshaking>),
    Connected(Box<Established>),
    /// DTLS 1.3, or a version that is not negotiated yet.
    Modern(Box<v13::Session>),
    Closed,
}

#[derive(Debug)]
struct Handshaking {
    reassembly: Reassembly,
    exchange: Exchange,
    /// State machine of the role; `None` while it handles a message.
    side: Option<Side>,
    /// True if our answers copy the record numbers of the client's hellos, until the client returns its cookie.
    follows: bool,
    timer: Timer,
    deadline: Instant,
}

/// State that is kept after the handshake.
#[derive(Debug)]
struct Established {
    secrets: Secrets,
    /// Last flight of a server; retransmitted if the client repeats its last flight.
    flight: Flight,
    peer_sha256: Option<[u8; 32]>,
    /// Message sequence number of the peer's Finished.
    finished: u16,
    /// True if a renegotiation request was already refused with an alert.
    refused: bool,
}

impl Connection {
    /// Creates a client, which does nothing and drops all input until [`Connection::start`] is called.
    #[must_use]
    pub fn client(config: Arc<Config>, seed: Seed) -> Self {
        Self::new(config, Role::Client, seed, false)
    }

    /// Creates a server, which does nothing and drops all input until [`Connection::start`] is called.
    #[must_use]
    pub fn server(config: Arc<Config>, seed: Seed) -> Self {
        Self::new(config, Role::Server, seed, false)
    }

    /// Creates a server for a client that has passed the [`CookieVerifier`]. The datagram that passed must be
    /// handled first.
    #[must_use]
    pub fn server_with_cookie(config: Arc<Config>, seed: Seed) -> Self {
        Self::new(config, Role::Server, seed, true)
    }

    fn new(config: Arc<Config>, role: Role, seed: Seed, cookie_verified: bool) -> Self {
        Self {
            mtu: config.mtu,
            config,
            role,
            phase: Phase::Idle { seed, expected: Expected::Unknown, cookie_verified },
            verifier: None,
            records: RecordLayer::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            closed: None,
            stats: Stats::default(),
        }
    }

    /// Starts the handshake and its timeout: a client sends its hello, a server listens.
    pub fn start(&mut self, now: Instant) {
        let Phase::Idle { seed, expected, cookie_verified } = &self.phase else { return };
        let (random, expected) = (seed.derive("dtls handshake", 0).random(), expected.clone());
        let (seed, cookie_verified) = (seed.clone(), *cookie_verified);
        let asks = self.config.cookie && !cookie_verified && self.role == Role::Server;
        self.verifier = asks.then(|| CookieVerifier::new(&seed, self.config.versions));
        if self.config.versions.have_13() {
            return self.start_modern(now, random, expected, cookie_verified);
        }
        let mut exchange = Exchange::new(Arc::clone(&self.config), random);
        exchange.expected = expected;
        let mut reassembly = Reassembly::default();
        if cookie_verified {
            reassembly.begin_at(1);
        }
        let follows = asks || cookie_verified;
        let side = match self.role {
            Role::Server => Ok(Side::Server(Server::Hello)),
            Role::Client => Client::start(&mut exchange).map(Side::Client),
        };
        exchange.take_fresh();
        let mut timer = Timer::new(now, self.config.retransmit_first, self.config.retransmit_longest);
        if self.role == Role::Client {
            timer.start(now);
        }
        let deadline = now.checked_add(self.config.handshake_timeout).unwrap_or(now);
        match side {
            Ok(side) => {
                let side = Some(side);
                self.phase = Phase::Handshaking(Box::new(Handshaking {
                    reassembly,
                    exchange,
                    side,
                    follows,
                    timer,
                    deadline,
                }));
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// Sets the fingerprints of acceptable peers. Until this call, the check of the peer's certificate waits,
    /// within the handshake timeout. An empty list accepts no peer.
    pub fn set_remote_fingerprints(&mut self, now: Instant, fingerprints: Vec<Fingerprint>) {
        match &mut self.phase {
            Phase::Idle { expected, .. } => *expected = Expected::OneOf(fingerprints),
            Phase::Handshaking(handshaking) => {
                handshaking.exchange.expected = Expected::OneOf(fingerprints);
                self.pump(now);
            }
            Phase::Modern(_) => self.with_modern(now, |session, reports| {
                session.set_remote_fingerprints(now, fingerprints, reports)
            }),
            Phase::Connected(_) | Phase::Closed => {}
        }
    }

    /// Handles an expired deadline.
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Modern(_)) {
            return self.with_modern(now, |session, reports| session.handle_timeout(now, reports));
        }
        let Phase::Handshaking(handshaking) = &mut self.phase else { return };
        if handshaking.deadline <= now {
            return self.end(CloseReason::Timeout);
        }
        if handshaking.timer.is_due(now) {
            handshaking.timer.back_off(now);
            handshaking.exchange.flight.rewind();
            self.stats.retransmits = self.stats.retransmits.saturating_add(1);
        }
    }

    /// Sets the path's MTU, in bytes of UDP payload, for all data sent or retransmitted from now on (RFC 6347
    /// §4.1.1.1).
    pub const fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Changes our keys for sending with DTLS 1.3 (RFC 9147 §8); does nothing with DTLS 1.2. Keys that approach
    /// their usage limit are changed automatically.
    pub fn update_keys(&mut self, now: Instant) {
        self.with_modern(now, |session, _| session.update_keys(now));
    }

    /// Sends application data as one record in one datagram.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        if !self.is_connected() {
            return Err(Error::NotConnected);
        }
        let most = self.payload_max();
        if data.len() > most {
            return Err(Error::TooLong { length: data.len(), most });
        }
        if self.out.len() >= OUT_MAX {
            return Err(Error::Full);
        }
        self.push_record(ContentType::APPLICATION_DATA, data);
        Ok(())
    }

    /// Closes the connection with `close_notify`.
    pub fn close(&mut self, _now: Instant) {
        let heard = match &self.phase {
            Phase::Idle { .. } | Phase::Closed => false,
            Phase::Handshaking(handshaking) => {
                handshaking.side.as_ref().is_some_and(|side| !side.awaits_hello())
            }
            Phase::Connected(_) => true,
            Phase::Modern(session) => session.heard(),
        };
        if heard {
            self.push_alert(Alert::warning(AlertDescription::CLOSE_NOTIFY));
        }
        self.end(CloseReason::Local);
    }

    /// Returns the next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            if self.events.is_empty() {
                self.events = VecDeque::new();
            }
            return Some(event);
        }
        self.closed.take().map(Event::Closed)
    }

    /// Fills `out` with datagrams to send now, as far as there is room. Returns true if any were added. An
    /// alert may still follow after the connection has ended.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Datagrams) -> bool {
        self.with_modern(now, |session, _| session.renew_keys(now));
        let mtu = self.mtu();
        let before = out.len();
        while out.has_room(mtu) {
            // Queued records already have their sequence numbers; the records of a flight get theirs when
            // they are written.
            let Some(datagram) = self.out.pop_front().or_else(|| self.write_flight()) else { break };
            out.push(&[], &datagram);
        }
        if self.out.is_empty() {
            self.out = VecDeque::new();
        }
        let count = out.len().saturating_sub(before);
        self.stats.datagrams_sent =
            self.stats.datagrams_sent.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        count > 0
    }

    /// Returns the next deadline. `None` once connected, unless a message awaits its acknowledgement (DTLS
    /// 1.3).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if let Phase::Modern(session) = &self.phase {
            return session.poll_timeout();
        }
        let Phase::Handshaking(handshaking) = &self.phase else { return None };
        let retransmit = handshaking.timer.deadline();
        Some(retransmit.map_or(handshaking.deadline, |at| at.min(handshaking.deadline)))
    }

    /// Counters of the connection.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Exports keying material, which is the same at both ends (RFC 5705; RFC 8446 §7.5, where no context is
    /// equivalent to an empty one).
    pub fn export(&self, label: &str, context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        if !self.is_connected() {
            return Err(Error::NotConnected);
        }
        let long = context.is_some_and(|context| u16::try_from(context.len()).is_err());
        if LABELS_OF_TLS.contains(&label) || long || out.is_empty() {
            return Err(Error::Export);
        }
        let label = label.as_bytes();
        let done = match &self.phase {
            Phase::Connected(established) => established.secrets.export(label, context, out),
            Phase::Modern(session) => session.export(label, context.unwrap_or_default(), out),
            Phase::Idle { .. } | Phase::Handshaking(_) | Phase::Closed => false,
        };
        if done { Ok(()) } else { Err(Error::Export) }
    }

    /// True if application data can be sent.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        match &self.phase {
            Phase::Connected(_) => true,
            Phase::Modern(session) => session.is_connected(),
            Phase::Idle { .. } | Phase::Handshaking(_) | Phase::Closed => false,
        }
    }

    /// True if the last event has been polled and nothing is left to send.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closed)
            && self.closed.is_none()
            && self.events.is_empty()
            && self.out.is_empty()
    }

    /// SHA-256 digest of the peer's certificate; `None` before the handshake is complete, after the end, or if the peer
    /// sent no certificate.
    #[must_use]
    pub const fn peer_sha256(&self) -> Option<[u8; 32]> {
        match &self.phase {
            Phase::Connected(established) => established.peer_sha256,
            Phase::Modern(session) => session.peer_sha256(),
            Phase::Idle { .. } | Phase::Handshaking(_) | Phase::Closed => None,
        }
    }

    /// Role of this end.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the maximum number of bytes that [`Connection::send`] accepts.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        let over = match &self.phase {
            Phase::Modern(_) => v13::OVERHEAD_BYTES,
            Phase::Idle { .. } | Phase::Handshaking(_) | Phase::Connected(_) | Phase::Closed => {
                HEAD_BYTES + PROTECTION_BYTES
            }
        };
        self.mtu().saturating_sub(over)
    }

    /// Returns the bytes of memory held, including this value, but without memory inside cryptographic keys.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::Handshaking(handshaking) => size_of::<Handshaking>()
                .saturating_add(handshaking.reassembly.held_bytes())
                .saturating_add(handshaking.exchange.held_bytes()),
            Phase::Connected(established) => {
                size_of::<Established>().saturating_add(established.flight.held_bytes())
            }
            Phase::Modern(session) => size_of::<v13::Session>().saturating_add(session.held_bytes()),
            Phase::Idle { .. } | Phase::Closed => 0,
        };
        let out: usize = self.out.iter().map(Vec::capacity).sum();
        let events: usize = self
            .events
            .iter()
            .map(|event| match event {
                Event::Data(data) => data.len(),
                Event::Connected(_) => size_of::<Connected>(),
                Event::Closed(_) => 0,
            })
            .sum();
        size_of::<Self>().saturating_add(phase).saturating_add(out).saturating_add(events)
    }

    fn mtu(&self) -> usize {
        self.mtu.clamp(MTU_MIN, MTU_MAX)
    }

    /// Completes the handshake.
    fn connect(&mut self, finished: u16) {
        let Phase::Handshaking(handshaking) = &mut self.phase else { return };
        let exchange = &mut handshaking.exchange;
        let Some(secrets) = exchange.secrets.take() else { return self.fail(Failure::Internal) };
        let srtp = exchange.profile.and_then(|profile| {
            let mut material = vec![0; profile.material_bytes()];
            secrets.export(LABEL_OF_SRTP, None, &mut material).then_some(())?;
            Some((profile, SrtpKeys::new(material)))
        });
        if exchange.profile.is_some() && srtp.is_none() {
            return self.fail(Failure::Internal);
        }
        let peer_sha256 = exchange.peer_sha256;
        let flight = match self.role {
            Role::Server => std::mem::take(&mut exchange.flight),
            Role::Client => Flight::default(),
        };
        let suite = secrets.suite();
        tracing::debug!(?suite, profile = ?exchange.profile, "connected");
        self.events.push_back(Event::Connected(Box::new(Connected { suite, srtp, peer_sha256 })));
        self.phase = Phase::Connected(Box::new(Established {
            secrets,
            flight,
            peer_sha256,
            finished,
            refused: false,
        }));
    }

    /// Returns the next datagram of the flight; `None` if the whole flight was sent.
    fn write_flight(&mut self) -> Option<Vec<u8>> {
        let mtu = self.mtu();
        let flight = match &mut self.phase {
            Phase::Handshaking(handshaking) => &mut handshaking.exchange.flight,
            Phase::Connected(established) => &mut established.flight,
            Phase::Modern(_) => return self.write_modern_flight(mtu),
            Phase::Idle { .. } | Phase::Closed => return None,
        };
        if !flight.is_pending() {
            return None;
        }
        let mut datagram = Vec::with_capacity(mtu.min(2048));
        if flight.write(&mut self.records, mtu, &mut datagram).is_err() {
            self.end(CloseReason::Exhausted);
            return None;
        }
        Some(datagram)
    }

    fn push_alert(&mut self, alert: Alert) {
        self.push_record(ContentType::ALERT, &alert.write());
    }

    /// Queues a record after the rest of the flight, so that records are sent in numerical order, and the peer
    /// already has the keys to read it.
    fn push_record(&mut self, kind: ContentType, clear: &[u8]) {
        while let Some(datagram) = self.write_flight() {
            self.out.push_back(datagram);
        }
        let written = if let Phase::Modern(session) = &mut self.phase {
            session.write(kind, clear)
        } else {
            let protected = self.records.writes_protected();
            let mut datagram = Vec::with_capacity(clear.len().saturating_add(HEAD_BYTES + PROTECTION_BYTES));
            self.records.write(protected, kind, VERSION_1_2, clear, &mut datagram).map(|()| datagram)
        };
        match written {
            Ok(datagram) => self.out.push_back(datagram),
            Err(_) => self.end(CloseReason::Exhausted),
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.closed.is_none() && !matches!(self.phase, Phase::Closed) {
            self.push_alert(Alert::fatal(failure.alert()));
            self.end(CloseReason::Failed(failure));
        }
    }

    /// Ends the session, and frees its state; queued output can still be polled.
    fn end(&mut self, reason: CloseReason) {
        if !matches!(self.phase, Phase::Closed) {
            tracing::debug!(?reason, "connection ends");
            self.phase = Phase::Closed;
            self.closed = Some(reason);
        }
    }
}
