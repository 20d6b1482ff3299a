//! The client's state machine.

use crypto::{AgreementGroup, AgreementKey};

use super::exchange::{Exchange, Link};
use super::{RETRY_RANDOM, Stop};
use crate::config::Config;
use crate::error::Failure;
use crate::handshake::{
    Certificates, ClientHello, ExtensionType, Extensions, KeyShare, MessageType, SchemesRequest, ServerHello,
    extensions_alone, read_cookie, write_cookie,
};
use crate::put;
use crate::reassembly::Message;
use crate::record::{VERSION_1_2, VERSION_1_3};
use crate::srtp;
use crate::suite::{CipherSuite, choose_scheme_v13, group_number, group_of_number};
use crate::v12;

/// State of the client: the message that it expects.
#[derive(Debug)]
pub(super) enum Client {
    /// Expects `ServerHello`; or, once, `HelloRetryRequest`, which sets the suite in `retried`.
    Hello { key: Box<AgreementKey>, retried: Option<CipherSuite> },
    /// Expects `EncryptedExtensions`.
    Extensions,
    /// Expects `CertificateRequest` or the server's certificate.
    RequestOrCertificate,
    /// Expects the server's certificate.
    Certificate { request: SchemesRequest },
    /// Expects the server's `CertificateVerify`.
    Verify { request: Option<SchemesRequest> },
    /// Expects the server's Finished.
    Finished { request: Option<SchemesRequest> },
    /// The handshake is complete on the client's side.
    Done,
}

impl Client {
    /// Sends a hello and returns the state.
    pub(super) fn start(x: &mut Exchange, link: &mut Link) -> Result<Self, Failure> {
        let key = draw_key(x, AgreementGroup::X25519)?;
        let random = v12::draw_random(&mut x.random);
        let mut body = Vec::new();
        ClientHello {
            version: VERSION_1_2,
            random,
            session_id: &[],
            cookie: &[],
            suites: suites(&x.config),
            compressions: &[0],
            extensions: offer(&x.config, &key),
        }
        .write(&mut body);
        say_hello(x, link, body)?;
        Ok(Self::Hello { key, retried: None })
    }

    pub(super) fn handle(self, x: &mut Exchange, link: &mut Link, message: &Message) -> Result<Self, Stop> {
        match (self, message.kind) {
            (Self::Hello { key, retried }, MessageType::SERVER_HELLO) => {
                server_hello(x, link, key, retried, message)
            }
            // A `HelloVerifyRequest` means DTLS 1.2 (RFC 9147 §5.1).
            (Self::Hello { retried: None, .. }, MessageType::HELLO_VERIFY_REQUEST) => {
                let takes_it = x.config.versions.have_12();
                Err(if takes_it { Stop::FallsBack(message.clone()) } else { Failure::Version.into() })
            }
            (Self::Extensions, MessageType::ENCRYPTED_EXTENSIONS) => {
                let extensions = extensions_alone(&message.body)?;
                check_extensions(x, &extensions)?;
                x.profile = srtp::chosen(&x.config.srtp_profiles, &extensions)?;
                x.hear(message)?;
                Ok(Self::RequestOrCertificate)
            }
            (Self::RequestOrCertificate, MessageType::CERTIFICATE_REQUEST) => {
                let request = SchemesRequest::read(&message.body)?;
                x.hear(message)?;
                Ok(Self::Certificate { request })
            }
            (Self::RequestOrCertificate, MessageType::CERTIFICATE) => certificate(x, message, None),
            (Self::Certificate { request }, MessageType::CERTIFICATE) => {
                certificate(x, message, Some(request))
            }
            (Self::Verify { request }, MessageType::CERTIFICATE_VERIFY) => {
                x.check_signature(&message.body)?;
                x.hear(message)?;
                Ok(Self::Finished { request })
            }
            (Self::Finished { request }, MessageType::FINISHED) => {
                x.check_finished(&message.body)?;
                x.hear(message)?;
                x.derive_application()?;
                answer(x, link, request.as_ref())?;
                Ok(Self::Done)
            }
            (_, kind) => Err(Failure::Unexpected(kind).into()),
        }
    }
}

fn draw_key(x: &mut Exchange, group: AgreementGroup) -> Result<Box<AgreementKey>, Failure> {
    AgreementKey::new(group, &mut x.random).map(Box::new).ok_or(Failure::Internal)
}

fn suites(config: &Config) -> Vec<u16> {
    let older: &[CipherSuite] = if config.versions.have_12() { &CipherSuite::V12 } else { &[] };
    CipherSuite::V13.iter().chain(older).map(|suite| suite.number()).collect()
}

fn key_share(key: &AgreementKey) -> Vec<u8> {
    let mut list = Vec::new();
    KeyShare { group: group_number(key.group()), public: &key.public() }.write(&mut list);
    let mut body = Vec::new();
    put::vec16(&mut body, &list);
    body
}

/// Returns the extensions of a hello: those of DTLS 1.2 if that is supported as well, and the two mandatory
/// ones of DTLS 1.3.
fn offer(config: &Config, key: &AgreementKey) -> Extensions<'static> {
    let mut extensions = v12::client::offer(config);
    if !config.versions.have_12() {
        let older = [
            ExtensionType::EXTENDED_MASTER_SECRET,
            ExtensionType::RENEGOTIATION_INFO,
            ExtensionType::EC_POINT_FORMATS,
        ];
        extensions.list.retain(|(kind, _)| !older.contains(kind));
    }
    let mut versions = Vec::new();
    let older = config.versions.have_12().then_some(VERSION_1_2);
    put::vec8(&mut versions, &put::numbers([VERSION_1_3].into_iter().chain(older)));
    extensions.push(ExtensionType::SUPPORTED_VERSIONS, versions);
    extensions.push(ExtensionType::KEY_SHARE, key_share(key));
    extensions
}

fn say_hello(x: &mut Exchange, link: &mut Link, body: Vec<u8>) -> Result<(), Failure> {
    link.begin_flight();
    x.hello.clone_from(&body);
    x.say(link, MessageType::CLIENT_HELLO, body, 0)
}

/// Performs the checks common to `ServerHello` and `HelloRetryRequest` (RFC 8446 §4.1.3, RFC 9147 §5.4).
/// Returns the suite.
fn check_hello(hello: &ServerHello<'_>) -> Result<CipherSuite, Failure> {
    if hello.extensions.find(ExtensionType::SUPPORTED_VERSIONS) != Some(&VERSION_1_3.to_be_bytes()) {
        return Err(Failure::Illegal("a version not offered"));
    }
    if hello.version != VERSION_1_2 {
        return Err(Failure::Version);
    }
    if !hello.session_id.is_empty() {
        return Err(Failure::Illegal("a session not offered"));
    }
    if hello.compression != 0 {
        return Err(Failure::Illegal("a compression not offered"));
    }
    CipherSuite::v13_of_number(hello.suite).ok_or(Failure::Illegal("a suite not offered"))
}

/// Checks that a message contains no extensions other than the `known` ones.
fn check_known(extensions: &Extensions<'_>, known: &[ExtensionType]) -> Result<(), Failure> {
    match extensions.list.iter().find(|(kind, _)| !known.contains(kind)) {
        Some((kind, _)) => Err(Failure::UnsupportedExtension(kind.0)),
        None => Ok(()),
    }
}

fn server_hello(
    x: &mut Exchange,
    link: &mut Link,
    key: Box<AgreementKey>,
    retried: Option<CipherSuite>,
    message: &Message,
) -> Result<Client, Stop> {
    let hello = ServerHello::read(&message.body)?;
    if hello.extensions.find(ExtensionType::SUPPORTED_VERSIONS).is_none() {
        let takes_it = retried.is_none() && x.config.versions.have_12();
        return Err(if takes_it { Stop::FallsBack(message.clone()) } else { Failure::Version.into() });
    }
    let suite = check_hello(&hello)?;
    if hello.random == RETRY_RANDOM {
        if retried.is_some() {
            return Err(Failure::Unexpected(message.kind).into());
        }
        return Ok(retry(x, link, key, suite, message, &hello)?);
    }
    check_known(&hello.extensions, &[ExtensionType::SUPPORTED_VERSIONS, ExtensionType::KEY_SHARE])?;
    if retried.is_some_and(|before| before != suite) {
        return Err(Failure::Illegal("another suite than before").into());
    }
    let share = hello.extensions.find(ExtensionType::KEY_SHARE);
    let share = KeyShare::read(share.ok_or(Failure::MissingExtension(ExtensionType::KEY_SHARE.0))?)?;
    if share.group != group_number(key.group()) {
        return Err(Failure::Illegal("a group without a share").into());
    }
    x.suite = Some(suite);
    x.hear(message)?;
    key.agree(share.public, |shared| x.protect(link, shared)).map_err(|_| Failure::PublicValue)??;
    Ok(Client::Extensions)
}

/// Answers a `HelloRetryRequest` (RFC 8446 §4.1.4), which contains a cookie, a request for a share of another
/// group, or both.
fn retry(
    x: &mut Exchange,
    link: &mut Link,
    key: Box<AgreementKey>,
    suite: CipherSuite,
    message: &Message,
    request: &ServerHello<'_>,
) -> Result<Client, Failure> {
    let known = [ExtensionType::SUPPORTED_VERSIONS, ExtensionType::KEY_SHARE, ExtensionType::COOKIE];
    check_known(&request.extensions, &known)?;
    let cookie = request.extensions.find(ExtensionType::COOKIE).map(read_cookie).transpose()?;
    let key = match request.extensions.find(ExtensionType::KEY_SHARE) {
        Some(body) => {
            let group: [u8; 2] = body.try_into().map_err(|_| Failure::Malformed)?;
            let group = group_of_number(u16::from_be_bytes(group))
                .filter(|group| *group != key.group())
                .ok_or(Failure::Illegal("a group not offered, or with a share already"))?;
            draw_key(x, group)?
        }
        None if cookie.is_none() => return Err(Failure::Illegal("a hello that would be the same again")),
        None => key,
    };
    x.retry(suite);
    x.hear(message)?;
    let first = std::mem::take(&mut x.hello);
    let mut hello = ClientHello::read(&first)?;
    hello.extensions.set(ExtensionType::KEY_SHARE, key_share(&key));
    if let Some(cookie) = cookie {
        hello.extensions.set(ExtensionType::COOKIE, write_cookie(cookie));
    }
    let mut body = Vec::new();
    hello.write(&mut body);
    link.records.settle();
    say_hello(x, link, body)?;
    Ok(Client::Hello { key, retried: Some(suite) })
}

/// Checks that each extension was offered and is allowed in this message (RFC 8446 §4.2).
fn check_extensions(x: &Exchange, extensions: &Extensions<'_>) -> Result<(), Failure> {
    let hello = ClientHello::read(&x.hello)?;
    for (kind, _) in &extensions.list {
        if hello.extensions.find(*kind).is_none() {
            return Err(Failure::UnsupportedExtension(kind.0));
        }
        if !matches!(*kind, ExtensionType::USE_SRTP | ExtensionType::SUPPORTED_GROUPS) {
            return Err(Failure::Illegal("an extension of another message"));
        }
    }
    Ok(())
}

fn certificate(x: &mut Exchange, message: &Message, request: Option<SchemesRequest>) -> Result<Client, Stop> {
    let certificates = Certificates::read(&message.body)?;
    if !certificates.context.is_empty() {
        return Err(Failure::Malformed.into());
    }
    // A server always has a certificate (RFC 8446 §4.4.2.4).
    x.take_certificate(certificates.leaf.ok_or(Failure::Malformed)?)?;
    x.hear(message)?;
    Ok(Client::Verify { request })
}

/// Sends the client's last flight.
fn answer(x: &mut Exchange, link: &mut Link, request: Option<&SchemesRequest>) -> Result<(), Failure> {
    link.begin_flight();
    if let Some(request) = request {
        let kind = x.config.identity.as_ref().map(|identity| identity.key().kind());
        x.say_certificate(link, kind.and_then(|kind| choose_scheme_v13(kind, &request.schemes)))?;
    }
    x.say_finished(link)?;
    x.write_application(link)?;
    x.read_application(link)
}
