//! Writer of big-endian values to a growing buffer.

use bytes::{BufMut, Bytes, BytesMut};

/// Counterpart of [`crate::Reader`]. Values are not checked. It is the caller's bug if a value is too large
/// for its field; the value is then truncated to the field and does not overwrite its neighbours.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
}

impl Writer {
    /// Creates an empty writer without an allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty writer with room for `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(bytes) }
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.buffer.put_u8(value);
        self
    }

    /// Writes two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.buffer.put_u16(value);
        self
    }

    /// Writes the low three bytes of `value`.
    pub fn u24(&mut self, value: u32) -> &mut Self {
        let [_, a, b, c] = value.to_be_bytes();
        self.bytes(&[a, b, c])
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.buffer.put_u32(value);
        self
    }

    /// Writes four bytes, little-endian.
    pub fn u32_le(&mut self, value: u32) -> &mut Self {
        self.buffer.put_u32_le(value);
        self
    }

    /// Writes eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.buffer.put_u64(value);
        self
    }

    /// Writes eight bytes as IEEE 754 binary64.
    pub fn f64(&mut self, value: f64) -> &mut Self {
        self.buffer.put_f64(value);
        self
    }

    /// Writes a slice unchanged.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.buffer.put_slice(value);
        self
    }

    /// Number of bytes written since the last [`Writer::take`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// True if nothing was written since the last [`Writer::take`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes the written bytes without a copy. The writer continues in the rest of the same allocation as
    /// long as there is room.
    pub fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn what_is_written_is_read_back() {
        let mut w = Writer::new();
        w.u8(7).u16(0x1234).u24(0xffab_cdef).u32(5).u32_le(6).u64(9).f64(1.5).bytes(b"xy");
        let bytes = w.take();
        let mut r = Reader::new(&bytes);
        assert_eq!((r.u8(), r.u16(), r.u24()), (Ok(7), Ok(0x1234), Ok(0xab_cdef)));
        assert_eq!((r.u32(), r.u32_le(), r.u64(), r.f64()), (Ok(5), Ok(6), Ok(9), Ok(1.5)));
        assert_eq!(r.rest(), b"xy");
        assert!(w.is_empty());
    }
}
