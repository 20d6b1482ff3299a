//! The body of a response: an FLV file or an MPEG transport stream, as its first bytes say.

use bytes::{Bytes, BytesMut};
use flv::file::Reader;

use super::pull::TAG_BYTES_MAX;
use crate::protocol::pull::Media;

/// How an FLV file begins (FLV 10.1 §E.2).
const FLV_SIGNATURE: &[u8] = b"FLV";
/// How a packet of a transport stream begins (ISO/IEC 13818-1 §2.4.3.2).
const TS_SYNC: u8 = 0x47;

/// See the module.
#[derive(Debug)]
pub(super) enum Body {
    /// Too few bytes came to tell.
    Unknown(BytesMut),
    /// An FLV file.
    Flv(Reader),
    /// A transport stream, and what came of it and was not polled.
    Ts(Option<Bytes>),
    /// Neither, which is still to be said.
    Other,
    /// Nothing more is read.
    Over,
}

impl Body {
    /// Nothing came yet.
    pub(super) fn new() -> Self {
        Self::Unknown(BytesMut::new())
    }

    /// Takes the next bytes; what came before is polled by then.
    pub(super) fn push(&mut self, bytes: Bytes) {
        match self {
            Self::Unknown(begun) => {
                begun.extend_from_slice(&bytes);
                let whole = begun.split().freeze();
                *self = Self::of(whole);
            }
            Self::Flv(file) => file.push(&bytes),
            Self::Ts(pending) => *pending = Some(bytes),
            Self::Other | Self::Over => {}
        }
    }

    fn of(begun: Bytes) -> Self {
        if begun.first() == Some(&TS_SYNC) {
            return Self::Ts(Some(begun));
        }
        if begun.starts_with(FLV_SIGNATURE) {
            let mut file = Reader::new(TAG_BYTES_MAX);
            file.push(&begun);
            return Self::Flv(file);
        }
        if FLV_SIGNATURE.starts_with(&begun) {
            Self::Unknown(BytesMut::from(&begun[..]))
        } else {
            Self::Other
        }
    }

    /// The next piece of the stream.
    ///
    /// # Errors
    /// The reason why there is none and will be none; once.
    pub(super) fn poll(&mut self) -> Result<Option<Media>, String> {
        let next = self.next();
        if next.is_err() {
            *self = Self::Over;
        }
        next
    }

    fn next(&mut self) -> Result<Option<Media>, String> {
        match self {
            Self::Unknown(_) | Self::Over => Ok(None),
            Self::Flv(file) => {
                file.poll_tag().map(|tag| tag.map(Media::Tag)).map_err(|error| error.to_string())
            }
            Self::Ts(pending) => Ok(pending.take().map(Media::Payload)),
            Self::Other => Err("the body is neither FLV nor MPEG-TS".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(body: &[u8], size: usize) -> Result<Vec<Media>, String> {
        let (mut reader, mut media) = (Body::new(), Vec::new());
        for piece in body.chunks(size) {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(piece) = reader.poll()? {
                media.push(piece);
            }
        }
        Ok(media)
    }

    #[test]
    fn the_first_bytes_say_what_it_is_however_they_are_cut() {
        let flv = b"FLV\x01\x05\0\0\0\x09\0\0\0\0\x12\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x0c";
        for size in [1, 2, 3, 5, 100] {
            assert!(matches!(pieces(flv, size).unwrap()[..], [Media::Tag(_)]), "{size}");
            let ts = pieces(&[TS_SYNC; 400], size).unwrap();
            let whole: Vec<u8> = ts
                .iter()
                .flat_map(|media| match media {
                    Media::Payload(bytes) => bytes.to_vec(),
                    Media::Tag(_) | Media::Lost => panic!("{media:?}"),
                })
                .collect();
            assert_eq!(whole, [TS_SYNC; 400], "{size}");
            for other in [&b"<html>"[..], b"FLAC", b"F", b"#EXTM3U", b"\0\0\0\x18ftyp"] {
                let told = pieces(other, size);
                assert_eq!(told.is_err(), other != b"F", "{other:?} {size}: {told:?}");
            }
        }
    }

    #[test]
    fn the_reason_is_told_once() {
        let mut body = Body::new();
        body.push(Bytes::from_static(b"<html>"));
        assert!(body.poll().is_err());
        body.push(Bytes::from_static(b"</html>"));
        assert_eq!(body.poll(), Ok(None));
    }

    #[test]
    fn what_is_malformed_behind_its_beginning_ends_it() {
        assert!(pieces(b"FLV\x01\x05\0\0\0\x09\0\0\0\0\x09\xff\xff\xff\0\0\0\0\0\0\0", 4).is_err());
    }
}
