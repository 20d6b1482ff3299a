//! Redundant audio (RFC 2198): each packet repeats earlier ones, so that a lost packet only causes delay.
//!
//! ```text
//!   1 TTTTTTT oooooooooooooo llllllllll    a block that was sent before: type, how much earlier, length
//!   0 TTTTTTT                              the packet itself
//! ```

use rtp::PayloadType;
use rtp::history::{LoggedPacket, PacketId, PacketLog};

/// Maximum number of earlier packets repeated in one packet.
const BLOCKS_MAX: usize = 2;
/// Size of the header of a repeated block; the header of the packet's own block is shorter.
const HEAD_BYTES: usize = 4;
/// Largest time offset that a block header can express.
const DISTANCE_MAX: u32 = (1 << 14) - 1;
/// Largest length that a block header can express.
const LENGTH_MAX: usize = (1 << 10) - 1;
/// Loss in thousandths from which on each packet repeats one earlier packet.
pub(crate) const LOSS_OF_ONE: u16 = 3;
/// Loss in thousandths from which on each packet repeats two earlier ones. Audio is then lost only if three consecutive
/// packets are lost.
const LOSS_OF_TWO: u16 = 80;
/// Number of reports without loss after which the redundancy is reduced. The redundancy is kept that long because
/// losses come in bursts.
const REPORTS_KEPT: u8 = 20;

/// State of the redundant coding of a source.
#[derive(Debug)]
pub(crate) struct Redundancy {
    payload_type: PayloadType,
    of: PayloadType,
    blocks: usize,
    /// Number of reports of a lower loss until the redundancy is reduced.
    keeps: u8,
}

/// Headers of a redundant packet, and the earlier payloads after them.
#[derive(Debug, Default)]
pub(crate) struct Blocks<'l> {
    heads: [u8; HEAD_BYTES * BLOCKS_MAX + 1],
    heads_length: usize,
    payloads: [&'l [u8]; BLOCKS_MAX],
}

impl<'l> Blocks<'l> {
    /// Returns the parts of a redundant packet: the headers, the earlier payloads, oldest first, and `payload`
    /// itself.
    pub(crate) fn parts<'a>(&'a self, payload: &'a [u8]) -> [&'a [u8]; BLOCKS_MAX + 2]
    where
        'l: 'a,
    {
        let [first, second] = self.payloads;
        [self.heads.get(..self.heads_length).unwrap_or_default(), first, second, payload]
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.heads_length.saturating_add(bytes.len());
        if let Some(to) = self.heads.get_mut(self.heads_length..end) {
            to.copy_from_slice(bytes);
            self.heads_length = end;
        }
    }
}

impl Redundancy {
    pub(crate) const fn new(payload_type: PayloadType, of: PayloadType) -> Self {
        Self { payload_type, of, blocks: 0, keeps: 0 }
    }

    pub(crate) const fn payload_type(&self) -> PayloadType {
        self.payload_type
    }

    /// Adapts to the loss that the peer reports, in thousandths.
    pub(crate) const fn set_loss(&mut self, thousandths: u16) {
        let wanted = match thousandths {
            LOSS_OF_TWO.. => 2,
            LOSS_OF_ONE.. => 1,
            _ => 0,
        };
        if wanted >= self.blocks {
            (self.blocks, self.keeps) = (wanted, REPORTS_KEPT);
        } else {
            self.keeps = self.keeps.saturating_sub(1);
            if self.keeps == 0 {
                (self.blocks, self.keeps) = (wanted, REPORTS_KEPT);
            }
        }
    }

    /// Stops repeating packets immediately, because the path is full.
    pub(crate) const fn suspend(&mut self) {
        self.blocks = 0;
    }

    /// True if packets repeat earlier ones.
    pub(crate) const fn is_active(&self) -> bool {
        self.blocks > 0
    }

    /// Returns the redundant blocks to send with a packet; `None` to send the packet as it is.
    pub(crate) fn blocks<'l>(
        &self,
        id: PacketId,
        packet: &LoggedPacket,
        log: &'l PacketLog,
        payload_bytes_max: usize,
    ) -> Option<Blocks<'l>> {
        if self.blocks == 0 {
            return None;
        }
        let mut blocks = Blocks::default();
        let mut room = payload_bytes_max.checked_sub(packet.payload.len())?.checked_sub(1)?;
        let mut at = 0;
        for back in (1..=self.blocks).rev() {
            let Some(earlier) = id.back(back).and_then(|id| log.get(id)) else { continue };
            let distance = packet.timestamp.wrapping_sub(earlier.timestamp);
            let (length, bytes) = (earlier.payload.len(), earlier.payload.len().saturating_add(HEAD_BYTES));
            if !(1..=DISTANCE_MAX).contains(&distance) || length > LENGTH_MAX || bytes > room {
                continue;
            }
            room = room.saturating_sub(bytes);
            let length = u32::try_from(length).unwrap_or(0);
            let head = 1 << 31 | u32::from(self.of.number()) << 24 | distance << 10 | length;
            blocks.put(&head.to_be_bytes());
            if let Some(slot) = blocks.payloads.get_mut(at) {
                *slot = &earlier.payload;
                at += 1;
            }
        }
        blocks.put(&[self.of.number()]);
        Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn log(payloads: &[(&'static [u8], u32)]) -> (PacketLog, Vec<PacketId>) {
        let now = netsim::Clock::new().now();
        let mut log = PacketLog::new();
        let push = |&(payload, timestamp): &(&'static [u8], u32)| {
            let payload = Bytes::from_static(payload);
            log.push(now, LoggedPacket { payload, timestamp, marker: false, padding: 0, joins: false })
        };
        let ids = payloads.iter().map(push).collect();
        (log, ids)
    }

    fn made(redundancy: &Redundancy, log: &PacketLog, id: PacketId) -> Option<Vec<u8>> {
        let packet = log.get(id).unwrap();
        let blocks = redundancy.blocks(id, packet, log, 1100)?;
        Some(blocks.parts(&packet.payload).concat())
    }

    #[test]
    fn packets_carry_those_before_them_as_loss_is_reported() {
        let (log, ids) = log(&[(b"one", 960), (b"two!", 1920), (b"three", 2880)]);
        let type_of = |n| PayloadType::new(n).unwrap();
        let mut redundancy = Redundancy::new(type_of(63), type_of(111));
        assert_eq!(made(&redundancy, &log, ids[2]), None);
        redundancy.set_loss(10);
        let (one, two) = ([0x80 | 111, 0x0f, 0, 4], [0x80 | 111, 0x1e, 0, 3]);
        assert_eq!(made(&redundancy, &log, ids[2]).unwrap(), [&one[..], &[111], b"two!three"].concat());
        redundancy.set_loss(350);
        let both = [&two[..], &one, &[111], b"onetwo!three"].concat();
        assert_eq!(made(&redundancy, &log, ids[2]).unwrap(), both);
        // The first packet has no earlier one to repeat, and its header says so.
        assert_eq!(made(&redundancy, &log, ids[0]).unwrap(), b"oone");
        // Redundancy ends only after several reports without loss.
        for _ in 0..REPORTS_KEPT - 1 {
            redundancy.set_loss(0);
        }
        assert!(made(&redundancy, &log, ids[2]).unwrap().len() == both.len());
        redundancy.set_loss(0);
        assert_eq!(made(&redundancy, &log, ids[2]), None);
        redundancy.set_loss(350);
        redundancy.suspend();
        assert_eq!(made(&redundancy, &log, ids[2]), None);
    }

    #[test]
    fn what_no_head_can_say_is_left_out() {
        static LONG: [u8; 1024] = [7; 1024];
        let (log, ids) =
            log(&[(&LONG, 0), (b"far", 100), (b"near", 20_000), (b"same", 20_000), (b"it", 20_960)]);
        let type_of = |n| PayloadType::new(n).unwrap();
        let mut redundancy = Redundancy::new(type_of(63), type_of(111));
        redundancy.set_loss(500);
        assert_eq!(made(&redundancy, &log, ids[1]).unwrap(), b"ofar");
        assert_eq!(made(&redundancy, &log, ids[2]).unwrap(), b"onear");
        assert_eq!(made(&redundancy, &log, ids[3]).unwrap(), b"osame");
        let packet = log.get(ids[4]).unwrap();
        // Room for only one of two blocks.
        let blocks = redundancy.blocks(ids[4], packet, &log, 2 + 1 + 8 + 3).unwrap();
        assert_eq!(blocks.parts(&packet.payload).concat().len(), 4 + 4 + 1 + 2);
    }
}
