//! The container of a source that is one run of bytes (a response's body or a file), detected from its first bytes:
//! FLV, MPEG-TS or MP4.

use bytes::{Bytes, BytesMut};
use flv::file::Reader;

use super::Media;
use super::layout::{Beginning, Layout};

/// Maximum size of a tag; larger ones cannot belong to a stream.
pub(in crate::protocol) const TAG_BYTES_MAX: u32 = 8 << 20;
/// The beginning of an FLV file (FLV 10.1 §E.2).
const FLV_SIGNATURE: &[u8] = b"FLV";
/// The beginning of an MP4 file, after the length of its first box (ISO/IEC 14496-12 §4.3).
const MP4_SIGNATURE: &[u8] = b"ftyp";
/// The sync byte of an MPEG-TS packet (ISO/IEC 13818-1 §2.4.3.2).
const TS_SYNC: u8 = 0x47;

/// The body of a source.
#[derive(Debug)]
pub(super) enum Body {
    /// Too few bytes have arrived to detect the container.
    Unknown(BytesMut),
    /// An FLV file.
    Flv(Reader),
    /// A transport stream, with bytes that were not polled yet.
    Ts(Option<Bytes>),
    /// An MP4 file of which too little has arrived to locate its index.
    Mp4Begins(Beginning),
    /// An MP4 file, with bytes that were not polled yet.
    Mp4(Option<Bytes>),
    /// An MP4 file in which the media precedes the index: the offset of the media, and the offset at or after which the
    /// index begins.
    MediaFirst(u64, u64),
    /// An unknown container, not reported yet.
    Other,
    /// The end: nothing more is read.
    Over,
}

impl Body {
    /// Makes an empty body.
    pub(super) fn new() -> Self {
        Self::Unknown(BytesMut::new())
    }

    /// Takes the next bytes; earlier ones must have been polled.
    pub(super) fn push(&mut self, bytes: Bytes) {
        match self {
            Self::Unknown(begun) => {
                begun.extend_from_slice(&bytes);
                let whole = begun.split().freeze();
                *self = Self::of(whole);
            }
            Self::Flv(file) => file.push(&bytes),
            Self::Ts(pending) | Self::Mp4(pending) => *pending = Some(bytes),
            Self::Mp4Begins(beginning) => match beginning.push(&bytes) {
                None => {}
                Some(Layout::InOrder) => *self = Self::Mp4(Some(beginning.take())),
                Some(Layout::MediaFirst { media_at, index_at }) => {
                    *self = Self::MediaFirst(media_at, index_at);
                }
            },
            Self::MediaFirst(..) | Self::Other | Self::Over => {}
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
        // An MP4 file begins with a short box, so the first byte of the box's length is zero.
        if begun.first() == Some(&0) && begun.len() >= 4 + MP4_SIGNATURE.len() {
            let is_mp4 = begun.get(4..).is_some_and(|kind| kind.starts_with(MP4_SIGNATURE));
            if !is_mp4 {
                return Self::Other;
            }
            let mut file = Self::Mp4Begins(Beginning::default());
            file.push(begun);
            return file;
        }
        if FLV_SIGNATURE.starts_with(&begun) || begun.first() == Some(&0) {
            Self::Unknown(BytesMut::from(&begun[..]))
        } else {
            Self::Other
        }
    }

    /// Returns the next piece of the stream.
    ///
    /// # Errors
    /// The reason why there are no more pieces; returned once.
    pub(super) fn poll(&mut self) -> Result<Option<Media>, String> {
        let next = self.next();
        if next.is_err() {
            *self = Self::Over;
        }
        next
    }

    fn next(&mut self) -> Result<Option<Media>, String> {
        match self {
            Self::Unknown(_) | Self::Mp4Begins(_) | Self::MediaFirst(..) | Self::Over => Ok(None),
            Self::Flv(file) => {
                file.poll_tag().map(|tag| tag.map(Media::Tag)).map_err(|error| error.to_string())
            }
            Self::Ts(pending) => Ok(pending.take().map(Media::Payload)),
            Self::Mp4(pending) => Ok(pending.take().map(Media::Mp4)),
            Self::Other => Err("the body is neither FLV nor MPEG-TS nor MP4".to_owned()),
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
            let mp4 = b"\0\0\0\x18ftypisom\0\0\0\0isomavc1\0\0\0\x08moov";
            for whole in [&[TS_SYNC; 400][..], mp4] {
                let came: Vec<u8> = pieces(whole, size)
                    .unwrap()
                    .iter()
                    .flat_map(|media| match media {
                        Media::Payload(bytes) if whole[0] == TS_SYNC => bytes.to_vec(),
                        Media::Mp4(bytes) if whole[0] == 0 => bytes.to_vec(),
                        Media::Payload(_)
                        | Media::Mp4(_)
                        | Media::Mp4Index { .. }
                        | Media::Tag(_)
                        | Media::Lost => {
                            panic!("{media:?}")
                        }
                    })
                    .collect();
                assert_eq!(came, whole, "{size}");
            }
            for other in [&b"<html>"[..], b"FLAC", b"F", b"#EXTM3U", b"\0\0\0\x18moof", b"\0\0\0\x18f"] {
                let told = pieces(other, size);
                assert_eq!(told.is_err(), ![&b"F"[..], b"\0\0\0\x18f"].contains(&other), "{other:?} {size}");
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
