//! Frame heads (RFC 6455 §5.2). Heads are read with all checks that do not need the payload, and written.
//!
//! ```text
//!  0               1               2 ...
//! |F|R|R|R| op(4) |M| length(7)   | length(16 or 64) when 126 or 127 | mask(32) when M | payload
//! ```

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use super::Error;

/// Maximum payload of a control frame (§5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// Maximum length of a head: two bytes, 64 bits of length, a mask.
const HEAD_BYTES_MAX: usize = 14;
/// Bytes of a mask.
const MASK_BYTES: usize = 4;

/// The opcode of a frame (§11.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// 0: continuation of a message.
    Continuation,
    /// 1: text message.
    Text,
    /// 2: binary message.
    Binary,
    /// 8: close.
    Close,
    /// 9: ping.
    Ping,
    /// 10: pong.
    Pong,
}

impl Opcode {
    const fn read(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn id(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    /// True for close, ping and pong (§5.5).
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// True in the last frame of a message.
    pub is_final: bool,
    /// The opcode.
    pub opcode: Opcode,
    /// Bytes of payload that follow.
    pub length: u64,
    /// The masking key of the payload.
    pub mask: Option<[u8; MASK_BYTES]>,
}

impl FrameHead {
    /// Parses the head at the front of `bytes`. Returns the head and its length in bytes, or `None` if it is
    /// incomplete. Each fault is reported as soon as the first byte that shows it has arrived.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let Some(first) = bytes.first() else { return Ok(None) };
        if first & 0x70 != 0 {
            // §5.2: these bits have no meaning, because no extension was negotiated.
            return Err(Error::Protocol("reserved bit"));
        }
        let opcode = Opcode::read(first & 0x0f).ok_or(Error::Protocol("reserved opcode"))?;
        let is_final = first & 0x80 != 0;
        if opcode.is_control() && !is_final {
            return Err(Error::Protocol("control frame in fragments"));
        }
        let Some(second) = bytes.get(1) else { return Ok(None) };
        let short = u64::from(second & 0x7f);
        if opcode.is_control() && short > CONTROL_BYTES_MAX {
            return Err(Error::Protocol("long control frame"));
        }
        let rest = bytes.get(2..).unwrap_or_default();
        let (length, length_bytes) = match short {
            126 => match rest.first_chunk::<2>() {
                Some(&bytes) => (u64::from(u16::from_be_bytes(bytes)), 2usize),
                None => return Ok(None),
            },
            127 => match rest.first_chunk::<8>() {
                Some(&bytes) => (u64::from_be_bytes(bytes), 8),
                None => return Ok(None),
            },
            short => (short, 0),
        };
        let minimal = match length_bytes {
            2 => length >= 126,
            8 => length > u64::from(u16::MAX),
            _ => true,
        };
        if !minimal || length > u64::MAX / 2 {
            return Err(Error::Protocol("frame length"));
        }
        let rest = rest.get(length_bytes..).unwrap_or_default();
        let masked = second & 0x80 != 0;
        let mask = if masked { rest.first_chunk().copied() } else { None };
        if masked && mask.is_none() {
            return Ok(None);
        }
        let head_bytes = length_bytes.saturating_add(if masked { 6 } else { 2 });
        Ok(Some((Self { is_final, opcode, length, mask }, head_bytes)))
    }

    /// Serializes the head, with the payload length in its shortest form.
    #[must_use]
    pub fn write(self) -> FrameHeadBytes {
        let mut out = FrameHeadBytes::default();
        out.push(&[(u8::from(self.is_final) << 7) | self.opcode.id()]);
        let masked = u8::from(self.mask.is_some()) << 7;
        match (u8::try_from(self.length), u16::try_from(self.length)) {
            (Ok(short), _) if short < 126 => out.push(&[masked | short]),
            (_, Ok(medium)) => {
                out.push(&[masked | 126]);
                out.push(&medium.to_be_bytes());
            }
            (_, Err(_)) => {
                out.push(&[masked | 127]);
                out.push(&self.length.to_be_bytes());
            }
        }
        if let Some(mask) = self.mask {
            out.push(&mask);
        }
        out
    }
}

/// A serialized head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameHeadBytes {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl FrameHeadBytes {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }
}

impl std::ops::Deref for FrameHeadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Returns the head of a server's unfragmented binary message. It has at most 10 bytes and is the same for all
/// viewers.
#[must_use]
pub fn media_frame_head(length: usize) -> FrameHeadBytes {
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    FrameHead { is_final: true, opcode: Opcode::Binary, length, mask: None }.write()
}

/// Masks or unmasks a payload (§5.3).
pub(super) fn apply_mask(payload: &mut [u8], mask: [u8; MASK_BYTES]) {
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written_in_any_length() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, u64::MAX / 2] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let head = FrameHead { is_final: length % 2 == 0, opcode: Opcode::Binary, length, mask };
                let bytes = head.write();
                assert_eq!(FrameHead::read(&bytes), Ok(Some((head, bytes.len()))));
                for cut in 0..bytes.len() {
                    assert_eq!(FrameHead::read(&bytes[..cut]), Ok(None), "{length} {cut}");
                }
            }
        }
        assert_eq!(&media_frame_head(300)[..], [0x82, 126, 1, 44]);
    }

    #[test]
    fn w_01_w_02_w_03_what_a_head_shows_to_be_wrong_is_refused_at_once() {
        for bytes in [
            &b"\xc1"[..],
            b"\xa1",
            b"\x91",
            b"\x83",
            b"\x8b",
            b"\x09",
            b"\x89\xfe",
            b"\x88\xff",
            b"\x82\xfe\0\x7d",
            b"\x82\xff\0\0\0\0\0\0\0\x0a",
            b"\x82\xff\0\0\0\0\0\0\xff\xff",
            b"\x82\xff\x80\0\0\0\0\0\0\0",
        ] {
            assert!(matches!(FrameHead::read(bytes), Err(Error::Protocol(_))), "{bytes:x?}");
        }
    }
}
