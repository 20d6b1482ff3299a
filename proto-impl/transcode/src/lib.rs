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

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;

pub use error::Error;
pub use silence::Silence;
pub use transcoder::{Stats, Target, Transcoder, can_decode};

use media::Timescale;

/// Sample rate of the output in Hz, and ticks per second of its times.
pub const SAMPLE_RATE: u32 = 48_000;
/// Clock of the output.
pub(crate) const CLOCK: Timescale = Timescale::new(SAMPLE_RATE);
/// Number of output channels, interleaved internally.
pub(crate) const CHANNELS: usize = 2;
/// Maximum duration of a decoded unit in seconds.
pub(crate) const UNIT_SECONDS_MAX: usize = 1;
