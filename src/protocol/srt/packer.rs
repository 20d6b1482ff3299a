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
    /// The remainder as a part of its unit's memory; empty if there is none, or if it is in `joined`.
    rest: Bytes,
    /// The remainders of several units, copied.
    joined: BytesMut,
}

impl Packer {
    /// Makes a packer for payloads of at most this many bytes.
    pub(crate) fn new(payload_bytes: usize) -> Self {
        let payload = payload_bytes / TS_PACKET_BYTES * TS_PACKET_BYTES;
        Self { payload: payload.max(TS_PACKET_BYTES), rest: Bytes::new(), joined: BytesMut::new() }
    }

    /// Adds a unit; `send` gets every full payload. Payloads share the units' memory, except those that contain the end
    /// of one unit and the beginning of the next.
    pub(crate) fn push(&mut self, parts: &Parts, mut send: impl FnMut(Bytes)) {
        for slice in parts.slices() {
            let mut slice = slice.clone();
            if !self.rest.is_empty() {
                self.joined.reserve(self.payload);
                self.joined.extend_from_slice(&std::mem::take(&mut self.rest));
            }
            if !self.joined.is_empty() {
                let missing = self.payload.saturating_sub(self.joined.len()).min(slice.len());
                self.joined.extend_from_slice(&slice.split_to(missing));
                if self.joined.len() < self.payload {
                    continue;
                }
                send(std::mem::take(&mut self.joined).freeze());
            }
            while slice.len() > self.payload {
                send(slice.split_to(self.payload));
            }
            if slice.len() == self.payload {
                send(slice);
            } else {
                self.rest = slice;
            }
        }
    }

    /// Returns the remainder as a payload, if there is any. Nothing is kept between two flushes: there may be thousands
    /// of viewers.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let joined = std::mem::take(&mut self.joined).freeze();
        [std::mem::take(&mut self.rest), joined].into_iter().find(|rest| !rest.is_empty())
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

    #[test]
    fn only_payloads_with_parts_of_two_units_are_copied() {
        let mut packer = Packer::new(1316);
        let units = [9usize, 16].map(|packets| Parts::new([Bytes::from(vec![0x47; packets * 188])]));
        let shares = |payload: &Bytes| {
            units.iter().flat_map(Parts::slices).any(|unit| unit.as_ptr_range().contains(&payload.as_ptr()))
        };
        let mut sent = Vec::new();
        units.iter().for_each(|unit| packer.push(unit, |payload| sent.push(payload)));
        sent.extend(packer.finish());
        let shared: Vec<(usize, bool)> = sent.iter().map(|sent| (sent.len() / 188, shares(sent))).collect();
        assert_eq!(shared, [(7, true), (7, false), (7, true), (4, true)]);
    }
}
