//! Errors, each of which ends the connection.

use crate::Status;

/// The reason a machine failed. Every variant is fatal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    #[error("protocol violation at byte {at}: {violation}")]
    Violation {
        /// Bytes received when it was found.
        at: u64,
        /// The rule that was violated.
        violation: Violation,
    },
    /// The peer went over a limit.
    #[error("limit reached at byte {at}: {limit}")]
    Limit {
        /// Bytes received when it was found.
        at: u64,
        /// The limit that was exceeded.
        limit: Limit,
    },
}

impl Error {
    /// The status that tells a client what was wrong (RFC 2326 §7.1.1).
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
    /// The first line is neither a request's nor a response's.
    #[error("malformed start line")]
    StartLine,
    /// The message is of another version, or of another protocol.
    #[error("not RTSP/1.0")]
    Version,
    /// A line that is no header field, or a field that continues on a second line.
    #[error("malformed header field")]
    Header,
    /// A control character in a line.
    #[error("control character in a line")]
    Control,
    /// `Content-Length` is no number, or is there twice (RFC 2326 §12.14).
    #[error("malformed Content-Length")]
    ContentLength,
    /// `CSeq` is missing in a request, is no number, or is there twice (RFC 2326 §12.17).
    #[error("missing or malformed CSeq")]
    CSeq,
    /// A server described no stream that can be read.
    #[error("malformed description: {0}")]
    Description(sdp::Error),
    /// A server chose a transport that was not offered, or none that can be read.
    #[error("transport out of place")]
    Transport,
}

/// A limit of [`crate::limits`] or of a machine's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// [`crate::limits::START_LINE_BYTES_MAX`] or [`crate::limits::URL_BYTES_MAX`].
    #[error("bytes of the start line")]
    StartLineBytes,
    /// [`crate::limits::HEADERS_MAX`].
    #[error("header fields")]
    Headers,
    /// A header field's name or value, or all of them.
    #[error("bytes of the header")]
    HeaderBytes,
    /// [`crate::limits::BODY_BYTES_MAX`].
    #[error("bytes of the body")]
    BodyBytes,
    /// Too much sent while a request awaited its verdict.
    #[error("bytes held during a verdict")]
    HeldBytes,
    /// Too many requests in a second.
    #[error("request rate")]
    RequestRate,
    /// Too many requests refused for their credentials.
    #[error("failed authentications")]
    Authentications,
    /// Too many messages out of place in a minute.
    #[error("bad messages")]
    BadMessages,
}

/// An [`Error`] that does not know its place yet.
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
