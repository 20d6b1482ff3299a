//! Requests and responses, and writing them (RFC 2326 §4 to §7).

use std::fmt;

use bytes::Bytes;

use crate::Status;

/// Protocol version in a start line.
pub(crate) const VERSION: &str = "RTSP/1.0";

/// The method of a request (RFC 2326 §10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// `OPTIONS`
    Options,
    /// `DESCRIBE`
    Describe,
    /// `ANNOUNCE`
    Announce,
    /// `SETUP`
    Setup,
    /// `PLAY`
    Play,
    /// `RECORD`
    Record,
    /// `PAUSE`
    Pause,
    /// `TEARDOWN`
    Teardown,
    /// `GET_PARAMETER`
    GetParameter,
    /// `SET_PARAMETER`
    SetParameter,
    /// `REDIRECT`
    Redirect,
    /// Any other method; names are case-sensitive.
    Other(String),
}

const METHODS: [(Method, &str); 11] = [
    (Method::Options, "OPTIONS"),
    (Method::Describe, "DESCRIBE"),
    (Method::Announce, "ANNOUNCE"),
    (Method::Setup, "SETUP"),
    (Method::Play, "PLAY"),
    (Method::Record, "RECORD"),
    (Method::Pause, "PAUSE"),
    (Method::Teardown, "TEARDOWN"),
    (Method::GetParameter, "GET_PARAMETER"),
    (Method::SetParameter, "SET_PARAMETER"),
    (Method::Redirect, "REDIRECT"),
];

impl Method {
    /// Returns the method with this name; an unknown one becomes [`Method::Other`].
    #[must_use]
    pub fn read(name: &str) -> Self {
        METHODS
            .iter()
            .find(|(_, known)| *known == name)
            .map_or_else(|| Self::Other(name.to_owned()), |(method, _)| method.clone())
    }

    /// Returns the name as sent on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            Self::Options
            | Self::Describe
            | Self::Announce
            | Self::Setup
            | Self::Play
            | Self::Record
            | Self::Pause
            | Self::Teardown
            | Self::GetParameter
            | Self::SetParameter
            | Self::Redirect => {
                METHODS.iter().find(|(method, _)| method == self).map_or("", |(_, name)| name)
            }
        }
    }
}

/// The header fields of a message, in order. `Content-Length` is not among them: the reader removes it, and the
/// writer adds it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Returns the first field with this name, ignoring case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns every field with this name, ignoring case.
    pub fn all<'a>(&'a self, name: &'static str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Iterates over all fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Adds a field. Control characters in the value are dropped, since they could end the line.
    pub fn push(&mut self, name: &str, value: &str) {
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        self.0.push((name.to_owned(), value.trim_ascii().to_owned()));
    }

    /// The number of fields.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no fields.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `CSeq` (RFC 2326 §12.17); `None` when missing or not a number.
    #[must_use]
    pub fn cseq(&self) -> Option<u32> {
        number(self.get("CSeq")?)
    }

    /// Returns `Session` (RFC 2326 §12.37).
    #[must_use]
    pub fn session(&self) -> Option<SessionHeader<'_>> {
        self.get("Session").map(SessionHeader::read)
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            for part in [name, ": ", value, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// Prints no credentials.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| {
                let secret = name.to_ascii_lowercase().contains("authorization");
                (name, if secret { "(hidden)" } else { value })
            }))
            .finish()
    }
}

/// Parses a number that consists only of digits, without sign or fraction.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let text = text.trim_ascii();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Value of `Session`: an opaque id, and the time after which the server forgets an idle session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionHeader<'a> {
    /// Session id without parameters.
    pub id: &'a str,
    /// Timeout in seconds; 60 if absent (RFC 2326 §12.37).
    pub timeout_secs: Option<u32>,
}

impl<'a> SessionHeader<'a> {
    /// Reads the value. A malformed timeout counts as absent.
    #[must_use]
    pub fn read(value: &'a str) -> Self {
        let mut parts = value.split(';');
        let id = parts.next().unwrap_or_default().trim_ascii();
        let timeout_secs = parts
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| name.trim_ascii().eq_ignore_ascii_case("timeout"))
            .and_then(|(_, value)| number(value));
        Self { id, timeout_secs }
    }
}

/// A request.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// URL as received, or `*`.
    pub uri: String,
    /// Header fields.
    pub headers: Headers,
    /// Body; empty if there is none.
    pub body: Bytes,
}

impl Request {
    /// Creates a request whose only header field is `CSeq`.
    #[must_use]
    pub fn new(method: Method, uri: &str, cseq: u32) -> Self {
        let mut headers = Headers::default();
        headers.push("CSeq", &cseq.to_string());
        Self { method, uri: uri.to_owned(), headers, body: Bytes::new() }
    }

    /// Appends the request to `out`. Blanks in the URL are escaped, and control characters dropped.
    pub fn write(&self, out: &mut Vec<u8>) {
        let uri: String = self.uri.chars().filter(|c| !c.is_control()).collect();
        let uri = uri.replace(char::is_whitespace, "%20");
        let uri = if uri.is_empty() { "*" } else { uri.as_str() };
        for part in [self.method.as_str(), " ", uri, " ", VERSION, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        write_rest(&self.headers, &self.body, out);
    }
}

/// Prints no query of a URL, since it may contain the key of a stream.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.uri.split('?').next().unwrap_or_default();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("uri", &path)
            .field("headers", &self.headers)
            .field("body", &self.body.len())
            .finish()
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: Status,
    /// Human-readable reason phrase.
    pub reason: String,
    /// Header fields.
    pub headers: Headers,
    /// Body; empty if there is none.
    pub body: Bytes,
}

impl Response {
    /// Creates a response whose only header field is the `CSeq` of its request.
    #[must_use]
    pub fn new(status: Status, cseq: Option<u32>) -> Self {
        let mut headers = Headers::default();
        if let Some(cseq) = cseq {
            headers.push("CSeq", &cseq.to_string());
        }
        Self { status, reason: status.reason().to_owned(), headers, body: Bytes::new() }
    }

    /// Appends the response to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let reason: String = self.reason.chars().filter(|c| !c.is_control()).collect();
        let code = self.status.code().to_string();
        for part in [VERSION, " ", &code, " ", reason.trim_ascii(), "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        write_rest(&self.headers, &self.body, out);
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

fn write_rest(headers: &Headers, body: &Bytes, out: &mut Vec<u8>) {
    headers.write(out);
    if !body.is_empty() {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}
