//! A received packet with its extended sequence number.

use std::time::Instant;

use bytes::Bytes;
use sdp::PayloadType;

use crate::number::ExtendedSequence;

/// A received packet, ready for assembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Extended sequence number.
    pub sequence: ExtendedSequence,
    /// RTP timestamp, in ticks.
    pub timestamp: u32,
    /// The marker bit.
    pub marker: bool,
    /// Payload type.
    pub payload_type: PayloadType,
    /// The payload.
    pub payload: Bytes,
    /// Number of immediately preceding packets whose media this packet repeats (RFC 2198).
    pub covers: u16,
    /// Arrival time.
    pub arrival: Instant,
}
