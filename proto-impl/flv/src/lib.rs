#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod amf0;
pub mod data;
mod error;
pub mod file;
pub mod tag;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;
pub use wire::{Reader, Writer};

pub use error::Error;
pub use tag::{AudioTag, VideoTag};
