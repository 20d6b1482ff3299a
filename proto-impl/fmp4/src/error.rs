//! Errors of reading or writing a file.

use media::Codec;

use crate::FourCc;

/// The reason a file could not be read or written. After an error of a reader nothing more can be read with
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A box ends before what it says it holds.
    #[error("box {kind}: {error}")]
    Truncated {
        /// The box.
        kind: FourCc,
        /// The place where it ends, counted from the first byte of its payload.
        error: wire::Truncated,
    },
    /// A field has a value that the standard forbids, or that leaves what can be counted.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The parameter sets of a track are wrong.
    #[error("parameter sets: {0}")]
    Config(#[from] media::codec::Error),
    /// A size that contradicts its own head.
    #[error("box {kind} at byte {at} has an impossible size")]
    Size {
        /// The box.
        kind: FourCc,
        /// Offset of its head: of a box of the file in the file, of another one in its parent.
        at: u64,
    },
    /// The first box is none that a file begins with.
    #[error("no MP4: it begins with '{kind}'")]
    NotMp4 {
        /// The first box.
        kind: FourCc,
    },
    /// The media comes before the index (`moov`). With the index, which begins at `index_at` or behind, the file can be
    /// read by [`crate::Reader::with_moov`].
    #[error("the media is before its index; the index is at byte {index_at} or behind")]
    MediaBeforeIndex {
        /// Offset of the first byte behind the media.
        index_at: u64,
    },
    /// The media comes before any index, and lasts to the end of the file.
    #[error("media without an index")]
    NoIndex,
    /// The sample lies before what has been read, so it is lost.
    #[error("a sample at byte {offset} is behind byte {position}")]
    Passed {
        /// Offset of the sample.
        offset: u64,
        /// The position of the reader.
        position: u64,
    },
    /// A sample runs over the end of its `mdat`.
    #[error("a sample of {size} bytes at byte {offset} leaves its media box")]
    Outside {
        /// Offset of the sample.
        offset: u64,
        /// Its bytes.
        size: u32,
    },
    /// The input ended within a box, or before samples that were announced.
    #[error("the file ends early, at byte {position}")]
    Unfinished {
        /// The position of the reader.
        position: u64,
    },
    /// A track is encrypted (`encv`, `enca`; ISO/IEC 14496-12 §8.12).
    #[error("track {track} is encrypted")]
    Encrypted {
        /// track_ID.
        track: u32,
    },
    /// Something valid that is not read.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    /// MP4 has no mapping for the codec.
    #[error("{0} has no place in MP4")]
    Codec(Codec),
    /// A sample is larger than [`crate::Limits::sample_bytes`].
    #[error("a sample of {size} bytes")]
    SampleTooLarge {
        /// Its bytes.
        size: u32,
    },
    /// A box is larger than the limits allow.
    #[error("box {kind} of {size} bytes")]
    BoxTooLarge {
        /// The box.
        kind: FourCc,
        /// Its bytes, as its head says.
        size: u64,
    },
    /// More tracks than [`crate::Limits::tracks`].
    #[error("more than {max} tracks")]
    TooManyTracks {
        /// The number that there may be.
        max: usize,
    },
    /// More than [`crate::EMPTY_SAMPLES_MAX`] samples without a byte in a row.
    #[error("too many empty samples")]
    TooManyEmptySamples,
    /// A fragment or a file that is written would be larger than its fields can say.
    #[error("too large to be written: {0}")]
    TooLarge(&'static str),
}
