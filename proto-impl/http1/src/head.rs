//! The request head (RFC 9112 §2 to §6, RFC 9110 §5). A scanner finds its end and reads each byte once; httparse parses
//! it. Further checks are stricter than the RFCs where these allow two readings.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::percent_decode;

use super::body::Framing;
use super::grammar::is_token;
use super::request::{Headers, Method, Version};
use super::{BodyLimits, Error, Intake, Limits, StreamRequest};

/// Maximum length of a request line, not counting its target: the longest known method, two spaces, and the version.
const REQUEST_LINE_EXTRA: usize = 32;
/// Maximum number of header lines that any [`Limits::headers`] can allow.
const HEADERS_MAX: usize = 128;
/// Maximum number of pairs in a query.
const QUERY_PAIRS_MAX: usize = 256;
/// Maximum number of digits of a Content-Length. A number of 19 digits always fits 64 bits.
const LENGTH_DIGITS_MAX: usize = 19;

/// Finds the end of a head that arrives in pieces. Bare line ends and control characters are refused as soon as they
/// arrive.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    at: usize,
    line_start: usize,
    lines: usize,
    after_cr: bool,
    blank_skipped: bool,
}

/// True for the bytes that a header line may contain (RFC 9110 §5.5): VCHAR, obs-text, SP and HTAB.
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x20..=0x7e | 0x80..)
}

impl Scanner {
    /// The number of bytes scanned.
    pub(super) const fn scanned(&self) -> usize {
        self.at
    }

    /// Continues where the last call ended. `bytes` is all of the head received so far. Returns the range of the
    /// request line and the header lines, including the empty line at their end, or `None` if the head is incomplete.
    pub(super) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<Range<usize>>, Error> {
        let mut head_start: usize = if self.blank_skipped { 2 } else { 0 };
        while let Some(&byte) = bytes.get(self.at) {
            if self.at >= limits.head_bytes.saturating_add(head_start) {
                return Err(Error::HeadTooLarge);
            }
            let text = self.text_ahead(bytes, limits);
            if text > 0 {
                self.at = self.at.saturating_add(text);
                continue;
            }
            self.at = self.at.saturating_add(1);
            if self.after_cr {
                if byte != b'\n' {
                    return Err(Error::Malformed("bare CR"));
                }
                self.after_cr = false;
                if self.end_line(limits)? {
                    return Ok(Some(head_start..self.at));
                }
                if self.blank_skipped {
                    head_start = 2;
                }
                continue;
            }
            match byte {
                b'\r' => self.after_cr = true,
                b'\n' => return Err(Error::Malformed("bare LF")),
                _ if is_text(byte) => {}
                _ => return Err(Error::Malformed("control character")),
            }
            let line = self.at.saturating_sub(self.line_start);
            if self.lines == 0 && line > limits.target_bytes.saturating_add(REQUEST_LINE_EXTRA) {
                return Err(Error::TargetTooLong);
            }
        }
        Ok(None)
    }

    /// Returns the number of bytes from the current position that can be accepted without looking at each: they end no
    /// line and violate no rule or limit.
    fn text_ahead(&self, bytes: &[u8], limits: &Limits) -> usize {
        if self.after_cr {
            return 0;
        }
        let line_bytes_max =
            if self.lines == 0 { limits.target_bytes.saturating_add(REQUEST_LINE_EXTRA) } else { usize::MAX };
        let end = bytes.len().min(limits.head_bytes).min(self.line_start.saturating_add(line_bytes_max));
        let ahead = bytes.get(self.at..end).unwrap_or_default();
        ahead.iter().position(|byte| !is_text(*byte)).unwrap_or(ahead.len())
    }

    /// Ends a line. Returns true if it was the empty line.
    fn end_line(&mut self, limits: &Limits) -> Result<bool, Error> {
        let length = self.at.saturating_sub(self.line_start).saturating_sub(2);
        self.line_start = self.at;
        if length > 0 {
            self.lines = self.lines.saturating_add(1);
            // The request line counts as one of the lines.
            return if self.lines > limits.headers.saturating_add(1) {
                Err(Error::HeadTooLarge)
            } else {
                Ok(false)
            };
        }
        if self.lines > 0 {
            return Ok(true);
        }
        // RFC 9112 §2.2: old clients may send an empty line before the request line. More than one is refused.
        if self.blank_skipped {
            return Err(Error::Malformed("empty request line"));
        }
        self.blank_skipped = true;
        Ok(false)
    }
}

/// A parsed head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) target: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Headers,
    pub(super) framing: Framing,
    /// The maximum size of the body in bytes.
    pub(super) body_bytes_max: usize,
    /// Tells how the application gets the body.
    pub(super) intake: Intake,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

impl Head {
    /// Parses the range that [`Scanner::scan`] returned. Faults are reported in the order of the text: request line,
    /// fields, framing.
    pub(super) fn parse(
        bytes: &[u8],
        limits: &Limits,
        bodies: Option<&dyn BodyLimits>,
    ) -> Result<Self, Error> {
        let line_end = bytes.windows(2).position(|w| w == b"\r\n").ok_or(Error::Malformed("request line"))?;
        let (line, rest) = bytes.split_at_checked(line_end).ok_or(Error::Malformed("request line"))?;
        let (method, target, version) = request_line(line, limits)?;
        let fields = Fields::parse(rest.get(2..).unwrap_or_default(), limits)?;
        Self::of_parts((method, target, version), fields, None, limits, bodies)
    }

    /// Takes the head of an HTTP/2 stream, under the same rules as any other head. An extended CONNECT for a WebSocket
    /// (RFC 8441 §5) becomes the equivalent GET with `Upgrade`. No HTTP/2 request can contain an `Upgrade` field of its
    /// own (RFC 9113 §8.2.2).
    pub(super) fn of_stream(
        request: &StreamRequest,
        limits: &Limits,
        bodies: Option<&dyn BodyLimits>,
    ) -> Result<Self, Error> {
        let method = match (request.protocol.as_deref(), &request.method[..]) {
            (Some(b"websocket"), _) => Method::Get,
            (Some(_), _) => return Err(Error::NotImplemented("protocol")),
            (None, method) => known_method(method)?,
        };
        let target = check_target(&request.target, limits)?;
        let mut headers = Headers::new();
        if !request.authority.is_empty() {
            headers.push("Host", String::from_utf8_lossy(&request.authority));
        }
        for (name, value) in &request.fields {
            headers.push(String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        }
        if request.protocol.is_some() {
            headers.push("Upgrade", "websocket");
        }
        let has_body = request.has_body && request.protocol.is_none();
        let fields = Fields { headers, lengths: Vec::new() };
        Self::of_parts(
            (method, target, Version::Http2),
            fields,
            Some((has_body, request.length)),
            limits,
            bodies,
        )
    }

    /// Builds the head from the request line and the fields. For an HTTP/2 stream, `framed` says whether there is a
    /// body, and its length if announced; `None` for HTTP/1.1.
    fn of_parts(
        (method, target, version): (Method, &[u8], Version),
        fields: Fields<'_>,
        framed: Option<(bool, Option<u64>)>,
        limits: &Limits,
        bodies: Option<&dyn BodyLimits>,
    ) -> Result<Self, Error> {
        fields.check_host(version)?;
        let (path, query) = split_target(method, target, fields.headers.get("host"))?;
        let of_path = bodies.and_then(|bodies| bodies.body_bytes_max(&path));
        let intake = bodies.map_or(Intake::Whole, |bodies| bodies.intake(method, &path, &query));
        let body_bytes_max = match intake {
            Intake::Streamed => usize::MAX,
            Intake::Whole | Intake::AfterHead => of_path.unwrap_or(limits.body_bytes),
        };
        let framing = match framed {
            Some(framed) => stream_framing(framed, body_bytes_max)?,
            None => fields.framing(version, body_bytes_max)?,
        };
        let headers = fields.headers;
        let keep_alive = version != Version::Http2
            && !headers.has_token("connection", "close")
            && (version == Version::Http11 || headers.has_token("connection", "keep-alive"));
        let expects_continue = expectation(&headers, version)?;
        let target = String::from_utf8_lossy(target).into_owned();
        Ok(Self {
            method,
            version,
            target,
            path,
            query,
            headers,
            framing,
            body_bytes_max,
            intake,
            keep_alive,
            expects_continue,
        })
    }
}

/// Parses the request line (RFC 9112 §3), with exactly one space between its parts.
fn request_line<'a>(line: &'a [u8], limits: &Limits) -> Result<(Method, &'a [u8], Version), Error> {
    let mut parts = line.split(|b| *b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Error::Malformed("request line"));
    };
    if method.is_empty() || !method.iter().copied().all(is_token) {
        return Err(Error::Malformed("method"));
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Error::Malformed("request target"));
    }
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Error::VersionNotSupported);
        }
        _ => return Err(Error::Malformed("version")),
    };
    let target = check_target(target, limits)?;
    Ok((known_method(method)?, target, version))
}

fn check_target<'a>(target: &'a [u8], limits: &Limits) -> Result<&'a [u8], Error> {
    if target.len() > limits.target_bytes {
        return Err(Error::TargetTooLong);
    }
    if target.iter().all(u8::is_ascii_graphic) { Ok(target) } else { Err(Error::Malformed("request target")) }
}

fn known_method(method: &[u8]) -> Result<Method, Error> {
    match (Method::from_token(method), method) {
        (Some(method), _) => Ok(method),
        (None, b"CONNECT" | b"TRACE") => Err(Error::MethodNotAllowed),
        (None, _) => Err(Error::NotImplemented("method")),
    }
}

/// Returns the framing of the body of an HTTP/2 stream. Its frames determine where the body ends (RFC 9113 §8.1).
fn stream_framing((has_body, length): (bool, Option<u64>), body_bytes_max: usize) -> Result<Framing, Error> {
    match (has_body, length.map(usize::try_from)) {
        (false, _) => Ok(Framing::Length(0)),
        (true, None) => Ok(Framing::ToEnd),
        (true, Some(Ok(length))) if length <= body_bytes_max => Ok(Framing::Length(length)),
        (true, Some(_)) => Err(Error::BodyTooLarge),
    }
}

/// Header fields, with the raw values of the fields that determine the framing.
struct Fields<'a> {
    headers: Headers,
    lengths: Vec<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let parsed = match httparse::parse_headers(bytes, &mut slots) {
            Ok(httparse::Status::Complete((consumed, parsed))) if consumed == bytes.len() => parsed,
            Err(httparse::Error::TooManyHeaders) => return Err(Error::HeadTooLarge),
            Ok(_) | Err(_) => return Err(Error::Malformed("header field")),
        };
        if parsed.len() > limits.headers {
            return Err(Error::HeadTooLarge);
        }
        let mut headers = Headers::new();
        let mut lengths = Vec::new();
        // Each field has a single line: httparse refuses folded lines (RFC 9112 §5.2).
        for (field, line) in parsed.iter().zip(Lines(bytes)) {
            if field.name.eq_ignore_ascii_case("content-length") {
                lengths.push(line.get(field.name.len().saturating_add(1)..).unwrap_or_default());
            }
            headers.push(field.name, String::from_utf8_lossy(field.value));
        }
        Ok(Self { headers, lengths })
    }

    /// Checks `Host` (RFC 9112 §3.2). A request of HTTP/1.1 must have exactly one, with a valid host and port.
    fn check_host(&self, version: Version) -> Result<(), Error> {
        match (self.headers.count("host"), version) {
            (0, Version::Http10) => return Ok(()),
            (1, _) => {}
            (0, Version::Http11 | Version::Http2) => return Err(Error::Malformed("no Host")),
            (_, _) => return Err(Error::Malformed("duplicate Host")),
        }
        let host = self.headers.get("host").unwrap_or_default();
        let plausible = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]%~!$&'()*+=".contains(&b);
        if host.is_empty() || !host.bytes().all(plausible) {
            return Err(Error::Malformed("Host"));
        }
        Ok(())
    }

    /// Returns the framing of the body (RFC 9112 §6.3): one length, or one `chunked`, or no body. The repairs that the
    /// RFC allows are not made.
    fn framing(&self, version: Version, body_bytes_max: usize) -> Result<Framing, Error> {
        let mut codings = self.headers.all("transfer-encoding");
        let Some(coding) = codings.next() else {
            return self.content_length(body_bytes_max);
        };
        if !self.lengths.is_empty() {
            return Err(Error::Malformed("Content-Length with Transfer-Encoding"));
        }
        if version == Version::Http10 {
            return Err(Error::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if codings.next().is_some() {
            return Err(Error::Malformed("duplicate Transfer-Encoding"));
        }
        if coding.eq_ignore_ascii_case("chunked") {
            return Ok(Framing::Chunked);
        }
        let chunked_last =
            coding.rsplit(',').next().is_some_and(|c| c.trim().eq_ignore_ascii_case("chunked"));
        let chunked_count = coding.split(',').filter(|c| c.trim().eq_ignore_ascii_case("chunked")).count();
        if chunked_last && chunked_count == 1 {
            return Err(Error::NotImplemented("transfer coding"));
        }
        // The last coding is not chunked, so the length of the body cannot be known (RFC 9112 §6.3).
        Err(Error::Malformed("Transfer-Encoding"))
    }

    /// Parses `Content-Length`: digits after at most one space. Lists, signs and other whitespace are refused. The RFC
    /// allows a server to repair them, but two parsers may repair them differently.
    fn content_length(&self, body_bytes_max: usize) -> Result<Framing, Error> {
        let raw = match self.lengths.as_slice() {
            [] => return Ok(Framing::Length(0)),
            [raw] => raw,
            [..] => return Err(Error::Malformed("duplicate Content-Length")),
        };
        let digits = raw.strip_prefix(b" ").unwrap_or(raw);
        if digits.is_empty() || digits.len() > LENGTH_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Error::Malformed("Content-Length"));
        }
        let length = digits.iter().try_fold(0u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))
        });
        let length = length.ok_or(Error::Malformed("Content-Length"))?;
        match usize::try_from(length) {
            Ok(length) if length <= body_bytes_max => Ok(Framing::Length(length)),
            Ok(_) | Err(_) => Err(Error::BodyTooLarge),
        }
    }
}

/// The lines of a head, without their CR LF. The scanner has refused every other CR.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.0.iter().position(|byte| *byte == b'\r')?;
        let (line, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(2..)?;
        Some(line)
    }
}

/// Evaluates `Expect` (RFC 9110 §10.1.1). `100-continue` is ignored if the peer uses HTTP/1.0. Any other expectation is
/// refused.
fn expectation(headers: &Headers, version: Version) -> Result<bool, Error> {
    match headers.get("expect") {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("100-continue") => Ok(version != Version::Http10),
        Some(_) => Err(Error::ExpectationFailed),
    }
}

/// Splits a request target into path and query (RFC 9112 §3.2).
fn split_target(
    method: Method,
    target: &[u8],
    host: Option<&str>,
) -> Result<(String, Vec<(String, String)>), Error> {
    if target == b"*" {
        return match method {
            Method::Options => Ok(("*".to_owned(), Vec::new())),
            Method::Get | Method::Head | Method::Post | Method::Put | Method::Delete | Method::Patch => {
                Err(Error::Malformed("request target"))
            }
        };
    }
    let target = if target.starts_with(b"/") { target } else { absolute_form(target, host)? };
    let mut parts = target.splitn(2, |b| *b == b'?');
    let path = decode_path(parts.next().unwrap_or_default())?;
    let query = decode_query(parts.next().unwrap_or_default())?;
    Ok((path, query))
}

/// Accepts a target in absolute form (RFC 9112 §3.2.2) if its host equals `Host`. Clients that take this server for a
/// proxy send this form.
fn absolute_form<'a>(target: &'a [u8], host: Option<&str>) -> Result<&'a [u8], Error> {
    let refused = Error::Malformed("request target");
    let scheme_end = target.windows(3).position(|w| w == b"://").ok_or(refused)?;
    let (scheme, rest) = target.split_at_checked(scheme_end).ok_or(refused)?;
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(refused);
    }
    let rest = rest.get(3..).unwrap_or_default();
    let path_start = rest.iter().position(|b| *b == b'/').ok_or(refused)?;
    let (authority, path) = rest.split_at_checked(path_start).ok_or(refused)?;
    match host {
        Some(host) if !authority.is_empty() && host.as_bytes().eq_ignore_ascii_case(authority) => Ok(path),
        Some(_) | None => Err(Error::Malformed("request target names another host")),
    }
}

/// Decodes a path once. Refuses any spelling that a later parser could take for another path.
///
/// # Errors
/// The path has such a spelling.
pub fn decode_path(raw: &[u8]) -> Result<String, Error> {
    if raw.iter().any(|b| b"\\;#".contains(b)) {
        return Err(Error::Malformed("path"));
    }
    let decoded = decode_escapes(raw).ok_or(Error::Malformed("percent escape in path"))?;
    let encoded_slash =
        decoded.iter().filter(|b| **b == b'/').count() != raw.iter().filter(|b| **b == b'/').count();
    let hidden = |b: &u8| b.is_ascii_control() || *b == b'\\';
    if encoded_slash || decoded.iter().any(hidden) || escape_positions(&decoded).any(|valid| valid) {
        return Err(Error::Malformed("percent escape in path"));
    }
    let decoded =
        String::from_utf8(decoded.into_owned()).map_err(|_| Error::Malformed("path is not UTF-8"))?;
    if decoded.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(Error::Malformed("dot segment in path"));
    }
    let mut path = String::with_capacity(decoded.len());
    for c in decoded.chars() {
        if c != '/' || !path.ends_with('/') {
            path.push(c);
        }
    }
    Ok(path)
}

/// Decodes percent escapes; `None` if a percent sign is not followed by two hexadecimal digits.
fn decode_escapes(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    escape_positions(raw).all(|valid| valid).then(|| Cow::from(percent_decode(raw)))
}

/// Returns, for each percent sign, whether two hexadecimal digits follow.
fn escape_positions(bytes: &[u8]) -> impl Iterator<Item = bool> {
    bytes.iter().enumerate().filter(|(_, b)| **b == b'%').map(|(at, _)| {
        let digits = bytes.get(at.saturating_add(1)..at.saturating_add(3)).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit)
    })
}

/// Decodes a query in the encoding of forms. Invalid escapes are kept, and invalid UTF-8 becomes replacement
/// characters; the users of a value must check the value.
fn decode_query(raw: &[u8]) -> Result<Vec<(String, String)>, Error> {
    if raw.contains(&b'#') {
        return Err(Error::Malformed("request target"));
    }
    let mut pairs = Vec::new();
    for pair in raw.split(|b| *b == b'&').filter(|pair| !pair.is_empty()) {
        if pairs.len() >= QUERY_PAIRS_MAX {
            return Err(Error::Malformed("too many query parameters"));
        }
        let mut parts = pair.splitn(2, |b| *b == b'=');
        let name = decode_form(parts.next().unwrap_or_default());
        pairs.push((name, decode_form(parts.next().unwrap_or_default())));
    }
    Ok(pairs)
}

fn decode_form(raw: &[u8]) -> String {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(target: &str) -> Result<String, Error> {
        split_target(Method::Get, target.as_bytes(), Some("h")).map(|(path, _)| path)
    }

    #[test]
    fn paths_are_decoded_once_and_slashes_joined() {
        for (target, want) in [
            ("/", "/"),
            ("/a/b?x", "/a/b"),
            ("/a%20b/%C3%A9/", "/a b/é/"),
            ("//etc///passwd", "/etc/passwd"),
            ("/100%25", "/100%"),
            ("/...", "/..."),
            ("http://H/x", "/x"),
        ] {
            assert_eq!(path_of(target).as_deref(), Ok(want), "{target}");
        }
    }

    #[test]
    fn h_15_paths_with_two_readings_are_refused() {
        for target in [
            "/../",
            "/a/..",
            "/./a",
            "/.",
            "/%2e%2e%2f",
            "/%2e%2e/x",
            "/..%2f",
            "/a%2Fb",
            "/%252e",
            "/%252e%252e/x",
            "/..%5c",
            "/a\\b",
            "/%00",
            "/%0a",
            "/%7f",
            "/%c0%ae",
            "/%ff",
            "/app/streams/../../conf",
            "/x.m3u8/..",
            "/a;b=c/d",
            "/;/x",
            "/%",
            "/%4",
            "/%zz",
            "/a#b",
            "/a?b#c",
            "*",
            "a/b",
            "http://other/x",
            "http:///x",
            "ftp://h/x",
            "http://h",
        ] {
            assert!(matches!(path_of(target), Err(Error::Malformed(_))), "{target}: {:?}", path_of(target));
        }
    }

    #[test]
    fn queries_are_pairs_in_their_order() {
        let (_, query) = split_target(Method::Get, b"/a?x=1&y=a+b%26c&&z&x=%zz%ff=", None).unwrap();
        let pairs: Vec<(&str, &str)> = query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("x", "1"), ("y", "a b&c"), ("z", ""), ("x", "%zz\u{fffd}=")]);
        let many = format!("/?{}", "a&".repeat(QUERY_PAIRS_MAX + 1));
        assert!(split_target(Method::Get, many.as_bytes(), None).is_err());
    }

    #[test]
    fn options_may_ask_the_server_itself() {
        assert_eq!(split_target(Method::Options, b"*", None), Ok(("*".to_owned(), Vec::new())));
    }

    #[test]
    fn a_scan_in_pieces_looks_at_each_byte_once() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\nrest";
        let mut scanner = Scanner::default();
        let limits = Limits::default();
        let found = (1..=head.len()).find_map(|n| scanner.scan(&head[..n], &limits).unwrap());
        assert_eq!((found, scanner.scanned()), (Some(2..head.len() - 4), head.len() - 4));
    }
}
