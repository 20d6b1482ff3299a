//! Errors in reading or writing a file.

use media::Codec;

use crate::FourCc;

/// The reason a file could not be read or written. After an error a reader cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A box ends before its contents do.
    #[error("box {kind}: {error}")]
    Truncated {
        /// Type of the box.
        kind: FourCc,
        /// Position of the missing data, counted from the first byte of the payload.
        error: wire::Truncated,
    },
    /// A field has a value forbidden by the standard, or beyond the supported range.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The parameter sets of a track are invalid.
    #[error("parameter sets: {0}")]
    Config(#[from] media::codec::Error),
    /// A box has a size smaller than its header, or larger than its container.
    #[error("box {kind} at byte {at} has an impossible size")]
    Size {
        /// Type of the box.
        kind: FourCc,
        /// Offset of the box header: in the file for a top-level box, else in the parent.
        at: u64,
    },
    /// The first box has a type that cannot begin a file.
    #[error("no MP4: it begins with '{kind}'")]
    NotMp4 {
        /// Type of the first box.
        kind: FourCc,
    },
    /// The media precedes the index (`moov`). The file can be read by [`crate::Reader::with_moov`] once the
    /// index, which is at `index_at` or later, has been fetched.
    #[error("the media is before its index; the index is at byte {index_at} or behind")]
    MediaBeforeIndex {
        /// Offset of the first byte after the media.
        index_at: u64,
    },
    /// The media precedes any index and lasts to the end of the file.
    #[error("media without an index")]
    NoIndex,
    /// The next sample lies before the position of the reader, so it can no longer be read.
    #[error("a sample at byte {offset} is behind byte {position}")]
    Passed {
        /// Offset of the sample.
        offset: u64,
        /// Position of the reader.
        position: u64,
    },
    /// A sample extends beyond its `mdat`.
    #[error("a sample of {size} bytes at byte {offset} leaves its media box")]
    Outside {
        /// Offset of the sample.
        offset: u64,
        /// Size of the sample, in bytes.
        size: u32,
    },
    /// The input ended within a box, or before the last announced sample.
    #[error("the file ends early, at byte {position}")]
    Unfinished {
        /// Position of the reader.
        position: u64,
    },
    /// A track is encrypted (`encv`, `enca`; ISO/IEC 14496-12 §8.12).
    #[error("track {track} is encrypted")]
    Encrypted {
        /// track_ID.
        track: u32,
    },
    /// The file uses a valid but unsupported feature.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    /// MP4 has no mapping for the codec.
    #[error("{0} has no place in MP4")]
    Codec(Codec),
    /// A sample exceeds [`crate::Limits::sample_bytes`].
    #[error("a sample of {size} bytes")]
    SampleTooLarge {
        /// Size of the sample, in bytes.
        size: u32,
    },
    /// A box exceeds the limits.
    #[error("box {kind} of {size} bytes")]
    BoxTooLarge {
        /// Type of the box.
        kind: FourCc,
        /// Size in the box header, in bytes.
        size: u64,
    },
    /// The index has more than [`crate::Limits::tracks`] tracks.
    #[error("more than {max} tracks")]
    TooManyTracks {
        /// Largest number allowed.
        max: usize,
    },
    /// More than [`crate::EMPTY_SAMPLES_MAX`] successive samples are empty.
    #[error("too many empty samples")]
    TooManyEmptySamples,
    /// A fragment or file to be written exceeds the range of its fields.
    #[error("too large to be written: {0}")]
    TooLarge(&'static str),
}
