//! The client's order of messages.

use crypto::AgreementKey;

use super::keys::Sender;
use super::server::check_point_formats;
use super::{Exchange, draw_random, scheme_numbers};
use crate::error::Failure;
use crate::handshake::{
    CertificateMessage, CertificateRequest, ClientHello, ExtensionType, Extensions, HelloVerifyRequest,
    KeyExchange, MessageType, ServerHello, Signed, UseSrtp, write_public_value,
};
use crate::put;
use crate::reassembly::Message;
use crate::record::{VERSION_1_0, VERSION_1_2};
use crate::srtp::SrtpProfile;
use crate::suite::{CipherSuite, GROUPS, choose_scheme, group_number, group_of_number};

/// The message that the client awaits.
#[derive(Debug)]
pub(crate) enum Client {
    /// Expects `ServerHello`, or once `HelloVerifyRequest`.
    Hello { verified: bool },
    /// The server's certificate.
    Certificate,
    /// The server's public value.
    KeyExchange,
    /// Expects `CertificateRequest` or `ServerHelloDone`.
    RequestOrDone { key: Box<AgreementKey>, public: Vec<u8> },
    /// The end of the flight.
    HelloDone { key: Box<AgreementKey>, public: Vec<u8>, request: CertificateRequest },
    /// Finished, protected.
    Finished,
    /// The handshake is complete.
    Done,
}

impl Client {
    /// Says hello.
    pub(crate) fn start(x: &mut Exchange) -> Result<Self, Failure> {
        x.randoms.client = draw_random(&mut x.random);
        say_hello(x, &[])?;
        Ok(Self::Hello { verified: false })
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
    let hello = ClientHello {
        version: VERSION_1_2,
        random: x.randoms.client,
        session_id: &[],
        cookie,
        suites: CipherSuite::ALL.into_iter().map(CipherSuite::number).collect(),
        compressions: &[0],
        extensions: offer(x),
    };
    let mut body = Vec::new();
    hello.write(&mut body);
    // A server that speaks less than DTLS 1.2 shall be able to say so.
    x.begin_flight(VERSION_1_0);
    x.say(MessageType::CLIENT_HELLO, body, false)
}

fn offer(x: &Exchange) -> Extensions<'static> {
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
    if !x.config.srtp_profiles.is_empty() {
        let profiles = x.config.srtp_profiles.iter().map(|profile| profile.number()).collect();
        extensions.push(ExtensionType::USE_SRTP, UseSrtp { profiles, mki: &[] }.write());
    }
    extensions
}

fn hello(x: &mut Exchange, message: &Message) -> Result<Client, Failure> {
    let hello = ServerHello::read(&message.body)?;
    if hello.version != VERSION_1_2 {
        return Err(Failure::Version);
    }
    let suite = CipherSuite::of_number(hello.suite).ok_or(Failure::Illegal("a suite not offered"))?;
    if hello.compression != 0 {
        return Err(Failure::Illegal("a compression not offered"));
    }
    let offered = offer(x);
    for (kind, _) in &hello.extensions.list {
        if offered.find(*kind).is_none() {
            return Err(Failure::UnsupportedExtension(kind.0));
        }
    }
    // A server that does not know the extension is taken: nothing is ever renegotiated here.
    hello.extensions.check_renegotiation()?;
    check_point_formats(&hello.extensions)?;
    if !hello.extensions.has_empty(ExtensionType::EXTENDED_MASTER_SECRET)? {
        return Err(Failure::NoExtendedMasterSecret);
    }
    x.profile = chosen_profile(&x.config.srtp_profiles, &hello.extensions)?;
    x.suite = Some(suite);
    x.randoms.server = hello.random;
    x.hear(message)?;
    Ok(Client::Certificate)
}

/// The server names one of the offered profiles (RFC 5764 §4.1.1).
fn chosen_profile(ours: &[SrtpProfile], extensions: &Extensions<'_>) -> Result<Option<SrtpProfile>, Failure> {
    if ours.is_empty() {
        return Ok(None);
    }
    let body = extensions.find(ExtensionType::USE_SRTP).ok_or(Failure::NoCommonSrtpProfile)?;
    let srtp = UseSrtp::read(body)?;
    let [number] = srtp.profiles[..] else { return Err(Failure::Malformed) };
    let profile = SrtpProfile::of_number(number).filter(|profile| ours.contains(profile));
    // No identifier was offered, so none can come back (RFC 5764 §4.1.3).
    if !srtp.mki.is_empty() {
        return Err(Failure::Illegal("a master key identifier not offered"));
    }
    profile.map(Some).ok_or(Failure::Illegal("an SRTP profile not offered"))
}

fn key_exchange(x: &mut Exchange, message: &Message) -> Result<Client, Failure> {
    let exchange = KeyExchange::read(&message.body)?;
    let group = group_of_number(exchange.group).ok_or(Failure::Illegal("a group not offered"))?;
    let signed = [&x.randoms.client[..], &x.randoms.server, exchange.parameters].concat();
    x.verify(exchange.signed, &signed)?;
    x.hear(message)?;
    let key = AgreementKey::new(group, &mut x.random).ok_or(Failure::Internal)?;
    Ok(Client::RequestOrDone { key: Box::new(key), public: exchange.public.to_vec() })
}

/// The client's flight.
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
