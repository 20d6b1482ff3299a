//! Dependency descriptors of a source's frames. A packet's descriptor is read when the packet arrives, and kept until
//! the packet is in order.

use std::collections::VecDeque;

use rtp::dependency::{Dependencies, FrameLayer};

/// Maximum number of frames whose descriptors wait: more than a source sends while its packets wait for earlier ones. The
/// layers of a picture whose descriptor was dropped are distinguished by the payloads.
const WAITING_MAX: usize = 512;

/// State of one source.
#[derive(Debug, Default)]
pub(super) struct Described {
    dependencies: Dependencies,
    /// Timestamps and layers of frames, in the order of their arrival.
    waiting: VecDeque<(u32, FrameLayer)>,
}

impl Described {
    /// Takes the descriptor of a packet that has arrived. A malformed one is ignored.
    pub(super) fn arrive(&mut self, timestamp: u32, value: &[u8]) {
        let Ok(layer) = self.dependencies.handle(value) else { return };
        if !layer.first {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((timestamp, layer));
    }

    /// Takes the layers of the frames with a timestamp. Those of earlier frames are dropped.
    pub(super) fn take(&mut self, timestamp: u32, mut give: impl FnMut(FrameLayer)) {
        self.waiting.retain(|(of, layer)| {
            if *of == timestamp {
                give(*layer);
            }
            of.wrapping_sub(timestamp).cast_signed() > 0
        });
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

    fn taken(described: &mut Described, timestamp: u32) -> Vec<u16> {
        let mut taken = Vec::new();
        described.take(timestamp, |layer| taken.push(layer.frame_number));
        taken
    }

    #[test]
    fn descriptors_wait_for_their_packets_and_are_few() {
        let mut described = Described::default();
        described.arrive(0, &descriptor(true, 7, false));
        assert_eq!(taken(&mut described, 0), [0; 0], "before the structure");
        described.arrive(u32::MAX, &descriptor(true, 0, true));
        described.arrive(u32::MAX, &descriptor(false, 0, false));
        described.arrive(u32::MAX, &descriptor(true, 1, false));
        described.arrive(9, &descriptor(true, 3, false));
        described.arrive(4, &descriptor(true, 2, false));
        assert_eq!(taken(&mut described, u32::MAX), [0, 1]);
        assert_eq!(taken(&mut described, u32::MAX), [0; 0]);
        assert_eq!(taken(&mut described, 4), [2], "a packet that was overtaken");
        assert_eq!(taken(&mut described, 9), [3]);
        (0..10_000_u32).for_each(|n| described.arrive(n, &descriptor(true, 0, false)));
        assert_eq!(described.waiting.len(), WAITING_MAX);
        described.take(9_999, |_| {});
        assert!(described.waiting.is_empty());
    }
}
