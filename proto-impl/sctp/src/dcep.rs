//! The Data Channel Establishment Protocol (DCEP, RFC 8832 §5), and payload protocol identifiers (RFC 8831 §8).

use std::time::Duration;

use wire::Reader;

use crate::config::LABEL_BYTES_MAX;
use crate::event::{Kind, Options, Reliability};

const OPEN: u8 = 3;
const ACK: u8 = 2;
/// Normal priority (RFC 8831 §6.4).
const PRIORITY: u16 = 256;

/// Payload protocol identifiers.
pub(crate) mod ppid {
    pub(crate) const DCEP: u32 = 50;
    pub(crate) const TEXT: u32 = 51;
    /// First part of a binary message, deprecated by RFC 8831 but still accepted.
    pub(crate) const BINARY_PARTIAL: u32 = 52;
    pub(crate) const BINARY: u32 = 53;
    /// First part of a text message, deprecated by RFC 8831 but still accepted.
    pub(crate) const TEXT_PARTIAL: u32 = 54;
    pub(crate) const TEXT_EMPTY: u32 = 56;
    pub(crate) const BINARY_EMPTY: u32 = 57;
}

/// Returns the kind of a user payload, and true if it represents an empty message. `None` for other
/// identifiers.
pub(crate) const fn kind_of(number: u32) -> Option<(Kind, bool)> {
    match number {
        ppid::TEXT | ppid::TEXT_PARTIAL => Some((Kind::Text, false)),
        ppid::BINARY | ppid::BINARY_PARTIAL => Some((Kind::Binary, false)),
        ppid::TEXT_EMPTY => Some((Kind::Text, true)),
        ppid::BINARY_EMPTY => Some((Kind::Binary, true)),
        _ => None,
    }
}

/// Returns the identifier of a payload. SCTP has no empty messages, so they have their own identifiers, and one
/// meaningless byte.
pub(crate) const fn number_of(kind: Kind, is_empty: bool) -> u32 {
    match (kind, is_empty) {
        (Kind::Text, false) => ppid::TEXT,
        (Kind::Text, true) => ppid::TEXT_EMPTY,
        (Kind::Binary, false) => ppid::BINARY,
        (Kind::Binary, true) => ppid::BINARY_EMPTY,
    }
}

/// A DCEP message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Open { options: Options, label: String, protocol: String },
    Ack,
}

impl Message {
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        match reader.u8().ok()? {
            ACK => Some(Self::Ack),
            OPEN => {
                let kind = reader.u8().ok()?;
                let (_priority, limit) = (reader.u16().ok()?, reader.u32().ok()?);
                let reliability = match kind & 0x7f {
                    0 => Reliability::Full,
                    1 => Reliability::Retransmits(limit),
                    2 => Reliability::Lifetime(Duration::from_millis(u64::from(limit))),
                    _ => return None,
                };
                let lengths = [reader.u16().ok()?, reader.u16().ok()?].map(usize::from);
                let [label, protocol] = lengths
                    .map(|length| reader.take(length).ok().filter(|text| text.len() <= LABEL_BYTES_MAX));
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let options = Options { unordered: kind & 0x80 != 0, reliability };
                Some(Self::Open { options, label: text(label?), protocol: text(protocol?) })
            }
            _ => None,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self::Open { options, label, protocol } = self else { return vec![ACK] };
        let (kind, limit) = match options.reliability {
            Reliability::Full => (0, 0),
            Reliability::Retransmits(most) => (1, most),
            Reliability::Lifetime(time) => (2, u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        };
        let mut out = vec![OPEN, kind | if options.unordered { 0x80 } else { 0 }];
        out.extend_from_slice(&PRIORITY.to_be_bytes());
        out.extend_from_slice(&limit.to_be_bytes());
        for text in [label, protocol] {
            out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(protocol.as_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_as_it_was_written() {
        for unordered in [false, true] {
            for reliability in [
                Reliability::Full,
                Reliability::Retransmits(3),
                Reliability::Lifetime(Duration::from_millis(1500)),
            ] {
                let options = Options { unordered, reliability };
                let open = Message::Open { options, label: "stream1".into(), protocol: "p".into() };
                let bytes = open.write();
                assert_eq!(Message::read(&bytes), Some(open));
                for length in 0..bytes.len() {
                    assert_eq!(Message::read(&bytes[..length]), None, "{length}");
                }
            }
        }
        assert_eq!(Message::read(&Message::Ack.write()), Some(Message::Ack));
    }

    #[test]
    fn requests_of_unknown_kinds_and_with_long_labels_are_none() {
        let options = Options::default();
        let open = |label: String| Message::Open { options, label, protocol: String::new() }.write();
        assert!(Message::read(&open("x".repeat(LABEL_BYTES_MAX))).is_some());
        assert_eq!(Message::read(&open("x".repeat(LABEL_BYTES_MAX + 1))), None);
        let mut kind = open("x".into());
        kind[1] = 3;
        assert_eq!((Message::read(&kind), Message::read(&[9])), (None, None));
    }

    #[test]
    fn kinds_have_the_numbers_of_the_registry() {
        for (kind, is_empty, number) in [
            (Kind::Text, false, 51),
            (Kind::Binary, false, 53),
            (Kind::Text, true, 56),
            (Kind::Binary, true, 57),
        ] {
            assert_eq!(number_of(kind, is_empty), number);
            assert_eq!(kind_of(number), Some((kind, is_empty)));
        }
        for number in [0, 49, 50, 55, 58, u32::MAX] {
            assert_eq!(kind_of(number), None);
        }
    }
}
