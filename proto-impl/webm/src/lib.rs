#![doc = include_str!("../README.md")]
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

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;

pub use ebml::{HEAD_BYTES_MAX, Head, id};
pub use error::Error;
pub use finish::{Patch, finish};
pub use indexer::{Indexed, Indexer, TAIL_BYTES};
pub use reading::{INFO_BYTES_MAX, duration_ms, is_finished, is_webm};
pub use writer::{Block, Description, carries, clusters, recording_head};
