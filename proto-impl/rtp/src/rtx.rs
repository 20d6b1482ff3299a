//! Retransmission in separate packets (RFC 4588): the original sequence number followed by the original
//! payload, with another SSRC and payload type.

use bytes::Bytes;
use sdp::PayloadType;

use crate::header::{Header, Packet};
use crate::number::{SequenceNumber, Ssrc};
use crate::receive::Sources;

/// Length of the original sequence number (RFC 4588 §4).
pub const OSN_BYTES: usize = 2;
/// Number of payload types, which have seven bits.
const PAYLOAD_TYPES: usize = 128;

/// RTX associations: of payload types, by `apt`, and of sources, by SSRC.
#[derive(Debug, Clone)]
pub struct RtxMap {
    /// Original payload type for each RTX payload type.
    originals: [Option<PayloadType>; PAYLOAD_TYPES],
    /// Original SSRC for each RTX SSRC.
    sources: Sources<Ssrc>,
}

/// An original packet recovered from an RTX packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired<'a> {
    /// The original header, as far as the RTX packet reveals it; the extensions are those of the RTX packet.
    pub header: Header<'a>,
    /// Offset of the original payload within the RTX payload.
    pub payload_at: usize,
}

impl Repaired<'_> {
    /// Returns the original payload, sliced from the RTX payload.
    #[must_use]
    pub fn payload(&self, repair: &Bytes) -> Bytes {
        repair.slice(self.payload_at.min(repair.len())..)
    }
}

impl Default for RtxMap {
    fn default() -> Self {
        Self { originals: [None; PAYLOAD_TYPES], sources: Sources::new() }
    }
}

impl RtxMap {
    /// Creates an empty map, with which nothing is recovered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares that `rtx` carries retransmissions of `original` (`apt`). Returns false if either already has
    /// the opposite role.
    pub fn add_payload_type(&mut self, rtx: PayloadType, original: PayloadType) -> bool {
        let repairs_rtx = self.original(original).is_some();
        let is_repaired = self.originals.iter().flatten().any(|&other| other == rtx);
        if rtx == original || repairs_rtx || is_repaired {
            return false;
        }
        if let Some(slot) = self.originals.get_mut(usize::from(rtx.number())) {
            *slot = Some(original);
        }
        true
    }

    /// Declares that source `rtx` carries retransmissions of `original` (an `FID` group, or a repaired rid).
    /// Returns false if either already has the opposite role, or if there are too many sources.
    pub fn add_source(&mut self, rtx: Ssrc, original: Ssrc) -> bool {
        let repairs_rtx = self.sources.get(original).is_some();
        let is_repaired = self.sources.iter().any(|(_, &other)| other == rtx);
        if rtx == original || repairs_rtx || is_repaired {
            return false;
        }
        self.sources.get_or_insert_with(rtx, || original).map(|slot| *slot = original).is_some()
    }

    /// Returns the payload type that an RTX payload type retransmits; `None` for a media payload type.
    #[must_use]
    pub fn original(&self, rtx: PayloadType) -> Option<PayloadType> {
        self.originals.get(usize::from(rtx.number())).copied().flatten()
    }

    /// Returns the source that an RTX source retransmits.
    #[must_use]
    pub fn source(&self, rtx: Ssrc) -> Option<Ssrc> {
        self.sources.get(rtx).copied()
    }

    /// Recovers the original packet from an RTX packet. `None` if its payload type or source is unknown, or if
    /// no payload follows the original sequence number, as in packets that senders use for probing.
    #[must_use]
    pub fn unwrap<'a>(&self, packet: &Packet<'a>) -> Option<Repaired<'a>> {
        let payload_type = self.original(packet.header.payload_type)?;
        let ssrc = self.source(packet.header.ssrc)?;
        let (number, original) = packet.payload.split_first_chunk::<OSN_BYTES>()?;
        if original.is_empty() {
            return None;
        }
        let sequence_number = SequenceNumber(u16::from_be_bytes(*number));
        let header = Header { payload_type, ssrc, sequence_number, ..packet.header };
        Some(Repaired { header, payload_at: OSN_BYTES })
    }
}

/// Returns the original sequence number as written before the payload.
#[must_use]
pub const fn osn(original: SequenceNumber) -> [u8; OSN_BYTES] {
    original.0.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Csrcs;

    fn payload_type(number: u8) -> PayloadType {
        PayloadType::new(number).unwrap()
    }

    fn header(number: u8, ssrc: u32) -> Header<'static> {
        Header {
            marker: true,
            payload_type: payload_type(number),
            sequence_number: SequenceNumber(500),
            timestamp: 9,
            ssrc: Ssrc(ssrc),
            csrcs: Csrcs::default(),
            extension: None,
        }
    }

    fn map() -> RtxMap {
        let mut map = RtxMap::new();
        assert!(map.add_payload_type(payload_type(97), payload_type(96)));
        assert!(map.add_source(Ssrc(2), Ssrc(1)));
        map
    }

    #[test]
    fn a_repair_becomes_the_original() {
        let repair = Bytes::from([&osn(SequenceNumber(65_535))[..], b"original"].concat());
        let packet = Packet { header: header(97, 2), payload: &repair, padding: 0 };
        let repaired = map().unwrap(&packet).unwrap();
        assert_eq!(repaired.header, Header { sequence_number: SequenceNumber(65_535), ..header(96, 1) });
        assert_eq!(repaired.payload(&repair), &b"original"[..]);
    }

    #[test]
    fn x_06_what_repairs_nothing_is_dropped() {
        let map = map();
        for (number, ssrc, payload) in [
            (97, 2, &[][..]),
            (97, 2, &[1]),
            (97, 2, &[1, 2]),
            (97, 3, &[1, 2, 3]),
            (96, 1, &[1, 2, 3]),
            (96, 2, &[1, 2, 3]),
            (127, 2, &[1, 2, 3]),
        ] {
            let packet = Packet { header: header(number, ssrc), payload, padding: 0 };
            assert_eq!(map.unwrap(&packet), None, "{number} {ssrc} {payload:?}");
        }
    }

    #[test]
    fn x_06_there_are_no_repairs_of_repairs() {
        let mut map = map();
        for (rtx, original) in [(98, 97), (96, 95), (99, 99)] {
            assert!(!map.add_payload_type(payload_type(rtx), payload_type(original)));
        }
        for (rtx, original) in [(3, 2), (1, 9), (4, 4)] {
            assert!(!map.add_source(Ssrc(rtx), Ssrc(original)));
        }
        assert_eq!(
            (map.original(payload_type(97)), map.source(Ssrc(2))),
            (Some(payload_type(96)), Some(Ssrc(1)))
        );
        assert_eq!((10..10_000).filter(|&n| map.add_source(Ssrc(n), Ssrc(1))).count(), 31);
    }
}
