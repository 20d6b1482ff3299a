//! Messages of data channels as units of a data track ([`TrackId::MESSAGES`](crate::TrackId::MESSAGES)): an octet of flags, then the
//! message.
//!
//! | bit | set for |
//! |---|---|
//! | 0 | text in UTF-8; otherwise bytes |
//! | 1 | messages that formats carry as timed metadata, in addition to data channels |

use bytes::{BufMut, Bytes, BytesMut};

use crate::id3;

/// Name of messages among timed metadata: the description or owner of their ID3 frame, and the name of their script data.
pub const NAME: &str = "onDataMessage";
/// Largest message that is timed metadata. It fits into an ID3 tag ([`id3::TAG_BYTES_MAX`]).
pub const TIMED_BYTES_MAX: usize = 30 * 1024;
/// Number of bytes before a message in its unit.
const HEAD_BYTES: usize = 1;

const TEXT: u8 = 1;
const TIMED: u8 = 2;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// True for text, false for bytes.
    pub is_text: bool,
    /// True if formats other than data channels carry the message, as timed metadata.
    pub is_timed: bool,
    /// The message.
    pub payload: Bytes,
}

impl Message {
    /// Reads the payload of a unit. `None` if it is none that [`Self::write`] has made.
    #[must_use]
    pub fn read(unit: &Bytes) -> Option<Self> {
        let flags = *unit.first()?;
        let payload = unit.slice(HEAD_BYTES..);
        (flags & !(TEXT | TIMED) == 0).then_some(Self {
            is_text: flags & TEXT != 0,
            is_timed: flags & TIMED != 0,
            payload,
        })
    }

    /// Returns the payload of the message's unit.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.payload.len().saturating_add(HEAD_BYTES));
        out.put_u8(if self.is_text { TEXT } else { 0 } | if self.is_timed { TIMED } else { 0 });
        out.put_slice(&self.payload);
        out.freeze()
    }

    /// Returns the message as text; `None` for bytes.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        core::str::from_utf8(&self.payload).ok().filter(|_| self.is_text)
    }

    /// Returns the ID3 tag of a timed message: text in a frame `TXXX`, bytes in a frame `PRIV`. `None` for other
    /// messages, and for messages that are too long.
    #[must_use]
    pub fn tag(&self) -> Option<Bytes> {
        match self.text() {
            _ if !self.is_timed => None,
            Some(text) => id3::text(NAME, text),
            None => id3::private(NAME, &self.payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_unit_and_is_read_again() {
        for (is_text, is_timed, payload) in [
            (true, false, &b""[..]),
            (true, true, "é".as_bytes()),
            (false, true, b"\0\xff"),
            (false, false, b"x"),
        ] {
            let message = Message { is_text, is_timed, payload: Bytes::copy_from_slice(payload) };
            assert_eq!(Message::read(&message.write()), Some(message.clone()));
            assert_eq!(message.tag().is_some(), is_timed);
        }
        for unit in [&b""[..], b"\x04text", b"\xff"] {
            assert_eq!(Message::read(&Bytes::copy_from_slice(unit)), None);
        }
    }

    #[test]
    fn text_and_bytes_have_frames_of_their_own() {
        let of = |is_text, payload: &[u8]| Message {
            is_text,
            is_timed: true,
            payload: Bytes::copy_from_slice(payload),
        };
        let tag = of(true, "grüße".as_bytes()).tag().unwrap();
        assert_eq!(id3::texts(&tag), [(NAME, "grüße")]);
        let tag = of(false, &[0, 1, 255]).tag().unwrap();
        assert!(id3::is_tags(&tag) && id3::texts(&tag).is_empty());
        assert!(tag.windows(4).any(|four| four == b"PRIV") && tag.ends_with(b"onDataMessage\0\x00\x01\xff"));
        // Bytes that are called text are sent as bytes.
        assert!(of(true, b"\xff").tag().unwrap().windows(4).any(|four| four == b"PRIV"));
        for is_text in [true, false] {
            assert!(of(is_text, &[b'x'; TIMED_BYTES_MAX]).tag().is_some_and(|tag| id3::is_tags(&tag)));
            assert_eq!(of(is_text, &[b'x'; 40_000]).tag(), None);
        }
    }
}
