//! Errors in parsing a description.

/// Reason why a text is not a valid session description, or exceeds a limit. Lines are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text exceeds [`crate::limits::BYTES_MAX`].
    #[error("description of {bytes} bytes is too long")]
    TooLarge {
        /// Length of the text, in bytes.
        bytes: usize,
    },
    /// A line exceeds [`crate::limits::LINE_BYTES_MAX`].
    #[error("line {line} is too long")]
    LineTooLong {
        /// Line number.
        line: usize,
    },
    /// The text has more than [`crate::limits::LINES_MAX`] lines.
    #[error("more than {} lines", crate::limits::LINES_MAX)]
    TooManyLines,
    /// The description has more than [`crate::limits::MEDIA_MAX`] media sections.
    #[error("too many media sections at line {line}")]
    TooManyMedia {
        /// Line of the first `m=` beyond the limit.
        line: usize,
    },
    /// A section has more than [`crate::limits::ATTRIBUTES_MAX`] attributes.
    #[error("too many attributes at line {line}")]
    TooManyAttributes {
        /// Line of the first attribute beyond the limit.
        line: usize,
    },
    /// A section has more than [`crate::limits::BANDWIDTHS_MAX`] `b=` lines.
    #[error("too many bandwidths at line {line}")]
    TooManyBandwidths {
        /// Line of the first `b=` beyond the limit.
        line: usize,
    },
    /// A line does not consist of a letter, `=` and a value, or contains a control character.
    #[error("line {line} is not an SDP line")]
    NotALine {
        /// Line number.
        line: usize,
    },
    /// The first line is not `v=0`.
    #[error("line {line}: v=0 expected")]
    NoVersion {
        /// Line number.
        line: usize,
    },
    /// A value is malformed, or has more items than [`crate::limits::VALUES_MAX`].
    #[error("line {line}: malformed {what}")]
    Malformed {
        /// Line number.
        line: usize,
        /// Name of the attribute, or letter of the line.
        what: &'static str,
    },
    /// A line, attribute or value that may occur only once is repeated.
    #[error("line {line}: duplicate {what}")]
    Duplicate {
        /// Line of the repetition.
        line: usize,
        /// Name of the attribute, or letter of the line.
        what: &'static str,
    },
    /// A description of streams contains no media section.
    #[error("no media section")]
    NoMedia,
}

impl Error {
    /// True if a size limit is exceeded; false if the content is invalid.
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
