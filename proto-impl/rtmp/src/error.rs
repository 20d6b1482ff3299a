//! Errors, each of which ends the connection.

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

/// A rule that a peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// C0 or S0 is not 3.
    #[error("handshake version {0}")]
    Version(u8),
    /// A chunk stream began with a header that refers to an earlier one.
    #[error("chunk stream {chunk_stream} begins with a type {format} header")]
    FirstHeader {
        /// The chunk stream.
        chunk_stream: u32,
        /// The header type, 1 to 3.
        format: u8,
    },
    /// A header inside a message announced another length.
    #[error("message length changed from {from} to {to}")]
    LengthChanged {
        /// The length at the message's start.
        from: usize,
        /// The length in the later header.
        to: usize,
    },
    /// Set Chunk Size with 0 or with its top bit set.
    #[error("chunk size {0:#x}")]
    ChunkSize(u32),
    /// A control or command message that cannot be read.
    #[error("malformed message of type {kind}")]
    Malformed {
        /// The message type id.
        kind: u8,
    },
    /// A command with values that cannot be read.
    #[error("malformed command: {0}")]
    Amf(#[from] flv::Error),
    /// A command before `connect`.
    #[error("command before connect")]
    NotConnected,
}

/// A limit of [`crate::Config`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// A message longer than its type may be.
    #[error("message of {bytes} bytes of type {kind}")]
    MessageBytes {
        /// The announced length.
        bytes: usize,
        /// The message type id.
        kind: u8,
    },
    /// Too many chunk streams.
    #[error("chunk streams")]
    ChunkStreams,
    /// Too much memory in unfinished messages.
    #[error("bytes of unfinished messages")]
    PendingBytes,
    /// Too much sent while a request awaited its verdict.
    #[error("bytes held during a verdict")]
    HeldBytes,
    /// Too many commands in a second.
    #[error("command rate")]
    CommandRate,
    /// Too many unknown or misplaced messages.
    #[error("bad messages")]
    BadMessages,
    /// Too many parts in an aggregate message.
    #[error("parts of an aggregate message")]
    AggregateParts,
}

/// An [`Error`] that does not know its place yet.
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
