//! Stray bytes: finds the next frame or message after bytes that belong to neither.
//!
//! Some cameras write a few extra bytes between interleaved frames, or a frame length that is too small. A
//! frame is assumed to begin at a position if there was an earlier frame on its channel and its packet has
//! version 2 (RFC 3550 §5.1). A message is assumed to begin if the bytes look like the start of one.

use crate::Method;
use crate::message::VERSION;

/// Longest method that is recognized, in bytes.
const METHOD_BYTES_MAX: usize = 16;
/// Beginning of a URL.
const SCHEME: &str = "rtsp";
/// Minimum size of a packet in bytes: that of an RTCP packet (RFC 3550 §6.4.2).
const PACKET_BYTES_MIN: u16 = 8;
/// Version of RTP and RTCP. It is in the upper two bits of the first byte.
const RTP_VERSION: u8 = 2;

/// The channels of earlier frames.
#[derive(Debug, Default)]
pub(super) struct Seen([u64; 4]);

impl Seen {
    pub(super) fn add(&mut self, channel: u8) {
        if let Some(bits) = self.0.get_mut(usize::from(channel >> 6)) {
            *bits |= 1 << (channel & 63);
        }
    }

    pub(super) fn has(&self, channel: u8) -> bool {
        self.0.get(usize::from(channel >> 6)).is_some_and(|bits| bits >> (channel & 63) & 1 == 1)
    }

    /// True if no frame has arrived yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

/// Kind of item at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Undecided: more bytes are needed.
    Unknown,
    /// A frame: its header and the first byte of its packet.
    Frame { channel: u8, length: u16, first: u8 },
    /// A message.
    Message,
    /// Neither frame nor message: a stray byte.
    Stray,
}

/// Classifies the bytes after a whole frame or message and `stray` stray bytes. After stray bytes only known
/// methods are recognized, because a stray byte may look like the beginning of a method.
pub(super) fn judge(bytes: &[u8], seen: &Seen, stray: usize) -> Beginning {
    match *bytes {
        [] | [b'$'] => Beginning::Unknown,
        [b'$', channel, ..] if !seen.has(channel) => Beginning::Stray,
        [b'$', channel, high, low, first, ..] => {
            let length = u16::from_be_bytes([high, low]);
            match length >= PACKET_BYTES_MIN && first >> 6 == RTP_VERSION {
                true => Beginning::Frame { channel, length, first },
                false => Beginning::Stray,
            }
        }
        [b'$', ..] => Beginning::Unknown,
        _ => judge_message(bytes, stray),
    }
}

fn judge_message(bytes: &[u8], stray: usize) -> Beginning {
    let status = VERSION.as_bytes();
    if bytes.starts_with(status) {
        return Beginning::Message;
    }
    if status.starts_with(bytes) {
        return Beginning::Unknown;
    }
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
    let length = bytes.iter().take_while(|byte| is_method(byte)).count();
    let Some((name, rest)) = bytes.split_at_checked(length).filter(|_| length <= METHOD_BYTES_MAX) else {
        return Beginning::Stray;
    };
    let Some((b' ', url)) = rest.split_first() else {
        return if rest.is_empty() { Beginning::Unknown } else { Beginning::Stray };
    };
    let name = str::from_utf8(name).unwrap_or_default();
    if !matches!(Method::read(name), Method::Other(_)) {
        Beginning::Message
    } else if name.is_empty() || stray > 0 {
        Beginning::Stray
    } else {
        // An unknown method is accepted if a URL follows it.
        let scheme = url.get(..SCHEME.len()).unwrap_or(url);
        match SCHEME.get(..scheme.len()).is_some_and(|begin| scheme.eq_ignore_ascii_case(begin.as_bytes())) {
            _ if url.first() == Some(&b'*') => Beginning::Message,
            true if scheme.len() == SCHEME.len() => Beginning::Message,
            true => Beginning::Unknown,
            false => Beginning::Stray,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_messages_are_known_by_their_beginning() {
        let mut seen = Seen::default();
        assert!(seen.is_empty());
        seen.add(0);
        seen.add(200);
        assert!(seen.has(0) && seen.has(200) && !seen.has(1) && !seen.is_empty());
        let frame = |channel, length, first| Beginning::Frame { channel, length, first };
        for (bytes, wanted) in [
            (&b"$"[..], Beginning::Unknown),
            (b"$\0\0\x08", Beginning::Unknown),
            (b"$\0\0\x08\x80", frame(0, 8, 0x80)),
            (b"$\xc8\x01\0\xbf", frame(200, 256, 0xbf)),
            (b"$\0\0\x07\x80", Beginning::Stray),
            (b"$\0\0\x08\x40", Beginning::Stray),
            (b"$\x01", Beginning::Stray),
            (b"RTSP/1.", Beginning::Unknown),
            (b"RTSP/1.0", Beginning::Message),
            (b"RTSP/2", Beginning::Stray),
            (b"PLAY", Beginning::Unknown),
            (b"PLAY /", Beginning::Message),
            (b"GET_PARAMETER ", Beginning::Message),
            (b"FLY RT", Beginning::Unknown),
            (b"FLY rtsp", Beginning::Message),
            (b"FLY *", Beginning::Message),
            (b"GET /", Beginning::Stray),
            (b"ABCDEFGHIJKLMNOPQ", Beginning::Stray),
            (b" rtsp", Beginning::Stray),
            (b"\r", Beginning::Stray),
            (b"\0", Beginning::Stray),
        ] {
            assert_eq!(judge(bytes, &seen, 0), wanted, "{}", bytes.escape_ascii());
        }
        assert_eq!(judge(b"OOPTIONS *", &seen, 1), Beginning::Stray);
        assert_eq!(judge(b"OPTIONS *", &seen, 1), Beginning::Message);
    }
}
