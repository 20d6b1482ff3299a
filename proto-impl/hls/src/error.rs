//! Errors of reading a playlist.

/// Reason a playlist cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server violated the format.
    #[error("malformed playlist at line {line}: {violation}")]
    Violation {
        /// The line, from 1; 0 for the playlist as a whole.
        line: usize,
        /// The rule that was violated.
        violation: Violation,
    },
    /// The playlist exceeds a limit.
    #[error("limit of a playlist reached at line {line}: {limit}")]
    Limit {
        /// The line, from 1; 0 for the playlist as a whole.
        line: usize,
        /// The limit that was exceeded.
        limit: Limit,
    },
    /// The playlist uses variable substitution, which is not supported.
    #[error("unsupported at line {line}: variable substitution")]
    Variables {
        /// The line, from 1.
        line: usize,
    },
}

/// A rule that a playlist violates. Sections are those of RFC 8216.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Text that is not UTF-8 (§4.1).
    #[error("not UTF-8")]
    Encoding,
    /// The first line is not `#EXTM3U` (§4.3.1.1).
    #[error("no #EXTM3U")]
    Header,
    /// Tags of both kinds of playlist (§4.1).
    #[error("tags of a media and of a multivariant playlist")]
    Mixed,
    /// Tags of neither kind.
    #[error("neither a media nor a multivariant playlist")]
    Neither,
    /// A control character.
    #[error("control character")]
    Control,
    /// An invalid number, duration or resolution (§4.2).
    #[error("malformed number")]
    Number,
    /// An attribute list that violates the grammar (§4.2).
    #[error("malformed attribute list")]
    Attributes,
    /// A tag without a required attribute.
    #[error("attribute missing: {0}")]
    Missing(&'static str),
    /// A segment without `EXTINF` (§4.3.2.1).
    #[error("segment without EXTINF")]
    NoDuration,
    /// A byte range without an offset, and no earlier range to continue (§4.3.2.2).
    #[error("byte range without an offset")]
    ByteRange,
    /// `EXT-X-STREAM-INF` without its URI (§4.3.4.2).
    #[error("variant without a URI")]
    NoUri,
}

/// A limit of a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The playlist exceeds [`PLAYLIST_BYTES_MAX`](crate::limits::PLAYLIST_BYTES_MAX).
    #[error("bytes of the playlist")]
    Bytes,
    /// A line exceeds [`LINE_BYTES_MAX`](crate::limits::LINE_BYTES_MAX).
    #[error("bytes of a line")]
    Line,
    /// A tag has more attributes than [`ATTRIBUTES_MAX`](crate::limits::ATTRIBUTES_MAX).
    #[error("attributes of a tag")]
    Attributes,
    /// More variants than [`VARIANTS_MAX`](crate::limits::VARIANTS_MAX).
    #[error("variants")]
    Variants,
    /// More renditions than [`RENDITIONS_MAX`](crate::limits::RENDITIONS_MAX).
    #[error("renditions")]
    Renditions,
    /// More parts than [`PARTS_MAX`](crate::limits::PARTS_MAX).
    #[error("parts")]
    Parts,
    /// More rendition reports than [`REPORTS_MAX`](crate::limits::REPORTS_MAX).
    #[error("rendition reports")]
    Reports,
}
