//! A received packet with its extended sequence number.

use std::time::Instant;

use bytes::Bytes;
use sdp::PayloadType;

use crate::number::ExtendedSequence;

/// A packet on its way to be put together with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The extended sequence number.
    pub sequence: ExtendedSequence,
    /// The RTP timestamp, in ticks.
    pub timestamp: u32,
    /// The marker bit.
    pub marker: bool,
    /// The payload type.
    pub payload_type: PayloadType,
    /// The payload.
    pub payload: Bytes,
    /// The number of packets right before this one whose media it carries too (RFC 2198).
    pub covers: u16,
    /// The time at which it came.
    pub arrival: Instant,
}
