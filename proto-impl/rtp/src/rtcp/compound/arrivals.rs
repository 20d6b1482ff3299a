//! Building transport-wide feedback, which [`crate::transport_cc`] does with times of arrival.

use alloc::vec::Vec;

use super::super::transport::Symbol;
use super::super::{HEAD_BYTES, format, packet_type};
use super::{Compound, put};
use crate::number::{SequenceNumber, Ssrc};

impl Compound {
    /// Returns the bytes available for the chunks and deltas of transport-wide feedback, after its fixed part.
    pub(crate) const fn transport_feedback_room(&self) -> usize {
        // Header, two sources, base, count, reference, and zeros that fill the last word.
        self.room().saturating_sub(HEAD_BYTES + 8 + 8 + 3)
    }

    /// Adds transport-wide feedback. `reference` is in units of 64 ms, deltas in units of 250 us; `None` is a
    /// packet that did not arrive. If a delta exceeds 16 bits, the caller must start another packet.
    pub(crate) fn transport_feedback(
        &mut self,
        (sender, media): (Ssrc, Ssrc),
        base: SequenceNumber,
        (reference, feedback_count): (u32, u8),
        deltas: &[Option<i16>],
    ) -> bool {
        let Ok(count) = u16::try_from(deltas.len()) else {
            return false;
        };
        let symbols: Vec<Symbol> = deltas
            .iter()
            .map(|delta| match delta {
                None => Symbol::Lost,
                Some(0..=255) => Symbol::Small,
                Some(_) => Symbol::Large,
            })
            .collect();
        self.part(packet_type::TRANSPORT_FEEDBACK, format::TRANSPORT_CC.into(), |out| {
            put(out, sender.0);
            put(out, media.0);
            out.extend_from_slice(&base.0.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
            let [_, a, b, c] = reference.to_be_bytes();
            out.extend_from_slice(&[a, b, c, feedback_count]);
            write_chunks(&symbols, out);
            for delta in deltas.iter().flatten() {
                match u8::try_from(*delta) {
                    Ok(small) => out.push(small),
                    Err(_) => out.extend_from_slice(&delta.to_be_bytes()),
                }
            }
            out.resize(out.len().next_multiple_of(4), 0);
        })
    }
}

/// Writes chunks for the symbols, which must not contain [`Symbol::Reserved`]: runs of up to 8191 if longer
/// than a vector, otherwise vectors of seven.
fn write_chunks(symbols: &[Symbol], out: &mut Vec<u8>) {
    const RUN_MAX: usize = 0x1fff;
    const VECTOR: usize = 7;
    let mut rest = symbols;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take(RUN_MAX).take_while(|&&symbol| symbol == first).count();
        let (word, taken) = if run > VECTOR || run == rest.len() {
            (bits(first) << 13 | u16::try_from(run).unwrap_or(0), run)
        } else {
            let mut word = 0xc000;
            for (symbol, shift) in rest.iter().take(VECTOR).zip((0..=12u16).rev().step_by(2)) {
                word |= bits(*symbol) << shift;
            }
            (word, VECTOR.min(rest.len()))
        };
        out.extend_from_slice(&word.to_be_bytes());
        rest = rest.get(taken..).unwrap_or_default();
    }
}

const fn bits(symbol: Symbol) -> u16 {
    match symbol {
        Symbol::Lost => 0,
        Symbol::Small => 1,
        Symbol::Large => 2,
        Symbol::Reserved => 3,
    }
}
