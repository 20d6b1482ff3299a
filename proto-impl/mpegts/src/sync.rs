//! Bytes in any split to packets of 188, with resynchronisation after lost or inserted bytes.
//!
//! In step, a packet is taken when its first byte is the sync byte; nothing is waited for. Out of step, a sync byte
//! counts only with another one 188 bytes behind it (ISO/IEC 13818-1 annex G.1 advises to look at more than one): so a
//! stream that is whole again is back after one packet, and what was left out is counted.

use crate::packet::{PACKET_BYTES, SYNC_BYTE};

/// The most bytes that are buffered: an incomplete packet, or as much as it takes to see the second sync byte.
const HELD_MAX: usize = 2 * PACKET_BYTES;

/// Finds packets.
#[derive(Debug)]
pub(crate) struct Sync {
    held: Vec<u8>,
    in_step: bool,
    /// Times it fell out of step.
    pub(crate) losses: u64,
    /// Bytes that were left out.
    pub(crate) bytes_skipped: u64,
}

/// The next piece of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A packet of the input.
    Whole(&'a [u8; PACKET_BYTES]),
    /// A packet that lay across two inputs.
    Joined([u8; PACKET_BYTES]),
    /// Synchronisation was just lost: the preceding packet may be wrong.
    Lost,
    /// More input is needed; all that there was is taken.
    Empty,
}

impl Default for Sync {
    /// Starts in sync: the first byte is taken for the start of a packet.
    fn default() -> Self {
        Self { held: Vec::new(), in_step: true, losses: 0, bytes_skipped: 0 }
    }
}

impl Sync {
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Next<'a> {
        if self.in_step && self.held.is_empty() {
            match input.split_first_chunk::<PACKET_BYTES>() {
                Some((packet, rest)) if packet.first() == Some(&SYNC_BYTE) => {
                    *input = rest;
                    return Next::Whole(packet);
                }
                None if input.is_empty() => return Next::Empty,
                _ => {}
            }
        }
        self.next_held(input)
    }

    fn next_held<'a>(&mut self, input: &mut &'a [u8]) -> Next<'a> {
        loop {
            let want = if self.in_step { PACKET_BYTES } else { HELD_MAX };
            let missing = want.saturating_sub(self.held.len()).min(input.len());
            if let Some((taken, rest)) = input.split_at_checked(missing) {
                self.held.extend_from_slice(taken);
                *input = rest;
            }
            if !self.in_step && !self.search() {
                if input.is_empty() {
                    return Next::Empty;
                }
                continue;
            }
            if self.held.first().is_some_and(|&byte| byte != SYNC_BYTE) {
                self.in_step = false;
                self.losses = self.losses.saturating_add(1);
                return Next::Lost;
            }
            let Some(packet) = self.held.first_chunk::<PACKET_BYTES>().copied() else { return Next::Empty };
            self.held.drain(..PACKET_BYTES);
            return Next::Joined(packet);
        }
    }

    /// Drops what comes before a sync byte that another one follows. True when it is found.
    fn search(&mut self) -> bool {
        let is_sync = |at: usize| self.held.get(at) == Some(&SYNC_BYTE);
        let candidate = (0..self.held.len())
            .find(|&at| is_sync(at) && (is_sync(at + PACKET_BYTES) || at + PACKET_BYTES >= self.held.len()));
        let skip = candidate.unwrap_or(self.held.len());
        self.held.drain(..skip);
        self.bytes_skipped = self.bytes_skipped.saturating_add(skip as u64);
        self.in_step = self.held.len() > PACKET_BYTES;
        self.in_step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(n: u8) -> Vec<u8> {
        let mut bytes = vec![n; PACKET_BYTES];
        bytes[0] = SYNC_BYTE;
        bytes
    }

    fn numbers(sync: &mut Sync, mut input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            match sync.next(&mut input) {
                Next::Whole(packet) => out.push(packet[1]),
                Next::Joined(packet) => out.push(packet[1]),
                Next::Lost => {}
                Next::Empty => return out,
            }
        }
    }

    #[test]
    fn any_cut_gives_the_same_packets() {
        let bytes: Vec<u8> = (0..20).flat_map(numbered).collect();
        for cut in [1, 7, 187, 188, 189, 400, 1316, 5000] {
            let mut sync = Sync::default();
            let out: Vec<u8> = bytes.chunks(cut).flat_map(|piece| numbers(&mut sync, piece)).collect();
            assert_eq!(out, (0..20).collect::<Vec<_>>(), "cut {cut}");
            assert_eq!((sync.losses, sync.bytes_skipped), (0, 0));
        }
    }

    #[test]
    fn t_02_a_byte_put_in_costs_no_more_than_the_packets_beside_it() {
        for cut in [1, 100, 1316, 100_000] {
            let mut bytes = Vec::new();
            for n in 0..100 {
                let mut packet = numbered(n);
                if n % 10 == 9 {
                    packet.insert(90, 0x47);
                }
                bytes.extend(packet);
            }
            let mut sync = Sync::default();
            let out: Vec<u8> = bytes.chunks(cut).flat_map(|piece| numbers(&mut sync, piece)).collect();
            let missing: Vec<u8> = (0..99).filter(|n| !out.contains(n)).collect();
            assert!(missing.is_empty(), "cut {cut}: {missing:?}");
            assert_eq!(sync.losses, 10, "cut {cut}");
        }
    }

    #[test]
    fn a_stream_joined_anywhere_is_in_step_within_two_packets() {
        let bytes: Vec<u8> = (0..6).flat_map(numbered).collect();
        for start in 1..PACKET_BYTES {
            let mut sync = Sync::default();
            assert_eq!(numbers(&mut sync, &bytes[start..]), [1, 2, 3, 4, 5], "start {start}");
            assert_eq!(sync.bytes_skipped, (PACKET_BYTES - start) as u64);
        }
    }

    proptest! {
        #[test]
        fn noise_is_passed_over_and_held_within_bounds(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 0..20),
        ) {
            let mut sync = Sync::default();
            for piece in pieces {
                numbers(&mut sync, &piece);
                prop_assert!(sync.held.len() <= HELD_MAX);
            }
        }
    }
}
