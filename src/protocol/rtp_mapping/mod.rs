//! The common part of protocols over RTP: tracks as formats of session descriptions and back, sources' times on one
//! clock, frames as access units.

pub(super) mod clock;
pub(super) mod configs;
pub(super) mod describe;
mod ingest;
mod succession;

pub(super) use ingest::{Depackager, Source};
