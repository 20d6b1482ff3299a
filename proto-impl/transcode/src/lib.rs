//! Audio of one codec as audio of another: what a viewer cannot decode as what it can.
//!
//! [`Transcoder`] takes the access units of one audio track, in order, and gives those of another: Opus or AAC-LC, 48 kHz, stereo,
//! whatever comes in. So the configuration of what it makes never changes, however often that of the source does.
//!
//! ```text
//! unit -> decoder -> stereo at the source's rate -> resampler -> line (48 kHz, times) -> encoder -> unit
//! ```
//!
//! 1. A unit is decoded and folded to stereo. AAC is AAC-LC and HE-AAC of up to 7.1 channels, Opus up to 8 channels (RFC 7845
//!    §5.1.1.2), MP3, G.711.
//! 2. Where the rate is another, it is resampled to 48 kHz.
//! 3. The line keeps the samples in step with the times that the units came with. A gap becomes silence, what comes twice is
//!    left out, a source whose clock is slower or faster than its times is stretched a little. What decoder, resampler and
//!    encoder delay is taken off the times, so that sound stays with its picture.
//! 4. Whole frames are encoded.
//!
//! [`Silence`] makes a track of silence for a stream that has no sound.
//!
//! A unit that cannot be decoded is counted and left out; the gap that it leaves is filled like any other. Nothing grows: a unit
//! is decoded to at most a second, and what is not yet encoded is shorter than a frame.

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
