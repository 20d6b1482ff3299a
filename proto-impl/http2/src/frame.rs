//! Frames (RFC 9113 §4 and §6): the header, and writing frames.
//!
//! ```text
//! +-----------------------------------------------+
//! |                 Length (24)                   |
//! +---------------+---------------+---------------+
//! |   Type (8)    |   Flags (8)   |
//! +-+-------------+---------------+-------------------------------+
//! |R|                 Stream Identifier (31)                      |
//! +=+=============================================================+
//! ```

use wire::Reader;

/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 9;
/// Maximum payload accepted, and maximum payload sent until the peer's settings allow more (RFC 9113
/// §4.2).
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// Maximum payload of DATA. Together with its header, such a frame fills a TLS record, which is cheapest
/// for both sides.
pub(crate) const DATA_BYTES: usize = PAYLOAD_BYTES_MAX - HEADER_BYTES;
/// Connection preface of every client (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(crate) const ENABLE_PUSH: u16 = 0x2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// Frame type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Unknown,
}

impl Kind {
    const fn of(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::RstStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::Unknown => 0xff,
        }
    }
}

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Header {
    /// Reads a header; `None` if it is incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let length = usize::try_from(reader.u24().ok()?).ok()?;
        let kind = Kind::of(reader.u8().ok()?);
        let flags = reader.u8().ok()?;
        let stream = reader.u32().ok()? & 0x7fff_ffff;
        Some(Self { length, kind, flags, stream })
    }

    /// Writes a header. The length is below 2^24 by construction.
    pub(crate) fn write(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = u32::try_from(self.length).unwrap_or(0xff_ffff).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind.byte(), self.flags, d, e, f, g]
    }

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Removes the padding of a payload (RFC 9113 §6.1); `None` if the padding exceeds the payload.
pub(crate) fn unpadded(payload: &[u8], is_padded: bool) -> Option<&[u8]> {
    if !is_padded {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        for byte in 0..=10u8 {
            let kind = Kind::of(byte);
            let header = Header { length: 0x01_02_03, kind, flags: 0x25, stream: 0x7fff_fffe };
            assert_eq!(Header::read(&header.write()), Some(header));
        }
        assert_eq!(Header::read(&[0; 8]), None);
        let reserved = [0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Header::read(&reserved).map(|header| header.stream), Some(0x7fff_ffff));
    }

    #[test]
    fn padding_stays_within_its_frame() {
        assert_eq!(unpadded(&[1, 2], false), Some(&[1, 2][..]));
        assert_eq!(unpadded(&[1, 2, 3], true), Some(&[2][..]));
        assert_eq!(unpadded(&[2, 2, 3], true), Some(&[][..]));
        assert_eq!((unpadded(&[3, 2, 3], true), unpadded(&[], true)), (None, None));
    }
}
