//! Boxes (ISO/IEC 14496-12 §4.2): headers, and iteration over the boxes inside.

use core::fmt;

use bytes::Bytes;
use wire::{Reader, Truncated};

use crate::Error;

/// Length of a header with a 32-bit size.
pub(crate) const HEAD_BYTES: usize = 8;
/// Length of a header with a 64-bit size.
pub(crate) const LARGE_HEAD_BYTES: usize = 16;

/// Four-character code: type of a box, a sample entry, a brand or a handler.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourCc(pub [u8; 4]);

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// Header of a box.
///
/// ```text
/// size(32), 1: largesize applies, 0: to the end of the file | type(32) | largesize(64)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: FourCc,
    /// Length of the payload in bytes; `None` if it lasts to the end of the file.
    pub(crate) payload: Option<u64>,
    /// Length of the header itself.
    pub(crate) bytes: usize,
}

impl Head {
    /// Reads the header at the start of `bytes`. `Ok(None)` if it is incomplete. `at` is its offset in the file, for
    /// errors.
    pub(crate) fn read(bytes: &[u8], at: u64) -> Result<Option<Self>, Error> {
        let mut reader = Reader::new(bytes);
        let (Ok(size), Ok(kind)) = (reader.u32(), reader.array()) else { return Ok(None) };
        let kind = FourCc(kind);
        let (size, head_bytes) = match size {
            0 => return Ok(Some(Self { kind, payload: None, bytes: HEAD_BYTES })),
            1 => match reader.u64() {
                Ok(size) => (size, LARGE_HEAD_BYTES),
                Err(_) => return Ok(None),
            },
            size => (u64::from(size), HEAD_BYTES),
        };
        let payload = size.checked_sub(head_bytes as u64).ok_or(Error::Size { kind, at })?;
        // The end of the box must not overflow 64 bits.
        at.checked_add(size).ok_or(Error::Size { kind, at })?;
        Ok(Some(Self { kind, payload: Some(payload), bytes: head_bytes }))
    }
}

/// A box inside another one, with its payload.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) kind: FourCc,
    pub(crate) body: Bytes,
}

/// Iterates over the boxes in `body`. A box that exceeds `body` is an error and ends the iteration. Fewer than eight
/// bytes at the end are ignored (QuickTime ends some lists with a zero).
pub(crate) fn children(body: &Bytes) -> impl Iterator<Item = Result<Child, Error>> + use<> {
    let mut rest = body.clone();
    let mut at = 0u64;
    core::iter::from_fn(move || {
        if rest.len() < HEAD_BYTES {
            return None;
        }
        let child = first_child(&mut rest, at);
        at = match &child {
            Ok((_, bytes)) => at.saturating_add(*bytes),
            Err(_) => {
                rest = Bytes::new();
                at
            }
        };
        Some(child.map(|(child, _)| child))
    })
}

/// Takes the first box off `rest`, and returns it with its length.
fn first_child(rest: &mut Bytes, at: u64) -> Result<(Child, u64), Error> {
    let kind = FourCc(rest.get(4..8).and_then(|kind| kind.try_into().ok()).unwrap_or_default());
    let head = Head::read(rest, at)?.ok_or(Error::Size { kind, at })?;
    // Only a top-level box may extend to the end of the file.
    let payload = head.payload.and_then(|payload| usize::try_from(payload).ok());
    let payload = payload.ok_or(Error::Size { kind, at })?;
    let end = head.bytes.checked_add(payload).filter(|end| *end <= rest.len());
    let mut whole = rest.split_to(end.ok_or(Error::Size { kind, at })?);
    let body = whole.split_off(head.bytes);
    Ok((Child { kind, body }, head.bytes.saturating_add(payload) as u64))
}

/// Returns the first box of a type in `body`; `None` if there is none.
pub(crate) fn child(body: &Bytes, kind: &[u8; 4]) -> Result<Option<Bytes>, Error> {
    for child in children(body) {
        let child = child?;
        if child.kind.0 == *kind {
            return Ok(Some(child.body));
        }
    }
    Ok(None)
}

/// Returns the first box of a type, which must be present.
pub(crate) fn required(body: &Bytes, kind: &'static [u8; 4], name: &'static str) -> Result<Bytes, Error> {
    child(body, kind)?.ok_or(Error::Invalid(name))
}

/// Reads the version and flags at the start of a full box (§4.2.2).
pub(crate) fn version_and_flags(reader: &mut Reader<'_>) -> Result<(u8, u32), Truncated> {
    Ok((reader.u8()?, reader.u24()?))
}

/// Maps a truncated value to an error that names the box.
pub(crate) const fn short_in(kind: &[u8; 4]) -> impl Fn(Truncated) -> Error + use<> {
    let kind = FourCc(*kind);
    move |error| Error::Truncated { kind, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_32_or_64_bits_or_no_size() {
        let of = |bytes: &[u8]| Head::read(bytes, 0).unwrap().map(|head| (head.payload, head.bytes));
        assert_eq!(of(b"\0\0\0\x0cfree"), Some((Some(4), 8)));
        assert_eq!(of(b"\0\0\0\0mdat"), Some((None, 8)));
        assert_eq!(of(b"\0\0\0\x01mdat\0\0\0\x01\0\0\0\0"), Some((Some((1 << 32) - 16), 16)));
        assert_eq!((of(b"\0\0\0\x01mdat\0\0\0"), of(b"\0\0\0")), (None, None));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let kind = FourCc(*b"mdat");
        for lie in [&b"\0\0\0\x07mdat"[..], b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x0f", b"\0\0\0\x02mdat"] {
            assert_eq!(Head::read(lie, 5), Err(Error::Size { kind, at: 5 }));
        }
        let most = b"\0\0\0\x01mdat\xff\xff\xff\xff\xff\xff\xff\xff";
        assert!(Head::read(most, 0).is_ok());
        assert_eq!(Head::read(most, 1), Err(Error::Size { kind, at: 1 }));
    }

    #[test]
    fn a_child_cannot_leave_its_parent() {
        let body = Bytes::from_static(b"\0\0\0\x09abcd!\0\0\0\x0befgh!!!\0\0\0\0");
        let kinds: Vec<_> = children(&body).map(|child| child.unwrap().kind.0).collect();
        assert_eq!(kinds, [*b"abcd", *b"efgh"]);
        let over = Bytes::from_static(b"\0\0\0\x09abcd!\0\0\0\x0defgh!!!!");
        let last = children(&over).last().unwrap().err();
        assert_eq!(last, Some(Error::Size { kind: FourCc(*b"efgh"), at: 9 }));
        // A box that extends to the end of the file is not allowed inside another box.
        let open = Bytes::from_static(b"\0\0\0\0abcd!");
        assert_eq!(children(&open).count(), 1);
        assert!(children(&open).all(|child| child.is_err()));
    }
}
