//! RTCP (RFC 3550 §6): reads and writes the packets of a compound packet.
//!
//! [`packets`] iterates over a compound packet, or a reduced-size one (RFC 5506), and returns each part as a
//! view. Nothing is copied, and all lengths and counts from the peer are checked against the packet's size.
//! [`Compound`] writes our packets, up to a byte limit.

mod compound;
mod extended;
mod feedback;
mod report;
mod source;
mod transport;

pub use compound::Compound;
pub use extended::{Delays, Dlrr, ExtendedReport, ExtendedReportBlock};
pub use feedback::{Fir, FirEntry, Nack, Pli, Remb};
pub use report::{ReceiverReport, ReportBlock, SenderInfo, SenderReport};
pub use source::{Bye, Item, SourceDescription};
pub use transport::{Arrival, TransportFeedback};
#[cfg(feature = "std")]
pub(crate) use transport::{DELTA_MICROS, REFERENCE_MICROS};

use wire::{Reader, Truncated};

use crate::Error;

/// Length of the header of each part.
pub(crate) const HEAD_BYTES: usize = 4;
const VERSION: u8 = 2;
const PADDING: u8 = 0x20;
const COUNT: u8 = 0x1f;

/// Packet types (RFC 3550 §12.1, RFC 4585 §6.1, RFC 3611 §2).
pub(crate) mod packet_type {
    pub(crate) const SENDER_REPORT: u8 = 200;
    pub(crate) const RECEIVER_REPORT: u8 = 201;
    pub(crate) const SOURCE_DESCRIPTION: u8 = 202;
    pub(crate) const BYE: u8 = 203;
    pub(crate) const APPLICATION: u8 = 204;
    pub(crate) const TRANSPORT_FEEDBACK: u8 = 205;
    pub(crate) const PAYLOAD_FEEDBACK: u8 = 206;
    pub(crate) const EXTENDED_REPORT: u8 = 207;
}

/// Formats of feedback (RFC 4585 §6.2, §6.3, RFC 5104 §4.3, draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1).
pub(crate) mod format {
    pub(crate) const NACK: u8 = 1;
    pub(crate) const TRANSPORT_CC: u8 = 15;
    pub(crate) const PLI: u8 = 1;
    pub(crate) const FIR: u8 = 4;
    pub(crate) const APPLICATION: u8 = 15;
}

/// A packet within a compound packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rtcp<'a> {
    /// Sender report (SR).
    SenderReport(SenderReport<'a>),
    /// Receiver report (RR).
    ReceiverReport(ReceiverReport<'a>),
    /// Source description (SDES).
    SourceDescription(SourceDescription<'a>),
    /// End of sources (BYE).
    Bye(Bye<'a>),
    /// Generic NACK.
    Nack(Nack<'a>),
    /// Transport-wide arrival times.
    TransportFeedback(TransportFeedback<'a>),
    /// Picture loss indication.
    Pli(Pli),
    /// Full intra request.
    Fir(Fir<'a>),
    /// Receiver's estimate of its maximum bitrate (REMB).
    Remb(Remb<'a>),
    /// Extended report (XR).
    ExtendedReport(ExtendedReport<'a>),
    /// APP, or an unsupported packet type.
    Other {
        /// The packet type.
        packet_type: u8,
        /// Count, subtype or format field.
        count: u8,
    },
}

/// Iterates over the parts of a compound packet in order. A malformed part returns an error, and the iteration
/// continues after it; a part with an invalid length ends the iteration.
#[must_use]
pub const fn packets(compound: &[u8]) -> Packets<'_> {
    Packets { reader: Reader::new(compound) }
}

/// Iterator returned by [`packets`].
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    reader: Reader<'a>,
}

impl<'a> Packets<'a> {
    /// Reads the header and body of the next part; fails if the header is invalid.
    fn part(&mut self) -> Result<(u8, u8, bool, &'a [u8]), Error> {
        let [first, packet_type] = self.reader.array()?;
        let words = usize::from(self.reader.u16()?);
        if first >> 6 != VERSION {
            return Err(Error::Version(first >> 6));
        }
        if !(192..=223).contains(&packet_type) {
            return Err(Error::NotRtcp(packet_type));
        }
        let body = self.reader.take(words.saturating_mul(4))?;
        Ok((first & COUNT, packet_type, first & PADDING != 0, body))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Rtcp<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.reader.rest();
        }
        Some(part.and_then(|(count, packet_type, padded, body)| {
            read_body(count, packet_type, if padded { without_padding(body)? } else { body })
        }))
    }
}

fn without_padding(body: &[u8]) -> Result<&[u8], Error> {
    let padding = body.last().copied().unwrap_or(0);
    let length = body.len().checked_sub(usize::from(padding)).filter(|_| padding > 0);
    length.and_then(|length| body.get(..length)).ok_or(Error::Padding(padding))
}

fn read_body(count: u8, packet_type: u8, body: &[u8]) -> Result<Rtcp<'_>, Error> {
    let r = &mut Reader::new(body);
    Ok(match packet_type {
        packet_type::SENDER_REPORT => Rtcp::SenderReport(SenderReport::read(count, r)?),
        packet_type::RECEIVER_REPORT => Rtcp::ReceiverReport(ReceiverReport::read(count, r)?),
        packet_type::SOURCE_DESCRIPTION => Rtcp::SourceDescription(SourceDescription::new(count, body)),
        packet_type::BYE => Rtcp::Bye(Bye::read(count, r)?),
        packet_type::TRANSPORT_FEEDBACK if count == format::NACK => Rtcp::Nack(Nack::read(r)?),
        packet_type::TRANSPORT_FEEDBACK if count == format::TRANSPORT_CC => {
            Rtcp::TransportFeedback(TransportFeedback::read(r)?)
        }
        packet_type::PAYLOAD_FEEDBACK if count == format::PLI => Rtcp::Pli(Pli::read(r)?),
        packet_type::PAYLOAD_FEEDBACK if count == format::FIR => Rtcp::Fir(Fir::read(r)?),
        packet_type::PAYLOAD_FEEDBACK if count == format::APPLICATION => {
            Remb::read(r)?.map_or(Rtcp::Other { packet_type, count }, Rtcp::Remb)
        }
        packet_type::EXTENDED_REPORT => Rtcp::ExtendedReport(ExtendedReport::read(r)?),
        // APP packets are not read; their count is a subtype.
        packet_type::APPLICATION => Rtcp::Other { packet_type, count },
        _ => Rtcp::Other { packet_type, count },
    })
}

/// Returns the whole chunks of `N` bytes in `bytes`.
pub(crate) const fn chunks<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks::<N>().0
}

/// Takes the next `count` chunks of `N` bytes.
pub(crate) fn take_chunks<'a, const N: usize>(
    r: &mut Reader<'a>,
    count: usize,
) -> Result<&'a [[u8; N]], Truncated> {
    r.take(count.saturating_mul(N)).map(chunks)
}

#[cfg(test)]
mod tests;
