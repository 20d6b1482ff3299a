//! DTLS 1.3 (RFC 9147), with the client's certificate:
//!
//! ```text
//!    client                                     server
//! 1  ClientHello                   ------>
//! 2                                <------      HelloRetryRequest, when a share of another group is wanted
//! 3  ClientHello, another share    ------>
//! 4                                <------      ServerHello, {EncryptedExtensions, CertificateRequest,
//!                                               Certificate, CertificateVerify, Finished}
//! 5  {Certificate, CertificateVerify,
//!    Finished}                     ------>
//! 6                                <------      [ACK]
//! ```
//!
//! Braces mark records protected with the keys of epoch 2, brackets those with the keys of epoch 3. The client
//! has its keys after one round trip, the server after the client's Finished. Later, either side can change its
//! keys with a `KeyUpdate`, which the other acknowledges.
//!
//! If DTLS 1.2 is also supported, a connection starts with a [`Session`], too: [`Stop::FallsBack`] means that
//! the peer has chosen DTLS 1.2. The submodules from bottom to top: `record`, `ack`, `flight`, `keys`;
//! `exchange` with `client` and `server`; `update`.
//!
//! Not supported: early data, resumption (tickets are acknowledged and dropped), connection ids, and
//! post-handshake authentication.

mod ack;
mod client;
mod exchange;
mod flight;
mod input;
mod keys;
mod record;
mod server;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crypto::Random;

pub(crate) use exchange::as_transcript;
pub(crate) use record::OVERHEAD_BYTES;
pub(crate) use server::{choose_retry, offers_it, write_retry};

use crate::certificate::Fingerprint;
use crate::config::{Config, Expected};
use crate::connection::Role;
use crate::error::Failure;
use crate::event::{CloseReason, Connected, Event};
use crate::flight::Timer;
use crate::reassembly::{Message, Reassembly};
use crate::record::{ContentType, Exhausted};
use crate::srtp::SrtpKeys;
use crate::stats::Stats;
use crate::suite::CipherSuite;

use ack::Acks;
use client::Client;
use exchange::{Exchange, Link};
use flight::Flight;
use keys::Secret;
use record::Records;
use server::Server;
use update::Updates;

/// Epoch of the handshake (RFC 9147 §6.1). Epoch 0 is unencrypted; epoch 1, early data, is not used.
const EPOCH_OF_HANDSHAKE: u16 = 2;
/// First epoch of application data.
const EPOCH_OF_APPLICATION: u16 = 3;
/// Random value that marks a `HelloRetryRequest` (RFC 8446 §4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Label of the SRTP keying material (RFC 5764 §4.2).
const LABEL_OF_SRTP: &[u8] = b"EXTRACTOR-dtls_srtp";

/// Reason why a session does not continue.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The session failed on our side; the peer gets an alert.
    Failed(Failure),
    /// The session ended.
    Ended(CloseReason),
    /// The peer chose DTLS 1.2 with this message.
    FallsBack(Message),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Exhausted> for Stop {
    fn from(_: Exhausted) -> Self {
        Self::Ended(CloseReason::Exhausted)
    }
}

/// The owner's events and counters, which a session updates.
#[derive(Debug)]
pub(crate) struct Reports<'a> {
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut Stats,
}

/// A session of DTLS 1.3, or one whose version is not negotiated yet.
#[derive(Debug)]
pub(crate) struct Session {
    link: Link,
    reassembly: Reassembly,
    timer: Timer,
    /// Time by which the peer must complete the pending exchange; `None` if none is pending.
    deadline: Option<Instant>,
    state: State,
    config: Arc<Config>,
}

#[derive(Debug)]
enum State {
    Handshaking(Box<Handshaking>),
    Connected(Box<Established>),
}

#[derive(Debug)]
struct Handshaking {
    exchange: Exchange,
    /// State machine of the role; `None` while it handles a message.
    side: Option<Side>,
}

/// State that is kept after the handshake.
#[derive(Debug)]
struct Established {
    role: Role,
    suite: CipherSuite,
    exporter: Secret,
    updates: Updates,
    peer_sha256: Option<[u8; 32]>,
}

/// State machine of the client or of the server.
#[derive(Debug)]
enum Side {
    Client(Client),
    Server(Server),
}

impl Side {
    /// Handles the next message.
    fn handle(self, x: &mut Exchange, link: &mut Link, message: &Message) -> Result<Self, Stop> {
        Ok(match self {
            Self::Client(client) => Self::Client(client.handle(x, link, message)?),
            Self::Server(server) => Self::Server(server.handle(x, link, message)?),
        })
    }

    const fn is_done(&self) -> bool {
        matches!(self, Self::Client(Client::Done) | Self::Server(Server::Done))
    }

    /// True if the peer has not chosen a version yet.
    const fn awaits_hello(&self) -> bool {
        matches!(
            self,
            Self::Client(Client::Hello { retried: None, .. }) | Self::Server(Server::Hello { retried: None })
        )
    }
}

/// Parts of a session that DTLS 1.2 takes over after a fallback.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) reassembly: Reassembly,
    pub(crate) timer: Timer,
    pub(crate) deadline: Instant,
    pub(crate) expected: Expected,
    pub(crate) random: Random,
    /// True if the client has returned a DTLS 1.2 cookie.
    pub(crate) is_behind_cookie: bool,
    /// Next sequence number of epoch 0.
    pub(crate) clear_next: u64,
    /// Body of a client's hello.
    pub(crate) hello: Vec<u8>,
}

impl Session {
    /// Starts a session: a client sends its hello, a server listens.
    pub(crate) fn start(
        now: Instant,
        config: Arc<Config>,
        role: Role,
        expected: Expected,
        random: Random,
    ) -> Result<Self, Failure> {
        let mut timer = Timer::new(now, config.retransmit_first, config.retransmit_longest);
        let mut link = Link {
            records: Records::new(),
            flight: Flight::default(),
            acks: Acks::default(),
            sequence: 0,
            is_fresh: false,
        };
        let mut exchange = Exchange::new(Arc::clone(&config), role, expected, random);
        let side = match role {
            Role::Server => Side::Server(Server::Hello { retried: None }),
            Role::Client => Side::Client(Client::start(&mut exchange, &mut link)?),
        };
        if std::mem::take(&mut link.is_fresh) {
            timer.start(now);
        }
        let deadline = Some(now.checked_add(config.handshake_timeout).unwrap_or(now));
        let state = State::Handshaking(Box::new(Handshaking { exchange, side: Some(side) }));
        Ok(Self { link, reassembly: Reassembly::default(), timer, deadline, state, config })
    }

    /// Continues after a cookie verifier: the hello that passed it is the client's second message.
    pub(crate) fn begin_behind_cookie(&mut self) {
        let State::Handshaking(handshaking) = &mut self.state else { return };
        handshaking.exchange.is_behind_cookie = true;
        self.reassembly.begin_at(1);
    }

    /// Sets the fingerprints of the expected peer.
    pub(crate) fn set_remote_fingerprints(
        &mut self,
        now: Instant,
        fingerprints: Vec<Fingerprint>,
        reports: &mut Reports<'_>,
    ) -> Result<(), Stop> {
        let State::Handshaking(handshaking) = &mut self.state else { return Ok(()) };
        handshaking.exchange.expected = Expected::OneOf(fingerprints);
        self.pump(now, reports)
    }

    /// Handles an expired deadline.
    pub(crate) fn handle_timeout(&mut self, now: Instant, reports: &mut Reports<'_>) -> Result<(), Stop> {
        if self.deadline.is_some_and(|at| at <= now) {
            return Err(Stop::Ended(CloseReason::Timeout));
        }
        self.link.acks.handle_timeout(now);
        if self.timer.is_due(now) {
            self.timer.back_off(now);
            self.link.flight.rewind();
            reports.stats.retransmits = reports.stats.retransmits.saturating_add(1);
        }
        Ok(())
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.deadline, self.timer.deadline(), self.link.acks.deadline()].into_iter().flatten().min()
    }

    /// Returns the next datagram, with an acknowledgement or a part of the flight; `None` if there is nothing
    /// to send.
    pub(crate) fn poll_datagram(&mut self, mtu: usize) -> Result<Option<Vec<u8>>, Exhausted> {
        let link = &mut self.link;
        if !(link.acks.is_pending() || link.flight.is_pending()) {
            return Ok(None);
        }
        let mut datagram = Vec::with_capacity(mtu.min(2048));
        if link.acks.is_pending() {
            let clear = link.acks.take(mtu.saturating_sub(OVERHEAD_BYTES));
            link.records.write(link.records.write_epoch(), ContentType::ACK, &clear, &mut datagram)?;
        }
        link.flight.write(&mut link.records, mtu, &mut datagram)?;
        Ok(Some(datagram))
    }

    /// Writes a single record with the latest keys.
    pub(crate) fn write(&mut self, kind: ContentType, clear: &[u8]) -> Result<Vec<u8>, Exhausted> {
        let mut datagram = Vec::with_capacity(clear.len().saturating_add(OVERHEAD_BYTES));
        let epoch = self.link.records.write_epoch();
        // Only a first hello has the older version in its record header.
        self.link.records.settle();
        self.link.records.write(epoch, kind, clear, &mut datagram)?;
        Ok(datagram)
    }

    #[cfg(test)]
    pub(crate) fn write_epoch(&self) -> u16 {
        self.link.records.write_epoch()
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        self.link.records.skip_to(sequence);
    }

    #[cfg(test)]
    pub(crate) fn expect(&mut self, sequence: u64) {
        self.link.records.expect(sequence);
    }

    /// Replaces a message of the flight, to simulate a misbehaving peer.
    #[cfg(test)]
    pub(crate) fn change(&mut self, kind: crate::MessageType, change: impl FnOnce(&mut Vec<u8>)) {
        self.link.flight.change(kind, change);
    }

    /// Writes a record with any keys, to simulate a misbehaving peer.
    #[cfg(test)]
    pub(crate) fn forge(&mut self, epoch: u16, kind: ContentType, clear: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.link.records.write(epoch, kind, clear, &mut datagram).unwrap();
        datagram
    }

    /// True if application data can be sent.
    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// True if anything was received from the peer.
    pub(crate) fn heard(&self) -> bool {
        match &self.state {
            State::Handshaking(handshaking) => {
                handshaking.side.as_ref().is_some_and(|side| !side.awaits_hello())
            }
            State::Connected(_) => true,
        }
    }

    /// SHA-256 digest of the peer's certificate; `None` before the handshake is complete, or if the peer sent no
    /// certificate.
    pub(crate) const fn peer_sha256(&self) -> Option<[u8; 32]> {
        match &self.state {
            State::Handshaking(_) => None,
            State::Connected(established) => established.peer_sha256,
        }
    }

    /// Exports keying material. Returns false before the handshake is complete, or if too much is requested.
    pub(crate) fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        match &self.state {
            State::Handshaking(_) => false,
            State::Connected(established) => established.exporter.export(label, context, out),
        }
    }

    /// Bytes of memory held in addition to the size of this value.
    pub(crate) fn held_bytes(&self) -> usize {
        let state = match &self.state {
            State::Handshaking(handshaking) => {
                size_of::<Handshaking>().saturating_add(handshaking.exchange.held_bytes())
            }
            State::Connected(established) => size_of::<Established>()
                .saturating_add(established.exporter.held_bytes())
                .saturating_add(established.updates.held_bytes()),
        };
        state
            .saturating_add(self.reassembly.held_bytes())
            .saturating_add(self.link.records.held_bytes())
            .saturating_add(self.link.flight.held_bytes())
            .saturating_add(self.link.acks.held_bytes())
    }

    /// Returns the parts that DTLS 1.2 takes over; `None` if the version is already settled.
    pub(crate) fn into_remains(self) -> Option<Remains> {
        let State::Handshaking(handshaking) = self.state else { return None };
        let exchange = handshaking.exchange;
        Some(Remains {
            reassembly: self.reassembly,
            timer: self.timer,
            deadline: self.deadline?,
            expected: exchange.expected,
            random: exchange.random,
            is_behind_cookie: exchange.is_behind_cookie,
            clear_next: self.link.records.clear_next(),
            hello: exchange.hello,
        })
    }

    /// Completes the handshake.
    fn connect(&mut self, reports: &mut Reports<'_>) -> Result<(), Stop> {
        let State::Handshaking(handshaking) = &mut self.state else { return Ok(()) };
        let exchange = &mut handshaking.exchange;
        let suite = exchange.suite()?;
        let (own, peer) = exchange.application()?;
        let (_, exporter) = exchange.application.take().ok_or(Failure::Internal)?;
        let srtp = match exchange.profile {
            Some(profile) => {
                let mut material = vec![0; profile.material_bytes()];
                if !exporter.export(LABEL_OF_SRTP, &[], &mut material) {
                    return Err(Failure::Internal.into());
                }
                Some((profile, SrtpKeys::new(material)))
            }
            None => None,
        };
        let (role, peer_sha256) = (exchange.role, exchange.peer_sha256);
        tracing::debug!(?suite, profile = ?exchange.profile, "connected");
        reports.events.push_back(Event::Connected(Box::new(Connected { suite, srtp, peer_sha256 })));
        let updates = Updates::new(own, peer);
        self.state = State::Connected(Box::new(Established { role, suite, exporter, updates, peer_sha256 }));
        self.reassembly.release();
        if self.link.flight.is_empty() {
            self.deadline = None;
            self.link.records.drop_old_write();
        }
        Ok(())
    }
}
