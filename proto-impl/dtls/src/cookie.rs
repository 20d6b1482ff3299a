//! Cookies (RFC 6347 §4.2.1): a client proves that it receives at its address before any state is kept for it.
//!
//! The cookie stands in the first bytes of a `ClientHello`, so that the first fragment is enough and nothing has to be
//! put together. Fragments that come without it are dropped; the caller sends its hello again.

use std::net::SocketAddr;

use crypto::{Seed, constant_time_eq, hmac_sha256};
use wire::Reader;

use crate::handshake::{FragmentHead, HEAD_BYTES, HelloStart, HelloVerifyRequest, MessageType};
use crate::record::{ContentType, RecordHead, RecordLayer, VERSION_1_0};

/// Bytes of a cookie: chance finds it once in 2^128.
const COOKIE_BYTES: usize = 16;

/// The treatment of a datagram of an unknown peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Send the reply, keep nothing. It is shorter than the question.
    Reply,
    /// The caller has its cookie: make a [`crate::Connection::server_with_cookie`] and give it this datagram.
    Pass,
    /// Ignore the datagram.
    Drop,
}

/// Stands in front of a bare port. Keeps nothing but a secret.
#[derive(Clone)]
pub struct CookieVerifier {
    secret: [u8; 32],
}

impl CookieVerifier {
    /// Creates a verifier with a secret derived from `seed`. A new secret invalidates cookies in flight.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        let mut secret = [0; 32];
        seed.derive("dtls cookie", 0).random().fill(&mut secret);
        Self { secret }
    }

    /// Looks at a datagram of an address that is not known. Appends to `reply` what is to be sent.
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
        let mut r = r.sub(fragment.fragment).ok().filter(|_| is_hello)?;
        let hello = HelloStart::read(&mut r).ok()?;
        let cookie = self.cookie(from, &hello);
        // The second message of its sender, with what was asked for.
        if fragment.sequence == 1 && constant_time_eq(hello.cookie, &cookie) {
            return Some(Checked::Pass);
        }
        let mut body = Vec::new();
        HelloVerifyRequest { version: VERSION_1_0, cookie: &cookie }.write(&mut body);
        let length = body.len();
        let mut clear = Vec::with_capacity(HEAD_BYTES.saturating_add(length));
        let kind = MessageType::HELLO_VERIFY_REQUEST;
        FragmentHead { kind, length, sequence: 0, offset: 0, fragment: length }.write(&mut clear);
        clear.extend_from_slice(&body);
        let mut layer = RecordLayer::default();
        layer.follow(record.sequence);
        layer.write(false, ContentType::HANDSHAKE, VERSION_1_0, &clear, reply).ok()?;
        Some(Checked::Reply)
    }

    /// The cookie for an address and the fields that the client repeats.
    fn cookie(&self, from: SocketAddr, hello: &HelloStart<'_>) -> [u8; COOKIE_BYTES] {
        let ip = match from.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(ip) => ip.octets(),
        };
        let mac = hmac_sha256(
            &self.secret,
            &[&ip, &from.port().to_be_bytes(), &hello.version.to_be_bytes(), &hello.random, hello.session_id],
        );
        let mut cookie = [0; COOKIE_BYTES];
        for (to, from) in cookie.iter_mut().zip(mac) {
            *to = from;
        }
        cookie
    }
}

/// Never prints the secret.
impl std::fmt::Debug for CookieVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieVerifier(..)")
    }
}
