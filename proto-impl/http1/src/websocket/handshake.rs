//! The opening handshake (RFC 6455 §4), both sides.

use bytes::{Bytes, BytesMut};
use crypto::Random;
use tungstenite::handshake::derive_accept_key;

use crate::{Method, Request, Response, Version};

/// The only WebSocket version (§4.4).
const VERSION: &str = "13";
/// Number of characters of a key: 16 bytes in base64.
const KEY_CHARS: usize = 24;
/// Maximum length of a server's response.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of header lines of a server's response.
const ANSWER_HEADERS_MAX: usize = 100;

/// True if the request asks for a WebSocket, even if the request is malformed.
#[must_use]
pub fn is_upgrade(request: &Request) -> bool {
    request.headers.has_token("upgrade", "websocket")
}

/// Checks a request (§4.2.1). `origin_allowed` is called with the origin of the browser's page, if the request has one.
///
/// # Errors
/// The response to send instead of the upgrade: 400, 403, or 426, which names the supported version (§4.4).
pub fn accept(request: &Request, origin_allowed: impl FnOnce(&str) -> bool) -> Result<Response, Response> {
    let bad = |text: &str| Err(Response::error(400, text));
    if request.version == Version::Http2 {
        return accept_stream(request, origin_allowed);
    }
    if request.method != Method::Get || request.version != Version::Http11 {
        return bad("A WebSocket begins with GET and HTTP/1.1");
    }
    if !is_upgrade(request) || !request.headers.has_token("connection", "upgrade") {
        return bad("Connection: Upgrade and Upgrade: websocket are needed");
    }
    if request.headers.count("sec-websocket-version") != 1
        || request.header("sec-websocket-version") != Some(VERSION)
    {
        return Err(Response::error(426, "WebSocket version 13 is spoken here")
            .header("Sec-WebSocket-Version", VERSION)
            .header("Upgrade", "websocket"));
    }
    let key = request.header("sec-websocket-key").unwrap_or_default();
    if request.headers.count("sec-websocket-key") != 1 || !is_key(key) {
        return bad("Sec-WebSocket-Key is not 16 bytes");
    }
    if request.header("origin").is_some_and(|origin| !origin_allowed(origin)) {
        return Err(Response::error(403, "Origin not allowed"));
    }
    Ok(Response::empty(101)
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Accept", derive_accept_key(key.as_bytes())))
}

/// Judges the extended CONNECT of an HTTP/2 stream (RFC 8441 §5). Such a request has no key.
fn accept_stream(request: &Request, origin_allowed: impl FnOnce(&str) -> bool) -> Result<Response, Response> {
    if request.header("sec-websocket-version") != Some(VERSION) {
        let answer = Response::error(400, "WebSocket version 13 is spoken here");
        return Err(answer.header("Sec-WebSocket-Version", VERSION));
    }
    if request.header("origin").is_some_and(|origin| !origin_allowed(origin)) {
        return Err(Response::error(403, "Origin not allowed"));
    }
    Ok(Response::empty(200))
}

/// True for 22 characters of base64 and two of padding. The unused bits of the last character are not checked, because
/// some clients choose all 22 characters at random.
fn is_key(key: &str) -> bool {
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    key.len() == KEY_CHARS && key.strip_suffix("==").is_some_and(|digits| digits.bytes().all(is_base64))
}

/// The reason a server did not open the WebSocket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The response is not HTTP/1.1.
    #[error("malformed answer")]
    Malformed,
    /// The status is not 101.
    #[error("status {0}")]
    Refused(u16),
    /// The status is 101, but the response does not fit the request (§4.1).
    #[error("the server answered a different handshake")]
    NotAccepted,
}

/// The client's side of the handshake: its request, and the wait for the response.
#[derive(Debug)]
pub struct ClientHandshake {
    accept: String,
    held: BytesMut,
}

impl ClientHandshake {
    /// Returns the request to send for `target` (a path with its query) on `host`, and the handshake that takes the
    /// response.
    #[must_use]
    pub fn begin(host: &str, target: &str, origin: Option<&str>, random: &mut Random) -> (Bytes, Self) {
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        let key = base64(&nonce);
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: {VERSION}\r\n{origin}\r\n"
        );
        let accept = derive_accept_key(key.as_bytes());
        (Bytes::from(request), Self { accept, held: BytesMut::new() })
    }

    /// Takes bytes of the response. Once the response is complete, returns the bytes after it, which belong to the
    /// WebSocket.
    ///
    /// # Errors
    /// The server does not open a WebSocket.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Option<Bytes>, HandshakeError> {
        self.held.extend_from_slice(bytes);
        let mut slots = [httparse::EMPTY_HEADER; ANSWER_HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut slots);
        let consumed = match answer.parse(&self.held) {
            Ok(httparse::Status::Complete(consumed)) => consumed,
            Ok(httparse::Status::Partial) if self.held.len() <= ANSWER_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(_) => return Err(HandshakeError::Malformed),
        };
        let status = answer.code.ok_or(HandshakeError::Malformed)?;
        if status != 101 {
            return Err(HandshakeError::Refused(status));
        }
        let has = |name: &str, wanted: &str| {
            let mut named = answer.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let is_wanted = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes());
            named.any(|header| header.value.split(|b| *b == b',').any(is_wanted))
        };
        // The accept value is case-sensitive, but comparing it without case does no harm: a server would gain nothing
        // by faking it.
        let accepted = has("upgrade", "websocket")
            && has("connection", "upgrade")
            && has("sec-websocket-accept", &self.accept);
        if !accepted {
            return Err(HandshakeError::NotAccepted);
        }
        Ok(Some(self.held.split_off(consumed).freeze()))
    }
}

/// Encodes base64 (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4usize {
            let index = usize::try_from((bits >> (18 - 6 * digit)) & 0x3f).unwrap_or(0);
            let known = digit <= group.len();
            out.push(if known { char::from(DIGITS.get(index).copied().unwrap_or(b'=')) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Headers;
    use crypto::Seed;

    fn request(fields: &[(&str, &str)]) -> Request {
        let mut headers = Headers::new();
        headers.push("Host", "h");
        for (name, value) in fields {
            headers.push(*name, *value);
        }
        Request {
            method: Method::Get,
            version: Version::Http11,
            target: "/live/x.flv".into(),
            path: "/live/x.flv".into(),
            query: Vec::new(),
            headers,
            body: Bytes::new(),
            body_waits: false,
        }
    }

    const GOOD: [(&str, &str); 4] = [
        ("Upgrade", "WebSocket"),
        ("Connection", "keep-alive, Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        let response = accept(&request(&GOOD), |_| false).unwrap();
        assert_eq!(response.status, 101);
        assert_eq!(response.headers.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn w_07_bad_handshakes_have_their_status() {
        let with = |name: &str, value: Option<&str>| {
            let fields: Vec<_> = GOOD
                .iter()
                .filter_map(|&(n, v)| if n == name { value.map(|value| (n, value)) } else { Some((n, v)) })
                .collect();
            accept(&request(&fields), |_| true).map_err(|response| response.status)
        };
        for (name, value, status) in [
            ("Connection", None, 400),
            ("Connection", Some("close"), 400),
            ("Upgrade", Some("h2c"), 400),
            ("Sec-WebSocket-Key", None, 400),
            ("Sec-WebSocket-Key", Some("c2hvcnQ="), 400),
            ("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25jZXM="), 400),
            ("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25j!Q=="), 400),
            ("Sec-WebSocket-Version", Some("8"), 426),
            ("Sec-WebSocket-Version", None, 426),
        ] {
            assert_eq!(with(name, value), Err(status), "{name} {value:?}");
        }
        let mut fields = GOOD.to_vec();
        fields.push(("Origin", "http://evil.example"));
        assert_eq!(accept(&request(&fields), |_| false).unwrap_err().status, 403);
        assert!(accept(&request(&fields), |origin| origin.ends_with(".example")).is_ok());
        let mut old = request(&GOOD);
        old.version = Version::Http10;
        assert_eq!(accept(&old, |_| true).unwrap_err().status, 400);
        let refused = accept(&request(&GOOD[..2]), |_| true).unwrap_err();
        assert_eq!(refused.headers.get("sec-websocket-version"), Some("13"));
    }

    #[test]
    fn client_and_server_agree_and_what_follows_is_handed_over() {
        let mut random = Seed::from_number(1).random();
        let (sent, mut client) = ClientHandshake::begin("h", "/x?y=1", Some("http://h"), &mut random);
        let sent = String::from_utf8(sent.to_vec()).unwrap();
        let key = sent.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        assert!(is_key(key) && sent.starts_with("GET /x?y=1 HTTP/1.1\r\nHost: h\r\n"), "{sent}");
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\nrest",
            derive_accept_key(key.as_bytes())
        );
        let (first, second) = answer.split_at(50);
        assert_eq!(client.handle_bytes(first.as_bytes()), Ok(None));
        assert_eq!(client.handle_bytes(second.as_bytes()), Ok(Some(Bytes::from_static(b"rest"))));
        for (answer, error) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", HandshakeError::Refused(404)),
            (
                "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                HandshakeError::NotAccepted,
            ),
            ("\x16\x03\x01", HandshakeError::Malformed),
        ] {
            let (_, mut client) = ClientHandshake::begin("h", "/", None, &mut random);
            assert_eq!(client.handle_bytes(answer.as_bytes()), Err(error));
        }
    }

    #[test]
    fn base64_as_in_the_rfc() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
