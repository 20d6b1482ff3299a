//! The server side of HTTP/1.1 as a sans-IO state machine (RFC 9110 semantics, RFC 9112 messages). The same machine
//! also serves a single HTTP/2 stream ([`Connection::of_stream`]); another machine reads and writes the HTTP/2 frames.
//!
//! Message flow of one connection:
//! 1. The shell (the code that owns the socket) accepts a transport and makes a [`Connection`], which starts the head
//!    timer.
//! 2. [`Connection::handle_bytes`] takes any split of the stream. [`head`](self) scans each byte once, refuses heads
//!    that RFC 9112 leaves ambiguous, and determines the framing of the body before any of it is read.
//! 3. A body announced with `Expect: 100-continue` is invited with `100` only if it will be accepted.
//! 4. [`Event::Request`] hands out the whole request with its body, one request at a time. Further requests from a
//!    pipelining peer are held, up to [`Limits::held_bytes`].
//! 5. The application answers with [`Connection::respond`], now or later; then the next request is parsed from the held
//!    bytes.
//! 6. [`Connection::poll_transmit`] moves the answer to the shell's queue. The shell reports the progress of each write
//!    with [`Connection::handle_sent`], which drives the write-stall timer and the back-pressure.
//! 7. After a protocol error an answer (400, 408, 413, ...) with `Connection: close` is queued, and
//!    [`Connection::is_closing`] turns true. The shell then flushes, half-closes, drains for a moment (RFC 9112 §9.6,
//!    so that a reset does not overtake the answer) and closes. [`Event::Closed`] is the last event.
//! 8. A response body that is sent in blocks (a file) or bypasses the machine (HTTP-FLV) begins with
//!    [`Connection::begin`]; an upgrade (RFC 9110 §7.8) with [`Connection::upgrade`], which hands over the bytes read
//!    beyond the request.
//! 9. If the application reads the request body as it arrives ([`Intake`]), [`Event::Request`] has only the head.
//!    Before [`Connection::take_body`], nothing is read beyond what arrived with the head. Afterwards
//!    [`Connection::poll_body`] returns the bytes received so far, and reading stops while more than
//!    [`Limits::body_window_bytes`] wait for it.
//!
//! Strictness is a security property: requests are smuggled where two parsers see different requests in the same
//! bytes. Every ambiguous input is refused and the connection closed (RFC 9112 §11.2).
//!
//! Beside the machine: [`coding`] (gzip), [`Resource`] (conditions and ranges, RFC 9110 §13, §14), [`cors`],
//! [`media_type()`], [`Mounts`] (the routes and their rules), [`Multipart`] (forms), and [`websocket`].

mod body;
pub mod client;
pub mod coding;
mod connection;
pub mod cors;
mod grammar;
mod head;
mod limits;
mod media_type;
mod mount;
mod multipart;
mod range;
mod request;
mod resource;
mod response;
#[cfg(test)]
mod tests;
pub mod websocket;

pub use body::{BodyDecoder, Framing};
pub use connection::{BodyLength, CloseReason, Connection, End, Event, Stats, StreamAnswer, StreamRequest};
pub use head::decode_path;
pub use limits::Limits;
pub use media_type::media_type;
pub use mount::{BodyKind, BodyLimits, Captures, Cors, Intake, Methods, Mount, Mounts, Pages};
pub use multipart::{FormEvent, Malformed, Multipart};
pub use range::{Range, parse_range};
pub use request::{Headers, Method, Request, Version};
pub use resource::{Resource, Selection};
pub use response::{Response, StreamHead, http_date, reason_phrase};

/// An error that ends the connection. Except for the last two errors, the peer is first answered with
/// [`Error::status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the grammar of RFC 9112, or sent an ambiguous message.
    #[error("Malformed request: {0}")]
    Malformed(&'static str),
    /// The method is CONNECT or TRACE.
    #[error("Method not allowed")]
    MethodNotAllowed,
    /// The head or the body was not received in time.
    #[error("Request timeout")]
    Timeout,
    /// The body is, or became, larger than [`Limits::body_bytes`], or than its path or the application allows.
    #[error("Request body too large")]
    BodyTooLarge,
    /// The request target is longer than [`Limits::target_bytes`].
    #[error("Request target too long")]
    TargetTooLong,
    /// `Expect` is not `100-continue` (RFC 9110 §10.1.1).
    #[error("Expectation failed")]
    ExpectationFailed,
    /// More header bytes, header lines or trailer bytes than allowed (RFC 6585 §5).
    #[error("Request header fields too large")]
    HeadTooLarge,
    /// The method or transfer coding is unknown to this server.
    #[error("Not implemented: {0}")]
    NotImplemented(&'static str),
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("HTTP version not supported")]
    VersionNotSupported,
    /// The peer has accepted no bytes for [`Limits::write_stall`]. The transport must be dropped without flushing.
    #[error("no write progress")]
    WriteStalled,
    /// Bytes were passed in although [`Connection::wants_bytes`] was false. The transport must be dropped without
    /// flushing.
    #[error("more bytes than wanted")]
    Overrun,
}

impl Error {
    /// Returns the status to answer with, or `None` if the peer would not read an answer.
    #[must_use]
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Malformed(_) => Some(400),
            Self::MethodNotAllowed => Some(405),
            Self::Timeout => Some(408),
            Self::BodyTooLarge => Some(413),
            Self::TargetTooLong => Some(414),
            Self::ExpectationFailed => Some(417),
            Self::HeadTooLarge => Some(431),
            Self::NotImplemented(_) => Some(501),
            Self::VersionNotSupported => Some(505),
            Self::WriteStalled | Self::Overrun => None,
        }
    }
}
