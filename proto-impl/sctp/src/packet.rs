//! Packets and their chunks (RFC 9260 §3): common header, chunk headers, parameters. This module keeps no state.
//!
//! ```text
//!  source port (16) | destination port (16)
//!  verification tag (32)
//!  checksum (32, CRC32c, little-endian)
//!  chunks: type (8) | flags (8) | length (16) | value | padding to four bytes
//! ```

use wire::Reader;

use crate::crc::crc32c;

/// Length of the common header.
pub(crate) const HEAD_BYTES: usize = 12;
/// Length of a chunk header.
pub(crate) const CHUNK_HEAD_BYTES: usize = 4;

/// Chunk types.
pub(crate) mod chunk {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const INIT_ACK: u8 = 2;
    pub(crate) const SACK: u8 = 3;
    pub(crate) const HEARTBEAT: u8 = 4;
    pub(crate) const HEARTBEAT_ACK: u8 = 5;
    pub(crate) const ABORT: u8 = 6;
    pub(crate) const SHUTDOWN: u8 = 7;
    pub(crate) const SHUTDOWN_ACK: u8 = 8;
    pub(crate) const ERROR: u8 = 9;
    pub(crate) const COOKIE_ECHO: u8 = 10;
    pub(crate) const COOKIE_ACK: u8 = 11;
    pub(crate) const SHUTDOWN_COMPLETE: u8 = 14;
    /// Stream reconfiguration (RFC 6525 §3.1).
    pub(crate) const RE_CONFIG: u8 = 0x82;
    /// Abandoned data (RFC 3758 §3.2).
    pub(crate) const FORWARD_TSN: u8 = 0xc0;
}

/// T bit of `ABORT` and `SHUTDOWN COMPLETE`: the verification tag is the sender's own (§8.5.1).
pub(crate) const FLAG_REFLECTED: u8 = 1;

/// The common header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) tag: u32,
}

impl Head {
    /// Reads the header of a packet with a valid checksum, and returns it with the rest of the packet.
    pub(crate) fn read(packet: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader::new(packet);
        let head =
            Self { source: reader.u16().ok()?, destination: reader.u16().ok()?, tag: reader.u32().ok()? };
        let sum = reader.u32_le().ok()?;
        (sum == sum_of(packet)).then(|| (head, reader.rest()))
    }

    /// Begins a packet; [`seal`] writes its checksum.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.source.to_be_bytes());
        out.extend_from_slice(&self.destination.to_be_bytes());
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}

/// Returns the checksum of a packet, computed with a checksum field of zeros.
fn sum_of(packet: &[u8]) -> u32 {
    let (head, rest) = packet.split_at_checked(8).unwrap_or((packet, &[]));
    crc32c(&[head, &[0; 4], rest.get(4..).unwrap_or_default()])
}

/// Writes the checksum of a packet.
pub fn seal(packet: &mut [u8]) {
    let sum = sum_of(packet);
    if let Some(field) = packet.get_mut(8..HEAD_BYTES) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

/// A chunk as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) value: &'a [u8],
}

/// Takes the first chunk with its padding; `None` at the end, or if its length is invalid.
pub(crate) fn next_chunk<'a>(rest: &mut &'a [u8]) -> Option<Chunk<'a>> {
    let mut reader = Reader::new(rest);
    let (kind, flags, length) = (reader.u8().ok()?, reader.u8().ok()?, reader.u16().ok()?);
    let length = usize::from(length).checked_sub(CHUNK_HEAD_BYTES)?;
    let value = reader.take(length).ok()?;
    // Padding may be missing after the last chunk.
    let _ = reader.take(padding(length));
    *rest = reader.rest();
    Some(Chunk { kind, flags, value })
}

/// Returns the number of bytes to the next multiple of four.
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Returns the size of a chunk with a value of this length, padding included.
pub(crate) const fn chunk_bytes(length: usize) -> usize {
    CHUNK_HEAD_BYTES.saturating_add(length).saturating_add(padding(length))
}

/// Appends a chunk.
pub(crate) fn write_chunk(out: &mut Vec<u8>, kind: u8, flags: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let announced = u16::try_from(length.saturating_add(CHUNK_HEAD_BYTES)).unwrap_or(u16::MAX);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&announced.to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend(std::iter::repeat_n(0, padding(length)));
}

/// A parameter of a chunk (§3.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    pub(crate) kind: u16,
    pub(crate) value: &'a [u8],
}

/// Types of parameters.
pub(crate) mod parameter {
    pub(crate) const HEARTBEAT_INFO: u16 = 1;
    pub(crate) const STATE_COOKIE: u16 = 7;
    pub(crate) const UNRECOGNIZED: u16 = 8;
    /// Request to reset outgoing streams (RFC 6525 §4).
    pub(crate) const OUTGOING_RESET: u16 = 13;
    pub(crate) const INCOMING_RESET: u16 = 14;
    pub(crate) const TSN_RESET: u16 = 15;
    pub(crate) const RESET_RESPONSE: u16 = 16;
    pub(crate) const ADD_OUTGOING: u16 = 17;
    pub(crate) const ADD_INCOMING: u16 = 18;
    /// Supported extensions (RFC 5061 §4.2.7).
    pub(crate) const SUPPORTED_EXTENSIONS: u16 = 0x8008;
    /// Support for `FORWARD TSN` (RFC 3758 §3.1).
    pub(crate) const FORWARD_TSN_SUPPORTED: u16 = 0xc000;

    /// Error cause of a stale cookie (RFC 9260 §3.3.10).
    pub(crate) const CAUSE_STALE_COOKIE: u16 = 3;
    pub(crate) const CAUSE_UNRECOGNIZED_CHUNK: u16 = 6;
    pub(crate) const CAUSE_USER_ABORT: u16 = 12;
    pub(crate) const CAUSE_VIOLATION: u16 = 13;
}

/// Takes the first parameter with its padding.
pub(crate) fn next_parameter<'a>(rest: &mut &'a [u8]) -> Option<Parameter<'a>> {
    let mut reader = Reader::new(rest);
    let (kind, length) = (reader.u16().ok()?, reader.u16().ok()?);
    let length = usize::from(length).checked_sub(4)?;
    let value = reader.take(length).ok()?;
    let _ = reader.take(padding(length));
    *rest = reader.rest();
    Some(Parameter { kind, value })
}

/// Appends a parameter, padded.
pub(crate) fn write_parameter(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let announced = u16::try_from(value.len().saturating_add(4)).unwrap_or(u16::MAX);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&announced.to_be_bytes());
    out.extend_from_slice(value);
    out.extend(std::iter::repeat_n(0, padding(value.len())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_reads_as_it_was_written() {
        let head = Head { source: 5000, destination: 5001, tag: 0xdead_beef };
        let mut packet = Vec::new();
        head.write(&mut packet);
        write_chunk(&mut packet, chunk::DATA, 3, &[b"ab", b"cde"]);
        write_chunk(&mut packet, chunk::COOKIE_ACK, 0, &[]);
        seal(&mut packet);
        assert_eq!(packet.len(), HEAD_BYTES + chunk_bytes(5) + chunk_bytes(0));
        let (read, mut rest) = Head::read(&packet).unwrap();
        assert_eq!(read, head);
        assert_eq!(next_chunk(&mut rest), Some(Chunk { kind: 0, flags: 3, value: b"abcde" }));
        assert_eq!(next_chunk(&mut rest), Some(Chunk { kind: 11, flags: 0, value: b"" }));
        assert_eq!((next_chunk(&mut rest), rest), (None, &[][..]));
    }

    #[test]
    fn a_packet_with_any_bit_turned_is_none() {
        let mut packet = Vec::new();
        Head { source: 1, destination: 2, tag: 3 }.write(&mut packet);
        write_chunk(&mut packet, chunk::SACK, 0, &[&[7; 12]]);
        seal(&mut packet);
        for at in 0..packet.len() * 8 {
            let mut turned = packet.clone();
            turned[at / 8] ^= 1 << (at % 8);
            assert_eq!(Head::read(&turned), None, "{at}");
        }
        for length in 0..packet.len() {
            assert_eq!(Head::read(&packet[..length]), None, "{length}");
        }
    }

    #[test]
    fn lengths_that_lie_end_the_list() {
        for bytes in [&[0, 0, 0][..], &[0, 0, 0, 3], &[0, 0, 0, 0], &[0, 0, 0, 9, 1, 2, 3, 4], &[]] {
            let mut rest = bytes;
            assert_eq!(next_chunk(&mut rest), None, "{bytes:?}");
            assert_eq!(next_parameter(&mut rest), None, "{bytes:?}");
            assert_eq!(rest, bytes);
        }
        // Padding may be missing after the last chunk.
        let mut rest = &[0, 0, 0, 5, 1][..];
        assert_eq!(next_chunk(&mut rest).unwrap().value, [1]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_parameter_reads_as_it_was_written() {
        let mut out = Vec::new();
        write_parameter(&mut out, parameter::STATE_COOKIE, b"abcde");
        write_parameter(&mut out, parameter::FORWARD_TSN_SUPPORTED, b"");
        let mut rest = out.as_slice();
        assert_eq!(next_parameter(&mut rest), Some(Parameter { kind: 7, value: b"abcde" }));
        assert_eq!(next_parameter(&mut rest), Some(Parameter { kind: 0xc000, value: b"" }));
        assert!(rest.is_empty());
    }
}
