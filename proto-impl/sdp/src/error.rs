//! Errors of reading a description.

/// The reason a text is not a session description, or exceeds a limit. Lines count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Longer than [`crate::limits::BYTES_MAX`].
    #[error("description of {bytes} bytes is too long")]
    TooLarge {
        /// The length in bytes.
        bytes: usize,
    },
    /// A line longer than [`crate::limits::LINE_BYTES_MAX`].
    #[error("line {line} is too long")]
    LineTooLong {
        /// The line.
        line: usize,
    },
    /// More lines than [`crate::limits::LINES_MAX`].
    #[error("more than {} lines", crate::limits::LINES_MAX)]
    TooManyLines,
    /// More media sections than [`crate::limits::MEDIA_MAX`].
    #[error("too many media sections at line {line}")]
    TooManyMedia {
        /// The first `m=` line too many.
        line: usize,
    },
    /// More attributes in one section than [`crate::limits::ATTRIBUTES_MAX`].
    #[error("too many attributes at line {line}")]
    TooManyAttributes {
        /// The first attribute too many.
        line: usize,
    },
    /// More `b=` lines in one section than [`crate::limits::BANDWIDTHS_MAX`].
    #[error("too many bandwidths at line {line}")]
    TooManyBandwidths {
        /// The first `b=` line too many.
        line: usize,
    },
    /// A line that is not a letter, `=` and a value, or has a control character in it.
    #[error("line {line} is not an SDP line")]
    NotALine {
        /// The line.
        line: usize,
    },
    /// The first line is not `v=0`.
    #[error("line {line}: v=0 expected")]
    NoVersion {
        /// The line.
        line: usize,
    },
    /// A value that does not follow its grammar, or is longer than [`crate::limits::VALUES_MAX`] allows.
    #[error("line {line}: malformed {what}")]
    Malformed {
        /// The line.
        line: usize,
        /// The attribute, or the line's letter.
        what: &'static str,
    },
    /// A second value where there is one at most.
    #[error("line {line}: duplicate {what}")]
    Duplicate {
        /// The line of the second.
        line: usize,
        /// The attribute, or the line's letter.
        what: &'static str,
    },
    /// Streams are described, and there is no media section.
    #[error("no media section")]
    NoMedia,
}

impl Error {
    /// Whether it is about the size of the description, not about what it says.
    #[must_use]
    pub const fn is_limit(self) -> bool {
        match self {
            Self::TooLarge { .. }
            | Self::LineTooLong { .. }
            | Self::TooManyLines
            | Self::TooManyMedia { .. }
            | Self::TooManyAttributes { .. }
            | Self::TooManyBandwidths { .. } => true,
            Self::NotALine { .. }
            | Self::NoVersion { .. }
            | Self::Malformed { .. }
            | Self::Duplicate { .. }
            | Self::NoMedia => false,
        }
    }
}
