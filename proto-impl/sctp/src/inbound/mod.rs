//! From data chunks to ordered messages: TSNs, fragments, and stream sequence numbers.

mod order;
mod reassembly;
mod received;

use bytes::Bytes;
use wire::Reader;

pub(crate) use order::Order;
pub(crate) use reassembly::Reassembly;
pub(crate) use received::{Arrival, Received};

use crate::config::OVERHEAD_BYTES;
use crate::seq;

/// Flags of a data chunk (RFC 9260 §3.3.1).
pub(crate) mod flag {
    pub(crate) const END: u8 = 1;
    pub(crate) const BEGIN: u8 = 2;
    pub(crate) const UNORDERED: u8 = 4;
    pub(crate) const IMMEDIATE: u8 = 8;
}

/// Size of the fields between chunk header and payload in a data chunk.
pub(crate) const DATA_HEAD_BYTES: usize = 12;

/// A data chunk, which contains a message or a fragment of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) tsn: u64,
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    pub(crate) ppid: u32,
    pub(crate) flags: u8,
    pub(crate) payload: Bytes,
}

impl Fragment {
    /// Reads the value of a data chunk; `near` is a TSN close to that of the chunk. `None` if it has no payload
    /// (RFC 9260 §3.3.1).
    pub(crate) fn read(near: u64, flags: u8, value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let tsn = seq::unwrap_tsn(near, reader.u32().ok()?);
        let (stream, ssn, ppid) = (reader.u16().ok()?, reader.u16().ok()?, reader.u32().ok()?);
        let payload = reader.rest();
        // Copies the payload, so that the rest of the datagram can be freed.
        let payload = (!payload.is_empty()).then(|| Bytes::copy_from_slice(payload))?;
        Some(Self { tsn, stream, ssn, ppid, flags, payload })
    }

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn charge(&self) -> usize {
        charge(self.payload.len())
    }
}

/// A complete message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    pub(crate) unordered: bool,
    pub(crate) ppid: u32,
    pub(crate) payload: Bytes,
}

/// A violation of the protocol that prevents reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Adjacent fragments do not belong together.
    Fragments,
    /// A message exceeds the size limit.
    TooLong,
}

/// Returns the number of bytes that are accounted for a payload.
pub(crate) const fn charge(length: usize) -> usize {
    length.saturating_add(OVERHEAD_BYTES)
}
