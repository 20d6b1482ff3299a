//! Access units as FLV bodies and back: what RTMP messages, HTTP-FLV and WS-FLV have in common.
//!
//! [`Ingest`] turns bodies into access units, [`unit()`], [`config`] and [`extra`] turn units and parameter sets into
//! bodies. The framing around a body, chunks or tags, is the protocol's.

mod egress;
mod ingest;

pub(super) use egress::{Body, config, extra, needed_four_cc, unit, without_left_out};
pub(crate) use ingest::{Ingest, Outcome};
pub(super) use ingest::{OtherTrack, OtherTracks};
