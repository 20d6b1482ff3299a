//! Errors of reading files.

/// The reason why a file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An element ended early.
    #[error(transparent)]
    Truncated(#[from] wire::Truncated),
    /// The file does not begin like a WebM file.
    #[error("no WebM file")]
    NotWebm,
    /// A field has a value that the standard forbids or that is not supported here.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// An element is too large for its kind.
    #[error("an element {id:x} of {size} bytes")]
    TooLarge {
        /// ID of the element.
        id: u32,
        /// Size of the element in bytes.
        size: u64,
    },
    /// The file contains no block.
    #[error("no media")]
    NoMedia,
}
