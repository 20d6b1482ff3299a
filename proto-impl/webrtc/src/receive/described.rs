//! Dependency descriptors of a source's packets. A descriptor depends on those of earlier packets, so it is read when its
//! packet is in order.

use std::collections::VecDeque;

use rtp::dependency::{Dependencies, FrameLayer};
use rtp::{Header, SequenceNumber};

/// Maximum number of descriptors that wait: more than a source sends while its packets wait for earlier ones. The layers
/// of a picture whose descriptor was dropped are distinguished by the payloads.
const WAITING_MAX: usize = 512;
/// Bit of a descriptor's first byte that the first packet of a frame has set.
const FIRST: u8 = 0x80;

/// State of one source.
#[derive(Debug, Default)]
pub(super) struct Described {
    dependencies: Dependencies,
    /// Descriptors of packets that are not in order yet: their sequence numbers and timestamps.
    waiting: VecDeque<(SequenceNumber, u32, Box<[u8]>)>,
}

impl Described {
    /// Takes the descriptor of a packet that has arrived. Only the first packet of a frame describes it.
    pub(super) fn arrive(&mut self, packet: &Header<'_>, value: &[u8]) {
        if value.first().is_none_or(|first| first & FIRST == 0) {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((packet.sequence_number, packet.timestamp, value.into()));
    }

    /// Reads the descriptor of the packet that is next in order. Those of earlier packets, such as needless
    /// retransmissions, are dropped. A malformed one is ignored.
    pub(super) fn take(&mut self, number: SequenceNumber, timestamp: u32) -> Option<FrameLayer> {
        let mut layer = None;
        self.waiting.retain(|(of, at, value)| {
            if (*of, *at) == (number, timestamp) && layer.is_none() {
                layer = self.dependencies.handle(value).ok();
            }
            of.0.wrapping_sub(number.0).cast_signed() > 0
        });
        layer
    }

    /// Forgets the structure when the source has restarted. The descriptors of its new packets wait already.
    pub(super) fn restart(&mut self) {
        self.dependencies = Dependencies::new();
    }
}

#[cfg(test)]
mod tests {
    use rtp::dependency::{Descriptor, Indication, Structure, Template};

    use super::*;

    fn descriptor(first: bool, frame_number: u16, begins: bool) -> Vec<u8> {
        let template = Template {
            spatial: 0,
            temporal: 0,
            indications: vec![Indication::Switch],
            references: Vec::new(),
            chains: Vec::new(),
        };
        let structure = Structure::new(0, vec![template], Vec::new(), Vec::new()).unwrap();
        let structure = begins.then(|| Box::new(structure));
        let mut out = Vec::new();
        assert!(Descriptor { first, frame_number, structure, ..Descriptor::default() }.write(&mut out));
        out
    }

    fn arrive(described: &mut Described, number: u16, timestamp: u32, value: &[u8]) {
        let header = Header {
            marker: false,
            payload_type: rtp::PayloadType::new(96).unwrap(),
            sequence_number: SequenceNumber(number),
            timestamp,
            ssrc: rtp::Ssrc(1),
            csrcs: rtp::Csrcs::default(),
            extension: None,
        };
        described.arrive(&header, value);
    }

    fn taken(described: &mut Described, number: u16, timestamp: u32) -> Option<u16> {
        described.take(SequenceNumber(number), timestamp).map(|layer| layer.frame_number)
    }

    #[test]
    fn descriptors_wait_for_their_packets_and_are_few() {
        let mut described = Described::default();
        arrive(&mut described, 65_533, 0, &descriptor(true, 7, false));
        assert_eq!(taken(&mut described, 65_533, 0), None, "before the structure");
        arrive(&mut described, 1, 9, &descriptor(true, 3, false));
        arrive(&mut described, 65_534, 4, &descriptor(true, 0, true));
        arrive(&mut described, 65_535, 4, &descriptor(false, 0, false));
        arrive(&mut described, 0, 4, &descriptor(true, 1, false));
        assert_eq!(taken(&mut described, 65_534, 4), Some(0), "whatever the order of arrival");
        assert_eq!(taken(&mut described, 65_534, 4), None);
        assert_eq!(taken(&mut described, 65_535, 4), None, "a later packet of the frame");
        assert_eq!(taken(&mut described, 0, 4), Some(1));
        // A needless retransmission of an earlier packet.
        arrive(&mut described, 65_533, 0, &descriptor(true, 7, true));
        assert_eq!(taken(&mut described, 1, 9), Some(3));
        assert!(described.waiting.is_empty());
        for number in 2..10_000 {
            arrive(&mut described, number, 0, &descriptor(true, 0, false));
        }
        assert_eq!(described.waiting.len(), WAITING_MAX);
        assert_eq!(taken(&mut described, 9_999, 0), Some(0));
        assert!(described.waiting.is_empty());
    }

    #[test]
    fn a_restart_forgets_the_structure_and_not_what_came_with_it() {
        let mut described = Described::default();
        arrive(&mut described, 1, 0, &descriptor(true, 1, true));
        assert_eq!(taken(&mut described, 1, 0), Some(1));
        arrive(&mut described, 2, 0, &descriptor(true, 2, false));
        described.restart();
        assert_eq!(taken(&mut described, 2, 0), None);
        arrive(&mut described, 40_000, 7, &descriptor(true, 3, true));
        described.restart();
        assert_eq!(taken(&mut described, 40_000, 7), Some(3));
    }
}
