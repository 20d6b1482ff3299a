//! Splits bytes into packets of 188, with resynchronization after lost or inserted bytes.
//!
//! Packets are 188 bytes apart, or 192 with four bytes of arrival time before each (M2TS), or 204 with parity after
//! each (ETSI EN 300 429 §6.2). These formats are distinguished only by the distance of their sync bytes. So the bytes
//! between two packets are skipped without knowing whether they belong to the packet before or after them.
//!
//! In sync, a packet is accepted if its first byte is the sync byte, without waiting for more. Out of sync, a sync byte
//! is accepted only if another one follows at the known distance (ISO/IEC 13818-1 annex G.1 recommends checking more
//! than one), or two more at one of the other distances. So one good packet restores synchronization. The skipped bytes
//! are counted.

use alloc::vec::Vec;

use crate::packet::{PACKET_BYTES, SYNC_BYTE};

/// Possible distances of packets, in bytes.
const STRIDES: [usize; 3] = [PACKET_BYTES, 192, 204];
/// Maximum number of buffered bytes. They are an incomplete packet, or bytes being searched; each pass of a search
/// drops at least half of them.
const HELD_MAX: usize = 1024;

/// Finds the packets in a byte stream.
#[derive(Debug)]
pub(crate) struct Sync {
    held: Vec<u8>,
    in_step: bool,
    /// Distance of packets in bytes, one of [`STRIDES`].
    stride: usize,
    /// Number of bytes to skip before the next packet.
    gap: usize,
    /// Number of losses of synchronization.
    pub(crate) losses: u64,
    /// Number of skipped bytes.
    pub(crate) bytes_skipped: u64,
}

/// Next result of the search for packets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A packet within the input.
    Whole(&'a [u8; PACKET_BYTES]),
    /// A packet that was split across two inputs.
    Joined([u8; PACKET_BYTES]),
    /// Synchronization was just lost; the preceding packet may be damaged.
    Lost,
    /// All input was taken, and more is needed.
    Empty,
}

impl Default for Sync {
    /// Starts in sync: the first byte of the stream is assumed to begin a packet.
    fn default() -> Self {
        Self { held: Vec::new(), in_step: true, stride: PACKET_BYTES, gap: 0, losses: 0, bytes_skipped: 0 }
    }
}

impl Sync {
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Next<'a> {
        self.pass_gap(input);
        if self.in_step && self.held.is_empty() {
            match input.split_first_chunk::<PACKET_BYTES>() {
                Some((packet, rest)) if packet.first() == Some(&SYNC_BYTE) => {
                    *input = rest;
                    self.gap = self.stride.saturating_sub(PACKET_BYTES);
                    return Next::Whole(packet);
                }
                None if input.is_empty() => return Next::Empty,
                _ => {}
            }
        }
        self.next_held(input)
    }

    /// Skips the bytes between two packets that have arrived so far.
    fn pass_gap(&mut self, input: &mut &[u8]) {
        let held = self.gap.min(self.held.len());
        self.held.drain(..held);
        self.gap -= held;
        let given = self.gap.min(input.len());
        *input = input.get(given..).unwrap_or_default();
        self.gap -= given;
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
            self.gap = self.stride.saturating_sub(PACKET_BYTES);
            return Next::Joined(packet);
        }
    }

    /// Drops the bytes before the first sync byte that is followed by others at the distance of packets. Returns true
    /// if there is such a sync byte.
    fn search(&mut self) -> bool {
        let mut skip = self.held.len();
        for at in 0..self.held.len() {
            match self.stride_at(at) {
                Verdict::Packets(stride) => {
                    (self.stride, self.in_step) = (stride, true);
                    // A position at which packets certainly begin is preferred to an earlier one that is
                    // still undecided.
                    skip = at;
                    break;
                }
                Verdict::Open => skip = skip.min(at),
                Verdict::Nothing => {}
            }
        }
        self.held.drain(..skip);
        self.bytes_skipped = self.bytes_skipped.saturating_add(skip as u64);
        self.in_step
    }

    /// Checks whether packets begin at an offset of the held bytes, and at which distance.
    fn stride_at(&self, at: usize) -> Verdict {
        if self.held.get(at) != Some(&SYNC_BYTE) {
            return Verdict::Nothing;
        }
        let mut verdict = Verdict::Nothing;
        for stride in core::iter::once(self.stride).chain(STRIDES) {
            let needed = if stride == self.stride { 1 } else { 2 };
            let mut syncs = (1..=needed).map(|n| self.held.get(at + n * stride));
            match syncs.find(|byte| *byte != Some(&SYNC_BYTE)) {
                None => return Verdict::Packets(stride),
                Some(None) => verdict = Verdict::Open,
                Some(Some(_)) => {}
            }
        }
        verdict
    }
}

/// Result of checking whether packets begin at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Packets with this distance begin at the position.
    Packets(usize),
    /// More bytes are needed to decide.
    Open,
    /// No packet begins at the position.
    Nothing,
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

    #[test]
    fn packets_of_192_and_204_bytes_are_read_in_any_cut_and_from_anywhere() {
        for (before, behind) in [(0, 0), (4, 0), (0, 16)] {
            let framed = |n| [vec![n; before], numbered(n), vec![n ^ 0x55; behind]].concat();
            let bytes: Vec<u8> = (0..60).flat_map(framed).collect();
            let stride = PACKET_BYTES + before + behind;
            for cut in 1..2 * stride {
                let mut sync = Sync::default();
                let out: Vec<u8> = bytes.chunks(cut).flat_map(|piece| numbers(&mut sync, piece)).collect();
                assert_eq!(out, (0..60).collect::<Vec<_>>(), "stride {stride}, cut {cut}");
                assert!(sync.losses <= 1, "stride {stride}, cut {cut}");
            }
            for start in 1..stride {
                let mut sync = Sync::default();
                let out = numbers(&mut sync, &bytes[start..]);
                let first = if start <= before { 0 } else { 1 };
                assert_eq!(out, (first..60).collect::<Vec<_>>(), "stride {stride}, start {start}");
            }
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
