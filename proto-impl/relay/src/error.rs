//! Errors of the connection, and reasons that nodes give each other.

/// Fatal error that ends a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer does not speak this protocol.
    #[error("not the relay protocol")]
    Magic,
    /// The peer is a node of another cluster.
    #[error("a node of another cluster")]
    Cluster,
    /// The peer speaks another version of the protocol.
    #[error("version {0} of the relay protocol, which this node does not speak")]
    Version(u8),
    /// A frame is larger than allowed.
    #[error("a frame of {0} bytes")]
    TooLarge(u32),
    /// A field ended early or has an invalid value.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The peer was silent for too long.
    #[error("the node is silent")]
    Silent,
}

impl From<wire::Truncated> for Error {
    fn from(_: wire::Truncated) -> Self {
        Self::Invalid("length")
    }
}

impl From<media::codec::Error> for Error {
    fn from(_: media::codec::Error) -> Self {
        Self::Invalid("parameter sets")
    }
}

/// The reason why a node refuses to send a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The node does not have this stream.
    NotFound,
    /// The node is shutting down or short of resources.
    Unavailable,
    /// The stream has already passed the node that requests it, so sending it would close a loop.
    Loop,
    /// The nodes have different protocol versions or belong to different clusters.
    Stranger,
}

impl Refused {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::NotFound => 1,
            Self::Unavailable => 2,
            Self::Loop => 3,
            Self::Stranger => 4,
        }
    }

    /// Returns the reason with this code. Unknown codes count as [`Refused::Unavailable`].
    pub(crate) const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::NotFound,
            3 => Self::Loop,
            4 => Self::Stranger,
            _ => Self::Unavailable,
        }
    }
}

/// The reason why a node stops sending a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stream has ended.
    Over,
    /// The node can no longer send the stream, but another node may still have it.
    Left,
}

impl Ended {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Over => 1,
            Self::Left => 2,
        }
    }

    pub(crate) const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::Over,
            _ => Self::Left,
        }
    }
}
