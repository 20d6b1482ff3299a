//! Errors of reading a transport stream.

use wire::Truncated;

/// The reason bytes could not be read as a transport packet, section or PES packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A length points outside of what holds it.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A field has a value that the standard forbids.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// A section's CRC-32 is wrong.
    #[error("CRC-32 of a section")]
    Crc,
}
