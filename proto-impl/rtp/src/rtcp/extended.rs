//! Extended reports (RFC 3611): the two block types by which a receiver of media measures its round trip. Other blocks
//! are skipped.

use core::time::Duration;

use wire::{Reader, Truncated};

use super::chunks;
use crate::ntp::{NtpTime, compact};
use crate::number::Ssrc;

/// Receiver reference time (RFC 3611 §4.4).
pub(crate) const REFERENCE_TIME: u8 = 4;
/// Delay since the last receiver reference time (RFC 3611 §4.5).
pub(crate) const DELAYS: u8 = 5;

/// Extended report (XR).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedReport<'a> {
    /// SSRC of the reporter.
    pub sender: Ssrc,
    body: &'a [u8],
}

/// A block of an extended report.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendedReportBlock<'a> {
    /// Receiver reference time (RRTR): the current wall-clock time of a pure receiver.
    ReferenceTime(NtpTime),
    /// Answers to receiver reference times (DLRR).
    Delays(Delays<'a>),
    /// Unsupported block type.
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

/// Answer to the reference time of one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dlrr {
    /// SSRC of the receiver that sent the reference time.
    pub ssrc: Ssrc,
    /// Middle bits of the reference time.
    pub last_reference: u32,
    /// Delay since the reference time was received, in 1/65536 s.
    pub delay: u32,
}

impl Dlrr {
    /// Creates the answer to the reference time of `ssrc`, received `since` ago.
    #[must_use]
    pub fn new(ssrc: Ssrc, reference: NtpTime, since: Duration) -> Self {
        Self { ssrc, last_reference: reference.middle(), delay: compact(since) }
    }
}

impl<'a> ExtendedReport<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self { sender: Ssrc(r.u32()?), body: r.rest() })
    }

    /// Iterates over the blocks; ends at a malformed one.
    pub fn blocks(&self) -> impl Iterator<Item = ExtendedReportBlock<'a>> + 'a {
        let mut reader = Reader::new(self.body);
        core::iter::from_fn(move || block(&mut reader).ok())
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
