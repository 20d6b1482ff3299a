//! Errors of parsing and of misuse.

use wire::Truncated;

use crate::stun::AttributeType;

/// An error of this crate. Machines count what a peer sends wrong and go on; readers return it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input ends before a value is complete.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The first bits, the cookie or the length say that it is something else.
    #[error("not a STUN message")]
    NotStun,
    /// Longer than [`crate::limits::STUN_BYTES_MAX`].
    #[error("STUN message of {length} bytes")]
    TooLong {
        /// The length.
        length: usize,
    },
    /// More than [`crate::limits::ATTRIBUTES_MAX`].
    #[error("too many attributes")]
    TooManyAttributes,
    /// An attribute whose value cannot be.
    #[error("attribute {:#06x} is malformed", .0.0)]
    Attribute(AttributeType),
    /// The checksum is another one.
    #[error("wrong fingerprint")]
    Fingerprint,
    /// Something follows the FINGERPRINT.
    #[error("an attribute follows the fingerprint")]
    AfterFingerprint,
    /// A user name fragment or password has characters or a length that RFC 8839 §5.4 does not allow.
    #[error("invalid credentials")]
    Credentials,
    /// A frame longer than the reader takes.
    #[error("frame of {length} bytes exceeds {most}")]
    FrameTooLong {
        /// The length in the head.
        length: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// A connection begins with something else than a STUN request.
    #[error("the first frame is not a STUN request")]
    FirstFrame,
    /// [`crate::limits::CANDIDATES_MAX`] or [`crate::limits::LOCALS_MAX`] is reached.
    #[error("too many candidates")]
    TooManyCandidates,
    /// A candidate at which nobody can be reached from here.
    #[error("unusable candidate")]
    UnusableCandidate,
    /// The agent has ended.
    #[error("closed")]
    Closed,
}
