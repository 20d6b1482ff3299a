//! Errors that end a connection, and the codes that both sides give (RFC 9113 §7).

/// An error code of RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// A failure of this side.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer sent more than its window allows.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame for a stream that is half-closed or closed.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of a size that its type does not allow.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed; the request may be sent again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// A header block could not be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection of a CONNECT was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer causes more work than it may.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 is required.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);
}

/// The reason for the fatal end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke a rule of RFC 9113 or RFC 7541; GOAWAY has the code.
    #[error("{what} ({code:?})")]
    Peer {
        /// The code for the peer.
        code: Code,
        /// The rule.
        what: &'static str,
    },
    /// The peer sent more frames of a kind that costs it little than [`crate::Config`] allows.
    #[error("too many frames: {0}")]
    Flood(&'static str),
    /// The preface, a frame or a header block was not complete in time.
    #[error("a frame was not complete in time")]
    Timeout,
    /// The peer took no byte for [`crate::Config::write_stall`]. The transport is dropped without flushing.
    #[error("no write progress")]
    WriteStalled,
}

impl Error {
    pub(crate) const fn protocol(what: &'static str) -> Self {
        Self::Peer { code: Code::PROTOCOL_ERROR, what }
    }

    pub(crate) const fn frame_size(what: &'static str) -> Self {
        Self::Peer { code: Code::FRAME_SIZE_ERROR, what }
    }

    pub(crate) const fn flow_control(what: &'static str) -> Self {
        Self::Peer { code: Code::FLOW_CONTROL_ERROR, what }
    }

    pub(crate) const fn compression(what: &'static str) -> Self {
        Self::Peer { code: Code::COMPRESSION_ERROR, what }
    }

    /// The code of GOAWAY; none when the peer would not read it.
    #[must_use]
    pub const fn code(self) -> Option<Code> {
        match self {
            Self::Peer { code, .. } => Some(code),
            Self::Flood(_) => Some(Code::ENHANCE_YOUR_CALM),
            Self::Timeout => Some(Code::NO_ERROR),
            Self::WriteStalled => None,
        }
    }
}
