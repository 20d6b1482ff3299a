//! Errors of transcoding.

use thiserror::Error;

/// Reason for which a unit or a configuration could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The codec cannot be decoded here.
    #[error("this codec is not decoded")]
    Codec,
    /// The decoder refused the configuration.
    #[error("the decoder refuses the configuration")]
    Configuration,
    /// The unit is damaged.
    #[error("the unit is damaged")]
    Damaged,
    /// The library failed at an operation that should not fail, from lack of memory or an internal fault.
    #[error("the library failed")]
    Library,
}
