//! The layout of an MP4 file, i.e. the position of its index, according to its first boxes (ISO/IEC 14496-12 §4.2).
//! Most encoders write the index after the media; the index is then read before the media.

use bytes::{Buf, Bytes, BytesMut};

/// Number of bytes at the beginning that are searched.
const SEARCH_BYTES_MAX: usize = 1 << 20;
/// Maximum size of an index and of anything before it: sample tables of about a day.
const INDEX_BYTES_MAX: usize = 33 << 20;
/// Size of a box head with a 32-bit size.
const HEAD_BYTES: usize = 8;
/// Size of a box head with a 64-bit size.
const LARGE_HEAD_BYTES: usize = 16;

/// The order of a file's parts, according to its first boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The file can be read from the beginning (or reading it will show the fault).
    InOrder,
    /// The media precedes the index.
    MediaFirst {
        /// Offset of the media.
        media_at: u64,
        /// Offset of the first byte after the media.
        index_at: u64,
    },
}

/// Parses a box head into type and size; the size is 0 if the box extends to the end of the file. `None` if too little
/// has arrived.
fn head(bytes: &[u8]) -> Option<([u8; 4], u64)> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let size = match u32::from_be_bytes(*size) {
        1 => u64::from_be_bytes(*rest.first_chunk::<8>()?).max(LARGE_HEAD_BYTES as u64),
        0 => 0,
        size => u64::from(size).max(HEAD_BYTES as u64),
    };
    Some((*kind, size))
}

/// The beginning of a file, until its layout is known. Bytes may arrive in small pieces; each box is parsed once.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    bytes: BytesMut,
    /// Offset of the first box not skipped yet.
    at: usize,
}

impl Beginning {
    /// Takes the next bytes and returns the layout, or `None` if too little has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Layout> {
        self.bytes.extend_from_slice(bytes);
        loop {
            if self.at > SEARCH_BYTES_MAX || self.bytes.len() > SEARCH_BYTES_MAX {
                return Some(Layout::InOrder);
            }
            let (kind, size) = head(self.bytes.get(self.at..)?)?;
            let media_at = self.at as u64;
            return Some(match &kind {
                b"mdat" if size > 0 => {
                    Layout::MediaFirst { media_at, index_at: media_at.saturating_add(size) }
                }
                b"moov" | b"moof" | b"mdat" => Layout::InOrder,
                _ => {
                    let size = usize::try_from(size).ok().filter(|size| *size > 0)?;
                    self.at = self.at.saturating_add(size);
                    continue;
                }
            });
        }
    }

    /// Returns all bytes that have arrived.
    pub(super) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).freeze()
    }
}

/// The bytes after the media, kept until the index is complete. Boxes before the index are dropped.
#[derive(Debug, Default)]
pub(super) struct Behind {
    bytes: BytesMut,
    /// Number of bytes of the boxes skipped.
    passed: usize,
}

impl Behind {
    /// Takes the next bytes and returns the index, a complete `moov`, or `None` if too little has arrived.
    ///
    /// # Errors
    /// The reason why there is no index.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Option<Bytes>, &'static str> {
        self.bytes.extend_from_slice(bytes);
        while let Some((kind, size)) = head(&self.bytes) {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            match &kind {
                b"mdat" | b"moof" => return Err("media without an index"),
                _ if size == 0 || size > INDEX_BYTES_MAX => return Err("the index is too large"),
                _ if self.bytes.len() < size => break,
                b"moov" => return Ok(self.bytes.get(..size).map(Bytes::copy_from_slice)),
                _ => {
                    self.bytes.advance(size);
                    self.passed = self.passed.saturating_add(size);
                }
            }
        }
        let all = self.bytes.len().saturating_add(self.passed);
        if all > INDEX_BYTES_MAX { Err("no index behind the media") } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: &[u8]) -> Option<Layout> {
        Beginning::default().push(bytes)
    }

    fn boxed(kind: &[u8; 4], length: usize) -> Vec<u8> {
        let size = u32::try_from(HEAD_BYTES + length).unwrap();
        [&size.to_be_bytes()[..], kind, &vec![0; length]].concat()
    }

    #[test]
    fn the_first_boxes_say_where_the_index_is() {
        let large = [&1_u32.to_be_bytes()[..], b"mdat", &5_000_000_000_u64.to_be_bytes()].concat();
        let file = [boxed(b"ftyp", 16), boxed(b"free", 0)].concat();
        let at = file.len() as u64;
        for (next, wanted) in [
            (boxed(b"moov", 9), Layout::InOrder),
            (boxed(b"moof", 9), Layout::InOrder),
            (boxed(b"mdat", 92), Layout::MediaFirst { media_at: at, index_at: at + 100 }),
            (large, Layout::MediaFirst { media_at: at, index_at: at + 5_000_000_000 }),
            ([&0_u32.to_be_bytes()[..], b"mdat"].concat(), Layout::InOrder),
        ] {
            let whole = [&file[..], &next].concat();
            assert_eq!(layout(&whole), Some(wanted));
            let needed = file.len() + if next[..4] == [0, 0, 0, 1] { LARGE_HEAD_BYTES } else { HEAD_BYTES };
            assert!((0..needed).all(|end| layout(&whole[..end]).is_none()), "{wanted:?}");
            let mut pieces = Beginning::default();
            assert_eq!(whole.chunks(1).find_map(|byte| pieces.push(byte)), Some(wanted));
        }
        assert_eq!(layout(&boxed(b"free", 2 << 20)), Some(Layout::InOrder));
        assert_eq!(
            layout(&[0, 0, 0, 0, b'u', b'u', b'i', b'd']),
            None,
            "it lasts to the end: no index follows"
        );
    }

    #[test]
    fn the_index_is_found_whole_behind_what_stands_before_it() {
        let moov = boxed(b"moov", 300);
        let tail = [boxed(b"free", 40), moov.clone(), boxed(b"udta", 3)].concat();
        let index_in = |bytes: &[u8]| Behind::default().push(bytes);
        assert_eq!(index_in(&tail), Ok(Some(Bytes::from(moov.clone()))));
        assert!((0..48 + moov.len()).all(|end| index_in(&tail[..end]) == Ok(None)));
        let mut pieces = Behind::default();
        let found = tail.chunks(1).find_map(|byte| pieces.push(byte).unwrap());
        assert_eq!(found, Some(Bytes::from(moov)));
        assert!(index_in(&[boxed(b"free", 1), boxed(b"mdat", 1)].concat()).is_err());
        assert!(index_in(b"\0\0\0\0moov").is_err() && index_in(b"\xff\xff\xff\xffmoov").is_err());
        assert!(index_in(&vec![0; 34 << 20]).is_err());
    }

    #[test]
    fn boxes_are_passed_once_however_the_bytes_come() {
        let small = boxed(b"free", 0);
        let (mut beginning, mut behind) = (Beginning::default(), Behind::default());
        for n in 1..=1000 {
            assert_eq!(beginning.push(&small), None);
            assert_eq!(behind.push(&small), Ok(None));
            assert_eq!((beginning.at, behind.passed, behind.bytes.len()), (n * 8, n * 8, 0));
        }
        let many = small.repeat(INDEX_BYTES_MAX / small.len());
        assert_eq!(behind.push(&many), Err("no index behind the media"));
    }
}
