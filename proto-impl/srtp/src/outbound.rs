//! Sent packets, which are encrypted in place or from a shared payload.

use rtp::{Header, header_length, write_padding};
use wire::Datagrams;

use crate::OWN_SOURCES_MAX;
use crate::error::Error;
use crate::profile::{MasterKey, Profile};
use crate::session::{Keys, Name, RTCP_ENCRYPTED, RTCP_HEAD_BYTES};

/// End of the range of RTP indices: 32 bits of rollover counter and 16 bits of sequence number.
pub(crate) const INDEX_END: u64 = 1 << 48;
/// Maximum jump of a sequence number: half a cycle. After a larger jump, the peer would assume the wrong
/// cycle.
const LEAP_MAX: u16 = 0x7fff;

/// SRTP context for sent packets: the keys, and the state of each of our sources.
///
/// Each sequence number is used for only one packet, in ascending order per source; lost packets are
/// retransmitted in new packets (RTX). Two packets with the same index but slightly different headers would
/// reveal the GCM authentication key to anyone who has both.
#[derive(Debug)]
pub struct Outbound {
    keys: Keys,
    /// SSRC and last index used of each source.
    sources: Vec<(u32, u64)>,
    /// SSRCs of ended sources, sorted.
    ended: Vec<u32>,
    rtcp_next: u32,
}

impl Outbound {
    /// Creates the context from the master key for our direction. Never `None` for a valid [`MasterKey`].
    #[must_use]
    pub fn new(master: &MasterKey) -> Option<Self> {
        Some(Self { keys: Keys::new(master)?, sources: Vec::new(), ended: Vec::new(), rtcp_next: 0 })
    }

    /// The profile.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.keys.profile()
    }

    /// Protects a complete RTP packet in place, which grows by [`Profile::rtp_overhead`].
    pub fn protect(&mut self, packet: &mut Vec<u8>) -> Result<(), Error> {
        let head = header_length(packet).map_err(|_| Error::Malformed)?;
        let &[_, _, high, low, _, _, _, _, a, b, c, d] =
            packet.first_chunk::<{ rtp::HEADER_BYTES }>().ok_or(Error::Malformed)?;
        let name = self.next(u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]))?;
        self.keys.rtp.seal_rtp(name, 0, head, packet);
        Ok(())
    }

    /// Protects an RTCP packet in place, which grows by [`Profile::rtcp_overhead`].
    pub fn protect_rtcp(&mut self, packet: &mut Vec<u8>) -> Result<(), Error> {
        let &[_, _, _, _, a, b, c, d] = packet.first_chunk::<RTCP_HEAD_BYTES>().ok_or(Error::Malformed)?;
        // All our sources share one counter, so that it increases for each source, as required (RFC 3711
        // §3.4). It ends at 2^31 (§9.2).
        let index = self.rtcp_next;
        let keys = self.keys.rtcp().filter(|_| index < RTCP_ENCRYPTED).ok_or(Error::KeyExhausted)?;
        self.rtcp_next = index.saturating_add(1);
        keys.seal_rtcp(Name { ssrc: u32::from_be_bytes([a, b, c, d]), index: index.into() }, packet);
        Ok(())
    }

    /// Encrypts a packet consisting of `header` and `payload`, and appends it to `out`. The payload is not
    /// modified, so any number of viewers can share it, each with its own context and header. The caller must
    /// check that `out` has room ([`Datagrams::has_room`] with [`Outbound::sealed_length`]).
    pub fn seal(&mut self, header: &Header<'_>, payload: &[u8], out: &mut Datagrams) -> Result<(), Error> {
        let name = self.next(header.ssrc.value(), header.sequence_number.value())?;
        out.push_made(|packet| {
            let start = packet.len();
            header.write(packet);
            self.keys.rtp.seal_rtp_to(name, start, payload, packet);
        });
        Ok(())
    }

    /// Like [`Self::seal`], with `padding` bytes of padding after the payload, the last of which contains their number.
    /// With 0, there is no padding.
    pub fn seal_padded(
        &mut self,
        header: &Header<'_>,
        (payload, padding): (&[u8], u8),
        out: &mut Datagrams,
    ) -> Result<(), Error> {
        if padding == 0 {
            return self.seal(header, payload, out);
        }
        let name = self.next(header.ssrc.value(), header.sequence_number.value())?;
        out.push_made(|packet| {
            let start = packet.len();
            header.write_padded(packet);
            let head = packet.len().saturating_sub(start);
            packet.extend_from_slice(payload);
            write_padding(padding, packet);
            self.keys.rtp.seal_rtp(name, start, head, packet);
        });
        Ok(())
    }

    /// Like [`Self::seal`], for a payload in several parts, such as RTX's original sequence number followed by
    /// the payload.
    pub fn seal_parts(
        &mut self,
        header: &Header<'_>,
        payload: &[&[u8]],
        out: &mut Datagrams,
    ) -> Result<(), Error> {
        let name = self.next(header.ssrc.value(), header.sequence_number.value())?;
        out.push_made(|packet| {
            let start = packet.len();
            header.write(packet);
            let head = packet.len().saturating_sub(start);
            for part in payload {
                packet.extend_from_slice(part);
            }
            self.keys.rtp.seal_rtp(name, start, head, packet);
        });
        Ok(())
    }

    /// Encrypts a packet again that was already sent, for peers without RTX. The caller must ensure that every
    /// byte is the same as before. Changes no state, and refuses indices that were not used yet.
    pub fn seal_again(&self, header: &Header<'_>, payload: &[u8], out: &mut Datagrams) -> Result<(), Error> {
        let ssrc = header.ssrc.value();
        let (_, last) = self.sources.iter().find(|(source, _)| *source == ssrc).ok_or(Error::Reused)?;
        let [_, _, _, _, _, _, high, low] = last.to_be_bytes();
        let behind = u16::from_be_bytes([high, low]).wrapping_sub(header.sequence_number.value());
        let index = last.checked_sub(behind.into()).filter(|_| behind <= LEAP_MAX).ok_or(Error::Reused)?;
        out.push_made(|packet| {
            let start = packet.len();
            header.write(packet);
            self.keys.rtp.seal_rtp_to(Name { ssrc, index }, start, payload, packet);
        });
        Ok(())
    }

    /// Returns the length of an encrypted packet.
    #[must_use]
    pub fn sealed_length(&self, header: &Header<'_>, payload_bytes: usize) -> usize {
        header.length().saturating_add(payload_bytes).saturating_add(self.profile().rtp_overhead())
    }

    /// Ends one of our sources. From now on, all packets with this SSRC are refused, including repeated ones.
    pub fn end_source(&mut self, ssrc: u32) {
        self.sources.retain(|(source, _)| *source != ssrc);
        if let Err(at) = self.ended.binary_search(&ssrc) {
            self.ended.insert(at, ssrc);
        }
    }

    /// Returns the index for a new packet, which no earlier packet used.
    fn next(&mut self, ssrc: u32, number: u16) -> Result<Name, Error> {
        let Some((_, last)) = self.sources.iter_mut().find(|(source, _)| *source == ssrc) else {
            if self.sources.len().saturating_add(self.ended.len()) >= OWN_SOURCES_MAX {
                return Err(Error::TooManySources);
            }
            // If an ended source could send again, its packets would reuse indices with the same key.
            if self.ended.binary_search(&ssrc).is_ok() {
                return Err(Error::Reused);
            }
            // RFC 3711 §3.3.1: the rollover counter starts at 0.
            let index = number.into();
            self.sources.push((ssrc, index));
            return Ok(Name { ssrc, index });
        };
        let [_, _, _, _, _, _, high, low] = last.to_be_bytes();
        let ahead = number.wrapping_sub(u16::from_be_bytes([high, low]));
        if !(1..=LEAP_MAX).contains(&ahead) {
            return Err(Error::Reused);
        }
        let index = last.saturating_add(ahead.into());
        if index >= INDEX_END {
            return Err(Error::KeyExhausted);
        }
        *last = index;
        Ok(Name { ssrc, index })
    }

    #[cfg(test)]
    pub(crate) fn set_position(&mut self, ssrc: u32, last: u64, rtcp_next: u32) {
        self.sources.retain(|(source, _)| *source != ssrc);
        self.sources.push((ssrc, last));
        self.rtcp_next = rtcp_next;
    }
}
