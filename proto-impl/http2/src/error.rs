//! Errors that end a connection, and the error codes of both sides (RFC 9113 §7).

/// An error code of RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// No error: graceful shutdown.
    pub const NO_ERROR: Self = Self(0x0);
    /// Protocol violation.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error of the endpoint that sends this code.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer that receives this code has sent more than the flow-control window granted to it.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame arrived for a half-closed or closed stream.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has a size that its type does not allow.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The request was not processed, and may be sent again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// A header block could not be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection of a CONNECT request was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer that receives this code causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 is required.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);
}

/// The reason for which a connection was ended by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke a rule of RFC 9113 or RFC 7541. GOAWAY contains `code`.
    #[error("{what} ({code:?})")]
    Peer {
        /// Error code sent to the peer.
        code: Code,
        /// The rule that was broken.
        what: &'static str,
    },
    /// The peer sent more frames of a cheap kind than [`crate::Config`] allows.
    #[error("too many frames: {0}")]
    Flood(&'static str),
    /// The preface, a frame or a header block was not completed in time.
    #[error("a frame was not complete in time")]
    Timeout,
    /// The peer accepted no byte for [`crate::Config::write_stall`]. The transport must be dropped without flushing.
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

    /// Returns the code for GOAWAY; `None` if the peer is not reading, so that GOAWAY is not sent.
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
