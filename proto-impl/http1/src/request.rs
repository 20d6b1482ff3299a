//! A request as the application sees it: parsed, checked and complete.

use std::fmt;

use bytes::Bytes;

/// The methods that this server routes (RFC 9110 §9, RFC 5789). CONNECT and TRACE are refused earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// OPTIONS
    Options,
    /// PATCH
    Patch,
}

impl Method {
    /// Parses a method, which is case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn from_token(token: &[u8]) -> Option<Self> {
        Some(match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            _ => return None,
        })
    }

    /// The token on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The HTTP versions supported (RFC 9112 §2.3, RFC 9113).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0: the connection closes unless `Connection: keep-alive` is sent.
    Http10,
    /// HTTP/1.1: the connection stays open unless `Connection: close` is sent.
    Http11,
    /// HTTP/2: each request has a stream of its own.
    Http2,
}

/// Header fields in order. Names compare case-insensitively (RFC 9110 §5.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    fields: Vec<(String, String)>,
}

impl Headers {
    /// Makes an empty list of fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Returns the first value of `name`. Where a second value would matter, check [`Headers::count`] too.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns all values of `name`, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The number of fields called `name`.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.all(name).count()
    }

    /// True if a comma-separated field contains `token`, case-insensitively (RFC 9110 §5.6.1).
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name).flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case(token))
    }

    /// Name and value of each line, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Appends a field, even if the name is present already.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.fields.push((name.into(), value.into()));
    }

    /// Makes `value` the only value of `name`.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.fields.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.push(name, value);
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// True if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Version of the request line.
    pub version: Version,
    /// The request target as it was sent, for logs only. It must not be used for routing, because it may stand
    /// for another path than `path`.
    pub target: String,
    /// The path, percent-decoded once, with repeated slashes merged. It starts with `/` (or is `*` for OPTIONS),
    /// and contains no dot segment, control character, backslash, NUL or percent-encoded slash.
    pub path: String,
    /// Decoded pairs of the query, in order; `+` is decoded as a space.
    pub query: Vec<(String, String)>,
    /// Header fields.
    pub headers: Headers,
    /// Body without chunk framing; trailers are checked and dropped.
    pub body: Bytes,
    /// True if the body must be accepted before it is read ([`super::Connection::take_body`]). `body` is then
    /// empty.
    pub body_waits: bool,
}

impl Request {
    /// Returns the first value of a header field.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// Returns the media type of the body without its parameters (RFC 9110 §8.3.1); empty if there is none.
    #[must_use]
    pub fn media_type(&self) -> &str {
        self.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    /// Returns the first value of a query parameter; names are case-sensitive.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_compare_without_case_and_keep_their_order() {
        let mut h = Headers::new();
        h.push("Accept", "a");
        h.push("accept", "b, Close");
        h.push("X", "c");
        assert_eq!((h.get("ACCEPT"), h.count("Accept"), h.len()), (Some("a"), 2, 3));
        assert!(h.has_token("accept", "close") && !h.has_token("accept", "clo"));
        h.set("ACCEPT", "z");
        assert_eq!(h.iter().collect::<Vec<_>>(), [("X", "c"), ("ACCEPT", "z")]);
    }
}
