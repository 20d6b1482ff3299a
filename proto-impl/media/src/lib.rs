#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(all(feature = "std", not(test)))]
extern crate std;

pub mod captions;
pub mod codec;
mod crc;
pub mod id3;
pub mod language;
pub mod message;
pub mod nal;
pub mod scte35;
pub mod subtitles;
mod time;
#[cfg(feature = "std")]
mod timeline;
mod track;
mod unit;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::{Bytes, BytesMut};
pub use wire::Reader;

pub use codec::{Codec, CodecConfig};
pub use crc::crc32;
#[cfg(feature = "std")]
use time::nearest;
pub use time::{Timescale, Unwrap};
#[cfg(feature = "std")]
pub use timeline::{ClockFault, ClockNews, FaultCounts, FaultNews, Position, Timeline};
pub use track::{Member, Origin, Rendition, TRACKS_MAX, Track, TrackId, TrackKind, TrackSet, Tracks};
pub use unit::AccessUnit;
