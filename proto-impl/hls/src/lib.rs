//! HTTP Live Streaming (RFC 8216): playlists read and written, and a sans-IO client that follows them.
//!
//! The playlists are read by own code and not by m3u8-rs or hls_m3u8, because those read a whole playlist without a bound on
//! its segments, lines or attributes, and refuse or drop what real servers send.

#![forbid(unsafe_code)]

pub mod client;
mod decrypt;
mod error;
pub mod limits;
pub mod playlist;
pub mod uri;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;

pub use client::{Client, Config, Event, Rendition, Request, SegmentKind, choose};
pub use error::{Error, Limit, Violation};
pub use playlist::Playlist;
pub use uri::{Url, UrlError};
