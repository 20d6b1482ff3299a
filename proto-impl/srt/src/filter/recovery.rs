//! The XOR of the packets of a group.

use crate::config::PAYLOAD_MAX;
use crate::filter::FILTER_HEAD_BYTES;

/// The parts of a packet that parity covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    /// Bits of the key flag.
    pub(super) key: u8,
    pub(super) timestamp: u32,
    pub(super) length: u16,
    pub(super) payload: &'a [u8],
}

impl<'a> Content<'a> {
    pub(super) fn new(key: u8, timestamp: u32, payload: &'a [u8]) -> Self {
        Self { key, timestamp, length: u16::try_from(payload.len()).unwrap_or(u16::MAX), payload }
    }

    /// Reads the payload of a parity packet: its group index, and the XOR of the group's packets.
    pub(super) fn of_parity(timestamp: u32, body: &'a [u8]) -> Option<(u8, Self)> {
        let ([index, key, high, low], payload) = body.split_first_chunk()?;
        Some((*index, Self { key: *key, timestamp, length: u16::from_be_bytes([*high, *low]), payload }))
    }
}

/// The XOR of some packets of a group.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    key: u8,
    timestamp: u32,
    length: u16,
    payload: Vec<u8>,
}

impl Recovery {
    /// Adds a packet to the XOR; adding it again removes it. A payload longer than [`PAYLOAD_MAX`] is truncated.
    pub(super) fn add(&mut self, content: Content<'_>) {
        self.key ^= content.key;
        self.timestamp ^= content.timestamp;
        self.length ^= content.length;
        let payload = content.payload.get(..PAYLOAD_MAX).unwrap_or(content.payload);
        if self.payload.len() < payload.len() {
            self.payload.resize(payload.len(), 0);
        }
        self.payload.iter_mut().zip(payload).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// Resets the XOR to zero and keeps the buffer.
    pub(super) fn clear(&mut self) {
        (self.key, self.timestamp, self.length) = (0, 0, 0);
        self.payload.clear();
    }

    pub(crate) const fn timestamp(&self) -> u32 {
        self.timestamp
    }

    /// Length of the parity packet after its SRT header.
    pub(crate) const fn wire_bytes(&self) -> usize {
        FILTER_HEAD_BYTES.saturating_add(self.payload.len())
    }

    /// Appends the parity packet's content, which comes after its SRT header.
    pub(crate) fn write(&self, index: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&[index, self.key]);
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }

    /// Returns the missing packet; to be called when all other packets of the group and its parity were added.
    /// `None` if the result is invalid: a length that is zero or exceeds the payload, unknown key flags, or
    /// nonzero padding.
    pub(super) fn content(&self) -> Option<Content<'_>> {
        let (payload, padding) = self.payload.split_at_checked(usize::from(self.length))?;
        let is_sound = !payload.is_empty() && self.key <= 2 && padding.iter().all(|byte| *byte == 0);
        is_sound.then(|| Content::new(self.key, self.timestamp, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_packet_is_what_is_left() {
        let packets = [(1, 100, &b"first"[..]), (2, 250, b"the second"), (1, 300, b"3")];
        let contents = packets.map(|(key, timestamp, payload)| Content::new(key, timestamp, payload));
        for (missing, wanted) in packets.iter().enumerate() {
            let mut sender = Recovery::default();
            contents.iter().for_each(|content| sender.add(*content));
            let mut wire = Vec::new();
            sender.write(7, &mut wire);
            assert_eq!(wire.len(), sender.wire_bytes());
            assert_eq!(wire[..4], [7, 2, 0, 5 ^ 10 ^ 1]);
            let (index, parity) = Content::of_parity(sender.timestamp(), &wire).unwrap();
            let mut receiver = Recovery::default();
            receiver.add(parity);
            let others = contents.iter().enumerate().filter(|(n, _)| *n != missing);
            others.for_each(|(_, content)| receiver.add(*content));
            let found = receiver.content().unwrap();
            assert_eq!((index, (found.key, found.timestamp, found.payload)), (7, *wanted));
        }
    }

    #[test]
    fn s_30_parity_that_makes_no_sense_rebuilds_nothing() {
        let rebuilt = |key, length, payload: &[u8]| {
            let mut recovery = Recovery::default();
            recovery.add(Content { key, timestamp: 0, length, payload });
            recovery.content().is_some()
        };
        assert!(rebuilt(2, 4, b"good") && rebuilt(0, 4, b"good\0\0"));
        assert!(!rebuilt(0, 5, b"good"), "longer than what came");
        assert!(!rebuilt(0, 0, b"good") && !rebuilt(0, 0, b""), "empty");
        assert!(!rebuilt(3, 4, b"good") && !rebuilt(0x80, 4, b"good"), "no key has these flags");
        assert!(!rebuilt(0, 3, b"good"), "bytes behind the end");
        assert!(!rebuilt(0, 0xffff, &[1; 3000]), "beyond any packet");
        for length in 0..4 {
            assert!(Content::of_parity(0, &[0; 8][..length]).is_none());
        }
    }
}
