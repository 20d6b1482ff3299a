//! FLV and AMF0: the container that RTMP messages, HTTP-FLV and recordings share.
//!
//! [`amf0`] holds the values of commands and metadata, [`tag`] the head of a video or audio body, [`file`](mod@file)
//! the framing of a file or an HTTP-FLV body, [`data`] the few data messages everybody sends. Reading keeps no
//! state except in [`file::Reader`], never allocates by a count or length that the input announces, and never
//! copies media payload.

#![forbid(unsafe_code)]

pub mod amf0;
pub mod data;
mod error;
pub mod file;
pub mod tag;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use media;
pub use wire::{Reader, Writer};

pub use error::Error;
pub use tag::{AudioTag, VideoTag};
