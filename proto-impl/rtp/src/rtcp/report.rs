//! Sender and receiver reports (RFC 3550 §6.4).

use alloc::vec::Vec;

use wire::{Reader, Truncated};

use super::take_chunks;
use crate::ntp::NtpTime;
use crate::number::Ssrc;

/// Bytes of a report block.
pub(crate) const BLOCK_BYTES: usize = 24;
/// Maximum of the 24-bit count of lost packets (RFC 3550 §A.3).
const LOST_MAX: i32 = 0x7f_ffff;
/// Minimum of the 24-bit count of lost packets (RFC 3550 §A.3).
const LOST_MIN: i32 = -0x80_0000;

/// Reception report block about one source (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportBlock {
    /// SSRC of the source.
    pub ssrc: Ssrc,
    /// Share of packets lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the start, a 24-bit number; negative if packets were duplicated.
    pub cumulative_lost: i32,
    /// Highest sequence number received; the upper 16 bits count its cycles.
    pub highest_sequence: u32,
    /// Interarrival jitter, in ticks of the source.
    pub jitter: u32,
    /// Middle bits of the time in the last sender report; 0 if none was received.
    pub last_sender_report: u32,
    /// Delay since the last sender report was received, in 1/65536 s.
    pub delay_since_report: u32,
}

impl ReportBlock {
    pub(crate) fn read(bytes: &[u8; BLOCK_BYTES]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let read = |r: &mut Reader<'_>| -> Result<Self, Truncated> {
            Ok(Self {
                ssrc: Ssrc(r.u32()?),
                fraction_lost: r.u8()?,
                cumulative_lost: r.i24()?,
                highest_sequence: r.u32()?,
                jitter: r.u32()?,
                last_sender_report: r.u32()?,
                delay_since_report: r.u32()?,
            })
        };
        read(&mut r).ok()
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ssrc.0.to_be_bytes());
        let [_, a, b, c] = self.cumulative_lost.clamp(LOST_MIN, LOST_MAX).to_be_bytes();
        out.extend_from_slice(&[self.fraction_lost, a, b, c]);
        for word in [self.highest_sequence, self.jitter, self.last_sender_report, self.delay_since_report] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

/// The sender info of a sender report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderInfo {
    /// Current time on the sender's wall clock.
    pub ntp: NtpTime,
    /// The instant `ntp` on the clock of the RTP timestamps.
    pub rtp_timestamp: u32,
    /// Packets sent so far.
    pub packets: u32,
    /// Payload bytes sent so far.
    pub octets: u32,
}

/// Sender report (SR).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderReport<'a> {
    /// SSRC of the sender.
    pub ssrc: Ssrc,
    /// Information about the sender itself.
    pub info: SenderInfo,
    blocks: &'a [[u8; BLOCK_BYTES]],
}

impl<'a> SenderReport<'a> {
    pub(super) fn read(count: u8, r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self {
            ssrc: Ssrc(r.u32()?),
            info: SenderInfo {
                ntp: NtpTime::new(r.u64()?),
                rtp_timestamp: r.u32()?,
                packets: r.u32()?,
                octets: r.u32()?,
            },
            blocks: take_chunks(r, count.into())?,
        })
    }

    /// Iterates over the report blocks about sources that the sender receives.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + 'a {
        self.blocks.iter().filter_map(ReportBlock::read)
    }
}

/// Receiver report (RR).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverReport<'a> {
    /// SSRC of the reporter.
    pub ssrc: Ssrc,
    blocks: &'a [[u8; BLOCK_BYTES]],
}

impl<'a> ReceiverReport<'a> {
    pub(super) fn read(count: u8, r: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self { ssrc: Ssrc(r.u32()?), blocks: take_chunks(r, count.into())? })
    }

    /// Iterates over the report blocks about sources that the reporter receives.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + 'a {
        self.blocks.iter().filter_map(ReportBlock::read)
    }
}
