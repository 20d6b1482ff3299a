//! Compression of header fields (RFC 7541).
//!
//! A [`Decoder`] and an [`Encoder`] each keep the table of one direction, 4 096 bytes at most. The fields of a block are
//! collected up to the limits of a [`FieldList`]; a block that goes past them is still decoded, since the table follows from
//! it, but nothing more of it is kept.

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use decoder::{Decoder, FieldList, Malformed};
pub use encoder::Encoder;

/// The size of a dynamic table, here and until the peer says otherwise (RFC 9113 §6.5.2).
pub const TABLE_BYTES: usize = 4096;

/// A header field. Its name is in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: Bytes,
    /// Value.
    pub value: Bytes,
}

impl Field {
    /// A field of these bytes.
    #[must_use]
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    /// Its size in a table and in a header list (RFC 7541 §4.1, RFC 9113 §6.5.2).
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.len().saturating_add(self.value.len()).saturating_add(table::ENTRY_BYTES)
    }
}
