//! Errors, and the reasons that the peers give each other.

/// The error that ends a connection. Each is fatal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer speaks something else.
    #[error("not the relay protocol")]
    Magic,
    /// The peer is a node of another cluster.
    #[error("a node of another cluster")]
    Cluster,
    /// The peer speaks another version.
    #[error("version {0} of the relay protocol, which this node does not speak")]
    Version(u8),
    /// A frame is larger than it may be.
    #[error("a frame of {0} bytes")]
    TooLarge(u32),
    /// A field ended early, or has a value that it cannot have.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// Nothing came for too long.
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

/// The reason for which a node does not send a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no such stream here.
    NotFound,
    /// The node is going down, or short of something.
    Unavailable,
    /// The stream has passed the node that asks.
    Loop,
    /// The versions or the clusters differ.
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

    /// Codes that are not known count as a passing trouble.
    pub(crate) const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::NotFound,
            3 => Self::Loop,
            4 => Self::Stranger,
            _ => Self::Unavailable,
        }
    }
}

/// The reason for which a stream is sent no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stream is over.
    Over,
    /// The node cannot send it any longer; the stream may go on.
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
