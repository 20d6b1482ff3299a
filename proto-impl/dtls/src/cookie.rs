//! Cookies, with which a client proves that it can receive at its address before the server keeps state for it.
//!
//! With DTLS 1.2 (RFC 6347 §4.2.1), the cookie is in the first bytes of a `ClientHello`, so the first fragment
//! suffices, without reassembly. Further fragments are dropped; the client retransmits its hello.
//!
//! With DTLS 1.3 (RFC 9147 §5.1), the cookie is in an extension, and contains the data of the first hello that
//! is needed later: its digest, and the parameters chosen from it. For this, the hello must fit into one
//! record. A hello that is fragmented, or too long to fit again together with the cookie, is answered as with
//! DTLS 1.2, and negotiates that version.

use std::net::SocketAddr;

use crypto::{Seed, constant_time_eq, hmac_sha256};
use wire::Reader;

use crate::config::Versions;
use crate::handshake::{
    ClientHello, ExtensionType, FragmentHead, HEAD_BYTES, HelloStart, HelloVerifyRequest, MessageType,
    read_cookie,
};
use crate::put;
use crate::record::{ContentType, RecordHead, RecordLayer, VERSION_1_0, VERSION_1_2};
use crate::suite::CipherSuite;
use crate::v13;

/// Length of a cookie's MAC: a guess succeeds with a probability of 2^-128.
const COOKIE_BYTES: usize = 16;

/// Maximum size of a hello that gets a DTLS 1.3 cookie, in bytes. The second hello is up to a hundred bytes
/// longer, and must fit into one record, too.
const HELLO_BYTES_MAX: usize = 1100;

/// Result of checking a datagram from an unknown peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Send the reply, and keep no state. The reply is shorter than the request.
    Reply,
    /// The client has returned its cookie: create a [`crate::Connection::server_with_cookie`] and pass it this
    /// datagram.
    Pass,
    /// Ignore the datagram.
    Drop,
}

/// Checks cookies on a port without ICE. Its only state is a secret.
#[derive(Clone)]
pub struct CookieVerifier {
    secret: [u8; 32],
    versions: Versions,
}

impl CookieVerifier {
    /// Creates a verifier for sessions with these versions. Its secret is derived from `seed`; another secret
    /// invalidates cookies in flight.
    #[must_use]
    pub fn new(seed: &Seed, versions: Versions) -> Self {
        let mut secret = [0; 32];
        seed.derive("dtls cookie", 0).random().fill(&mut secret);
        Self { secret, versions }
    }

    /// Checks a datagram from an unknown address. Appends the reply, if any, to `reply`.
    pub fn check(&self, from: SocketAddr, datagram: &[u8], reply: &mut Vec<u8>) -> Checked {
        self.look(from, datagram, reply).unwrap_or(Checked::Drop)
    }

    fn look(&self, from: SocketAddr, datagram: &[u8], reply: &mut Vec<u8>) -> Option<Checked> {
        let mut r = Reader::new(datagram);
        let record = RecordHead::read(&mut r).ok()?;
        let mut r = r.sub(record.length).ok()?;
        let fragment = FragmentHead::read(&mut r).ok()?;
        let is_hello = record.kind == ContentType::HANDSHAKE
            && record.epoch == 0
            && record.version >> 8 == VERSION_1_0 >> 8
            && fragment.kind == MessageType::CLIENT_HELLO
            && fragment.offset == 0;
        let body = r.take(fragment.fragment).ok().filter(|_| is_hello)?;
        if self.versions.have_13()
            && fragment.fragment == fragment.length
            && (fragment.length <= HELLO_BYTES_MAX || fragment.sequence > 0)
            && let Ok(hello) = ClientHello::read(body)
            && v13::offers_it(&hello) == Ok(true)
        {
            // A session starts with the client's first or second message, so a cookie in a later message would
            // be useless.
            if fragment.sequence > 1 {
                return None;
            }
            let answer = self.look_at_13(from, &hello, body)?;
            return self.reply(answer, MessageType::SERVER_HELLO, &record, datagram.len(), reply);
        }
        if !self.versions.have_12() {
            return None;
        }
        let hello = HelloStart::read(&mut Reader::new(body)).ok()?;
        let cookie = self.cookie(from, &hello);
        // The second hello, with the requested cookie.
        if fragment.sequence == 1 && constant_time_eq(hello.cookie, &cookie) {
            return Some(Checked::Pass);
        }
        let mut body = Vec::new();
        HelloVerifyRequest { version: VERSION_1_0, cookie: &cookie }.write(&mut body);
        self.reply(Some(body), MessageType::HELLO_VERIFY_REQUEST, &record, datagram.len(), reply)
    }

    /// Writes a reply with this body, unless it would be longer than the request. Without `body`, the hello
    /// passes.
    fn reply(
        &self,
        body: Option<Vec<u8>>,
        kind: MessageType,
        question: &RecordHead,
        most: usize,
        reply: &mut Vec<u8>,
    ) -> Option<Checked> {
        let Some(body) = body else { return Some(Checked::Pass) };
        let length = body.len();
        let mut clear = Vec::with_capacity(HEAD_BYTES.saturating_add(length));
        FragmentHead { kind, length, sequence: 0, offset: 0, fragment: length }.write(&mut clear);
        clear.extend_from_slice(&body);
        let mut layer = RecordLayer::default();
        layer.follow(question.sequence);
        let version = if kind == MessageType::SERVER_HELLO { VERSION_1_2 } else { VERSION_1_0 };
        let mut written = Vec::new();
        layer.write(false, ContentType::HANDSHAKE, version, &clear, &mut written).ok()?;
        // A reply must be shorter than the message that it answers.
        if written.len() >= most {
            return None;
        }
        reply.extend_from_slice(&written);
        Some(Checked::Reply)
    }

    /// Checks a complete hello that offers DTLS 1.3. Returns a `HelloRetryRequest` to answer with;
    /// `Some(None)` if the hello has a valid cookie; `None` if the hello must be dropped.
    #[allow(clippy::option_option, reason = "a reply or none, and neither for what is dropped")]
    fn look_at_13(&self, from: SocketAddr, hello: &ClientHello<'_>, body: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(cookie) = hello.extensions.find(ExtensionType::COOKIE) {
            // A second request would violate the protocol, so a hello with an invalid cookie is not answered.
            let (content, mac) = read_cookie(cookie).ok()?.split_last_chunk::<COOKIE_BYTES>()?;
            return constant_time_eq(mac, &self.mac(from, &[&hello.random, content])).then_some(None);
        }
        let (suite, group) = v13::choose_retry(hello).ok()?;
        let mut cookie =
            RetryCookie { suite, group, hello: suite.hash().digest(&v13::as_transcript(body)) }.write();
        let mac = self.mac(from, &[&hello.random, &cookie]);
        cookie.extend_from_slice(&mac);
        Some(Some(v13::write_retry(suite, group, &cookie)))
    }

    /// Returns the cookie for an address, and for the fields that the client must repeat.
    fn cookie(&self, from: SocketAddr, hello: &HelloStart<'_>) -> [u8; COOKIE_BYTES] {
        self.mac(from, &[&hello.version.to_be_bytes(), &hello.random, hello.session_id])
    }

    fn mac(&self, from: SocketAddr, parts: &[&[u8]]) -> [u8; COOKIE_BYTES] {
        let ip = match from.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(ip) => ip.octets(),
        };
        let port = from.port().to_be_bytes();
        let all: Vec<&[u8]> = [&ip[..], &port].into_iter().chain(parts.iter().copied()).collect();
        let mac = hmac_sha256(&self.secret, &all);
        let mut cookie = [0; COOKIE_BYTES];
        for (to, from) in cookie.iter_mut().zip(mac) {
            *to = from;
        }
        cookie
    }
}

/// Contents of a DTLS 1.3 cookie before its MAC: the data needed from the first hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetryCookie {
    pub(crate) suite: CipherSuite,
    /// Group for which a key share is requested; `None` if no share is missing.
    pub(crate) group: Option<u16>,
    /// Digest of the first hello.
    pub(crate) hello: Vec<u8>,
}

impl RetryCookie {
    fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put::u16(&mut out, self.suite.number());
        put::u16(&mut out, self.group.unwrap_or(0));
        out.extend_from_slice(&self.hello);
        out
    }

    /// Reads a cookie that a verifier has accepted.
    pub(crate) fn read(cookie: &[u8]) -> Option<Self> {
        let (content, _) = cookie.split_last_chunk::<COOKIE_BYTES>()?;
        let mut r = Reader::new(content);
        let (suite, group) = (CipherSuite::v13_of_number(r.u16().ok()?)?, r.u16().ok()?);
        let hello = r.rest().to_vec();
        (hello.len() == suite.hash().bytes()).then(|| Self {
            suite,
            group: (group != 0).then_some(group),
            hello,
        })
    }
}

/// Never prints the secret.
impl std::fmt::Debug for CookieVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieVerifier(..)")
    }
}
