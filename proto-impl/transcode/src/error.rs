//! Errors of transcoding.

use thiserror::Error;

/// The reason why a unit or a configuration could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A codec that this build cannot decode.
    #[error("this codec is not decoded")]
    Codec,
    /// The decoder refused the configuration.
    #[error("the decoder refuses the configuration")]
    Configuration,
    /// The unit is damaged.
    #[error("the unit is damaged")]
    Damaged,
    /// The library failed although the input was valid, because of a lack of memory or an internal fault.
    #[error("the library failed")]
    Library,
}
