//! The server's state machine.

use crypto::{AgreementGroup, AgreementKey, SignatureAlgorithm};

use super::exchange::{Exchange, Link};
use super::{EPOCH_OF_HANDSHAKE, RETRY_RANDOM, Stop};
use crate::config::PeerCheck;
use crate::cookie::RetryCookie;
use crate::error::Failure;
use crate::handshake::{
    Certificates, ClientHello, ExtensionType, Extensions, KeyShare, MessageType, SchemesRequest, ServerHello,
    read_cookie, read_key_shares, read_numbers8, read_numbers16, write_cookie,
};
use crate::reassembly::Message;
use crate::record::{VERSION_1_2, VERSION_1_3};
use crate::srtp::{self, SrtpProfile};
use crate::suite::{CipherSuite, GROUPS, choose_scheme_v13, group_number};
use crate::v12;

/// State of the server: the message that it expects.
#[derive(Debug)]
pub(super) enum Server {
    /// Expects `ClientHello`, or a second one after a `HelloRetryRequest`.
    Hello { retried: Option<Retried> },
    /// Expects the client's certificate.
    Certificate,
    /// Expects the client's `CertificateVerify`.
    Verify,
    /// Expects the client's Finished.
    Finished,
    /// The handshake is complete.
    Done,
}

/// The request for a second hello that was sent in a `HelloRetryRequest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retried {
    suite: CipherSuite,
    /// Group for which a key share was requested; `None` if no key share was requested.
    group: Option<u16>,
}

impl Server {
    pub(super) fn handle(self, x: &mut Exchange, link: &mut Link, message: &Message) -> Result<Self, Stop> {
        match (self, message.kind) {
            (Self::Hello { retried }, MessageType::CLIENT_HELLO) => hello(x, link, retried, message),
            (Self::Certificate, MessageType::CERTIFICATE) => {
                let certificates = Certificates::read(&message.body)?;
                if !certificates.context.is_empty() {
                    return Err(Failure::Malformed.into());
                }
                x.take_certificate(certificates.leaf.ok_or(Failure::CertificateRequired)?)?;
                x.hear(message)?;
                Ok(Self::Verify)
            }
            (Self::Verify, MessageType::CERTIFICATE_VERIFY) => {
                x.check_signature(&message.body)?;
                x.hear(message)?;
                Ok(Self::Finished)
            }
            (Self::Finished, MessageType::FINISHED) => {
                x.check_finished(&message.body)?;
                x.read_application(link)?;
                Ok(Self::Done)
            }
            (_, kind) => Err(Failure::Unexpected(kind).into()),
        }
    }
}

/// True if a hello offers DTLS 1.3. A hello that does not is passed to the server of DTLS 1.2.
pub(crate) fn offers_it(hello: &ClientHello<'_>) -> Result<bool, Failure> {
    let versions = hello.extensions.find(ExtensionType::SUPPORTED_VERSIONS).map(read_numbers8).transpose()?;
    Ok(versions.is_some_and(|versions| versions.contains(&VERSION_1_3)))
}

/// Parameters chosen from an offer.
struct Choice<'a> {
    suite: CipherSuite,
    scheme: (u16, SignatureAlgorithm),
    profile: Option<SrtpProfile>,
    group: AgreementGroup,
    /// The client's share for the group; `None` if it is missing.
    share: Option<&'a [u8]>,
    /// Number of key shares in the hello.
    shares: usize,
}

fn choose_suite(hello: &ClientHello<'_>) -> Result<CipherSuite, Failure> {
    let offered = |suite: &CipherSuite| hello.suites.contains(&suite.number());
    CipherSuite::V13.into_iter().find(offered).ok_or(Failure::NoCommonSuite)
}

fn body<'a>(hello: &'a ClientHello<'_>, kind: ExtensionType) -> Result<&'a [u8], Failure> {
    hello.extensions.find(kind).ok_or(Failure::MissingExtension(kind.0))
}

/// Returns a group, the client's share for it, and the number of shares in the hello.
fn choose_group<'a>(
    hello: &'a ClientHello<'_>,
) -> Result<(AgreementGroup, Option<&'a [u8]>, usize), Failure> {
    let groups = read_numbers16(body(hello, ExtensionType::SUPPORTED_GROUPS)?)?;
    let shares = read_key_shares(body(hello, ExtensionType::KEY_SHARE)?)?;
    let common = || GROUPS.into_iter().filter(|group| groups.contains(&group_number(*group)));
    let share = |group: AgreementGroup| {
        let share = shares.iter().find(|share| share.group == group_number(group))?;
        Some((group, Some(share.public)))
    };
    // Prefers a group with a share, which saves a round trip.
    let (group, share) = common()
        .find_map(share)
        .or_else(|| common().next().map(|group| (group, None)))
        .ok_or(Failure::NoCommonGroup)?;
    Ok((group, share, shares.len()))
}

/// Returns the suite for a stateless `HelloRetryRequest`, and the group if a key share must be requested for
/// it.
pub(crate) fn choose_retry(hello: &ClientHello<'_>) -> Result<(CipherSuite, Option<u16>), Failure> {
    let (group, share, _) = choose_group(hello)?;
    Ok((choose_suite(hello)?, share.is_none().then(|| group_number(group))))
}

fn choose<'a>(x: &Exchange, hello: &'a ClientHello<'_>) -> Result<Choice<'a>, Failure> {
    // The cookie field and compression belong to older versions (RFC 9147 §5.3).
    if !hello.cookie.is_empty() {
        return Err(Failure::Illegal("a cookie of DTLS 1.2"));
    }
    if hello.compressions != [0] {
        return Err(Failure::Illegal("compression methods beside null"));
    }
    let suite = choose_suite(hello)?;
    let kind = x.config.identity.as_ref().ok_or(Failure::Internal)?.key().kind();
    let schemes = read_numbers16(body(hello, ExtensionType::SIGNATURE_ALGORITHMS)?)?;
    let scheme = choose_scheme_v13(kind, &schemes).ok_or(Failure::NoCommonSignature)?;
    let profile = srtp::choose(&x.config.srtp_profiles, &hello.extensions)?;
    let (group, share, shares) = choose_group(hello)?;
    Ok(Choice { suite, scheme, profile, group, share, shares })
}

fn hello(
    x: &mut Exchange,
    link: &mut Link,
    retried: Option<Retried>,
    message: &Message,
) -> Result<Server, Stop> {
    let hello = ClientHello::read(&message.body)?;
    // A client with a DTLS 1.2 cookie gets DTLS 1.2, because the verifier did not see its whole hello.
    let has_old_cookie = x.is_behind_cookie && !hello.cookie.is_empty();
    if has_old_cookie || !offers_it(&hello)? {
        let takes_it = retried.is_none() && x.config.versions.have_12();
        return Err(if takes_it { Stop::FallsBack(message.clone()) } else { Failure::Version.into() });
    }
    let choice = choose(x, &hello)?;
    let retried = if x.is_behind_cookie { Some(take_cookie(x, link, &hello)?) } else { retried };
    if retried.is_some_and(|retried| retried.suite != choice.suite) {
        return Err(Failure::Illegal("another hello than before").into());
    }
    x.suite = Some(choice.suite);
    x.profile = choice.profile;
    x.hear(message)?;
    link.records.settle();
    let asked = retried.and_then(|retried| retried.group);
    match choice.share {
        // The second hello must contain the requested share and no other (RFC 8446 §4.1.2).
        Some(_) if asked.is_some_and(|asked| asked != group_number(choice.group) || choice.shares != 1) => {
            Err(Failure::Illegal("not the share that was asked for").into())
        }
        Some(share) => Ok(answer(x, link, &choice, share)?),
        None if retried.is_some() => Err(Failure::Illegal("not the share that was asked for").into()),
        None => {
            let group = Some(group_number(choice.group));
            x.retry(choice.suite);
            link.begin_flight();
            x.say(link, MessageType::SERVER_HELLO, write_retry(choice.suite, group, &[]), 0)?;
            Ok(Server::Hello { retried: Some(Retried { suite: choice.suite, group }) })
        }
    }
}

/// Restores the data that a verifier stored in its cookie: the digest of the first hello, and the request
/// that the verifier sent.
fn take_cookie(x: &mut Exchange, link: &mut Link, hello: &ClientHello<'_>) -> Result<Retried, Failure> {
    let cookie = read_cookie(body(hello, ExtensionType::COOKIE)?)?;
    let kept = RetryCookie::read(cookie).ok_or(Failure::Illegal("a cookie that was not given"))?;
    x.begin_with_digest(&kept.hello);
    x.suite = Some(kept.suite);
    let request = write_retry(kept.suite, kept.group, cookie);
    x.note(MessageType::SERVER_HELLO, &request)?;
    link.sequence = 1;
    Ok(Retried { suite: kept.suite, group: kept.group })
}

/// Returns a `HelloRetryRequest` (RFC 8446 §4.1.4) that requests a share of a group, contains a cookie, or
/// both.
pub(crate) fn write_retry(suite: CipherSuite, group: Option<u16>, cookie: &[u8]) -> Vec<u8> {
    let share = group.map(|group| group.to_be_bytes().to_vec());
    write_hello(RETRY_RANDOM, suite, share, cookie)
}

fn write_hello(random: [u8; 32], suite: CipherSuite, share: Option<Vec<u8>>, cookie: &[u8]) -> Vec<u8> {
    let mut extensions = Extensions::default();
    extensions.push(ExtensionType::SUPPORTED_VERSIONS, VERSION_1_3.to_be_bytes().to_vec());
    if let Some(share) = share {
        extensions.push(ExtensionType::KEY_SHARE, share);
    }
    if !cookie.is_empty() {
        extensions.push(ExtensionType::COOKIE, write_cookie(cookie));
    }
    let mut body = Vec::new();
    // Sends no session id, not even the client's (RFC 9147 §5.4).
    ServerHello {
        version: VERSION_1_2,
        random,
        session_id: &[],
        suite: suite.number(),
        compression: 0,
        extensions,
    }
    .write(&mut body);
    body
}

/// Sends the server's flight.
fn answer(x: &mut Exchange, link: &mut Link, choice: &Choice<'_>, public: &[u8]) -> Result<Server, Failure> {
    let key = AgreementKey::new(choice.group, &mut x.random).ok_or(Failure::Internal)?;
    let mut share = Vec::new();
    KeyShare { group: group_number(choice.group), public: &key.public() }.write(&mut share);
    let random = v12::draw_random(&mut x.random);
    let hello = write_hello(random, choice.suite, Some(share), &[]);
    key.agree(public, |shared| {
        link.begin_flight();
        x.say(link, MessageType::SERVER_HELLO, hello, 0)?;
        x.protect(link, shared)
    })
    .map_err(|_| Failure::PublicValue)??;

    let mut extensions = Extensions::default();
    if let Some(profile) = choice.profile {
        extensions.push(ExtensionType::USE_SRTP, srtp::offer(&[profile]));
    }
    x.say(link, MessageType::ENCRYPTED_EXTENSIONS, extensions.write_alone(), EPOCH_OF_HANDSHAKE)?;
    let asks = x.config.check != PeerCheck::Nobody;
    if asks {
        let mut body = Vec::new();
        SchemesRequest { schemes: v12::scheme_numbers() }.write(&mut body);
        x.say(link, MessageType::CERTIFICATE_REQUEST, body, EPOCH_OF_HANDSHAKE)?;
    }
    x.say_certificate(link, Some(choice.scheme))?;
    x.say_finished(link)?;
    x.derive_application()?;
    x.write_application(link)?;
    Ok(if asks { Server::Certificate } else { Server::Finished })
}
