#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod decoder;
mod encoder;
mod error;
mod feed;
mod fold;
mod line;
mod resampler;
mod silence;
mod transcoder;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use media;

pub use error::Error;
pub use silence::Silence;
pub use transcoder::{Stats, Target, Transcoder, can_decode};

use media::Timescale;

/// Hz of what is made, and ticks per second of its times.
pub const SAMPLE_RATE: u32 = 48_000;
/// The clock of what is made.
pub(crate) const CLOCK: Timescale = Timescale::new(SAMPLE_RATE);
/// Channels of what is made, interleaved in between.
pub(crate) const CHANNELS: usize = 2;
/// A unit is decoded to at most so many samples of each channel for each Hz of its rate: a second.
pub(crate) const UNIT_SECONDS_MAX: usize = 1;
