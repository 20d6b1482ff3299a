//! Access units as MPEG-TS and back: the common part of SRT, TS over HTTP and HLS.
//!
//! [`Depackager`] converts transport packets to access units, [`TsPackage`] access units to transport packets. Their transport is the
//! protocol's.
//!
//! Both use 90 kHz, and both take [`ZERO`] for the zero of a stream: transport streams of ffmpeg begin there, so such a stream begins at
//! zero in the hub, like the same stream over RTMP, and goes out with its original times.

mod egress;
mod ingest;

use media::Timescale;

pub(crate) use egress::{TsPackage, fit};
pub(crate) use ingest::Depackager;
pub(in crate::protocol) use ingest::Stats;

/// Time scale of PTS and DTS.
const TICKS: Timescale = Timescale::new(mpegts::TICKS_PER_SECOND);
/// The reason logged for the first malformed frame.
pub(in crate::protocol) const BAD_FRAME: &str =
    "a frame that is malformed, or of a codec that is not carried";
/// Position of a stream's zero in a transport stream, in ticks: 1.4 s, twice ffmpeg's muxdelay. The PCR, which is at most
/// [`mpegts::LATE_MAX`] before the unit, is then never negative.
const ZERO: u64 = 126_000;

#[cfg(test)]
mod tests;
