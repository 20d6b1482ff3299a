//! Packs units of a stream into SRT payloads, each with as many whole MPEG-TS packets as fit.

use bytes::{Bytes, BytesMut};

use crate::hub::Parts;

/// Size of an MPEG-TS packet (ISO/IEC 13818-1 §2.4.3.2).
const TS_PACKET_BYTES: usize = 188;

/// Fills payloads. The remainder of a unit begins the next payload, so that audio sent with video needs no datagrams of
/// its own.
#[derive(Debug)]
pub(crate) struct Packer {
    payload: usize,
    rest: BytesMut,
}

impl Packer {
    /// Makes a packer for payloads of at most this many bytes.
    pub(crate) fn new(payload_bytes: usize) -> Self {
        let payload = payload_bytes / TS_PACKET_BYTES * TS_PACKET_BYTES;
        Self { payload: payload.max(TS_PACKET_BYTES), rest: BytesMut::new() }
    }

    /// Adds a unit; `send` gets every full payload. Payloads share the unit's memory except at its ends.
    pub(crate) fn push(&mut self, parts: &Parts, mut send: impl FnMut(Bytes)) {
        for slice in parts.slices() {
            let mut slice = slice.clone();
            if !self.rest.is_empty() {
                let missing = self.payload.saturating_sub(self.rest.len()).min(slice.len());
                self.rest.extend_from_slice(&slice.split_to(missing));
                if self.rest.len() < self.payload {
                    continue;
                }
                send(self.rest.split().freeze());
            }
            while slice.len() >= self.payload {
                send(slice.split_to(self.payload));
            }
            if !slice.is_empty() {
                // Reserve room for the rest, so that it is not moved.
                self.rest.reserve(self.payload);
                self.rest.extend_from_slice(&slice);
            }
        }
    }

    /// Returns the remainder as a payload, if there is any.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let rest = (!self.rest.is_empty()).then(|| self.rest.split().freeze());
        // Nothing is kept between two flushes: there may be thousands of viewers.
        self.rest = BytesMut::new();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_full_but_the_last_and_nothing_is_lost() {
        let mut packer = Packer::new(1456);
        assert_eq!(packer.payload, 7 * 188);
        let units = [3usize, 20, 1, 7, 14, 2].map(|packets| {
            Parts::new([Bytes::from((0..packets * 188).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>())])
        });
        let mut sent = Vec::new();
        units.iter().for_each(|unit| packer.push(unit, |payload| sent.push(payload)));
        sent.extend(packer.finish());
        assert_eq!(packer.finish(), None);
        let lengths: Vec<usize> = sent.iter().map(|payload| payload.len() / 188).collect();
        assert_eq!(lengths, [7, 7, 7, 7, 7, 7, 5]);
        let all: Vec<u8> = units.iter().flat_map(|unit| unit.slices().concat()).collect();
        assert_eq!(sent.concat(), all);
    }
}
