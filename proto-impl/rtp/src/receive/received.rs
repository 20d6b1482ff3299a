//! A packet, once its place among the others is known.

use std::time::Instant;

use bytes::Bytes;
use sdp::PayloadType;

use crate::number::ExtendedSequence;

/// A packet on its way to be put together with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Its place.
    pub sequence: ExtendedSequence,
    /// Its time, in ticks.
    pub timestamp: u32,
    /// The marker bit.
    pub marker: bool,
    /// What the payload is.
    pub payload_type: PayloadType,
    /// The payload.
    pub payload: Bytes,
    /// When it came.
    pub arrival: Instant,
}
