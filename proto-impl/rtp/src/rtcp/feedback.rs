//! Feedback about packets and frames (RFC 4585, RFC 5104), and REMB (draft-alvestrand-rmcat-remb-03 §2).

use wire::{Reader, Truncated};

use super::{chunks, take_chunks};
use crate::Error;
use crate::number::{SequenceNumber, Ssrc};

/// Identifier of REMB in application layer feedback.
pub(crate) const REMB: [u8; 4] = *b"REMB";
const REMB_MANTISSA_BITS: u32 = 18;

/// Generic NACK (RFC 4585 §6.2.1): a request for lost packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack<'a> {
    /// SSRC of the requester.
    pub sender: Ssrc,
    /// SSRC of the media source.
    pub media: Ssrc,
    pairs: &'a [[u8; 4]],
}

impl<'a> Nack<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self { sender: Ssrc(r.u32()?), media: Ssrc(r.u32()?), pairs: chunks(r.rest()) })
    }

    /// Iterates over the missing packets: up to 17 for each pair of a number and a bit mask.
    pub fn numbers(&self) -> impl Iterator<Item = SequenceNumber> + 'a {
        self.pairs.iter().flat_map(|&[a, b, c, d]| {
            let first = SequenceNumber(u16::from_be_bytes([a, b]));
            let mask = u32::from(u16::from_be_bytes([c, d])) << 1 | 1;
            (0..17u16).filter(move |bit| mask >> bit & 1 == 1).map(move |bit| first.plus(bit))
        })
    }
}

/// Picture loss indication (RFC 4585 §6.3.1): a request for a key frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pli {
    /// SSRC of the requester.
    pub sender: Ssrc,
    /// SSRC of the requested video.
    pub media: Ssrc,
}

impl Pli {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { sender: Ssrc(r.u32()?), media: Ssrc(r.u32()?) })
    }
}

/// Full intra request (RFC 5104 §4.3.1): a command to send a key frame, for one or more sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fir<'a> {
    /// SSRC of the requester.
    pub sender: Ssrc,
    entries: &'a [[u8; 8]],
}

/// Entry of a [`Fir`] for one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirEntry {
    /// SSRC of the requested video.
    pub ssrc: Ssrc,
    /// Command number; a repeated number requests nothing new.
    pub sequence: u8,
}

impl<'a> Fir<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let sender = Ssrc(r.u32()?);
        // The media source in the common header is unused (RFC 5104 §4.3.1.2).
        r.u32()?;
        Ok(Self { sender, entries: chunks(r.rest()) })
    }

    /// Iterates over the entries.
    pub fn entries(&self) -> impl Iterator<Item = FirEntry> + 'a {
        self.entries.iter().map(|&[a, b, c, d, sequence, ..]| FirEntry {
            ssrc: Ssrc(u32::from_be_bytes([a, b, c, d])),
            sequence,
        })
    }
}

/// Receiver's estimate of its maximum bitrate (REMB).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remb<'a> {
    /// SSRC of the estimate's sender.
    pub sender: Ssrc,
    /// Estimated rate, in bits per second.
    pub bitrate: u64,
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Remb<'a> {
    /// Reads an estimate. `None` for other application layer feedback.
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Option<Self>, Error> {
        let sender = Ssrc(r.u32()?);
        r.u32()?;
        if r.array() != Ok(REMB) {
            return Ok(None);
        }
        let count = usize::from(r.u8()?);
        let rate = r.u24()?;
        let (exponent, mantissa) = (rate >> REMB_MANTISSA_BITS, u64::from(rate & 0x3_ffff));
        // The exponent has six bits: 18 bits shifted by up to 63 exceed 64 bits.
        let bitrate = u64::try_from(u128::from(mantissa) << exponent).unwrap_or(u64::MAX);
        // If the list is shorter than its count, the whole estimate is rejected.
        Ok(Some(Self { sender, bitrate, ssrcs: take_chunks(r, count)? }))
    }

    /// Iterates over the sources whose total rate is estimated.
    pub fn ssrcs(&self) -> impl Iterator<Item = Ssrc> + 'a {
        self.ssrcs.iter().map(|word| Ssrc(u32::from_be_bytes(*word)))
    }
}

/// Returns the exponent and mantissa of a rate, rounded down.
pub(crate) fn remb_rate(bitrate: u64) -> u32 {
    let bits = u64::BITS.saturating_sub(bitrate.leading_zeros());
    let exponent = bits.saturating_sub(REMB_MANTISSA_BITS);
    exponent << REMB_MANTISSA_BITS | u32::try_from(bitrate >> exponent).unwrap_or(0)
}
