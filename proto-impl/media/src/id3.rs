//! ID3v2.4 tags, the form of timed metadata in HLS (id3.org, "ID3 tag version 2.4.0", structure and native frames).

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

/// Largest tag: it fits one PES packet with room to spare.
pub const TAG_BYTES_MAX: usize = 32 * 1024;
/// Length in bytes of a tag header (§3.1), and of a frame header (§4).
const HEAD_BYTES: usize = 10;
/// Code of the text encoding UTF-8 (§4).
const UTF_8: u8 = 3;

/// Returns a tag with one text. `name` is chosen by the sender (frame `TXXX`, §4.2.6); players pass
/// name and text to the web page. `None` if the tag would be longer than [`TAG_BYTES_MAX`], or if
/// the name contains a zero character.
#[must_use]
pub fn text(name: &str, text: &str) -> Option<Bytes> {
    tag(b"TXXX", [&[UTF_8], name.as_bytes(), &[0], text.as_bytes(), &[0]]).filter(|_| !name.contains('\0'))
}

/// Returns a tag with bytes of the sender (frame `PRIV`, §4.27). `owner` says who defines them, by a URL, an address or
/// a name. `None` if the tag would be longer than [`TAG_BYTES_MAX`], or if the owner contains a zero character.
#[must_use]
pub fn private(owner: &str, data: &[u8]) -> Option<Bytes> {
    tag(b"PRIV", [owner.as_bytes(), &[0], data]).filter(|_| !owner.contains('\0'))
}

/// Returns a tag with one frame, whose body is the concatenation of `pieces`. `None` if the tag would be longer than
/// [`TAG_BYTES_MAX`].
fn tag<const N: usize>(id: &[u8; 4], pieces: [&[u8]; N]) -> Option<Bytes> {
    let frame = pieces.iter().try_fold(0usize, |bytes, piece| bytes.checked_add(piece.len()))?;
    let tag = frame.checked_add(HEAD_BYTES)?;
    if tag.checked_add(HEAD_BYTES)? > TAG_BYTES_MAX {
        return None;
    }
    let mut out = BytesMut::with_capacity(tag + HEAD_BYTES);
    out.put_slice(b"ID3\x04\0\0");
    out.put_slice(&synchsafe(tag)?);
    out.put_slice(id);
    out.put_slice(&synchsafe(frame)?);
    out.put_slice(&[0, 0]);
    pieces.iter().for_each(|piece| out.put_slice(piece));
    Some(out.freeze())
}

/// Returns true if the bytes consist of one or more whole tags of version 2.3 or 2.4, of at most [`TAG_BYTES_MAX`]
/// in total.
#[must_use]
pub fn is_tags(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(behind) = behind_tag(rest) {
        if behind.is_empty() {
            return bytes.len() <= TAG_BYTES_MAX;
        }
        rest = behind;
    }
    false
}

/// Returns the texts of `TXXX` frames, each with its name. Frames of other kinds and encodings are skipped.
#[must_use]
pub fn texts(bytes: &[u8]) -> Vec<(&str, &str)> {
    let mut texts = Vec::new();
    let mut rest = bytes;
    while let Some(behind) = behind_tag(rest) {
        let end = rest.len().saturating_sub(behind.len());
        let mut frames = rest.get(HEAD_BYTES..end).unwrap_or_default();
        while let Some((id, body, next)) = frame(frames) {
            texts.extend(Some(body).filter(|_| id == b"TXXX").and_then(named_text));
            frames = next;
        }
        rest = behind;
    }
    texts
}

/// Returns a frame's id and body, and the bytes after it.
fn frame(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (id, rest) = bytes.split_first_chunk::<4>()?;
    let (size, rest) = rest.split_first_chunk::<4>()?;
    let (body, next) = rest.get(2..)?.split_at_checked(read_synchsafe(*size)?)?;
    Some((id, body, next))
}

fn named_text(body: &[u8]) -> Option<(&str, &str)> {
    let (encoding, rest) = body.split_first()?;
    let rest = core::str::from_utf8(rest).ok().filter(|_| *encoding == UTF_8)?;
    let (name, text) = rest.split_once('\0')?;
    Some((name, text.trim_end_matches('\0')))
}

/// Returns the bytes after the first tag in `bytes`.
fn behind_tag(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [b'I', b'D', b'3', 3 | 4, _, flags, size @ ..] = head else { return None };
    let footer = if flags & 0x10 == 0 { 0 } else { HEAD_BYTES };
    rest.get(read_synchsafe(*size)?.checked_add(footer)?..)
}

/// Writes a size with seven bits per byte (§6.2). `None` if it needs more than 28 bits.
fn synchsafe(size: usize) -> Option<[u8; 4]> {
    let size = u32::try_from(size).ok().filter(|size| *size < 1 << 28)?;
    Some([21, 14, 7, 0].map(|shift| u8::try_from(size >> shift & 0x7f).unwrap_or(0)))
}

/// Reads a size with seven bits per byte. `None` if a byte has its top bit set.
fn read_synchsafe(bytes: [u8; 4]) -> Option<usize> {
    bytes.iter().try_fold(0, |size, byte| (*byte < 0x80).then(|| size << 7 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_tag_and_is_read_again() {
        for (name, value) in
            [("", "hello"), ("chat", ""), ("n", &"é".repeat(9000)), ("onCuePoint", "{\"a\":1}")]
        {
            let tag = text(name, value).unwrap();
            assert!(is_tags(&tag));
            assert_eq!(texts(&tag), [(name, value)]);
            let both = [&tag[..], &tag].concat();
            assert_eq!((is_tags(&both), texts(&both).len()), (both.len() <= TAG_BYTES_MAX, 2));
        }
        let tag = text("a", "b").unwrap();
        assert_eq!(&tag[..], b"ID3\x04\0\0\0\0\0\x0fTXXX\0\0\0\x05\0\0\x03a\0b\0");
    }

    #[test]
    fn what_is_too_long_or_cannot_be_read_again_is_no_tag() {
        let longest = TAG_BYTES_MAX - 2 * HEAD_BYTES - 3;
        assert!(text("", &"x".repeat(longest)).is_some_and(|tag| is_tags(&tag)));
        assert_eq!(text("", &"x".repeat(longest + 1)), None);
        assert_eq!(text("a\0b", ""), None);
        assert_eq!(private("a\0b", b""), None);
        let longest = TAG_BYTES_MAX - 2 * HEAD_BYTES - 2;
        assert!(private("a", &vec![0; longest]).is_some_and(|tag| is_tags(&tag)));
        assert_eq!(private("a", &vec![0; longest + 1]), None);
    }

    #[test]
    fn tags_that_are_cut_off_or_lie_are_none() {
        let tag = text("name", "a text").unwrap();
        assert!((0..tag.len()).all(|end| !is_tags(&tag[..end])));
        assert!(!is_tags(&[&tag[..], b"x"].concat()));
        for at in 0..tag.len() {
            for value in 0..=255 {
                let mut bytes = tag.to_vec();
                bytes[at] = value;
                let _ = (is_tags(&bytes), texts(&bytes));
            }
        }
        assert!(!is_tags(b"ID3\x04\0\0\0\0\0\x80"), "a size has seven bits a byte");
        assert!(is_tags(b"ID3\x04\0\x10\0\0\0\0\x33DI\x04\0\x10\0\0\0\0"), "a footer belongs to it");
    }
}
