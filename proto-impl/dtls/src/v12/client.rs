//! The client's state machine.

use crypto::AgreementKey;

use super::keys::Sender;
use super::server::check_point_formats;
use super::{Exchange, draw_random, scheme_numbers};
use crate::config::Config;
use crate::error::Failure;
use crate::handshake::{
    CertificateMessage, CertificateRequest, ClientHello, ExtensionType, Extensions, HelloVerifyRequest,
    KeyExchange, MessageType, ServerHello, Signed, write_public_value,
};
use crate::put;
use crate::reassembly::Message;
use crate::record::{VERSION_1_0, VERSION_1_2};
use crate::srtp;
use crate::suite::{
    CipherSuite, DOWNGRADE, DOWNGRADE_FURTHER, GROUPS, choose_scheme, group_number, group_of_number,
};

/// State of the client: the message that it expects.
#[derive(Debug)]
pub(crate) enum Client {
    /// Expects `ServerHello`, or `HelloVerifyRequest` once.
    Hello { verified: bool },
    /// Expects the server's certificate.
    Certificate,
    /// Expects the server's public value (`ServerKeyExchange`).
    KeyExchange,
    /// Expects `CertificateRequest` or `ServerHelloDone`.
    RequestOrDone { key: Box<AgreementKey>, public: Vec<u8> },
    /// Expects `ServerHelloDone`, the end of the flight.
    HelloDone { key: Box<AgreementKey>, public: Vec<u8>, request: CertificateRequest },
    /// Expects a protected Finished.
    Finished,
    /// The handshake is complete.
    Done,
}

impl Client {
    /// Sends a hello and returns the state.
    pub(crate) fn start(x: &mut Exchange) -> Result<Self, Failure> {
        x.hellos.client_random = draw_random(&mut x.random);
        say_hello(x, &[])?;
        Ok(Self::Hello { verified: false })
    }

    /// Returns the state after a hello that also offered DTLS 1.3.
    pub(crate) const fn after_hello() -> Self {
        Self::Hello { verified: false }
    }

    pub(crate) fn handle(self, x: &mut Exchange, message: &Message) -> Result<Self, Failure> {
        match (self, message.kind) {
            (Self::Hello { verified: false }, MessageType::HELLO_VERIFY_REQUEST) => {
                let request = HelloVerifyRequest::read(&message.body)?;
                // The first hello and the request are not part of the transcript (RFC 6347 §4.2.1).
                x.transcript.clear();
                say_hello(x, request.cookie)?;
                Ok(Self::Hello { verified: true })
            }
            (Self::Hello { .. }, MessageType::SERVER_HELLO) => hello(x, message),
            (Self::Certificate, MessageType::CERTIFICATE) => {
                x.take_certificate(CertificateMessage::read(&message.body)?.leaf)?;
                let kind = x.peer.as_ref().map(crypto::PublicKey::kind);
                if !x.suite.zip(kind).is_some_and(|(suite, kind)| suite.fits(kind)) {
                    return Err(Failure::CertificateKind);
                }
                x.hear(message)?;
                Ok(Self::KeyExchange)
            }
            (Self::KeyExchange, MessageType::SERVER_KEY_EXCHANGE) => key_exchange(x, message),
            (Self::RequestOrDone { key, public }, MessageType::CERTIFICATE_REQUEST) => {
                let request = CertificateRequest::read(&message.body)?;
                x.hear(message)?;
                Ok(Self::HelloDone { key, public, request })
            }
            (Self::RequestOrDone { key, public }, MessageType::SERVER_HELLO_DONE) => {
                answer(x, message, &key, &public, None)
            }
            (Self::HelloDone { key, public, request }, MessageType::SERVER_HELLO_DONE) => {
                answer(x, message, &key, &public, Some(&request))
            }
            (Self::Finished, MessageType::FINISHED) => {
                x.check_finished(Sender::Server, &message.body)?;
                Ok(Self::Done)
            }
            (_, kind) => Err(Failure::Unexpected(kind)),
        }
    }
}

fn say_hello(x: &mut Exchange, cookie: &[u8]) -> Result<(), Failure> {
    let offer = x.hellos.offer.take();
    // All other fields must be as in the first hello (RFC 6347 §4.2.1).
    let hello = match &offer {
        Some(offer) => ClientHello { cookie, ..ClientHello::read(offer)? },
        None => hello_of_12(x, cookie),
    };
    let mut body = Vec::new();
    hello.write(&mut body);
    // Uses the old version number, so that a server that only supports older versions can answer.
    x.begin_flight(VERSION_1_0);
    x.say(MessageType::CLIENT_HELLO, body, false)
}

fn hello_of_12<'a>(x: &Exchange, cookie: &'a [u8]) -> ClientHello<'a> {
    ClientHello {
        version: VERSION_1_2,
        random: x.hellos.client_random,
        session_id: &[],
        cookie,
        suites: CipherSuite::V12.into_iter().map(CipherSuite::number).collect(),
        compressions: &[0],
        extensions: offer(&x.config),
    }
}

/// Returns the extensions of a hello.
pub(crate) fn offer(config: &Config) -> Extensions<'static> {
    let list = |numbers: Vec<u16>| {
        let mut body = Vec::new();
        put::vec16(&mut body, &put::numbers(numbers));
        body
    };
    let mut extensions = Extensions::default();
    extensions.push(ExtensionType::EXTENDED_MASTER_SECRET, Vec::new());
    extensions.push(ExtensionType::RENEGOTIATION_INFO, vec![0]);
    extensions.push(ExtensionType::SUPPORTED_GROUPS, list(GROUPS.map(group_number).to_vec()));
    extensions.push(ExtensionType::EC_POINT_FORMATS, vec![1, 0]);
    extensions.push(ExtensionType::SIGNATURE_ALGORITHMS, list(scheme_numbers()));
    if !config.srtp_profiles.is_empty() {
        extensions.push(ExtensionType::USE_SRTP, srtp::offer(&config.srtp_profiles));
    }
    extensions
}

fn hello(x: &mut Exchange, message: &Message) -> Result<Client, Failure> {
    let hello = ServerHello::read(&message.body)?;
    if hello.version != VERSION_1_2 {
        return Err(Failure::Version);
    }
    if x.hellos.had_13 && (hello.random.ends_with(DOWNGRADE) || hello.random.ends_with(DOWNGRADE_FURTHER)) {
        return Err(Failure::Illegal("a server that was talked down to DTLS 1.2"));
    }
    let suite = CipherSuite::v12_of_number(hello.suite).ok_or(Failure::Illegal("a suite not offered"))?;
    if hello.compression != 0 {
        return Err(Failure::Illegal("a compression not offered"));
    }
    let offered = offer(&x.config);
    for (kind, _) in &hello.extensions.list {
        if offered.find(*kind).is_none() {
            return Err(Failure::UnsupportedExtension(kind.0));
        }
    }
    // A server without the extension is accepted, since we never renegotiate.
    hello.extensions.check_renegotiation()?;
    check_point_formats(&hello.extensions)?;
    if !hello.extensions.has_empty(ExtensionType::EXTENDED_MASTER_SECRET)? {
        return Err(Failure::NoExtendedMasterSecret);
    }
    x.profile = srtp::chosen(&x.config.srtp_profiles, &hello.extensions)?;
    x.suite = Some(suite);
    x.hellos.server_random = hello.random;
    x.hear(message)?;
    Ok(Client::Certificate)
}

fn key_exchange(x: &mut Exchange, message: &Message) -> Result<Client, Failure> {
    let exchange = KeyExchange::read(&message.body)?;
    let group = group_of_number(exchange.group).ok_or(Failure::Illegal("a group not offered"))?;
    let signed = [&x.hellos.client_random[..], &x.hellos.server_random, exchange.parameters].concat();
    x.verify(exchange.signed, &signed)?;
    x.hear(message)?;
    let key = AgreementKey::new(group, &mut x.random).ok_or(Failure::Internal)?;
    Ok(Client::RequestOrDone { key: Box::new(key), public: exchange.public.to_vec() })
}

/// Sends the client's flight.
fn answer(
    x: &mut Exchange,
    message: &Message,
    key: &AgreementKey,
    public: &[u8],
    request: Option<&CertificateRequest>,
) -> Result<Client, Failure> {
    if !message.body.is_empty() {
        return Err(Failure::Malformed);
    }
    x.hear(message)?;
    x.begin_flight(VERSION_1_2);
    let identity = x.config.identity.clone();
    let mine = request.zip(identity.as_ref()).and_then(|(request, identity)| {
        choose_scheme(identity.key().kind(), &request.schemes).map(|scheme| (identity, scheme))
    });
    if request.is_some() {
        let mut body = Vec::new();
        CertificateMessage { leaf: mine.as_ref().map(|(identity, _)| identity.certificate()) }
            .write(&mut body);
        x.say(MessageType::CERTIFICATE, body, false)?;
    }
    x.say(MessageType::CLIENT_KEY_EXCHANGE, write_public_value(&key.public()), false)?;
    key.agree(public, |shared| x.derive(shared, Sender::Client)).map_err(|_| Failure::PublicValue)??;
    if let Some((_, (scheme, algorithm))) = mine {
        let signature = x.sign(algorithm, &x.transcript)?;
        let mut body = Vec::new();
        Signed { scheme, signature: &signature }.write(&mut body);
        x.say(MessageType::CERTIFICATE_VERIFY, body, false)?;
    }
    x.say_finished(Sender::Client)?;
    Ok(Client::Finished)
}
