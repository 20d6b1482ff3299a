//! WebM files (a subset of Matroska, RFC 9559; EBML, RFC 8794; the WebM Container Guidelines): written while their media comes,
//! and made seekable where they stand.
//!
//! ```text
//! while it is written:  EBML Segment(unknown size) [Void: room] Info Tracks Cluster*
//! seekable, short:      EBML Segment SeekHead Cues Void Info Tracks Cluster*
//! seekable, long:       EBML Segment SeekHead Void      Info Tracks Cluster* Cues
//! ```
//!
//! [`recording_head`] and [`clusters`] write. [`Indexer`] finds what a file has without reading its media, also after a crash, and
//! [`finish()`] says what is to be written over it, step by step: the file plays after each of them, and the size of the segment,
//! which comes last, says that it is finished ([`is_finished`]). [`duration_ms`] is what such a file says of itself.
//!
//! VP8, VP9, AV1 and Opus are carried ([`carries`]). Times are whole milliseconds, as in every WebM file. Lacing, block groups,
//! encryption and clusters of unknown size are neither written nor read.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod ebml;
mod error;
mod finish;
mod indexer;
mod reading;
#[cfg(test)]
mod testing;
mod writer;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use media;

pub use ebml::{HEAD_BYTES_MAX, Head, id};
pub use error::Error;
pub use finish::{Patch, finish};
pub use indexer::{Indexed, Indexer, TAIL_BYTES};
pub use reading::{INFO_BYTES_MAX, duration_ms, is_finished, is_webm};
pub use writer::{Block, Description, carries, clusters, recording_head};
