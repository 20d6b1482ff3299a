//! Extended reports (RFC 3611): the two blocks from which a receiver learns its round trip; others are skipped.

use std::time::Duration;

use wire::{Reader, Truncated};

use super::chunks;
use crate::ntp::{NtpTime, compact};
use crate::number::Ssrc;

/// Receiver reference time (RFC 3611 §4.4).
pub(crate) const REFERENCE_TIME: u8 = 4;
/// Delay since the last one (RFC 3611 §4.5).
pub(crate) const DELAYS: u8 = 5;

/// XR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedReport<'a> {
    /// The SSRC of the reporter.
    pub sender: Ssrc,
    body: &'a [u8],
}

/// A block of an extended report.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendedReportBlock<'a> {
    /// RRTR: now, on the wall clock of one who only receives.
    ReferenceTime(NtpTime),
    /// DLRR: the answers to such times.
    Delays(Delays<'a>),
    /// A block type that is not known here.
    Other(u8),
}

/// The entries of a DLRR block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays<'a>(&'a [[u8; 12]]);

impl<'a> Delays<'a> {
    /// Iterates over the sub-blocks.
    pub fn iter(&self) -> impl Iterator<Item = Dlrr> + 'a {
        self.0.iter().map(|&[a, b, c, d, e, f, g, h, i, j, k, l]| Dlrr {
            ssrc: Ssrc(u32::from_be_bytes([a, b, c, d])),
            last_reference: u32::from_be_bytes([e, f, g, h]),
            delay: u32::from_be_bytes([i, j, k, l]),
        })
    }
}

/// The answer to one receiver's reference time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dlrr {
    /// The SSRC of the receiver it answers.
    pub ssrc: Ssrc,
    /// The middle bits of the reference time.
    pub last_reference: u32,
    /// The delay since that reference time was received, in 1/65536 s.
    pub delay: u32,
}

impl Dlrr {
    /// The answer to the reference time of `ssrc` that came so long ago.
    #[must_use]
    pub fn new(ssrc: Ssrc, reference: NtpTime, since: Duration) -> Self {
        Self { ssrc, last_reference: reference.middle(), delay: compact(since) }
    }
}

impl<'a> ExtendedReport<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self { sender: Ssrc(r.u32()?), body: r.rest() })
    }

    /// The blocks; a malformed one ends the iteration.
    pub fn blocks(&self) -> impl Iterator<Item = ExtendedReportBlock<'a>> + 'a {
        let mut reader = Reader::new(self.body);
        std::iter::from_fn(move || block(&mut reader).ok())
    }
}

fn block<'a>(r: &mut Reader<'a>) -> Result<ExtendedReportBlock<'a>, Truncated> {
    let [kind, _] = r.array()?;
    let words = usize::from(r.u16()?);
    let mut body = r.sub(words.saturating_mul(4))?;
    Ok(match kind {
        REFERENCE_TIME => ExtendedReportBlock::ReferenceTime(NtpTime::new(body.u64()?)),
        DELAYS => ExtendedReportBlock::Delays(Delays(chunks(body.rest()))),
        other => ExtendedReportBlock::Other(other),
    })
}
