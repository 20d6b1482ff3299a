//! Cursor over borrowed bytes that never reads past the end.

/// Error if the input ended before a value was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("truncated at byte {at}: {need} more bytes needed")]
pub struct Truncated {
    /// Offset of the value within the slice of the reader.
    pub at: usize,
    /// Number of missing bytes. If the reader reads bits, number of missing bits.
    pub need: usize,
}

/// Reader of big-endian values, front to back. For nested structures use [`Reader::sub`], so that a wrong length cannot
/// lead out of the structure.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first byte of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// Reads the next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Truncated> {
        let Some((head, tail)) = self.rest.split_at_checked(n) else {
            return Err(Truncated { at: self.at, need: n.saturating_sub(self.rest.len()) });
        };
        self.rest = tail;
        self.at = self.at.saturating_add(n);
        Ok(head)
    }

    /// Reads the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(Truncated { at: self.at, need: N.saturating_sub(self.rest.len()) });
        };
        self.rest = tail;
        self.at = self.at.saturating_add(N);
        Ok(*head)
    }

    /// Returns a reader that is limited to the next `n` bytes. The current reader continues after them.
    pub fn sub(&mut self, n: usize) -> Result<Self, Truncated> {
        self.take(n).map(Reader::new)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array::<1>().map(|[b]| b)
    }

    /// Reads two bytes, big-endian.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads three bytes, big-endian.
    pub fn u24(&mut self) -> Result<u32, Truncated> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Reads three bytes, big-endian, as two's complement (FLV composition times).
    pub fn i24(&mut self) -> Result<i32, Truncated> {
        // The arithmetic shift back extends the sign of bit 23.
        self.array().map(|[a, b, c]| i32::from_be_bytes([a, b, c, 0]) >> 8)
    }

    /// Reads four bytes, big-endian.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads four bytes, little-endian (RTMP message stream ids).
    pub fn u32_le(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes, big-endian.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads eight bytes as IEEE 754 binary64, big-endian (AMF numbers).
    pub fn f64(&mut self) -> Result<f64, Truncated> {
        self.array().map(f64::from_be_bytes)
    }

    /// Returns the next byte without consuming it.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.at = self.at.saturating_add(self.rest.len());
        core::mem::take(&mut self.rest)
    }

    /// Number of remaining bytes.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// True if there are no remaining bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Offset of the next byte.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_big_endian_and_the_position_follows() {
        let mut r = Reader::new(&[1, 0, 2, 0xff, 0xff, 0xfe, 9, 0, 0, 0]);
        assert_eq!(r.u8(), Ok(1));
        assert_eq!(r.u16(), Ok(2));
        assert_eq!(r.clone().u24(), Ok(0xff_fffe));
        assert_eq!(r.i24(), Ok(-2));
        assert_eq!(r.u32_le(), Ok(9));
        assert_eq!((r.position(), r.is_empty()), (10, true));
    }

    #[test]
    fn a_short_input_tells_where_and_how_much_and_consumes_nothing() {
        let mut r = Reader::new(&[1, 2, 3]);
        r.u8().unwrap();
        assert_eq!(r.u32(), Err(Truncated { at: 1, need: 2 }));
        assert_eq!(r.take(usize::MAX), Err(Truncated { at: 1, need: usize::MAX - 2 }));
        assert_eq!(r.remaining(), 2);
    }

    #[test]
    fn a_nested_length_cannot_leave_its_box() {
        let mut r = Reader::new(&[1, 2, 3, 4]);
        let mut inner = r.sub(2).unwrap();
        assert!(inner.u24().is_err());
        assert_eq!(inner.rest(), &[1, 2]);
        assert_eq!(r.rest(), &[3, 4]);
    }
}
