//! Errors of connections.

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
    /// The body is, or became, larger than [`crate::Limits::body_bytes`], or than its path or the application allows.
    #[error("Request body too large")]
    BodyTooLarge,
    /// The request target is longer than [`crate::Limits::target_bytes`].
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
    /// The peer has accepted no bytes for [`crate::Limits::write_stall`]. The transport must be dropped without flushing.
    #[error("no write progress")]
    WriteStalled,
    /// Bytes were passed in although [`crate::Connection::wants_bytes`] was false. The transport must be dropped without
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
