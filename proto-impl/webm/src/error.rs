//! Faults of files.

/// The reason a file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An element ended early.
    #[error(transparent)]
    Truncated(#[from] wire::Truncated),
    /// The beginning is not that of a WebM file.
    #[error("no WebM file")]
    NotWebm,
    /// A field has a value that the standard forbids, or one that is not written here.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// An element is larger than what is read of its kind.
    #[error("an element {id:x} of {size} bytes")]
    TooLarge {
        /// Its ID.
        id: u32,
        /// Its size.
        size: u64,
    },
    /// There is no block in it.
    #[error("no media")]
    NoMedia,
}
