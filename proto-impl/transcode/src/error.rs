//! Errors of transcoding.

use thiserror::Error;

/// The reason a unit or a configuration could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The codec is one that is not decoded here.
    #[error("this codec is not decoded")]
    Codec,
    /// The decoder refuses the configuration.
    #[error("the decoder refuses the configuration")]
    Configuration,
    /// The unit is damaged.
    #[error("the unit is damaged")]
    Damaged,
    /// The library could not do what it never refuses: it has no memory, or a fault.
    #[error("the library failed")]
    Library,
}
