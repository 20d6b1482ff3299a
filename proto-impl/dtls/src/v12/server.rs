//! The server's state machine.

use crypto::{AgreementGroup, AgreementKey, SignatureAlgorithm};

use super::keys::Sender;
use super::{Exchange, draw_random, scheme_numbers};
use crate::config::PeerCheck;
use crate::error::Failure;
use crate::handshake::{
    CertificateMessage, CertificateRequest, ClientHello, ExtensionType, Extensions, KeyExchange, MessageType,
    ServerHello, Signed, UseSrtp, read_numbers8, read_numbers16, read_public_value,
};
use crate::put;
use crate::reassembly::Message;
use crate::record::VERSION_1_2;
use crate::srtp::{self, SrtpProfile};
use crate::suite::{CipherSuite, DOWNGRADE, GROUPS, RENEGOTIATION_SCSV, choose_scheme, group_number};

/// State of the server: the message that it expects.
#[derive(Debug)]
pub(crate) enum Server {
    /// Expects `ClientHello`.
    Hello,
    /// Expects the client's certificate.
    Certificate { key: Box<AgreementKey> },
    /// Expects `ClientKeyExchange`.
    KeyExchange { key: Box<AgreementKey>, certificate: bool },
    /// Expects `CertificateVerify`.
    Verify,
    /// Expects a protected Finished.
    Finished,
    /// The handshake is complete.
    Done,
}

impl Server {
    pub(crate) fn handle(self, x: &mut Exchange, message: &Message) -> Result<Self, Failure> {
        match (self, message.kind) {
            (Self::Hello, MessageType::CLIENT_HELLO) => hello(x, message),
            (Self::Certificate { key }, MessageType::CERTIFICATE) => {
                x.take_certificate(CertificateMessage::read(&message.body)?.leaf)?;
                x.hear(message)?;
                Ok(Self::KeyExchange { key, certificate: true })
            }
            (Self::KeyExchange { key, certificate }, MessageType::CLIENT_KEY_EXCHANGE) => {
                x.hear(message)?;
                let public = read_public_value(&message.body)?;
                key.agree(public, |shared| x.derive(shared, Sender::Server))
                    .map_err(|_| Failure::PublicValue)??;
                Ok(if certificate { Self::Verify } else { Self::Finished })
            }
            (Self::Verify, MessageType::CERTIFICATE_VERIFY) => {
                x.verify(Signed::read(&message.body)?, &x.transcript)?;
                x.hear(message)?;
                Ok(Self::Finished)
            }
            (Self::Finished, MessageType::FINISHED) => {
                x.check_finished(Sender::Client, &message.body)?;
                x.hear(message)?;
                x.begin_flight(VERSION_1_2);
                x.say_finished(Sender::Server)?;
                Ok(Self::Done)
            }
            (_, kind) => Err(Failure::Unexpected(kind)),
        }
    }
}

/// Parameters chosen from an offer.
struct Choice {
    suite: CipherSuite,
    group: AgreementGroup,
    scheme: (u16, SignatureAlgorithm),
    profile: Option<SrtpProfile>,
    /// True if the client supports `renegotiation_info`.
    renegotiation: bool,
    /// True if the client sent `ec_point_formats`.
    point_formats: bool,
}

fn choose(x: &Exchange, hello: &ClientHello<'_>) -> Result<Choice, Failure> {
    check_version(hello)?;
    if !hello.compressions.contains(&0) {
        return Err(Failure::Illegal("compression methods without null"));
    }
    let extensions = &hello.extensions;
    let renegotiation = extensions.check_renegotiation()? || hello.suites.contains(&RENEGOTIATION_SCSV);
    if !extensions.has_empty(ExtensionType::EXTENDED_MASTER_SECRET)? {
        return Err(Failure::NoExtendedMasterSecret);
    }
    let kind = x.config.identity.as_ref().ok_or(Failure::Internal)?.key().kind();
    let suite = CipherSuite::V12
        .into_iter()
        .find(|suite| suite.fits(kind) && hello.suites.contains(&suite.number()))
        .ok_or(Failure::NoCommonSuite)?;
    let offered = extensions.find(ExtensionType::SIGNATURE_ALGORITHMS).map(read_numbers16).transpose()?;
    // Without the extension, a client only supports SHA-1 (RFC 5246 §7.4.1.4.1).
    let scheme = choose_scheme(kind, &offered.unwrap_or_default()).ok_or(Failure::NoCommonSignature)?;
    let point_formats = check_point_formats(extensions)?;
    let profile = srtp::choose(&x.config.srtp_profiles, extensions)?;
    Ok(Choice { suite, group: choose_group(extensions)?, scheme, profile, renegotiation, point_formats })
}

/// Checks the client's version. Newer versions of DTLS have lower numbers. A client with a newer version also
/// supports DTLS 1.2, unless its `supported_versions` extension says otherwise.
fn check_version(hello: &ClientHello<'_>) -> Result<(), Failure> {
    if hello.version > VERSION_1_2 {
        return Err(Failure::Version);
    }
    let versions = hello.extensions.find(ExtensionType::SUPPORTED_VERSIONS).map(read_numbers8).transpose()?;
    match versions {
        Some(versions) if !versions.contains(&VERSION_1_2) => Err(Failure::Version),
        Some(_) | None => Ok(()),
    }
}

fn choose_group(extensions: &Extensions<'_>) -> Result<AgreementGroup, Failure> {
    let Some(body) = extensions.find(ExtensionType::SUPPORTED_GROUPS) else {
        // A client that lists no groups accepts any group (RFC 8422 §4).
        return Ok(AgreementGroup::P256);
    };
    let offered = read_numbers16(body)?;
    let common = GROUPS.into_iter().find(|group| offered.contains(&group_number(*group)));
    common.ok_or(Failure::NoCommonGroup)
}

/// Checks that the client supports uncompressed points, if it lists formats (RFC 8422 §5.1.2). Returns true if
/// it lists any.
pub(super) fn check_point_formats(extensions: &Extensions<'_>) -> Result<bool, Failure> {
    let Some(body) = extensions.find(ExtensionType::EC_POINT_FORMATS) else { return Ok(false) };
    match body.split_first() {
        Some((length, formats)) if usize::from(*length) == formats.len() && !formats.is_empty() => {
            if formats.contains(&0) { Ok(true) } else { Err(Failure::Illegal("no uncompressed points")) }
        }
        Some(_) | None => Err(Failure::Malformed),
    }
}

fn hello(x: &mut Exchange, message: &Message) -> Result<Server, Failure> {
    let hello = ClientHello::read(&message.body)?;
    let choice = choose(x, &hello)?;
    let identity = x.config.identity.clone().ok_or(Failure::Internal)?;
    x.hear(message)?;
    // A hello with a cookie is the client's second message, so the answer is the server's second message, too
    // (RFC 6347 §4.2.2).
    x.sequence = message.sequence;
    x.hellos.client_random = hello.random;
    x.hellos.server_random = draw_random(&mut x.random);
    if x.hellos.had_13
        && let Some(end) = x.hellos.server_random.last_chunk_mut()
    {
        *end = *DOWNGRADE;
    }
    x.suite = Some(choice.suite);
    x.profile = choice.profile;
    let key = AgreementKey::new(choice.group, &mut x.random).ok_or(Failure::Internal)?;

    x.begin_flight(VERSION_1_2);
    x.say(MessageType::SERVER_HELLO, server_hello(x, &choice), false)?;
    let mut body = Vec::new();
    CertificateMessage { leaf: Some(identity.certificate()) }.write(&mut body);
    x.say(MessageType::CERTIFICATE, body, false)?;
    x.say(MessageType::SERVER_KEY_EXCHANGE, key_exchange(x, &key, choice.scheme)?, false)?;
    let asks = x.config.check != PeerCheck::Nobody;
    if asks {
        let mut body = Vec::new();
        CertificateRequest { schemes: scheme_numbers() }.write(&mut body);
        x.say(MessageType::CERTIFICATE_REQUEST, body, false)?;
    }
    x.say(MessageType::SERVER_HELLO_DONE, Vec::new(), false)?;
    let key = Box::new(key);
    Ok(if asks { Server::Certificate { key } } else { Server::KeyExchange { key, certificate: false } })
}

fn server_hello(x: &Exchange, choice: &Choice) -> Vec<u8> {
    let mut extensions = Extensions::default();
    if choice.renegotiation {
        extensions.push(ExtensionType::RENEGOTIATION_INFO, vec![0]);
    }
    extensions.push(ExtensionType::EXTENDED_MASTER_SECRET, Vec::new());
    if choice.point_formats {
        extensions.push(ExtensionType::EC_POINT_FORMATS, vec![1, 0]);
    }
    if let Some(profile) = choice.profile {
        // We refuse a master key identifier by sending an empty one (RFC 5764 §4.1.3).
        let srtp = UseSrtp { profiles: vec![profile.number()], mki: &[] };
        extensions.push(ExtensionType::USE_SRTP, srtp.write());
    }
    let hello = ServerHello {
        version: VERSION_1_2,
        random: x.hellos.server_random,
        // Sessions are not resumed.
        session_id: &[],
        suite: choice.suite.number(),
        compression: 0,
        extensions,
    };
    let mut body = Vec::new();
    hello.write(&mut body);
    body
}

/// Returns a `ServerKeyExchange`: the public value, signed together with the random values of both sides (RFC
/// 8422 §5.4).
fn key_exchange(
    x: &Exchange,
    key: &AgreementKey,
    (scheme, algorithm): (u16, SignatureAlgorithm),
) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    KeyExchange::write_parameters(group_number(key.group()), &key.public(), &mut body);
    let signature =
        x.sign(algorithm, &[&x.hellos.client_random[..], &x.hellos.server_random, &body].concat())?;
    put::u16(&mut body, scheme);
    put::vec16(&mut body, &signature);
    Ok(body)
}
