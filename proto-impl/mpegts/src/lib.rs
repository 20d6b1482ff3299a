//! MPEG transport streams (ISO/IEC 13818-1, ITU-T H.222.0): the container of SRT, of HLS segments and of TS over HTTP.
//!
//! [`Demuxer`] takes bytes in any split and gives the first program's streams and their PES packets, [`Muxer`] makes
//! whole transport packets of access units. What lies in a PES packet (NAL units, ADTS, ...) is not looked at here.
//!
//! ```text
//! bytes -> packets of 188, 192 or 204 -> PAT -> PMT -> streams
//!                                      -> PES packets by PID -> payload with PTS and DTS
//! ```
//!
//! Times are ticks of 90 kHz in 33 bits as they stand in the stream; who unwraps them owns the clock. One program and
//! [`STREAMS_MAX`] streams are read, one program of one video and one audio stream is written. Scrambled
//! content and the MPEG-1 form of PES are not read.

#![forbid(unsafe_code)]

mod demux;
mod error;
mod mux;
mod packet;
mod pes;
mod psi;
mod section;
mod sync;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;

pub use demux::{Demuxer, Event, PES_BYTES_MAX, Pes, STREAMS_MAX, Stats};
pub use error::Error;
pub use mux::{
    AUDIO_PID, Kind, LATE_MAX, Muxer, PCR_LEAD, PMT_PID, PROGRAM_STREAMS_MAX, Packing, StreamNumber, Unit,
    VIDEO_PID,
};
pub use packet::{PACKET_BYTES, Packet, Pcr, Pid};
pub use pes::PesHeader;
pub use psi::{Pat, Pmt, Stream, StreamKind};

/// Ticks per second of PTS and DTS (§2.4.3.7).
pub const TICKS_PER_SECOND: u32 = 90_000;
/// Bits of PTS, DTS and the PCR's base.
pub const CLOCK_BITS: u32 = 33;
/// Keeps a time in its 33 bits.
pub const CLOCK_MASK: u64 = (1 << CLOCK_BITS) - 1;
