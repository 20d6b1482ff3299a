//! MP4 files (ISO base media file format, ISO/IEC 14496-12; NAL units in it, ISO/IEC 14496-15; CMAF, ISO/IEC 23000-19):
//! fragmented ones, as HLS and recordings have them, and plain ones.
//!
//! [`Reader`] takes bytes in any split and gives tracks and samples in the order of the file. [`init_segment`] and
//! [`Fragment`] write fragmented files, [`TrackIndex`] with [`file_head`] or [`moov`] the index of a plain one. [`recording_head`],
//! [`Indexer`] and [`plain_head`] make a plain file of a fragmented one where it stands.
//!
//! ```text
//! fragmented: ftyp moov (styp? sidx? prft? moof mdat)*     plain: ftyp moov mdat, or ftyp mdat moov
//! ```
//!
//! Boxes are read and written here and not by the crate `mp4-atom`: that one reads whole boxes, expands each table into a
//! vector of structures, takes parameter sets apart that `media` keeps as they came, and refuses boxes with a byte too
//! many. A reader of hostile files that walks the tables where they lie could use little of it.
//!
//! Times are ticks of each track's own timescale. Encrypted files, tracks with several sample entries, external data
//! references and items (HEIF) are not read.

#![forbid(unsafe_code)]

mod boxes;
mod error;
mod esds;
mod reader;
#[cfg(test)]
mod testing;
mod writer;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use media;

pub use boxes::FourCc;
pub use error::Error;
pub use reader::{
    EMPTY_SAMPLES_MAX, Event, Indexed, Indexer, Limits, RUNS_MAX, Reader, Sample, Track, movie_duration_ms,
};
pub use writer::{
    BitRate, Colour, Description, Fragment, FragmentSample, IndexSample, MEDIA_HEAD_BYTES, PlainHead,
    Reference, Sidx, TrackIndex, file_head, file_type, init_segment, media_head, moov, plain_head, prft,
    recording_head, styp,
};
