//! The handshake of DTLS 1.2 (RFC 6347 §4.2, RFC 5246 §7.3), with the client's certificate:
//!
//! ```text
//!    client                                     server
//! 1  ClientHello                   ------>
//! 2                                <------      HelloVerifyRequest, when a cookie is wanted
//! 3  ClientHello, cookie           ------>
//! 4                                <------      ServerHello, Certificate, ServerKeyExchange,
//!                                               CertificateRequest, ServerHelloDone
//! 5  Certificate, ClientKeyExchange,
//!    CertificateVerify,
//!    ChangeCipherSpec, Finished    ------>
//! 6                                <------      ChangeCipherSpec, Finished
//! ```
//!
//! [`client`] and [`server`] are the state machines of the two roles; both update an [`Exchange`].

pub(crate) mod client;
pub(crate) mod keys;
pub(crate) mod server;

use std::sync::Arc;

use crypto::{KeyKind, PublicKey, Random, SignatureAlgorithm};

use crate::certificate;
use crate::config::{Config, Expected, PeerCheck};
use crate::error::Failure;
use crate::flight::Flight;
use crate::handshake::{ClientHello, FragmentHead, HEAD_BYTES, MessageType, Signed};
use crate::reassembly::Message;
use crate::record::{Cipher, VERSION_1_0, VERSION_1_2};
use crate::srtp::SrtpProfile;
use crate::suite::{CipherSuite, SCHEMES, scheme_of_number};

use client::Client;
use keys::{Secrets, Sender};
use server::Server;

/// Maximum size of all messages of a handshake together, in both directions. Typical peers need 2 to 4 KiB.
pub(crate) const TRANSCRIPT_BYTES_MAX: usize = 28 * 1024;
/// Step by which the transcript's buffer grows.
const TRANSCRIPT_BYTES_STEP: usize = 2 * 1024;

/// Data from both hellos that is needed later.
#[derive(Debug, Default)]
struct Hellos {
    /// Random values of the hellos (RFC 5246 §7.4.1.2).
    client_random: [u8; 32],
    server_random: [u8; 32],
    /// True if we also support DTLS 1.3, but the peer chose DTLS 1.2.
    had_13: bool,
    /// The client's hello, if it also offered DTLS 1.3.
    offer: Option<Vec<u8>>,
}

/// Handshake state that both roles accumulate with each message.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) config: Arc<Config>,
    pub(crate) expected: Expected,
    random: Random,
    /// All messages, as if each were sent in one fragment (RFC 6347 §4.2.6).
    transcript: Vec<u8>,
    /// Sequence number of the next message to send.
    sequence: u16,
    pub(crate) flight: Flight,
    /// True if the flight is new, and its timer has not been started yet.
    fresh: bool,
    hellos: Hellos,
    suite: Option<CipherSuite>,
    pub(crate) profile: Option<SrtpProfile>,
    peer: Option<PublicKey>,
    pub(crate) peer_sha256: Option<[u8; 32]>,
    pub(crate) secrets: Option<Secrets>,
    /// Cipher for records after the peer's `ChangeCipherSpec`.
    pub(crate) read: Option<Cipher>,
    /// Cipher for records after our `ChangeCipherSpec`, until it is moved into the flight.
    pub(crate) write: Option<Cipher>,
}

impl Exchange {
    pub(crate) fn new(config: Arc<Config>, random: Random) -> Self {
        Self {
            config,
            expected: Expected::Unknown,
            random,
            transcript: Vec::new(),
            sequence: 0,
            flight: Flight::new(VERSION_1_2),
            fresh: false,
            hellos: Hellos::default(),
            suite: None,
            profile: None,
            peer: None,
            peer_sha256: None,
            secrets: None,
            read: None,
            write: None,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.transcript.capacity().saturating_add(self.flight.held_bytes())
    }

    /// True if the check of the peer's certificate must wait until its fingerprints are announced.
    pub(crate) fn waits_for_fingerprints(&self) -> bool {
        self.config.check == PeerCheck::Fingerprint && self.expected == Expected::Unknown
    }

    /// Continues as DTLS 1.2, after the peer chose DTLS 1.2 over 1.3. A client has already sent its `hello`.
    pub(crate) fn had_13(&mut self, hello: &[u8]) -> Result<(), Failure> {
        self.hellos.had_13 = true;
        if hello.is_empty() {
            return Ok(());
        }
        self.hellos.client_random = ClientHello::read(hello)?.random;
        self.hellos.offer = Some(hello.to_vec());
        self.begin_flight(VERSION_1_0);
        self.say(MessageType::CLIENT_HELLO, hello.to_vec(), false)?;
        self.flight.skip();
        self.fresh = false;
        Ok(())
    }

    fn begin_flight(&mut self, version: u16) {
        self.flight = Flight::new(version);
        self.fresh = true;
    }

    /// Returns true if a new flight was started since the last call.
    pub(crate) fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Adds one of our messages to the flight and to the transcript.
    fn say(&mut self, kind: MessageType, body: Vec<u8>, protected: bool) -> Result<(), Failure> {
        let sequence = self.sequence;
        self.sequence = self.sequence.saturating_add(1);
        self.note(kind, sequence, &body)?;
        self.flight.push(kind, sequence, body, protected);
        Ok(())
    }

    /// Adds a message of the peer to the transcript.
    fn hear(&mut self, message: &Message) -> Result<(), Failure> {
        self.note(message.kind, message.sequence, &message.body)
    }

    fn note(&mut self, kind: MessageType, sequence: u16, body: &[u8]) -> Result<(), Failure> {
        let bytes = self.transcript.len().saturating_add(HEAD_BYTES).saturating_add(body.len());
        if bytes > TRANSCRIPT_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        if bytes > self.transcript.capacity() {
            // Doubling the capacity would exceed the limit for held bytes.
            let more = bytes.next_multiple_of(TRANSCRIPT_BYTES_STEP).saturating_sub(self.transcript.len());
            self.transcript.reserve_exact(more);
        }
        let head = FragmentHead { kind, length: body.len(), sequence, offset: 0, fragment: body.len() };
        head.write(&mut self.transcript);
        self.transcript.extend_from_slice(body);
        Ok(())
    }

    /// Reads the peer's certificate and compares it with the announced fingerprints.
    fn take_certificate(&mut self, leaf: Option<&[u8]>) -> Result<(), Failure> {
        let leaf = leaf.ok_or(Failure::NoCertificate)?;
        let (key, digest) = certificate::check_peer(self.config.check, &self.expected, leaf)?;
        self.peer = Some(key);
        self.peer_sha256 = digest;
        Ok(())
    }

    /// Checks that the peer's key has signed this message, with a scheme that we offered.
    fn verify(&self, signed: Signed<'_>, message: &[u8]) -> Result<(), Failure> {
        let algorithm =
            scheme_of_number(signed.scheme).ok_or(Failure::Illegal("a signature scheme not offered"))?;
        let peer = self.peer.as_ref().ok_or(Failure::NoCertificate)?;
        let rsa = matches!(algorithm, SignatureAlgorithm::RsaPkcs1(_) | SignatureAlgorithm::RsaPss(_));
        if rsa != matches!(peer.kind(), KeyKind::Rsa) {
            return Err(Failure::Illegal("a signature scheme of another kind of key"));
        }
        peer.verify(algorithm, message, signed.signature).map_err(|_| Failure::Signature)
    }

    /// Derives secrets and ciphers, once `ClientKeyExchange` is in the transcript.
    fn derive(&mut self, shared: &[u8], own: Sender) -> Result<(), Failure> {
        let suite = self.suite.ok_or(Failure::Internal)?;
        let secrets = Secrets::new(
            suite,
            shared,
            &self.transcript,
            &self.hellos.client_random,
            &self.hellos.server_random,
        )
        .ok_or(Failure::Internal)?;
        let (client, server) = secrets.ciphers().ok_or(Failure::Internal)?;
        let (write, read) = match own {
            Sender::Client => (client, server),
            Sender::Server => (server, client),
        };
        (self.write, self.read) = (Some(write), Some(read));
        self.secrets = Some(secrets);
        Ok(())
    }

    /// Ends a flight with `ChangeCipherSpec` and Finished.
    fn say_finished(&mut self, own: Sender) -> Result<(), Failure> {
        let data = self.verify_data(own)?;
        self.flight.push_change_cipher_spec();
        self.say(MessageType::FINISHED, data.to_vec(), true)
    }

    fn check_finished(&self, peer: Sender, body: &[u8]) -> Result<(), Failure> {
        let data = self.verify_data(peer)?;
        if crypto::constant_time_eq(&data, body) { Ok(()) } else { Err(Failure::Finished) }
    }

    fn verify_data(&self, sender: Sender) -> Result<[u8; keys::VERIFY_BYTES], Failure> {
        let secrets = self.secrets.as_ref().ok_or(Failure::Internal)?;
        secrets.verify_data(sender, &self.transcript).ok_or(Failure::Internal)
    }

    /// Signs `message` with our key.
    fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let identity = self.config.identity.as_ref().ok_or(Failure::Internal)?;
        identity.key().sign(algorithm, message).ok_or(Failure::Internal)
    }
}

/// Returns the numbers of the signature schemes that we offer and request.
pub(crate) fn scheme_numbers() -> Vec<u16> {
    SCHEMES.into_iter().map(|(number, _)| number).collect()
}

/// Draws 32 random bytes that do not end with the downgrade marker of a TLS 1.3 server (RFC 8446 §4.1.3),
/// because a client that supports both versions would abort.
pub(crate) fn draw_random(random: &mut Random) -> [u8; 32] {
    let mut bytes = [0; 32];
    loop {
        random.fill(&mut bytes);
        if !bytes.ends_with(b"DOWNGRD\x01") && !bytes.ends_with(b"DOWNGRD\x00") {
            return bytes;
        }
    }
}

/// State machine of the client or of the server.
#[derive(Debug)]
pub(crate) enum Side {
    Client(Client),
    Server(Server),
}

impl Side {
    /// Handles the next message. If an answer is due, the exchange contains a new flight afterwards.
    pub(crate) fn handle(self, x: &mut Exchange, message: &Message) -> Result<Self, Failure> {
        if message.protected != self.awaits_finished() {
            return Err(Failure::Unexpected(message.kind));
        }
        Ok(match self {
            Self::Client(client) => Self::Client(client.handle(x, message)?),
            Self::Server(server) => Self::Server(server.handle(x, message)?),
        })
    }

    pub(crate) const fn awaits_finished(&self) -> bool {
        matches!(self, Self::Client(Client::Finished) | Self::Server(Server::Finished))
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Client(Client::Done) | Self::Server(Server::Done))
    }

    /// True if nothing has been received from the peer yet.
    pub(crate) const fn awaits_hello(&self) -> bool {
        matches!(self, Self::Client(Client::Hello { .. }) | Self::Server(Server::Hello))
    }
}
