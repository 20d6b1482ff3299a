//! Encoding of header blocks (RFC 7541 §6).

use bytes::Bytes;

use super::table::{Found, Table};
use super::{Field, TABLE_BYTES, huffman};

/// Fields with secrets, which no table and no proxy may store (RFC 7541 §7.1.3).
const NEVER: [&[u8]; 3] = [b"set-cookie", b"authorization", b"www-authenticate"];
/// Fields whose values rarely repeat, so that it is useless to add them to the table.
const FLEETING: [&[u8]; 8] = [
    b"date",
    b"etag",
    b"content-length",
    b"content-range",
    b"last-modified",
    b"location",
    b"age",
    b"expires",
];
/// Largest entry that is added to the table, in bytes.
const ENTRY_MAX: usize = 1024;

/// Encoder for one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Smallest table size that was set since the last block. The next block must announce it (RFC 7541 §4.2).
    smallest: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES), smallest: None }
    }
}

impl Encoder {
    /// Sets the table size of the peer's decoder (SETTINGS_HEADER_TABLE_SIZE). At most the default size is used.
    pub fn resize(&mut self, bytes: usize) {
        let bytes = bytes.min(TABLE_BYTES);
        if bytes != self.table.max() || self.smallest.is_some() {
            self.smallest = Some(self.smallest.map_or(bytes, |smallest| smallest.min(bytes)));
        }
        self.table.resize(bytes);
    }

    /// Encodes a block.
    pub fn encode<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(smallest) = self.smallest.take() {
            if smallest < self.table.max() {
                integer(&mut out, 0x20, 5, smallest);
            }
            integer(&mut out, 0x20, 5, self.table.max());
        }
        for field in fields {
            self.field(&mut out, field);
        }
        out
    }

    fn field(&mut self, out: &mut Vec<u8>, field: &Field) {
        let found = self.table.find(&field.name, &field.value);
        if let Found::Whole(index) = found {
            return integer(out, 0x80, 7, index);
        }
        let is = |names: &[&[u8]]| names.contains(&&field.name[..]);
        let is_added = !is(&NEVER) && !is(&FLEETING) && field.size() <= ENTRY_MAX;
        let (first, prefix) = match (is_added, is(&NEVER)) {
            (true, _) => (0x40, 6),
            (false, true) => (0x10, 4),
            (false, false) => (0x00, 4),
        };
        match found {
            Found::Name(index) | Found::Whole(index) => integer(out, first, prefix, index),
            Found::Nothing => {
                integer(out, first, prefix, 0);
                string(out, &field.name);
            }
        }
        string(out, &field.value);
        if is_added {
            self.table.insert(field.clone());
        }
    }
}

/// Writes an integer into the last `prefix` bits of a byte that begins with `first` (RFC 7541 §5.1).
fn integer(out: &mut Vec<u8>, first: u8, prefix: u8, value: usize) {
    let max = (1u8 << prefix) - 1;
    match u8::try_from(value) {
        Ok(small) if small < max => out.push(first | small),
        Ok(_) | Err(_) => {
            out.push(first | max);
            let mut rest = value.saturating_sub(usize::from(max));
            while rest >= 0x80 {
                out.extend(u8::try_from(rest & 0x7f).map(|low| low | 0x80));
                rest >>= 7;
            }
            out.extend(u8::try_from(rest));
        }
    }
}

/// Writes a string in the shorter of its two forms (RFC 7541 §5.2).
fn string(out: &mut Vec<u8>, text: &Bytes) {
    let encoded = huffman::encoded_len(text);
    if encoded < text.len() {
        integer(out, 0x80, 7, encoded);
        huffman::encode(text, out);
    } else {
        integer(out, 0x00, 7, text.len());
        out.extend_from_slice(text);
    }
}
