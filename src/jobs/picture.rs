//! Pictures of key frames, made by a separate process.

use std::fmt;

use bytes::Bytes;
use picture::{Error, Request};

/// Maximum bytes of a key frame and its configuration.
pub const KEY_FRAME_BYTES_MAX: usize = 4 << 20;

/// A picture to make.
#[derive(Debug, Clone)]
pub struct PictureWork(pub Request);

impl PictureWork {
    /// Returns the bytes that the work holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.0.payload.len()
    }
}

/// The result: the file of the picture.
pub type PictureOutcome = Result<Bytes, NoPicture>;

/// The reason why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPicture {
    /// No decoder accepts the key frame.
    Refused(Error),
    /// The process crashed on the key frame, or was killed because it took too long.
    Died(String),
    /// No process is available: it cannot be started or confined, or too many pictures wait.
    Unavailable(String),
}

impl fmt::Display for NoPicture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Died(reason) | Self::Unavailable(reason) => f.write_str(reason),
        }
    }
}
