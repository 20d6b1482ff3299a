#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod boxes;
mod error;
mod esds;
mod reader;
mod samples;
#[cfg(test)]
mod testing;
mod writer;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;

pub use boxes::FourCc;
pub use error::Error;
pub use reader::{
    EMPTY_SAMPLES_MAX, Event, Indexed, Indexer, Limits, RUNS_MAX, Reader, Sample, Track, movie_duration_ms,
};
pub use samples::{Samples, with_four_byte_lengths};
pub use writer::{
    BitRate, Colour, Description, EventMessage, Fragment, FragmentSample, ID3_SCHEME, IndexSample,
    MEDIA_HEAD_BYTES, PlainHead, Protection, Reference, SPLICE_SCHEME, SUBSAMPLES_MAX, Sidx, Subsample,
    TextCue, TrackIndex, file_head, file_type, init_segment, media_head, moov, plain_head, prft,
    recording_head, styp, text_init_segment, text_segment,
};
