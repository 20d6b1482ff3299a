//! Errors in reading a transport stream.

use wire::Truncated;

/// The reason a transport packet, section or PES packet could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A length exceeds the enclosing structure.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A field has a value forbidden by the standard.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The CRC-32 of a section is wrong.
    #[error("CRC-32 of a section")]
    Crc,
}
