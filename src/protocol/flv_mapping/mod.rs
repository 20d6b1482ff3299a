//! Access units as FLV bodies and back: what RTMP messages, HTTP-FLV and WS-FLV have in common.
//!
//! [`Depackager`] turns bodies into access units, [`unit()`], [`config`] and [`extra`] turn units and parameter sets into
//! bodies. The framing around a body, chunks or tags, is the protocol's.

mod bodies;
mod depackager;

pub(super) use bodies::{Body, config, extra, needed_four_cc, unit, without_left_out};
pub(crate) use depackager::{Depackager, Outcome};
pub(super) use depackager::{OtherTrack, OtherTracks};
