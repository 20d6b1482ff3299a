//! Compression of header fields (RFC 7541).
//!
//! A [`Decoder`] and an [`Encoder`] each keep the dynamic table of one direction, of at most 4 096 bytes. The fields of
//! a block are collected up to the limits of a [`FieldList`]. A block beyond the limits is still decoded to its end,
//! because later blocks depend on the table, but its further fields are dropped.

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use decoder::{Decoder, FieldList, Malformed};
pub use encoder::Encoder;

/// Maximum size of a dynamic table in bytes. Our decoder uses this size, and so does the peer's decoder unless
/// its settings state another one (RFC 9113 §6.5.2).
pub const TABLE_BYTES: usize = 4096;

/// A header field. Its name is in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name in lower case.
    pub name: Bytes,
    /// Value of the field.
    pub value: Bytes,
}

impl Field {
    /// Creates a field.
    #[must_use]
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    /// Returns the size of the field in a table and in a header list (RFC 7541 §4.1, RFC 9113 §6.5.2).
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.len().saturating_add(self.value.len()).saturating_add(table::ENTRY_BYTES)
    }
}
