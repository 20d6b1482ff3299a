//! Errors of byte streams.

/// Error in a byte stream, after which the stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data is neither a STUN message nor ChannelData.
    #[error("neither STUN nor ChannelData")]
    NotTurn,
    /// The first message of a connection is not a STUN request.
    #[error("the first message is no STUN request")]
    FirstMessage,
    /// A message exceeds [`crate::limits::MESSAGE_BYTES_MAX`].
    #[error("a message of {length} bytes")]
    TooLong {
        /// Length of the message, in bytes.
        length: usize,
    },
}
