//! Decoding of header blocks (RFC 7541 §3, §6).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use bytes::Bytes;
use wire::Reader;

use super::table::Table;
use super::{Field, TABLE_BYTES, huffman};

/// Maximum number of bytes of an integer after its prefix. A longer integer cannot be a valid index or
/// length.
const INTEGER_BYTES_MAX: usize = 4;
/// Maximum number of size updates at the start of a block: one for the smallest size, and one for the
/// last (RFC 7541 §4.2).
const SIZE_UPDATES_MAX: usize = 2;

/// Error: a block cannot be decoded. The decoder's table no longer matches the peer's, so the connection
/// must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("header block: {0}")]
pub struct Malformed(pub(crate) &'static str);

/// The decoded fields of a block, as far as they are within the limits.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FieldList {
    /// Fields within the limits, in order.
    pub fields: Vec<Field>,
    /// Size of all fields, including those not kept ([`Field::size`]).
    pub bytes: usize,
    /// True if some fields were not kept.
    pub is_over: bool,
}

/// Decoder for one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES) }
    }
}

impl Decoder {
    /// Decodes a whole block. Keeps at most `fields_max` fields with a total size of `bytes_max`
    /// ([`Field::size`]); further fields are decoded and dropped.
    ///
    /// # Errors
    /// The block violates RFC 7541, or the total size of its decoded fields exceeds `give_up_bytes`. The
    /// connection cannot continue.
    pub fn decode(
        &mut self,
        block: &[u8],
        (fields_max, bytes_max): (usize, usize),
        give_up_bytes: usize,
    ) -> Result<FieldList, Malformed> {
        let mut reader = Reader::new(block);
        let mut list = FieldList::default();
        let (mut updates, mut has_fields) = (0usize, false);
        while let Some(first) = reader.peek() {
            let (field, is_added) = match first {
                0x80.. => (self.indexed(&mut reader)?, false),
                0x40..=0x7f => (self.literal(&mut reader, 6)?, true),
                0x20..=0x3f => {
                    updates = updates.saturating_add(1);
                    if has_fields || updates > SIZE_UPDATES_MAX {
                        return Err(Malformed("a size update out of place"));
                    }
                    self.resize(&mut reader)?;
                    continue;
                }
                // A literal without indexing, or one that must never be indexed.
                0x00..=0x1f => (self.literal(&mut reader, 4)?, false),
            };
            has_fields = true;
            if is_added {
                self.table.insert(field.clone());
            }
            list.bytes = list.bytes.saturating_add(field.size());
            if list.bytes > give_up_bytes {
                return Err(Malformed("a header list far beyond the limit"));
            }
            if list.is_over || list.bytes > bytes_max || list.fields.len() >= fields_max {
                list.is_over = true;
            } else {
                list.fields.push(field);
            }
        }
        Ok(list)
    }

    fn indexed(&self, reader: &mut Reader<'_>) -> Result<Field, Malformed> {
        let index = integer(reader, 7)?;
        self.table.get(index).ok_or(Malformed("an index without an entry"))
    }

    fn literal(&self, reader: &mut Reader<'_>, prefix: u32) -> Result<Field, Malformed> {
        let name = match integer(reader, prefix)? {
            0 => string(reader)?,
            index => self.table.get(index).ok_or(Malformed("an index without an entry"))?.name,
        };
        Ok(Field { name, value: string(reader)? })
    }

    fn resize(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let size = integer(reader, 5)?;
        if size > TABLE_BYTES {
            return Err(Malformed("a table larger than allowed"));
        }
        self.table.resize(size);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn listing(&self) -> (usize, Vec<(String, String)>) {
        self.table.listing()
    }

    #[cfg(test)]
    pub(super) fn with_table(bytes: usize) -> Self {
        Self { table: Table::new(bytes) }
    }
}

/// Reads an integer with a prefix of `prefix` bits in its first byte (RFC 7541 §5.1).
pub(super) fn integer(reader: &mut Reader<'_>, prefix: u32) -> Result<usize, Malformed> {
    let cut = |_| Malformed("an integer is cut off");
    let max = 1usize.checked_shl(prefix).unwrap_or(256).saturating_sub(1);
    let mut value = usize::from(reader.u8().map_err(cut)?) & max;
    if value < max {
        return Ok(value);
    }
    let mut shift = 0u32;
    for _ in 0..INTEGER_BYTES_MAX {
        let byte = reader.u8().map_err(cut)?;
        let part = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
        value = value.saturating_add(part);
        shift = shift.saturating_add(7);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("an integer is too large"))
}

/// Reads a string, plain or Huffman coded (RFC 7541 §5.2).
fn string(reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    let is_huffman = reader.peek().is_some_and(|first| first & 0x80 != 0);
    let length = integer(reader, 7)?;
    let bytes = reader.take(length).map_err(|_| Malformed("a string is cut off"))?;
    if !is_huffman {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    huffman::decode(bytes).map(Bytes::from).ok_or(Malformed("a string is not in Huffman's code"))
}
