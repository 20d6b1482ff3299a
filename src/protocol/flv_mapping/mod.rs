//! Access units as FLV bodies and back: the common part of RTMP, HTTP-FLV and WS-FLV.
//!
//! [`Depackager`] converts bodies to access units; [`unit()`], [`config`] and [`extra`] convert units and parameter
//! sets to bodies. The protocol itself frames a body in chunks or tags.

mod bodies;
mod depackager;
mod script;

pub(super) use bodies::{Body, config, extra, metadata, needed_four_cc, unit, without_left_out};
pub(crate) use depackager::{Depackager, Outcome};
pub(super) use depackager::{OtherTrack, OtherTracks};
pub(super) use script::script_data;
