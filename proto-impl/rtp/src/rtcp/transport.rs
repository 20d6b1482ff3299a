//! Transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1): arrival times of packets.
//!
//! ```text
//!   base sequence number (16)        packet status count (16)
//!   reference time (24, signed, 64 ms)        feedback count (8)
//!   packet chunks (16 each), then receive deltas (8 or 16 each, 250 us)
//! ```
//!
//! A chunk is a run `0 SS LLLLLLLLLLLLL` (a symbol of two bits, a length of thirteen), a vector `1 0` of fourteen bits,
//! or a vector `1 1` of seven symbols. Symbols: 0 lost, 1 a delta of 8 bits, 2 one of 16 bits with a sign, 3 reserved.

use wire::{Reader, Truncated};

use crate::number::{SequenceNumber, Ssrc};

/// Microseconds per unit of a delta.
pub(crate) const DELTA_MICROS: i64 = 250;
/// Microseconds per unit of the reference time.
pub(crate) const REFERENCE_MICROS: i64 = 64_000;

/// Transport-wide feedback of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportFeedback<'a> {
    /// SSRC of the reporter.
    pub sender: Ssrc,
    /// SSRC of any media source on the transport.
    pub media: Ssrc,
    /// Sequence number of the first reported packet.
    pub base: SequenceNumber,
    /// Number of reported packets.
    pub count: u16,
    /// Reference time on the receiver's clock, in units of 64 ms.
    pub reference: i32,
    /// Counter of feedback packets, which wraps.
    pub feedback_count: u8,
    chunks: &'a [u8],
    deltas: &'a [u8],
}

/// Status of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Transport-wide sequence number.
    pub number: SequenceNumber,
    /// Arrival time in microseconds on the receiver's clock; `None` when the packet had not arrived.
    pub at_micros: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    Lost,
    Small,
    Large,
    /// Delta of unknown length; nothing after it can be read.
    Reserved,
}

impl Symbol {
    const fn of(bits: u16) -> Self {
        match bits & 3 {
            0 => Self::Lost,
            1 => Self::Small,
            2 => Self::Large,
            _ => Self::Reserved,
        }
    }
}

/// Packet status chunk: a run of one symbol, or a vector of symbols.
#[derive(Debug, Clone, Copy)]
struct Chunk(u16);

impl Chunk {
    const fn length(self) -> u16 {
        match self.0 >> 14 {
            0 | 1 => self.0 & 0x1fff,
            2 => 14,
            _ => 7,
        }
    }

    const fn symbol(self, at: u16) -> Symbol {
        match self.0 >> 14 {
            0 | 1 => Symbol::of(self.0 >> 13),
            2 => Symbol::of(self.0.wrapping_shr(13u32.wrapping_sub(at as u32)) & 1),
            _ => Symbol::of(self.0.wrapping_shr(12u32.wrapping_sub(2 * at as u32))),
        }
    }
}

impl<'a> TransportFeedback<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let (sender, media) = (Ssrc(r.u32()?), Ssrc(r.u32()?));
        let (base, count) = (SequenceNumber(r.u16()?), r.u16()?);
        let reference = r.i24()?;
        let feedback_count = r.u8()?;
        // The deltas follow the chunk that completes the count.
        let body = r.rest();
        let mut chunks = Reader::new(body);
        let mut symbols = 0u32;
        while symbols < u32::from(count) {
            symbols = symbols.saturating_add(Chunk(chunks.u16()?).length().into());
        }
        let (chunks, deltas) = body.split_at_checked(chunks.position()).unwrap_or_default();
        Ok(Self { sender, media, base, count, reference, feedback_count, chunks, deltas })
    }

    /// Iterates over the packets. Ends at data that cannot be read: a reserved symbol, or missing deltas.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + 'a {
        let mut deltas = Reader::new(self.deltas);
        let mut clock = i64::from(self.reference).saturating_mul(REFERENCE_MICROS);
        let chunks = super::chunks::<2>(self.chunks).iter().map(|bytes| Chunk(u16::from_be_bytes(*bytes)));
        let symbols = chunks.flat_map(|chunk| (0..chunk.length()).map(move |at| chunk.symbol(at)));
        let base = self.base;
        (0..self.count).zip(symbols).map_while(move |(ahead, symbol)| {
            let ticks = match symbol {
                Symbol::Lost => None,
                Symbol::Small => Some(i64::from(deltas.u8().ok()?)),
                Symbol::Large => Some(i64::from(deltas.u16().ok()?.cast_signed())),
                Symbol::Reserved => return None,
            };
            let at_micros = ticks.map(|ticks| {
                clock = clock.saturating_add(ticks.saturating_mul(DELTA_MICROS));
                clock
            });
            Some(Arrival { number: base.plus(ahead), at_micros })
        })
    }
}
