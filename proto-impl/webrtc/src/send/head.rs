//! The first packets of a source, which a receiver may have received and dropped.
//!
//! If the first packet of a key frame overtakes the parameter sets (RFC 6184 §8.4), a browser drops it and
//! requests a key frame. It has counted the packet as received, so it never requests a retransmission, and
//! cameras and most encoders do not make key frames on request. Therefore the first packets are sent again if
//! the receiver soon requests a key frame.

use rtp::SequenceNumber;

/// Maximum number of packets to send again: parameter sets, other NAL units before the first slice, and that
/// slice or its first fragment.
const PACKETS_MAX: u32 = 4;
/// A key frame request within this many packets is taken to refer to the first key frame. So many
/// packets are at least a second of video, usually the first GOP.
const SOON: u32 = 500;
/// Maximum number of times that the packets are sent again.
const TIMES_MAX: u8 = 3;

/// The first packets of a source.
#[derive(Debug, Default)]
pub(super) struct Head {
    packets: Vec<SequenceNumber>,
    sent: u32,
    times: u8,
}

impl Head {
    /// Records a packet that leaves for the first time.
    pub(super) fn sent(&mut self, number: SequenceNumber) {
        if self.sent < PACKETS_MAX {
            self.packets.push(number);
        } else if self.sent == SOON {
            self.packets = Vec::new();
        }
        self.sent = self.sent.saturating_add(1);
    }

    /// Returns the packets to send again, because the receiver has requested a key frame.
    pub(super) fn take(&mut self) -> impl Iterator<Item = SequenceNumber> {
        let is_due = self.times < TIMES_MAX && !self.packets.is_empty();
        self.times += u8::from(is_due);
        self.packets.iter().copied().filter(move |_| is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(head: &mut Head) -> Vec<u16> {
        head.take().map(|number| number.0).collect()
    }

    #[test]
    fn the_first_packets_are_sent_again_a_few_times_and_only_at_first() {
        let mut head = Head::default();
        assert_eq!(taken(&mut head), [0; 0]);
        (7..100).for_each(|n| head.sent(SequenceNumber(n)));
        for _ in 0..TIMES_MAX {
            assert_eq!(taken(&mut head), [7, 8, 9, 10]);
        }
        assert_eq!(taken(&mut head), [0; 0]);
        let mut head = Head::default();
        (0..600).for_each(|n| head.sent(SequenceNumber(n)));
        assert_eq!((taken(&mut head), head.packets.capacity()), (vec![], 0));
    }
}
