//! Events for the application.

use bytes::Bytes;

use crate::hpack::Field;
use crate::request::Request;
use crate::{Code, Error};

/// A stream of a connection: one request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request has arrived.
    Request {
        /// Stream of the request.
        stream: StreamId,
        /// Head of the request.
        request: Box<Request>,
        /// True if a body follows, as [`Event::Body`]. [`Event::BodyEnd`] follows in any case.
        has_body: bool,
    },
    /// A part of a request's body has arrived. Its bytes use up the peer's window until they are
    /// passed to [`crate::Connection::release`].
    Body {
        /// Stream of the request.
        stream: StreamId,
        /// Bytes of this part.
        bytes: Bytes,
    },
    /// A request's body is complete.
    BodyEnd {
        /// Stream of the request.
        stream: StreamId,
        /// Trailer fields after the body.
        trailers: Vec<Field>,
    },
    /// Parts of a response's body have moved from the stream's queue to the transport.
    Sent {
        /// Stream of the response.
        stream: StreamId,
        /// Number of bytes since the last such event of this stream.
        bytes: usize,
    },
    /// A stream ended before its request and response were complete. No further event of the stream
    /// follows.
    Reset {
        /// Stream that was reset.
        stream: StreamId,
        /// Error code received from, or sent to, the peer.
        code: Code,
    },
    /// All streams have ended; always the last event.
    Closed(CloseReason),
}

/// The reason for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed the connection, or announced that it sends no more requests.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// No request arrived in time.
    #[error("no request came in time")]
    Idle,
    /// [`crate::Connection::close`] was called, and all streams are complete.
    #[error("closed by the server")]
    Shutdown,
    /// A fatal error occurred.
    #[error("{0}")]
    Error(Error),
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests passed to the application.
    pub requests: u64,
    /// Streams reset by either side.
    pub resets: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes queued for the peer.
    pub bytes_out: u64,
    /// Received bytes that wait for the rest of their frame or header block.
    pub held_bytes: usize,
    /// Queued bytes not accepted by the transport yet.
    pub unsent_bytes: usize,
    /// Bytes of response bodies that wait for a window.
    pub queued_bytes: usize,
    /// Open streams.
    pub streams: usize,
}
