//! Handshake state that both roles accumulate with each message, and the link that sends their messages.

use std::sync::Arc;

use crypto::{PublicKey, Random, SignatureAlgorithm};

use super::ack::Acks;
use super::flight::Flight;
use super::keys::{HandshakeSecrets, Secret, Traffic};
use super::record::Records;
use super::{EPOCH_OF_APPLICATION, EPOCH_OF_HANDSHAKE};
use crate::certificate;
use crate::config::{Config, Expected, PeerCheck};
use crate::connection::Role;
use crate::error::Failure;
use crate::handshake::{Certificates, MessageType, Signed, signed_content};
use crate::put;
use crate::reassembly::Message;
use crate::srtp::SrtpProfile;
use crate::suite::{self, CipherSuite};
use crate::v12::TRANSCRIPT_BYTES_MAX;

/// Message type that represents the first hello in a transcript with two hellos (RFC 8446 §4.4.1).
const MESSAGE_HASH: u8 = 254;

/// Sends messages to the peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) records: Records,
    pub(super) flight: Flight,
    pub(super) acks: Acks,
    /// Sequence number of the next message to send; exceeds the range of sequence numbers once all are used.
    pub(super) sequence: u32,
    /// True if the flight is new, and its timer has not been started yet.
    pub(super) is_fresh: bool,
}

impl Link {
    /// Begins a flight. During the handshake, this implies that the peer's previous flight was received.
    pub(super) fn begin_flight(&mut self) {
        self.flight.clear();
        self.is_fresh = true;
        self.acks.clear();
    }

    /// Adds a message to the flight.
    pub(super) fn push(&mut self, kind: MessageType, body: Vec<u8>, epoch: u16) {
        self.flight.push(kind, u16::try_from(self.sequence).unwrap_or(u16::MAX), body, epoch);
        self.sequence = self.sequence.saturating_add(1);
    }
}

/// Returns a first hello as it appears in a transcript.
pub(crate) fn as_transcript(hello: &[u8]) -> Vec<u8> {
    let mut transcript = vec![MessageType::CLIENT_HELLO.0];
    put::vec24(&mut transcript, hello);
    transcript
}

/// State of the handshake.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) config: Arc<Config>,
    pub(super) role: Role,
    pub(super) expected: Expected,
    /// True if a verifier gave the client a cookie, and the client has returned it.
    pub(super) is_behind_cookie: bool,
    pub(super) random: Random,
    /// All messages in the format of TLS, without the fields for fragments (RFC 9147 §5.2).
    transcript: Vec<u8>,
    /// Body of the client's own hello.
    pub(super) hello: Vec<u8>,
    pub(super) suite: Option<CipherSuite>,
    pub(super) profile: Option<SrtpProfile>,
    peer: Option<PublicKey>,
    pub(super) peer_sha256: Option<[u8; 32]>,
    secrets: Option<HandshakeSecrets>,
    pub(super) application: Option<(Traffic, Secret)>,
}

impl Exchange {
    pub(super) const fn new(config: Arc<Config>, role: Role, expected: Expected, random: Random) -> Self {
        Self {
            config,
            role,
            expected,
            is_behind_cookie: false,
            random,
            transcript: Vec::new(),
            hello: Vec::new(),
            suite: None,
            profile: None,
            peer: None,
            peer_sha256: None,
            secrets: None,
            application: None,
        }
    }

    /// True if the check of the peer's certificate must wait until its fingerprints are announced.
    pub(super) fn waits_for_fingerprints(&self) -> bool {
        self.config.check == PeerCheck::Fingerprint && self.expected == Expected::Unknown
    }

    /// Adds one of our messages to the flight and to the transcript.
    pub(super) fn say(
        &mut self,
        link: &mut Link,
        kind: MessageType,
        body: Vec<u8>,
        epoch: u16,
    ) -> Result<(), Failure> {
        self.note(kind, &body)?;
        link.push(kind, body, epoch);
        Ok(())
    }

    /// Adds a message of the peer to the transcript.
    pub(super) fn hear(&mut self, message: &Message) -> Result<(), Failure> {
        self.note(message.kind, &message.body)
    }

    pub(super) fn note(&mut self, kind: MessageType, body: &[u8]) -> Result<(), Failure> {
        let more = body.len().saturating_add(4);
        if self.transcript.len().saturating_add(more) > TRANSCRIPT_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        self.transcript.reserve_exact(more);
        self.transcript.push(kind.0);
        put::vec24(&mut self.transcript, body);
        Ok(())
    }

    /// Replaces the first hello in the transcript with its digest, when the server requests a second one (RFC 8446
    /// §4.4.1).
    pub(super) fn retry(&mut self, suite: CipherSuite) {
        let digest = suite.hash().digest(&self.transcript);
        self.begin_with_digest(&digest);
    }

    /// Starts the transcript with the digest of the first hello.
    pub(super) fn begin_with_digest(&mut self, digest: &[u8]) {
        self.transcript.clear();
        self.transcript.push(MESSAGE_HASH);
        put::vec24(&mut self.transcript, digest);
    }

    pub(super) fn suite(&self) -> Result<CipherSuite, Failure> {
        self.suite.ok_or(Failure::Internal)
    }

    fn transcript_hash(&self) -> Result<Vec<u8>, Failure> {
        Ok(self.suite()?.hash().digest(&self.transcript))
    }

    /// Returns our secret and the peer's.
    fn directions(&self, traffic: &Traffic) -> (Secret, Secret) {
        let (client, server) = (traffic.client.clone(), traffic.server.clone());
        match self.role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        }
    }

    /// Enables the handshake keys, once `ServerHello` is in the transcript.
    pub(super) fn protect(&mut self, link: &mut Link, shared: &[u8]) -> Result<(), Failure> {
        let suite = self.suite()?;
        let secrets = HandshakeSecrets::new(suite.hash(), shared, &self.transcript_hash()?);
        let secrets = secrets.ok_or(Failure::Internal)?;
        let (own, peer) = self.directions(&secrets.traffic);
        link.records.add_write(EPOCH_OF_HANDSHAKE, own.keys(suite).ok_or(Failure::Internal)?);
        link.records.add_read(EPOCH_OF_HANDSHAKE, peer.keys(suite).ok_or(Failure::Internal)?);
        self.secrets = Some(secrets);
        Ok(())
    }

    /// Derives the application secrets, once the server's Finished is in the transcript.
    pub(super) fn derive_application(&mut self) -> Result<(), Failure> {
        let hash = self.transcript_hash()?;
        let secrets = self.secrets.as_ref().ok_or(Failure::Internal)?;
        self.application = Some(secrets.application(&hash).ok_or(Failure::Internal)?);
        Ok(())
    }

    /// Returns the application secrets: ours and the peer's.
    pub(super) fn application(&self) -> Result<(Secret, Secret), Failure> {
        let (traffic, _) = self.application.as_ref().ok_or(Failure::Internal)?;
        Ok(self.directions(traffic))
    }

    /// Switches to the application keys for sending.
    pub(super) fn write_application(&self, link: &mut Link) -> Result<(), Failure> {
        let keys = self.application()?.0.keys(self.suite()?).ok_or(Failure::Internal)?;
        link.records.add_write(EPOCH_OF_APPLICATION, keys);
        Ok(())
    }

    /// Accepts the peer's application keys; the peer is now authenticated.
    pub(super) fn read_application(&self, link: &mut Link) -> Result<(), Failure> {
        let keys = self.application()?.1.keys(self.suite()?).ok_or(Failure::Internal)?;
        link.records.add_read(EPOCH_OF_APPLICATION, keys);
        Ok(())
    }

    /// Reads the peer's certificate and compares it with the announced fingerprints.
    pub(super) fn take_certificate(&mut self, leaf: &[u8]) -> Result<(), Failure> {
        let (key, digest) = certificate::check_peer(self.config.check, &self.expected, leaf)?;
        self.peer = Some(key);
        self.peer_sha256 = digest;
        Ok(())
    }

    /// Checks that the peer's key has signed the transcript, with a scheme that we offered.
    pub(super) fn check_signature(&self, body: &[u8]) -> Result<(), Failure> {
        let signed = Signed::read(body)?;
        let peer = self.peer.as_ref().ok_or(Failure::NoCertificate)?;
        let algorithm = suite::scheme_of_v13(signed.scheme, peer.kind())
            .ok_or(Failure::Illegal("a signature scheme not offered"))?;
        let content = signed_content(self.role == Role::Client, &self.transcript_hash()?);
        peer.verify(algorithm, &content, signed.signature).map_err(|_| Failure::Signature)
    }

    /// Sends our certificate, and the proof of possession of its key. The certificate is empty if we have none
    /// that the peer accepts.
    pub(super) fn say_certificate(
        &mut self,
        link: &mut Link,
        scheme: Option<(u16, SignatureAlgorithm)>,
    ) -> Result<(), Failure> {
        let identity = self.config.identity.clone().zip(scheme);
        let leaf = identity.as_ref().map(|(identity, _)| identity.certificate());
        let mut body = Vec::new();
        Certificates { context: &[], leaf }.write(&mut body);
        self.say(link, MessageType::CERTIFICATE, body, EPOCH_OF_HANDSHAKE)?;
        let Some((identity, (scheme, algorithm))) = identity else { return Ok(()) };
        let content = signed_content(self.role == Role::Server, &self.transcript_hash()?);
        let signature = identity.key().sign(algorithm, &content).ok_or(Failure::Internal)?;
        let mut body = Vec::new();
        Signed { scheme, signature: &signature }.write(&mut body);
        self.say(link, MessageType::CERTIFICATE_VERIFY, body, EPOCH_OF_HANDSHAKE)
    }

    /// Returns the Finished of one side, for the transcript so far.
    fn finished(&self, by: Role) -> Result<Vec<u8>, Failure> {
        let secrets = self.secrets.as_ref().ok_or(Failure::Internal)?;
        let secret = match by {
            Role::Client => &secrets.traffic.client,
            Role::Server => &secrets.traffic.server,
        };
        secret.finished(&self.transcript_hash()?).ok_or(Failure::Internal)
    }

    pub(super) fn say_finished(&mut self, link: &mut Link) -> Result<(), Failure> {
        let data = self.finished(self.role)?;
        self.say(link, MessageType::FINISHED, data, EPOCH_OF_HANDSHAKE)
    }

    pub(super) fn check_finished(&self, body: &[u8]) -> Result<(), Failure> {
        let peer = match self.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        let data = self.finished(peer)?;
        if crypto::constant_time_eq(&data, body) { Ok(()) } else { Err(Failure::Finished) }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.transcript.capacity().saturating_add(self.hello.capacity())
    }
}
