//! Header extensions (RFC 8285): the elements of a block, the ids negotiated for a session, and their values.

mod kind;
mod map;
mod value;

pub use kind::Extension;
pub use map::ExtensionMap;
pub use value::{AbsSendTime, AudioLevel, Extensions, PlayoutDelay};

use wire::Reader;

use crate::header::ExtensionBlock;

/// Profile of the one-byte form (RFC 8285 §4.2).
pub const ONE_BYTE_PROFILE: u16 = 0xbede;
/// Profile of the two-byte form; its lower four bits belong to the application (RFC 8285 §4.3).
pub const TWO_BYTE_PROFILE: u16 = 0x1000;
const TWO_BYTE_MASK: u16 = 0xfff0;
/// Id that ends the elements in the one-byte form (RFC 8285 §4.2).
const STOP_ID: u8 = 15;

/// Iterates over the elements of a block as `(id, value)`. Ends at a malformed element. Blocks with other
/// profiles have no elements.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    reader: Reader<'a>,
    two_byte: bool,
}

impl<'a> Elements<'a> {
    /// Iterates over the elements of a block.
    #[must_use]
    pub fn of(block: ExtensionBlock<'a>) -> Self {
        let two_byte = block.profile & TWO_BYTE_MASK == TWO_BYTE_PROFILE;
        let known = two_byte || block.profile == ONE_BYTE_PROFILE;
        Self { reader: Reader::new(if known { block.bytes } else { &[] }), two_byte }
    }

    /// Number of bytes of the block read so far.
    pub(super) const fn position(&self) -> usize {
        self.reader.position()
    }

    fn element(&mut self) -> Option<(u8, &'a [u8])> {
        // Zeros are padding in both forms.
        while self.reader.peek() == Some(0) {
            self.reader.u8().ok()?;
        }
        let first = self.reader.u8().ok()?;
        let (id, length) = if self.two_byte {
            (first, usize::from(self.reader.u8().ok()?))
        } else {
            (first >> 4, usize::from(first & 0x0f) + 1)
        };
        // In the one-byte form, id 15 ends the block, and so does id 0 with a length (RFC 8285 §4.2).
        if !self.two_byte && (id == STOP_ID || id == 0) {
            return None;
        }
        self.reader.take(length).ok().map(|value| (id, value))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // An id of 0 with a length is padding by old senders, and is skipped.
        loop {
            match self.element() {
                Some((0, _)) => {}
                Some(element) => return Some(element),
                None => {
                    self.reader.rest();
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(profile: u16, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        Elements::of(ExtensionBlock { profile, bytes }).map(|(id, value)| (id, value.to_vec())).collect()
    }

    #[test]
    fn both_forms_skip_padding_and_end_at_what_is_malformed() {
        for (profile, bytes, expected) in [
            (ONE_BYTE_PROFILE, &[0x10, 7, 0, 0x21, 8, 9, 0, 0][..], vec![(1, vec![7]), (2, vec![8, 9])]),
            (ONE_BYTE_PROFILE, &[0x10, 7, 0xf0, 1, 0x20, 1], vec![(1, vec![7])]),
            (ONE_BYTE_PROFILE, &[0x10, 7, 0x2f, 1], vec![(1, vec![7])]),
            (ONE_BYTE_PROFILE, &[0x02, 7, 8, 9, 0x20, 1], vec![]),
            (0x1000, &[1, 0, 200, 2, 8, 9, 0, 0], vec![(1, vec![]), (200, vec![8, 9])]),
            (0x100f, &[15, 1, 5], vec![(15, vec![5])]),
            (0x1000, &[1, 1, 5, 2], vec![(1, vec![5])]),
            (0x1000, &[1, 9, 5, 2], vec![]),
            (0xabcd, &[0x10, 7], vec![]),
        ] {
            assert_eq!(elements(profile, bytes), expected, "{bytes:?}");
        }
    }
}
