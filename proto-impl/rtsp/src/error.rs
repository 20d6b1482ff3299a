//! Errors. Each of them ends the connection.

use crate::Status;

/// The reason a connection failed. Every variant ends the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    #[error("protocol violation at byte {at}: {violation}")]
    Violation {
        /// Number of bytes received when the violation was found.
        at: u64,
        /// Rule that was violated.
        violation: Violation,
    },
    /// The peer exceeded a limit.
    #[error("limit reached at byte {at}: {limit}")]
    Limit {
        /// Number of bytes received when the limit was exceeded.
        at: u64,
        /// Limit that was exceeded.
        limit: Limit,
    },
}

impl Error {
    /// Returns the status that describes the error to a client (RFC 2326 §7.1.1).
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Violation { violation: Violation::Version, .. } => Status::VERSION_NOT_SUPPORTED,
            Self::Limit { limit: Limit::BodyBytes, .. } => Status::ENTITY_TOO_LARGE,
            Self::Limit { limit: Limit::StartLineBytes, .. } => Status::URI_TOO_LONG,
            Self::Limit { limit: Limit::RequestRate | Limit::HeldBytes, .. } => Status::UNAVAILABLE,
            Self::Violation { .. } | Self::Limit { .. } => Status::BAD_REQUEST,
        }
    }
}

/// A rule that a peer broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The first line is neither a request line nor a status line.
    #[error("malformed start line")]
    StartLine,
    /// The message has another version or protocol.
    #[error("not RTSP/1.0")]
    Version,
    /// A line is not a header field, or a field continues on a second line.
    #[error("malformed header field")]
    Header,
    /// A line contains a control character.
    #[error("control character in a line")]
    Control,
    /// `Content-Length` is not a number or occurs twice (RFC 2326 §12.14).
    #[error("malformed Content-Length")]
    ContentLength,
    /// `CSeq` is missing in a request, is not a number, or occurs twice (RFC 2326 §12.17).
    #[error("missing or malformed CSeq")]
    CSeq,
    /// The server's description of the stream is invalid.
    #[error("malformed description: {0}")]
    Description(sdp::Error),
    /// The server chose a transport that was not offered or is malformed.
    #[error("transport out of place")]
    Transport,
}

/// A limit of [`crate::limits`] or of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The start line exceeds [`crate::limits::START_LINE_BYTES_MAX`] or [`crate::limits::URL_BYTES_MAX`].
    #[error("bytes of the start line")]
    StartLineBytes,
    /// The message has more than [`crate::limits::HEADERS_MAX`] header fields.
    #[error("header fields")]
    Headers,
    /// The name or the value of a header field is too long, or all fields together are.
    #[error("bytes of the header")]
    HeaderBytes,
    /// The body exceeds [`crate::limits::BODY_BYTES_MAX`].
    #[error("bytes of the body")]
    BodyBytes,
    /// Too many bytes arrived while a request waited for the owner's decision.
    #[error("bytes held during a verdict")]
    HeldBytes,
    /// Too many requests in a second.
    #[error("request rate")]
    RequestRate,
    /// Too many requests were refused for their credentials.
    #[error("failed authentications")]
    Authentications,
    /// Too many misplaced messages arrived in a minute.
    #[error("bad messages")]
    BadMessages,
}

/// An [`Error`] without its position in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Violation(Violation),
    Limit(Limit),
}

impl Fault {
    pub(crate) const fn at(self, at: u64) -> Error {
        match self {
            Self::Violation(violation) => Error::Violation { at, violation },
            Self::Limit(limit) => Error::Limit { at, limit },
        }
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<Limit> for Fault {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}
