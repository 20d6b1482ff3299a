//! The framing of an FLV file or HTTP-FLV body (FLV 10.1 §E.2 to §E.4.1).
//!
//! ```text
//! "FLV" version flags offset(4) | previous size = 0 | tag head(11) body previous size | tag head(11) body ...
//! ```

use bytes::{Buf, Bytes, BytesMut};

use crate::Error;

/// Length of a [`TagHead`].
pub const TAG_HEAD_BYTES: usize = 11;
/// Length of a tag header, as included in the size field after a tag.
const TAG_HEAD_SIZE: u32 = 11;
/// Length of the previous-tag-size field.
const PREVIOUS_SIZE_BYTES: usize = 4;
/// Length of a [`Header`].
const HEADER_BYTES: usize = 9;
/// Maximum length of a header. A larger one is invalid.
const HEADER_BYTES_MAX: u32 = 1024;

/// Header of a file.
///
/// ```text
///  0    2 3       4     7 8               11
/// 'F''L''V' version 0 |00000A0V| offset of the first previous-tag-size
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// True if audio tags are announced.
    pub audio: bool,
    /// True if video tags are announced.
    pub video: bool,
}

impl Header {
    /// Returns the header and the zero previous-tag-size that follows it.
    #[must_use]
    pub const fn write(self) -> [u8; HEADER_BYTES + PREVIOUS_SIZE_BYTES] {
        let flags = ((self.audio as u8) << 2) | self.video as u8;
        [b'F', b'L', b'V', 1, flags, 0, 0, 0, 9, 0, 0, 0, 0]
    }
}

/// Type of a tag (§E.4.1, `TagType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagKind {
    /// 8: an [`crate::AudioTag`].
    Audio,
    /// 9: a [`crate::VideoTag`].
    Video,
    /// 18: a [`crate::data::Data`].
    Data,
    /// Reserved type; such tags must be skipped.
    Other(u8),
}

impl TagKind {
    const fn read(id: u8) -> Self {
        match id {
            8 => Self::Audio,
            9 => Self::Video,
            18 => Self::Data,
            other => Self::Other(other),
        }
    }

    const fn id(self) -> u8 {
        match self {
            Self::Audio => 8,
            Self::Video => 9,
            Self::Data => 18,
            Self::Other(id) => id,
        }
    }
}

/// Header of a tag. The timestamp is sent as its low 24 bits, then its high 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagHead {
    /// Type of the body.
    pub kind: TagKind,
    /// Length of the body, below 2^24.
    pub size: u32,
    /// Timestamp in milliseconds, which wraps.
    pub timestamp: u32,
}

impl TagHead {
    /// Returns the encoded header, which precedes the body.
    #[must_use]
    pub const fn write(self) -> [u8; TAG_HEAD_BYTES] {
        let [_, s0, s1, s2] = self.size.to_be_bytes();
        let [high, t0, t1, t2] = self.timestamp.to_be_bytes();
        [self.kind.id(), s0, s1, s2, t0, t1, t2, high, 0, 0, 0]
    }

    /// Returns the previous-tag-size to be written after the body.
    #[must_use]
    pub const fn trailer(self) -> [u8; PREVIOUS_SIZE_BYTES] {
        self.size.saturating_add(TAG_HEAD_SIZE).to_be_bytes()
    }

    /// Reads a header; `at` is its offset in the file.
    fn read(head: [u8; TAG_HEAD_BYTES], at: u64) -> Result<Self, Error> {
        let [kind, s0, s1, s2, t0, t1, t2, high, ..] = head;
        if kind & 0x20 != 0 {
            return Err(Error::Encrypted { at });
        }
        Ok(Self {
            kind: TagKind::read(kind & 0x1f),
            size: u32::from_be_bytes([0, s0, s1, s2]),
            timestamp: u32::from_be_bytes([high, t0, t1, t2]),
        })
    }
}

/// A complete tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Type of the body.
    pub kind: TagKind,
    /// Timestamp in milliseconds, which wraps.
    pub timestamp: u32,
    /// Contents of the tag.
    pub body: Bytes,
}

/// Part of the file that is read next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Header,
    /// Number of bytes to skip between the header's flags and the first tag.
    Skip(usize),
    Head,
    Body(TagHead),
}

/// Reads a file in pieces of any size. Holds the bytes that were pushed and not yet returned as tags.
#[derive(Debug)]
pub struct Reader {
    buffer: BytesMut,
    next: Next,
    header: Option<Header>,
    tag_bytes_max: u32,
    at: u64,
}

impl Reader {
    /// Creates a reader that refuses tags of more than `tag_bytes_max` bytes.
    #[must_use]
    pub fn new(tag_bytes_max: u32) -> Self {
        Self { buffer: BytesMut::new(), next: Next::Header, header: None, tag_bytes_max, at: 0 }
    }

    /// Adds bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Header of the file; `None` before it was read.
    #[must_use]
    pub const fn header(&self) -> Option<Header> {
        self.header
    }

    /// Returns the next complete tag. `None` if more bytes must be pushed first. After an error nothing more
    /// can be read.
    pub fn poll_tag(&mut self) -> Result<Option<Tag>, Error> {
        loop {
            match self.next {
                Next::Header => {
                    let Some(bytes) = self.array::<HEADER_BYTES>() else { return Ok(None) };
                    self.next = Next::Skip(self.read_header(bytes)?);
                }
                Next::Skip(bytes) => {
                    let now = bytes.min(self.buffer.len());
                    self.consume(now);
                    if now < bytes {
                        self.next = Next::Skip(bytes.saturating_sub(now));
                        return Ok(None);
                    }
                    self.next = Next::Head;
                }
                Next::Head => {
                    let at = self.at;
                    let Some(bytes) = self.array::<TAG_HEAD_BYTES>() else { return Ok(None) };
                    let head = TagHead::read(bytes, at)?;
                    if head.size > self.tag_bytes_max {
                        return Err(Error::TagTooLarge { bytes: head.size, at });
                    }
                    self.next = Next::Body(head);
                }
                Next::Body(head) => {
                    let size = usize::try_from(head.size).unwrap_or(usize::MAX);
                    if self.buffer.len() < size {
                        return Ok(None);
                    }
                    let body = self.buffer.split_to(size).freeze();
                    self.at = self.at.saturating_add(u64::from(head.size));
                    // The size after the tag is redundant. Some recorders write it incorrectly, so it is
                    // ignored.
                    self.next = Next::Skip(PREVIOUS_SIZE_BYTES);
                    return Ok(Some(Tag { kind: head.kind, timestamp: head.timestamp, body }));
                }
            }
        }
    }

    /// Reads the header. Returns the number of bytes between the header and the first tag.
    fn read_header(&mut self, bytes: [u8; HEADER_BYTES]) -> Result<usize, Error> {
        let [b'F', b'L', b'V', _, flags, offset @ ..] = bytes else {
            return Err(Error::NotFlv);
        };
        let offset = u32::from_be_bytes(offset);
        if offset > HEADER_BYTES_MAX {
            return Err(Error::NotFlv);
        }
        self.header = Some(Header { audio: flags & 4 != 0, video: flags & 1 != 0 });
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let extra = offset.checked_sub(HEADER_BYTES).ok_or(Error::NotFlv)?;
        Ok(extra.saturating_add(PREVIOUS_SIZE_BYTES))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.buffer.first_chunk::<N>()?;
        self.consume(N);
        Some(bytes)
    }

    fn consume(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
        self.at = self.at.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(tags: &[Tag]) -> Vec<u8> {
        let mut bytes = Header { audio: true, video: false }.write().to_vec();
        for tag in tags {
            let size = u32::try_from(tag.body.len()).unwrap();
            let head = TagHead { kind: tag.kind, size, timestamp: tag.timestamp };
            bytes.extend(head.write());
            bytes.extend_from_slice(&tag.body);
            bytes.extend(head.trailer());
        }
        bytes
    }

    fn tag(kind: TagKind, timestamp: u32, body: &'static [u8]) -> Tag {
        Tag { kind, timestamp, body: Bytes::from_static(body) }
    }

    #[test]
    fn any_cut_gives_the_same_tags() {
        let tags = [
            tag(TagKind::Data, 0, b"meta"),
            tag(TagKind::Video, 0x0123_4567, b"\x17\x01\0\0\0"),
            tag(TagKind::Audio, u32::MAX, b""),
            tag(TagKind::Other(3), 7, b"x"),
        ];
        let bytes = file(&tags);
        for cut in 1..bytes.len() {
            let mut reader = Reader::new(100);
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Some(tag) = reader.poll_tag().unwrap() {
                    got.push(tag);
                }
            }
            assert_eq!(got, tags, "cut {cut}");
            assert_eq!(reader.header(), Some(Header { audio: true, video: false }));
        }
    }

    #[test]
    fn a_file_that_lies_is_refused() {
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(100);
            reader.push(bytes);
            reader.poll_tag()
        };
        assert_eq!(read(b"GET / HTTP/1.1"), Err(Error::NotFlv));
        assert_eq!(read(b"FLV\x01\x05\0\0\0\x08"), Err(Error::NotFlv));
        assert_eq!(read(b"FLV\x01\x05\xff\xff\xff\xff"), Err(Error::NotFlv));
        let mut bytes = file(&[]);
        bytes.extend(TagHead { kind: TagKind::Video, size: 101, timestamp: 0 }.write());
        assert_eq!(read(&bytes), Err(Error::TagTooLarge { bytes: 101, at: 13 }));
        let mut bytes = file(&[]);
        bytes.extend(TagHead { kind: TagKind::Other(0x29), size: 1, timestamp: 0 }.write());
        assert_eq!(read(&bytes), Err(Error::Encrypted { at: 13 }));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = Reader::new(1000);
            reader.push(&file(&[]));
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.poll_tag() {}
        }
    }
}
