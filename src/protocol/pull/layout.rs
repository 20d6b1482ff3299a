//! Where an MP4 file has its index, as its first boxes tell (ISO/IEC 14496-12 §4.2), and the index of one that has it behind its
//! media: what most encoders write.

/// Nothing is looked for behind so many bytes.
const SEARCH_BYTES_MAX: usize = 1 << 20;
/// Bytes of an index, and of what stands before it: sample tables of about a day.
const INDEX_BYTES_MAX: usize = 33 << 20;
/// The head of a box with a size of 32 bits.
const HEAD_BYTES: usize = 8;
/// With one of 64 bits.
const LARGE_HEAD_BYTES: usize = 16;

/// What the first boxes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// It can be read as it comes, or it will be seen why not.
    InOrder,
    /// The media comes first.
    MediaFirst {
        /// Offset of the media.
        media_at: u64,
        /// Offset of the first byte behind it.
        index_at: u64,
    },
}

/// The kind of a box and its bytes; 0: it lasts to the end of the file. `None`: too little has come.
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

impl Layout {
    /// The layout of a file that begins so. `None`: too little has come.
    pub(super) fn of(begun: &[u8]) -> Option<Self> {
        let mut at = 0_usize;
        loop {
            if at > SEARCH_BYTES_MAX || begun.len() > SEARCH_BYTES_MAX {
                return Some(Self::InOrder);
            }
            let (kind, size) = head(begun.get(at..)?)?;
            let media_at = at as u64;
            return Some(match &kind {
                b"mdat" if size > 0 => Self::MediaFirst { media_at, index_at: media_at.saturating_add(size) },
                b"moov" | b"moof" | b"mdat" => Self::InOrder,
                _ => {
                    at = at.saturating_add(usize::try_from(size).ok().filter(|size| *size > 0)?);
                    continue;
                }
            });
        }
    }
}

/// The index, a whole `moov`, in what comes behind the media. `Ok(None)`: too little has come.
///
/// # Errors
/// Why there is none.
pub(super) fn index_in(fetched: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let mut rest = fetched;
    while let Some((kind, size)) = head(rest) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        match &kind {
            b"mdat" | b"moof" => return Err("media without an index"),
            _ if size == 0 || size > INDEX_BYTES_MAX => return Err("the index is too large"),
            b"moov" => return Ok(rest.get(..size)),
            _ => match rest.get(size..) {
                Some(behind) => rest = behind,
                None => break,
            },
        }
    }
    if fetched.len() > INDEX_BYTES_MAX { Err("no index behind the media") } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(Layout::of(&whole), Some(wanted));
            let needed = file.len() + if next[..4] == [0, 0, 0, 1] { LARGE_HEAD_BYTES } else { HEAD_BYTES };
            assert!((0..needed).all(|end| Layout::of(&whole[..end]).is_none()), "{wanted:?}");
        }
        assert_eq!(Layout::of(&boxed(b"free", 2 << 20)), Some(Layout::InOrder));
        assert_eq!(
            Layout::of(&[0, 0, 0, 0, b'u', b'u', b'i', b'd']),
            None,
            "it lasts to the end: no index follows"
        );
    }

    #[test]
    fn the_index_is_found_whole_behind_what_stands_before_it() {
        let moov = boxed(b"moov", 300);
        let tail = [boxed(b"free", 40), moov.clone(), boxed(b"udta", 3)].concat();
        assert_eq!(index_in(&tail), Ok(Some(&moov[..])));
        assert!((0..48 + moov.len()).all(|end| index_in(&tail[..end]) == Ok(None)));
        assert!(index_in(&[boxed(b"free", 1), boxed(b"mdat", 1)].concat()).is_err());
        assert!(index_in(b"\0\0\0\0moov").is_err() && index_in(b"\xff\xff\xff\xffmoov").is_err());
        assert!(index_in(&vec![0; 34 << 20]).is_err());
    }
}
