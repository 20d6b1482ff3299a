//! A response of the application, and its serialization.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use wire::SendQueue;

use super::coding;
use super::connection::End;
use super::request::{Headers, Method, Version};

/// The last second that the Date format can express (9999-12-31).
const WALL_MS_MAX: u64 = 253_402_300_799_000;

/// Fields that the connection writes itself. Values of the application for these fields are dropped, because they could
/// contradict the framing.
const OWN_FIELDS: [&str; 5] =
    ["content-length", "transfer-encoding", "connection", "date", "x-content-type-options"];

/// Fields that belong to a connection of HTTP/1.1. HTTP/2 forbids them (RFC 9113 §8.2.2).
const OF_CONNECTIONS: [&str; 4] = ["connection", "keep-alive", "upgrade", "sec-websocket-accept"];

/// A complete response. The connection adds framing, `Date`, `Connection` and `X-Content-Type-Options`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Final status, 200 to 599; anything else is sent as 500.
    pub status: u16,
    /// Header fields. With `Connection: close`, the connection closes after this answer.
    pub headers: Headers,
    /// Body. It is not sent for HEAD, 204 and 304.
    pub body: Bytes,
    /// Value of `Content-Length` in the response to a HEAD, if `body` was left empty.
    pub head_length: Option<u64>,
}

impl Response {
    /// A response without a body.
    #[must_use]
    pub const fn empty(status: u16) -> Self {
        Self { status, headers: Headers::new(), body: Bytes::new(), head_length: None }
    }

    /// A response with a body of any media type.
    #[must_use]
    pub fn with_body(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let mut response = Self::empty(status);
        response.headers.push("Content-Type", content_type);
        response.body = body.into();
        response
    }

    /// Makes a response with a JSON body.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::with_body(status, "application/json", body)
    }

    /// Makes a response with a text body.
    #[must_use]
    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self::with_body(status, "text/plain", body)
    }

    /// Makes a small page that shows `message`, escaped.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        let phrase = reason_phrase(status);
        let message = escape(message);
        let page = format!(
            "<!doctype html><html lang=\"en\"><head><title>HTTP Status {status} – {phrase}</title></head>\
             <body><h1>HTTP Status {status} – {phrase}</h1><p><b>Message</b> {message}</p></body></html>"
        );
        Self::with_body(status, "text/html;charset=utf-8", page)
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Makes the connection close after this response.
    #[must_use]
    pub fn close(self) -> Self {
        self.header("Connection", "close")
    }
}

/// The properties of an exchange that affect how the response is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    /// True if a response may be compressed although its content is for this client only: the client accepts gzip and
    /// is not a browser ([`coding`]).
    pub(super) gzip: bool,
}

/// The ways in which the end of a body can be determined (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delimiter {
    /// `Content-Length`.
    Length(u64),
    /// The end of the connection.
    Close,
}

/// True if a response of this status may have content (RFC 9110 §15.3.5, §15.4.5).
pub(super) const fn has_content(status: u16) -> bool {
    status != 204 && status != 304
}

/// The head of a response on an HTTP/2 stream (RFC 9113 §8.3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHead {
    /// Status.
    pub status: u16,
    /// Header fields with names in lower case, without connection-specific fields.
    pub fields: Vec<(String, String)>,
}

/// Responses queued for the peer.
#[derive(Debug)]
pub(super) enum Answers {
    /// HTTP/1.1 text.
    Text(SendQueue),
    /// The heads, the body and the end of a response on an HTTP/2 stream.
    Stream(Vec<StreamHead>, SendQueue, Option<End>),
}

impl Answers {
    /// Returns the queued bytes.
    pub(super) const fn queue(&self) -> &SendQueue {
        match self {
            Self::Text(queue) | Self::Stream(_, queue, _) => queue,
        }
    }

    pub(super) const fn queue_mut(&mut self) -> &mut SendQueue {
        match self {
            Self::Text(queue) | Self::Stream(_, queue, _) => queue,
        }
    }

    /// Drops the queued output.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Text(queue) => *queue = SendQueue::new(),
            Self::Stream(heads, queue, _) => {
                heads.clear();
                *queue = SendQueue::new();
            }
        }
    }

    /// Sends `100 Continue` (RFC 9110 §10.1.1).
    pub(super) fn invite(&mut self) {
        match self {
            Self::Text(queue) => queue.push(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n")),
            Self::Stream(heads, ..) => heads.push(StreamHead { status: 100, fields: Vec::new() }),
        }
    }

    /// Marks the end of the response.
    pub(super) const fn end(&mut self, how: End) {
        if let Self::Stream(.., end) = self {
            *end = Some(how);
        }
    }

    /// Queues a head: first the fields of the application, then those of the connection.
    fn head(&mut self, status: u16, wall_ms: Option<u64>, headers: &Headers, own: &[(&str, &str)]) {
        let date = wall_ms.map(http_date);
        let dated = date.iter().map(|date| ("Date", date.as_str()));
        let is_own = |name: &str| OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own));
        let fields = headers.iter().filter(|(name, _)| !is_own(name));
        let fields = dated.chain(fields).chain(own.iter().copied());
        match self {
            Self::Text(queue) => {
                let mut head = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status));
                fields.for_each(|(name, value)| field(&mut head, name, value));
                head.push_str("\r\n");
                queue.push(Bytes::from(head));
            }
            Self::Stream(heads, ..) => {
                let of_stream = |name: &str| !OF_CONNECTIONS.iter().any(|of| name.eq_ignore_ascii_case(of));
                let kept = fields.filter(|(name, _)| of_stream(name));
                let fields = kept.map(|(name, value)| {
                    (
                        name_chars(name).collect::<String>().to_ascii_lowercase(),
                        value_chars(value.trim()).collect(),
                    )
                });
                heads.push(StreamHead { status, fields: fields.collect() });
            }
        }
    }
}

/// Queues status line, fields and body (RFC 9112 §4, §6.3). `wall_ms` is `None` if the connection answers by itself: it
/// has no clock for `Date` (RFC 9110 §6.6.1).
pub(super) fn write(out: &mut Answers, exchange: Exchange, wall_ms: Option<u64>, mut response: Response) {
    coding::encode(&mut response, exchange.gzip);
    let length = u64::try_from(response.body.len()).unwrap_or(u64::MAX);
    let told = if exchange.method == Method::Head { response.head_length.unwrap_or(length) } else { length };
    write_head(out, exchange, wall_ms, &response, Delimiter::Length(told));
    if has_content(response.status) && exchange.method != Method::Head {
        out.queue_mut().push(response.body);
    }
}

/// Queues status line and fields.
pub(super) fn write_head(
    out: &mut Answers,
    exchange: Exchange,
    wall_ms: Option<u64>,
    response: &Response,
    delimiter: Delimiter,
) {
    let status = if (200..=599).contains(&response.status) { response.status } else { 500 };
    let length = match delimiter {
        Delimiter::Length(length) if has_content(status) => Some(length.to_string()),
        Delimiter::Length(_) | Delimiter::Close => None,
    };
    let length = length.iter().map(|length| ("Content-Length", length.as_str()));
    let connection = match (exchange.keep_alive, exchange.version) {
        (false, _) => Some(("Connection", "close")),
        (true, Version::Http10) => Some(("Connection", "keep-alive")),
        (true, Version::Http11 | Version::Http2) => None,
    };
    let own: Vec<_> = length.chain([("X-Content-Type-Options", "nosniff")]).chain(connection).collect();
    out.head(status, wall_ms, &response.headers, &own);
}

/// Queues a 101. After it, the connection uses another protocol (RFC 9110 §15.2.2). On an HTTP/2 stream, the status is
/// 200 (RFC 8441 §5).
pub(super) fn write_upgrade(out: &mut Answers, wall_ms: u64, headers: &Headers) {
    let status = if matches!(out, Answers::Text(_)) { 101 } else { 200 };
    out.head(status, Some(wall_ms), headers, &[("Connection", "Upgrade")]);
}

/// Formats a time as in `Date` and `Last-Modified` (RFC 9110 §5.6.7).
#[must_use]
pub fn http_date(wall_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(wall_ms.min(WALL_MS_MAX)));
    httpdate::fmt_http_date(at.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Writes a field. Control characters become spaces, because a line end in a value would split the response.
fn field(head: &mut String, name: &str, value: &str) {
    head.extend(name_chars(name));
    head.push_str(": ");
    head.extend(value_chars(value));
    head.push_str("\r\n");
}

fn name_chars(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| c.is_ascii_graphic() && *c != ':')
}

fn value_chars(value: &str) -> impl Iterator<Item = char> {
    value.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the reason phrase of a status that this server sends (RFC 9110 §15, RFC 6585, RFC 8297).
#[must_use]
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(method: Method, response: Response) -> String {
        let mut out = Answers::Text(SendQueue::new());
        let exchange = Exchange { method, version: Version::Http11, keep_alive: true, gzip: false };
        write(&mut out, exchange, Some(784_111_777_000), response);
        String::from_utf8(out.queue_mut().take_all().to_vec()).unwrap()
    }

    #[test]
    fn an_answer_says_length_date_and_nosniff() {
        assert_eq!(
            written(Method::Get, Response::json(200, "{}")),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\nX-Content-Type-Options: nosniff\r\n\r\n{}"
        );
    }

    #[test]
    fn a_field_cannot_split_the_answer_nor_contradict_the_framing() {
        let text = written(
            Method::Get,
            Response::empty(200)
                .header("Location", "/a\r\nSet-Cookie: x")
                .header("Bad\r\nName:", "v")
                .header("Content-Length", "77")
                .header("Transfer-Encoding", "chunked"),
        );
        assert!(
            text.contains("Location: /a  Set-Cookie: x\r\nBadName: v\r\nContent-Length: 0\r\n"),
            "{text}"
        );
        assert_eq!((text.matches("Content-Length").count(), text.contains("chunked")), (1, false));
    }

    #[test]
    fn the_error_page_shows_its_message_escaped() {
        let text = written(Method::Get, Response::error(403, "Not allowed <IP> & co"));
        assert!(text.contains("Not allowed &lt;IP&gt; &amp; co") && text.contains("text/html;charset=utf-8"));
    }

    #[test]
    fn dates_beyond_the_format_and_odd_statuses_do_no_harm() {
        let mut out = Answers::Text(SendQueue::new());
        let exchange =
            Exchange { method: Method::Get, version: Version::Http10, keep_alive: true, gzip: false };
        write(&mut out, exchange, Some(u64::MAX), Response::empty(101));
        let text = String::from_utf8(out.queue_mut().take_all().to_vec()).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 500 ")
                && text.contains("9999")
                && text.contains("Connection: keep-alive")
        );
    }
}
