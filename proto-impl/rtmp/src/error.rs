//! Errors. Each of them ends the connection.

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

/// A rule that a peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The version in C0 or S0 is this one instead of 3.
    #[error("handshake version {0}")]
    Version(u8),
    /// The first header on a chunk stream refers to an earlier header, but there is none.
    #[error("chunk stream {chunk_stream} begins with a type {format} header")]
    FirstHeader {
        /// Chunk stream id.
        chunk_stream: u32,
        /// Header type, 1 to 3.
        format: u8,
    },
    /// A header within a message announces a different length.
    #[error("message length changed from {from} to {to}")]
    LengthChanged {
        /// Length at the message's start.
        from: usize,
        /// Length in the later header.
        to: usize,
    },
    /// Set Chunk Size is 0 or has its top bit set.
    #[error("chunk size {0:#x}")]
    ChunkSize(u32),
    /// A control or command message is malformed.
    #[error("malformed message of type {kind}")]
    Malformed {
        /// Message type id.
        kind: u8,
    },
    /// A command has malformed AMF values.
    #[error("malformed command: {0}")]
    Amf(#[from] flv::Error),
    /// A command arrived before `connect`.
    #[error("command before connect")]
    NotConnected,
}

/// A limit of [`crate::Config`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// A message is longer than allowed for its type.
    #[error("message of {bytes} bytes of type {kind}")]
    MessageBytes {
        /// Announced length, in bytes.
        bytes: usize,
        /// Message type id.
        kind: u8,
    },
    /// Too many chunk streams.
    #[error("chunk streams")]
    ChunkStreams,
    /// Incomplete messages use too much memory.
    #[error("bytes of unfinished messages")]
    PendingBytes,
    /// Too many bytes arrived while a request waited for the owner's decision.
    #[error("bytes held during a verdict")]
    HeldBytes,
    /// Too many commands in a second.
    #[error("command rate")]
    CommandRate,
    /// Too many unknown or misplaced messages arrived.
    #[error("bad messages")]
    BadMessages,
    /// An aggregate message has too many parts.
    #[error("parts of an aggregate message")]
    AggregateParts,
}

/// An [`Error`] without its position in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Violation(Violation),
    Limit(Limit),
}

impl Fault {
    pub(crate) fn at(self, at: u64) -> Error {
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

impl From<flv::Error> for Fault {
    fn from(error: flv::Error) -> Self {
        Self::Violation(Violation::Amf(error))
    }
}
