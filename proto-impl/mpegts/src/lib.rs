#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(all(feature = "std", not(test)))]
extern crate std;

mod demux;
mod error;
mod mux;
mod packet;
mod pes;
mod program;
mod psi;
mod section;
mod sync;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;

pub use demux::{Demuxer, Event, PES_BYTES_MAX, Pes, STREAMS_MAX, Stats};
pub use error::Error;
pub use mux::{
    AUDIO_PID, Kind, LATE_MAX, METADATA_PID, Muxer, PCR_LEAD, PMT_PID, PROGRAM_STREAMS_MAX, Packing, SDT_PID,
    SERVICES_MAX, SPLICE_PID, StreamNumber, Unit, VIDEO_PID,
};
pub use packet::{PACKET_BYTES, Packet, Pcr, Pid};
pub use pes::PesHeader;
pub use program::{Program, ZERO, carries};
pub use psi::{Pat, Pmt, Stream, StreamKind};

/// Ticks per second of PTS and DTS (§2.4.3.7).
pub const TICKS_PER_SECOND: u32 = 90_000;
/// Number of bits of PTS, DTS and the PCR's base.
pub const CLOCK_BITS: u32 = 33;
/// Mask of the 33 bits of a time.
pub const CLOCK_MASK: u64 = (1 << CLOCK_BITS) - 1;
