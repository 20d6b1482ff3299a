#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

pub mod client;
mod decrypt;
mod error;
pub mod limits;
pub mod playlist;
pub mod segmenter;
pub mod uri;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;
pub use crypto::Seed;
pub use media;

pub use client::{Client, Config, Event, Rendition, Request, SegmentKind, choose};
pub use error::{Error, Limit, Violation};
pub use playlist::Playlist;
pub use uri::{Url, UrlError};
