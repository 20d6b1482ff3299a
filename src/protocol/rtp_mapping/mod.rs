//! The common parts of protocols over RTP: tracks as formats of session descriptions and back, times of sources on one common
//! clock, frames to access units.

pub(super) mod clock;
pub(super) mod configs;
pub(super) mod describe;
mod ingest;
mod succession;

pub(super) use ingest::{Depackager, Source};
