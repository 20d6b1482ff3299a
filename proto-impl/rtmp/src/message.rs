//! Message types (§5.4, §6, §7.1), and the contents of messages: media and aggregates.

use bytes::Bytes;
use wire::Reader;

use crate::Limit;

/// Message type ids.
pub(crate) mod kind {
    pub(crate) const SET_CHUNK_SIZE: u8 = 1;
    pub(crate) const ABORT: u8 = 2;
    pub(crate) const ACKNOWLEDGEMENT: u8 = 3;
    pub(crate) const USER_CONTROL: u8 = 4;
    pub(crate) const WINDOW_ACK_SIZE: u8 = 5;
    pub(crate) const SET_PEER_BANDWIDTH: u8 = 6;
    pub(crate) const AUDIO: u8 = 8;
    pub(crate) const VIDEO: u8 = 9;
    pub(crate) const DATA_AMF3: u8 = 15;
    pub(crate) const COMMAND_AMF3: u8 = 17;
    pub(crate) const DATA_AMF0: u8 = 18;
    pub(crate) const COMMAND_AMF0: u8 = 20;
    pub(crate) const AGGREGATE: u8 = 22;
}

/// Maximum number of parts in one aggregate message. Encoders send a few dozen.
const AGGREGATE_PARTS_MAX: usize = 1024;

/// The kind of a media message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// A [`flv::AudioTag`].
    Audio,
    /// A [`flv::VideoTag`].
    Video,
    /// A [`flv::data::Data`], possibly wrapped in `@setDataFrame`.
    Data,
}

impl MediaKind {
    /// Message type id for this kind.
    #[must_use]
    pub const fn message_type(self) -> u8 {
        match self {
            Self::Audio => kind::AUDIO,
            Self::Video => kind::VIDEO,
            Self::Data => kind::DATA_AMF0,
        }
    }

    /// Chunk stream on which media of this kind is sent.
    #[must_use]
    pub const fn chunk_stream(self) -> u32 {
        match self {
            Self::Audio => crate::chunk::AUDIO,
            Self::Video => crate::chunk::VIDEO,
            Self::Data => crate::chunk::STATUS,
        }
    }

    pub(crate) const fn of(message_type: u8) -> Option<Self> {
        match message_type {
            kind::AUDIO => Some(Self::Audio),
            kind::VIDEO => Some(Self::Video),
            kind::DATA_AMF0 | kind::DATA_AMF3 => Some(Self::Data),
            _ => None,
        }
    }
}

/// An audio, video or data message. Its payload is the body of an FLV tag.
#[derive(Clone, PartialEq, Eq)]
pub struct MediaMessage {
    /// Message stream id.
    pub message_stream: u32,
    /// Kind of the payload.
    pub kind: MediaKind,
    /// Timestamp in milliseconds, which wraps.
    pub timestamp: u32,
    /// Body of the FLV tag.
    pub payload: Bytes,
}

/// Prints only the length of the payload, which may be megabytes.
impl std::fmt::Debug for MediaMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaMessage")
            .field("message_stream", &self.message_stream)
            .field("kind", &self.kind)
            .field("timestamp", &self.timestamp)
            .field("bytes", &self.payload.len())
            .finish()
    }
}

impl MediaMessage {
    /// Returns the media message in a message; `None` if the message is of any other type.
    pub(crate) fn of(message: &crate::chunk::Message) -> Option<Self> {
        let kind = MediaKind::of(message.kind)?;
        Some(Self {
            message_stream: message.message_stream,
            kind,
            timestamp: message.timestamp,
            payload: amf0_part(message.kind, &message.payload),
        })
    }
}

/// Removes the format byte 0 before the AMF0 values of AMF3 messages (types 15 and 17). Some senders omit this byte.
pub(crate) fn amf0_part(message_type: u8, payload: &Bytes) -> Bytes {
    let wrapped = matches!(message_type, kind::DATA_AMF3 | kind::COMMAND_AMF3);
    match payload.strip_prefix(&[0]) {
        Some(rest) if wrapped => payload.slice_ref(rest),
        Some(_) | None => payload.clone(),
    }
}

/// Splits an aggregate message (§7.1.6). The first part gets the time of the aggregate; the others keep their
/// distance to the first. Parts that are not media are dropped, and so is a truncated rest.
pub(crate) fn split_aggregate(message: &crate::chunk::Message) -> Result<Vec<MediaMessage>, Limit> {
    let mut parts = Vec::new();
    let mut r = Reader::new(&message.payload);
    let mut base = None;
    while let Some((message_type, timestamp, body)) = aggregate_part(&mut r) {
        if parts.len() >= AGGREGATE_PARTS_MAX {
            return Err(Limit::AggregateParts);
        }
        let base = *base.get_or_insert(timestamp);
        let part = crate::chunk::Message {
            chunk_stream: message.chunk_stream,
            timestamp: message.timestamp.wrapping_add(timestamp.wrapping_sub(base)),
            kind: message_type,
            message_stream: message.message_stream,
            payload: message.payload.slice_ref(body),
        };
        parts.extend(MediaMessage::of(&part));
    }
    Ok(parts)
}

/// Reads one part: an FLV tag and its previous-tag-size. The last part may lack the previous-tag-size.
fn aggregate_part<'a>(r: &mut Reader<'a>) -> Option<(u8, u32, &'a [u8])> {
    let message_type = r.u8().ok()?;
    let size = r.u24().ok()?;
    let low = r.u24().ok()?;
    let high = r.u8().ok()?;
    r.u24().ok()?;
    let body = r.take(usize::try_from(size).ok()?).ok()?;
    let _back_pointer = r.u32();
    Some((message_type, (u32::from(high) << 24) | low, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Message;
    use flv::file::{TagHead, TagKind};

    fn aggregate(parts: &[(TagKind, u32, &[u8])]) -> Message {
        let mut payload = Vec::new();
        for (kind, timestamp, body) in parts {
            let head =
                TagHead { kind: *kind, size: u32::try_from(body.len()).unwrap(), timestamp: *timestamp };
            payload.extend(head.write());
            payload.extend_from_slice(body);
            payload.extend(head.trailer());
        }
        Message {
            chunk_stream: 6,
            timestamp: 5000,
            kind: kind::AGGREGATE,
            message_stream: 1,
            payload: payload.into(),
        }
    }

    #[test]
    fn parts_are_rebased_on_the_time_of_the_aggregate() {
        let message = aggregate(&[
            (TagKind::Video, u32::MAX, b"\x17\x01"),
            (TagKind::Other(20), 3, b"no media"),
            (TagKind::Audio, 22, b""),
        ]);
        let parts = split_aggregate(&message).unwrap();
        let got: Vec<_> = parts.iter().map(|p| (p.kind, p.timestamp, p.payload.to_vec())).collect();
        assert_eq!(got, [(MediaKind::Video, 5000, vec![0x17, 1]), (MediaKind::Audio, 5023, vec![])]);
        assert_eq!(parts[0].payload.as_ptr(), message.payload[11..].as_ptr());
    }

    #[test]
    fn a_truncated_or_endless_aggregate_is_bounded() {
        let mut message = aggregate(&[(TagKind::Video, 0, b"abc"), (TagKind::Audio, 1, b"de")]);
        let whole = message.payload.clone();
        for cut in 0..whole.len() {
            message.payload = whole.slice(..cut);
            assert!(split_aggregate(&message).unwrap().len() <= 2);
        }
        let many = aggregate(&[(TagKind::Audio, 0, &b""[..]); AGGREGATE_PARTS_MAX + 1]);
        assert_eq!(split_aggregate(&many), Err(Limit::AggregateParts));
    }

    #[test]
    fn amf3_wrapping_is_one_zero_byte() {
        let payload = Bytes::from_static(b"\0\x02\0\x01a");
        assert_eq!(amf0_part(kind::COMMAND_AMF3, &payload), payload[1..]);
        assert_eq!(amf0_part(kind::COMMAND_AMF0, &payload), payload);
        assert_eq!(amf0_part(kind::DATA_AMF3, &payload.slice(1..)), payload[1..]);
    }
}
