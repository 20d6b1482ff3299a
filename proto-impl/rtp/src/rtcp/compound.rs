//! Building compound packets.

#[cfg(feature = "std")]
mod arrivals;

use alloc::vec::Vec;

use super::extended::{DELAYS, Dlrr, REFERENCE_TIME};
use super::feedback::{REMB, remb_rate};
use super::report::{BLOCK_BYTES, ReportBlock, SenderInfo};
use super::source::CNAME;
use super::{COUNT, FirEntry, HEAD_BYTES, Pli, VERSION, format, packet_type};
use crate::ntp::NtpTime;
use crate::number::{SequenceNumber, Ssrc};

/// Largest value of the five-bit count.
const COUNT_MAX: usize = COUNT as usize;

/// A compound packet under construction. Parts are added up to a byte limit; a part that does not fit is
/// refused, or shortened where that makes sense. With a report at the beginning, the result is a compound
/// packet (RFC 3550 §6.1), without one a reduced-size packet (RFC 5506).
#[derive(Debug, Clone)]
pub struct Compound {
    bytes: Vec<u8>,
    limit: usize,
}

impl Compound {
    /// Creates an empty packet. `limit` is the datagram size minus the bytes that SRTCP adds.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Returns the packet so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the finished packet.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// True if nothing was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds an SR with up to 31 blocks. Returns false when it does not fit.
    pub fn sender_report(&mut self, ssrc: Ssrc, info: &SenderInfo, blocks: &[ReportBlock]) -> bool {
        self.part(packet_type::SENDER_REPORT, blocks.len(), |out| {
            put(out, ssrc.0);
            out.extend_from_slice(&info.ntp.value().to_be_bytes());
            for word in [info.rtp_timestamp, info.packets, info.octets] {
                put(out, word);
            }
            blocks.iter().for_each(|block| block.write(out));
        })
    }

    /// Adds RRs for all blocks, up to 31 in each; without blocks, adds an empty RR. Returns the number of
    /// blocks that fitted.
    pub fn receiver_reports(&mut self, ssrc: Ssrc, blocks: &[ReportBlock]) -> usize {
        if blocks.is_empty() {
            self.receiver_report(ssrc, &[]);
            return 0;
        }
        let mut written = 0usize;
        for blocks in blocks.chunks(COUNT_MAX) {
            let room = self.room().saturating_sub(HEAD_BYTES + 4) / BLOCK_BYTES;
            let fitting = blocks.get(..blocks.len().min(room)).unwrap_or_default();
            if fitting.is_empty() || !self.receiver_report(ssrc, fitting) {
                break;
            }
            written = written.saturating_add(fitting.len());
        }
        written
    }

    fn receiver_report(&mut self, ssrc: Ssrc, blocks: &[ReportBlock]) -> bool {
        self.part(packet_type::RECEIVER_REPORT, blocks.len(), |out| {
            put(out, ssrc.0);
            blocks.iter().for_each(|block| block.write(out));
        })
    }

    /// Adds an SDES with the canonical name of a source, cut to 255 bytes.
    pub fn source_description(&mut self, ssrc: Ssrc, cname: &str) -> bool {
        let cname = cname.as_bytes();
        let cname = cname.get(..cname.len().min(255)).unwrap_or_default();
        self.part(packet_type::SOURCE_DESCRIPTION, 1, |out| {
            put(out, ssrc.0);
            out.extend_from_slice(&[CNAME, u8::try_from(cname.len()).unwrap_or(0)]);
            out.extend_from_slice(cname);
            // A zero ends the items, and further zeros fill the word.
            out.push(0);
            out.resize(out.len().next_multiple_of(4), 0);
        })
    }

    /// Adds a BYE for up to 31 sources.
    pub fn bye(&mut self, ssrcs: &[Ssrc]) -> bool {
        self.part(packet_type::BYE, ssrcs.len(), |out| ssrcs.iter().for_each(|ssrc| put(out, ssrc.0)))
    }

    /// Adds a NACK for numbers in ascending order. Returns how many of them fitted.
    pub fn nack(&mut self, sender: Ssrc, media: Ssrc, numbers: &[SequenceNumber]) -> usize {
        let mut room = self.room().saturating_sub(HEAD_BYTES + 8) / 4;
        let mut written = 0usize;
        let mut rest = numbers.iter().copied().peekable();
        let mut pairs = Vec::new();
        while let Some(first) = rest.next_if(|_| room > 0) {
            let mut mask = 0u16;
            written = written.saturating_add(1);
            while let Some(behind) = rest.peek().and_then(|next| next.ahead_of(first)).filter(|&n| n <= 16) {
                // A repeated number sets no further bit.
                mask |= behind.checked_sub(1).map_or(0, |bit| 1 << bit);
                rest.next();
                written = written.saturating_add(1);
            }
            pairs.extend_from_slice(&first.0.to_be_bytes());
            pairs.extend_from_slice(&mask.to_be_bytes());
            room = room.saturating_sub(1);
        }
        let added = !pairs.is_empty()
            && self.part(packet_type::TRANSPORT_FEEDBACK, format::NACK.into(), |out| {
                put(out, sender.0);
                put(out, media.0);
                out.extend_from_slice(&pairs);
            });
        if added { written } else { 0 }
    }

    /// Adds a PLI.
    pub fn pli(&mut self, pli: Pli) -> bool {
        self.part(packet_type::PAYLOAD_FEEDBACK, format::PLI.into(), |out| {
            put(out, pli.sender.0);
            put(out, pli.media.0);
        })
    }

    /// Adds a FIR.
    pub fn fir(&mut self, sender: Ssrc, entries: &[FirEntry]) -> bool {
        self.part(packet_type::PAYLOAD_FEEDBACK, format::FIR.into(), |out| {
            put(out, sender.0);
            put(out, 0);
            for entry in entries {
                put(out, entry.ssrc.0);
                out.extend_from_slice(&[entry.sequence, 0, 0, 0]);
            }
        })
    }

    /// Adds a REMB: the rate, in bits per second, for up to 255 sources in total.
    pub fn remb(&mut self, sender: Ssrc, bitrate: u64, ssrcs: &[Ssrc]) -> bool {
        let Ok(count) = u8::try_from(ssrcs.len()) else {
            return false;
        };
        let [_, a, b, c] = remb_rate(bitrate).to_be_bytes();
        self.part(packet_type::PAYLOAD_FEEDBACK, format::APPLICATION.into(), |out| {
            put(out, sender.0);
            put(out, 0);
            out.extend_from_slice(&REMB);
            out.extend_from_slice(&[count, a, b, c]);
            ssrcs.iter().for_each(|ssrc| put(out, ssrc.0));
        })
    }

    /// Adds an XR with a receiver reference time, by which a receiver of media measures its round trip.
    pub fn reference_time(&mut self, sender: Ssrc, now: NtpTime) -> bool {
        self.part(packet_type::EXTENDED_REPORT, 0, |out| {
            put(out, sender.0);
            out.extend_from_slice(&[REFERENCE_TIME, 0, 0, 2]);
            out.extend_from_slice(&now.value().to_be_bytes());
        })
    }

    /// Adds an XR with the answers to reference times.
    pub fn delays(&mut self, sender: Ssrc, delays: &[Dlrr]) -> bool {
        let Ok(words) = u16::try_from(delays.len().saturating_mul(3)) else {
            return false;
        };
        self.part(packet_type::EXTENDED_REPORT, 0, |out| {
            put(out, sender.0);
            out.extend_from_slice(&[DELAYS, 0]);
            out.extend_from_slice(&words.to_be_bytes());
            for delay in delays {
                for word in [delay.ssrc.0, delay.last_reference, delay.delay] {
                    put(out, word);
                }
            }
        })
    }

    const fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Adds a part whose body `make` appends in whole words; removes the part again if it does not fit.
    fn part(&mut self, packet_type: u8, count: usize, make: impl FnOnce(&mut Vec<u8>)) -> bool {
        let start = self.bytes.len();
        // `start` and the header are whole numbers of words, so aligning the body aligns the part.
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        make(&mut self.bytes);
        let length = self.bytes.len().saturating_sub(start);
        let words = u16::try_from((length / 4).saturating_sub(1));
        let count = u8::try_from(count).ok().filter(|&count| count <= COUNT);
        let (Ok(words), Some(count), true) = (words, count, self.bytes.len() <= self.limit) else {
            self.bytes.truncate(start);
            return false;
        };
        let [high, low] = words.to_be_bytes();
        if let Some(head) = self.bytes.get_mut(start..).and_then(|part| part.first_chunk_mut()) {
            *head = [VERSION << 6 | count, packet_type, high, low];
        }
        true
    }
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}
