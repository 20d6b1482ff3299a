//! Errors of parsing and of API misuse.

use wire::Truncated;

use crate::stun::AttributeType;

/// An error of this crate. State machines count invalid input from a peer and continue; parsers return the
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input ends within a value.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The first bits, the magic cookie or the length are not those of STUN.
    #[error("not a STUN message")]
    NotStun,
    /// The message exceeds [`crate::limits::STUN_BYTES_MAX`].
    #[error("STUN message of {length} bytes")]
    TooLong {
        /// Length of the message, in bytes.
        length: usize,
    },
    /// The message has more than [`crate::limits::ATTRIBUTES_MAX`] attributes.
    #[error("too many attributes")]
    TooManyAttributes,
    /// An attribute has an invalid value.
    #[error("attribute {:#06x} is malformed", .0.0)]
    Attribute(AttributeType),
    /// The FINGERPRINT does not match.
    #[error("wrong fingerprint")]
    Fingerprint,
    /// An attribute follows the FINGERPRINT.
    #[error("an attribute follows the fingerprint")]
    AfterFingerprint,
    /// A user name fragment or password has characters or a length that RFC 8839 §5.4 does not allow.
    #[error("invalid credentials")]
    Credentials,
    /// A frame exceeds the reader's limit.
    #[error("frame of {length} bytes exceeds {most}")]
    FrameTooLong {
        /// Length in the frame header, in bytes.
        length: usize,
        /// Maximum length allowed, in bytes.
        most: usize,
    },
    /// A connection does not begin with a STUN request.
    #[error("the first frame is not a STUN request")]
    FirstFrame,
    /// [`crate::limits::CANDIDATES_MAX`] or [`crate::limits::LOCALS_MAX`] is reached.
    #[error("too many candidates")]
    TooManyCandidates,
    /// No peer can be reached at the candidate.
    #[error("unusable candidate")]
    UnusableCandidate,
    /// The agent has ended.
    #[error("closed")]
    Closed,
}
