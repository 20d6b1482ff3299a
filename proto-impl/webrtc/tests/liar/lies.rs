//! Kinds of false feedback.

use rtp::rtcp::{Compound, FirEntry, Pli, ReportBlock};
use rtp::{SequenceNumber, Ssrc};

use super::Seen;

/// SSRC of the feedback's sender.
const SELF: Ssrc = Ssrc(1);
/// Maximum size of a compound packet, in bytes.
const COMPOUND_BYTES: usize = 1100;
/// First two bytes of transport-wide feedback, a packet of RFC 4585: format 15, packet type 205.
const TRANSPORT_FEEDBACK: [u8; 2] = [0x8f, 205];
/// Maximum number of packets that one chunk of feedback can cover.
const RUN_MAX: u16 = 0x1fff;
/// Number of key frame requests in each portion of false feedback.
const KEY_FRAMES: u8 = 20;
/// Number of sequence numbers requested in each portion of false feedback.
const NACKED: u16 = 4000;
/// Number of the newest sequence numbers, whose packets may still be kept: a second of packets.
const RECENT: u16 = 300;

/// False feedback of a viewer about its path, sent fifty times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Claims that all packets are lost, by transport-wide feedback and by reports.
    AllLost,
    /// Claims that all packets have arrived, all at the time of the first.
    NoneLost,
    /// Claims that all packets have arrived, later ones before earlier ones.
    BackInTime,
    /// Claims that all packets have arrived, with times that jump by half a day each time, forwards or
    /// backwards.
    Leaps,
    /// Claims by REMB that the path carries nothing.
    RembOfNothing,
    /// Claims by REMB that the path carries more than any real one.
    RembOfAll,
    /// Claims that all packets have arrived, but constantly requests the retransmission of everything.
    NacksAll,
    /// Claims that every second packet is lost, and requests the retransmission of everything.
    HalfLost,
    /// Claims in reports that nothing arrives, and requests the retransmission of everything.
    NacksAndReports,
    /// Requests key frames constantly, by PLI and by FIR.
    KeyFrames,
    /// Claims that packets have arrived that were never sent.
    NeverSent,
    /// Sends feedback about many packets in few bytes, many times per datagram.
    LongRuns,
    /// Sends reports about sources that do not exist, and with times in the future.
    Reports,
}

impl Lie {
    pub(crate) const ALL: [Self; 13] = [
        Self::AllLost,
        Self::NoneLost,
        Self::BackInTime,
        Self::Leaps,
        Self::RembOfNothing,
        Self::RembOfAll,
        Self::NacksAll,
        Self::HalfLost,
        Self::NacksAndReports,
        Self::KeyFrames,
        Self::NeverSent,
        Self::LongRuns,
        Self::Reports,
    ];

    /// Returns the compound packets for this round.
    pub(super) fn tell(self, seen: &mut Seen) -> Vec<Vec<u8>> {
        seen.told += 1;
        let numbers: Vec<u16> = seen.numbers.drain(..).collect();
        let newest = numbers.last().copied().unwrap_or(0);
        // The reference time of feedback is in units of 64 ms.
        let reference = i32::try_from(seen.told).unwrap() * 20 / 64;
        match self {
            Self::AllLost => [report(seen, 255), about(&numbers, |_| None, reference)].concat(),
            Self::NoneLost => [report(seen, 0), about(&numbers, |_| Some(0), reference)].concat(),
            Self::BackInTime => about(&numbers, |_| Some(-40), 1_000_000 - 10 * reference),
            Self::Leaps => {
                let far = if seen.told.is_multiple_of(2) { 700_000 } else { -700_000 };
                about(&numbers, |n| Some(if n % 2 == 0 { i16::MAX } else { i16::MIN }), far)
            }
            Self::RembOfNothing => remb(seen, 0),
            Self::RembOfAll => [report(seen, 0), remb(seen, 1 << 60)].concat(),
            Self::NacksAll => [about(&numbers, |_| Some(0), reference), nacks(seen)].concat(),
            Self::HalfLost => {
                let half = about(&numbers, |n| (n % 2 == 0).then_some(0), reference);
                [report(seen, 128), half, nacks(seen)].concat()
            }
            Self::NacksAndReports => [report(seen, 255), nacks(seen)].concat(),
            Self::KeyFrames => (0..KEY_FRAMES).flat_map(|n| key_frame(seen, n)).collect(),
            Self::NeverSent => {
                let never: Vec<u16> = (1000..1100).map(|ahead| newest.wrapping_add(ahead * 7)).collect();
                [about(&never, |_| Some(1), reference), about(&[newest ^ 0x8000], |_| None, reference)]
                    .concat()
            }
            Self::LongRuns => vec![long_runs(newest)],
            Self::Reports => (0..4).flat_map(|n| foreign_reports(seen, n)).collect(),
        }
    }
}

fn compound(fill: impl FnOnce(&mut Compound)) -> Vec<Vec<u8>> {
    let mut compound = Compound::new(COMPOUND_BYTES);
    compound.receiver_reports(SELF, &[]);
    fill(&mut compound);
    vec![compound.into_bytes()]
}

fn block(seen: &Seen, source: usize, fraction_lost: u8) -> ReportBlock {
    ReportBlock {
        ssrc: seen.sources[source],
        fraction_lost,
        cumulative_lost: 0,
        highest_sequence: seen.newest[source].0.into(),
        jitter: 0,
        last_sender_report: 0,
        delay_since_report: 0,
    }
}

fn report(seen: &Seen, fraction_lost: u8) -> Vec<Vec<u8>> {
    let blocks: Vec<_> = (0..seen.sources.len()).map(|source| block(seen, source, fraction_lost)).collect();
    let mut compound = Compound::new(COMPOUND_BYTES);
    compound.receiver_reports(SELF, &blocks);
    vec![compound.into_bytes()]
}

/// Returns thirty report blocks, about unknown sources and ours, with round trips that are negative or last
/// hours.
fn foreign_reports(seen: &Seen, portion: u32) -> Vec<Vec<u8>> {
    let blocks: Vec<_> = (0..30u32)
        .map(|n| ReportBlock {
            ssrc: if n % 3 == 0 { Ssrc(n) } else { seen.sources[usize::from(n % 3 == 1)] },
            fraction_lost: if n % 2 == 0 { 255 } else { 0 },
            cumulative_lost: i32::MIN,
            highest_sequence: u32::MAX - n,
            jitter: u32::MAX,
            last_sender_report: seen.told.wrapping_mul(0x9e37_79b9).wrapping_add(portion),
            delay_since_report: n << 24,
        })
        .collect();
    let mut compound = Compound::new(COMPOUND_BYTES);
    compound.receiver_reports(SELF, &blocks);
    vec![compound.into_bytes()]
}

fn remb(seen: &Seen, bits: u64) -> Vec<Vec<u8>> {
    compound(|compound| assert!(compound.remb(SELF, bits, &seen.sources)))
}

fn nacks(seen: &Seen) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (source, newest) in seen.sources.iter().zip(&seen.newest) {
        // Numbers of packets that are still kept come first; the rest of the list is unknown numbers.
        let back = (0..RECENT).rev().chain((RECENT..NACKED).rev());
        let numbers: Vec<_> = back.map(|back| SequenceNumber(newest.0.wrapping_sub(back))).collect();
        let mut rest = numbers.as_slice();
        while !rest.is_empty() {
            let mut compound = Compound::new(COMPOUND_BYTES);
            compound.receiver_reports(SELF, &[]);
            let written = compound.nack(SELF, *source, rest);
            rest = &rest[written..];
            all.push(compound.into_bytes());
        }
    }
    all
}

fn key_frame(seen: &Seen, number: u8) -> Vec<Vec<u8>> {
    let sequence = u8::try_from(seen.told % 12).unwrap() * KEY_FRAMES + number;
    compound(|compound| {
        let media = seen.sources[1];
        compound.pli(Pli { sender: SELF, media });
        compound.fir(SELF, &[FirEntry { ssrc: media, sequence }]);
    })
}

/// Returns transport-wide feedback with a delta for each packet, or `None` for a lost one. A gap in the numbers
/// starts another part.
fn about(numbers: &[u16], delta: impl Fn(usize) -> Option<i16>, reference: i32) -> Vec<Vec<u8>> {
    let parts = numbers.chunk_by(|a, b| a.wrapping_add(1) == *b);
    let write = |part: &[u16]| {
        let deltas: Vec<Option<i16>> = (0..part.len()).map(&delta).collect();
        let count = u16::try_from(part.len()).unwrap();
        // Vectors of seven symbols: lost, or with a delta of 16 bits.
        let symbols = |seven: &[Option<i16>]| {
            let symbol = |at: usize| seven.get(at).is_some_and(Option::is_some);
            (0..7usize).fold(0b11, |chunk, at| chunk << 2 | u16::from(symbol(at)) << 1)
        };
        let chunks: Vec<u16> = deltas.chunks(7).map(symbols).collect();
        let deltas: Vec<u8> = deltas.iter().flatten().flat_map(|delta| delta.to_be_bytes()).collect();
        feedback(part[0], count, reference, &chunks, &deltas)
    };
    parts.map(write).collect()
}

fn feedback(base: u16, count: u16, reference: i32, chunks: &[u16], deltas: &[u8]) -> Vec<u8> {
    let mut out = TRANSPORT_FEEDBACK.to_vec();
    let [_, a, b, c] = reference.to_be_bytes();
    let mut body =
        [&1u32.to_be_bytes()[..], &[0; 4], &base.to_be_bytes(), &count.to_be_bytes(), &[a, b, c, 0]].concat();
    chunks.iter().for_each(|chunk| body.extend_from_slice(&chunk.to_be_bytes()));
    body.extend_from_slice(deltas);
    while body.len() % 4 != 0 {
        body.push(0);
    }
    out.extend_from_slice(&u16::try_from(body.len() / 4).unwrap().to_be_bytes());
    out.extend_from_slice(&body);
    out
}

/// Returns a datagram of 45 feedback parts, each about 8191 packets.
fn long_runs(newest: u16) -> Vec<u8> {
    let part =
        |n: u16| feedback(newest.wrapping_sub(RUN_MAX).wrapping_add(n), RUN_MAX, 0, &[RUN_MAX, 0], &[]);
    (0..45).flat_map(part).collect()
}
