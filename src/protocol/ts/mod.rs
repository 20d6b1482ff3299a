//! Access units as MPEG-TS and back: what SRT, TS over HTTP and HLS have in common.
//!
//! [`Depackager`] turns transport packets into access units, [`TsPackage`] access units into transport packets. How those
//! travel is the protocol's.
//!
//! Both count 90 kHz, and both take [`mpegts::ZERO`] for the zero of a stream: a transport stream of ffmpeg begins there, so one
//! that comes in that way begins at zero in the hub, as the same stream over RTMP does, and goes out with the times it
//! came with.

mod egress;
mod ingest;

use media::Timescale;

pub(crate) use egress::{TsPackage, fit};
pub(crate) use ingest::Depackager;
pub(in crate::protocol) use ingest::Stats;

/// Ticks of PTS and DTS.
const TICKS: Timescale = Timescale::new(mpegts::TICKS_PER_SECOND);
/// The reason in the log for the first frame that makes no sense.
pub(in crate::protocol) const BAD_FRAME: &str =
    "a frame that is malformed, or of a codec that is not carried";
#[cfg(test)]
mod tests;
