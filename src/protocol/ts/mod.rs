//! Access units as MPEG-TS and back: the common part of SRT, TS over HTTP and HLS.
//!
//! [`Depackager`] converts transport packets to access units, [`TsPackage`] access units to transport packets. The
//! protocol itself transports the packets.
//!
//! Both count in 90 kHz, and both place the zero of a stream at [`mpegts::ZERO`], where transport streams of ffmpeg
//! begin. Such a stream therefore begins at zero in the hub, like the same stream over RTMP, and leaves with the times
//! that it had on arrival.

mod egress;
mod ingest;

use media::Timescale;

pub(crate) use egress::{TsPackage, fit};
pub(crate) use ingest::Depackager;
pub(in crate::protocol) use ingest::Stats;

/// Time scale of PTS and DTS.
const TICKS: Timescale = Timescale::new(mpegts::TICKS_PER_SECOND);
/// The reason logged for the first malformed frame.
const BAD_FRAME: &str = "a frame that is malformed, or of a codec that is not carried";
#[cfg(test)]
mod tests;
