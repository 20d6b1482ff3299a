#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod scale;
mod wire_form;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;

pub use decode::{SIDE_MAX, can_decode, look};
pub use scale::fit;
pub use wire_form::{ANSWER_BYTES_MAX, Answer, HEAD_BYTES, REQUEST_BYTES_MAX, length_of};

use media::CodecConfig;

/// The file format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// PNG, without loss.
    Png,
    /// Baseline JPEG.
    Jpeg,
}

impl Format {
    /// Returns the media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    /// Returns the ending of file names.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
        }
    }
}

/// The wanted form of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The file format.
    pub format: Format,
    /// Maximum width; 0 for any.
    pub width: u16,
    /// Maximum height; 0 for any.
    pub height: u16,
    /// Quality of JPEG, 1 to 100.
    pub quality: u8,
}

/// A key frame, and the form of its picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The configuration of the track.
    pub config: CodecConfig,
    /// The payload of the access unit.
    pub payload: Bytes,
    /// The form of the picture.
    pub shape: Shape,
}

/// The reason why no picture was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Unsupported codec.
    #[error("no decoder takes this codec")]
    Codec,
    /// Unsupported profile: more than 8 bits, not 4:2:0, or interlaced.
    #[error("no decoder takes this profile: only 8 bits, 4:2:0, progressive")]
    Profile,
    /// The picture is larger than [`SIDE_MAX`].
    #[error("the video is larger than 4096 pixels a side")]
    Size,
    /// The key frame is damaged.
    #[error("the key frame is damaged")]
    Damaged,
    /// The request or the answer is too long, or malformed.
    #[error("a message that is none, or too long")]
    Message,
}

/// Makes the picture of a key frame.
///
/// # Errors
/// The reason why no picture can be made.
pub fn make(request: &Request) -> Result<Vec<u8>, Error> {
    look(&request.config, &request.payload)?;
    let small = decode::decode(request)?;
    encode::encode(&small, request.shape)
}
