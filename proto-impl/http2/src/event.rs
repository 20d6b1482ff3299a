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
    /// A request began.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its head.
        request: Box<Request>,
        /// Whether a body follows: [`Event::Body`], and [`Event::BodyEnd`] in any case.
        has_body: bool,
    },
    /// A part of a request's body. Its bytes count against the peer's window until [`crate::Connection::release`].
    Body {
        /// The stream.
        stream: StreamId,
        /// The part.
        bytes: Bytes,
    },
    /// A request's body is complete.
    BodyEnd {
        /// The stream.
        stream: StreamId,
        /// Fields behind the body.
        trailers: Vec<Field>,
    },
    /// Parts of a response's body left the stream's queue, for the transport.
    Sent {
        /// The stream.
        stream: StreamId,
        /// Bytes since the last such event.
        bytes: usize,
    },
    /// A stream ended before its request and response were complete; nothing of it follows.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's code, or the one that was sent to it.
        code: Code,
    },
    /// The last event: all streams have ended.
    Closed(CloseReason),
}

/// The reason for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed the connection, or said that it will send no more requests.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// No request came in time.
    #[error("no request came in time")]
    Idle,
    /// [`crate::Connection::close`] was called, and all streams are complete.
    #[error("closed by the server")]
    Shutdown,
    /// A fatal error.
    #[error("{0}")]
    Error(Error),
}

/// Plain counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests handed to the application.
    pub requests: u64,
    /// Streams that were reset, by either side.
    pub resets: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes queued for the peer.
    pub bytes_out: u64,
    /// Bytes received that wait for the rest of their frame or header block.
    pub held_bytes: usize,
    /// Bytes queued that the transport has not taken.
    pub unsent_bytes: usize,
    /// Bytes of response bodies that wait for a window.
    pub queued_bytes: usize,
    /// Open streams.
    pub streams: usize,
}
