//! An answer of the application, and how it is put on the wire.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use wire::SendQueue;

use super::coding;
use super::request::{Headers, Method, Version};

/// The last second that the Date format can say (9999-12-31).
const WALL_MS_MAX: u64 = 253_402_300_799_000;

/// Fields that the connection writes itself: an application's copy would contradict the framing.
const OWN_FIELDS: [&str; 5] =
    ["content-length", "transfer-encoding", "connection", "date", "x-content-type-options"];

/// A complete response. Framing, `Date`, `Connection` and `X-Content-Type-Options` are added by the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Final status, 200 to 599; anything else is sent as 500.
    pub status: u16,
    /// Header fields; `Connection: close` among them ends the connection after this answer.
    pub headers: Headers,
    /// Body. It is not sent for HEAD, 204 and 304.
    pub body: Bytes,
    /// Content-Length to tell for HEAD when the body was not read for it.
    pub head_length: Option<u64>,
}

impl Response {
    /// No body.
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

    /// A JSON body.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::with_body(status, "application/json", body)
    }

    /// A text body.
    #[must_use]
    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self::with_body(status, "text/plain", body)
    }

    /// A small page that carries `message`, escaped.
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

    /// Closes the connection after this answer.
    #[must_use]
    pub fn close(self) -> Self {
        self.header("Connection", "close")
    }
}

/// The exchange, as far as it affects how the response is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    /// Whether the client takes gzip of an answer that may have something of its own in it.
    pub(super) gzip: bool,
}

/// How the end of the body is signalled (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delimiter {
    /// `Content-Length`.
    Length(u64),
    /// The end of the connection.
    Close,
}

/// Whether a status has content at all (RFC 9110 §15.3.5, §15.4.5), whatever the application put there.
pub(super) const fn has_content(status: u16) -> bool {
    status != 204 && status != 304
}

/// Queues status line, fields and body (RFC 9112 §4, §6.3). `wall_ms` is absent where the machine answers on its
/// own: it has no clock to date the answer with (RFC 9110 §6.6.1).
pub(super) fn write(out: &mut SendQueue, exchange: Exchange, wall_ms: Option<u64>, mut response: Response) {
    coding::encode(&mut response, exchange.gzip);
    let length = u64::try_from(response.body.len()).unwrap_or(u64::MAX);
    let told = if exchange.method == Method::Head { response.head_length.unwrap_or(length) } else { length };
    write_head(out, exchange, wall_ms, &response, Delimiter::Length(told));
    if has_content(response.status) && exchange.method != Method::Head {
        out.push(response.body);
    }
}

/// Queues status line and fields.
pub(super) fn write_head(
    out: &mut SendQueue,
    exchange: Exchange,
    wall_ms: Option<u64>,
    response: &Response,
    delimiter: Delimiter,
) {
    let status = if (200..=599).contains(&response.status) { response.status } else { 500 };
    let mut head = begin_head(status, wall_ms, &response.headers);
    match delimiter {
        Delimiter::Length(length) if has_content(status) => {
            field(&mut head, "Content-Length", &length.to_string())
        }
        Delimiter::Length(_) | Delimiter::Close => {}
    }
    field(&mut head, "X-Content-Type-Options", "nosniff");
    match (exchange.keep_alive, exchange.version) {
        (false, _) => field(&mut head, "Connection", "close"),
        (true, Version::Http10) => field(&mut head, "Connection", "keep-alive"),
        (true, Version::Http11) => {}
    }
    head.push_str("\r\n");
    out.push(Bytes::from(head));
}

/// Queues a 101: what follows on the connection is another protocol (RFC 9110 §15.2.2).
pub(super) fn write_upgrade(out: &mut SendQueue, wall_ms: u64, headers: &Headers) {
    let mut head = begin_head(101, Some(wall_ms), headers);
    field(&mut head, "Connection", "Upgrade");
    head.push_str("\r\n");
    out.push(Bytes::from(head));
}

fn begin_head(status: u16, wall_ms: Option<u64>, headers: &Headers) -> String {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status));
    if let Some(ms) = wall_ms {
        field(&mut head, "Date", &http_date(ms));
    }
    for (name, value) in headers.iter() {
        if !OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            field(&mut head, name, value);
        }
    }
    head
}

/// A time in the format of `Date` and `Last-Modified` (RFC 9110 §5.6.7).
#[must_use]
pub fn http_date(wall_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(wall_ms.min(WALL_MS_MAX)));
    httpdate::fmt_http_date(at.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// A line end inside a field would split the answer in two; controls become spaces.
fn field(head: &mut String, name: &str, value: &str) {
    head.extend(name.chars().filter(|c| c.is_ascii_graphic() && *c != ':'));
    head.push_str(": ");
    head.extend(value.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }));
    head.push_str("\r\n");
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

/// The phrases of RFC 9110 §15, RFC 6585 and RFC 8297 that this server sends.
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
        let mut out = SendQueue::new();
        let exchange = Exchange { method, version: Version::Http11, keep_alive: true, gzip: false };
        write(&mut out, exchange, Some(784_111_777_000), response);
        String::from_utf8(out.take_all().to_vec()).unwrap()
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
        let mut out = SendQueue::new();
        let exchange =
            Exchange { method: Method::Get, version: Version::Http10, keep_alive: true, gzip: false };
        write(&mut out, exchange, Some(u64::MAX), Response::empty(101));
        let text = String::from_utf8(out.take_all().to_vec()).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 500 ")
                && text.contains("9999")
                && text.contains("Connection: keep-alive")
        );
    }
}
