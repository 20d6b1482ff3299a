//! Errors.

/// A fault of a byte stream, which is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a STUN message nor ChannelData.
    #[error("neither STUN nor ChannelData")]
    NotTurn,
    /// The first message of a connection is no STUN request.
    #[error("the first message is no STUN request")]
    FirstMessage,
    /// A message above [`crate::limits::MESSAGE_BYTES_MAX`].
    #[error("a message of {length} bytes")]
    TooLong {
        /// Its length.
        length: usize,
    },
}
