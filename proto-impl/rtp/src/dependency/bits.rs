//! Bits of a descriptor, most significant first (A.4.1).

use alloc::vec::Vec;

use wire::{BitReader, Truncated};

/// Reads an unsigned number of at most 8 bits.
pub(super) fn byte(bits: &mut BitReader<'_>, count: u32) -> Result<u8, Truncated> {
    Ok(u8::try_from(bits.bits(count.min(8))?).unwrap_or(u8::MAX))
}

/// Reads an unsigned number of at most 16 bits.
pub(super) fn short(bits: &mut BitReader<'_>, count: u32) -> Result<u16, Truncated> {
    Ok(u16::try_from(bits.bits(count.min(16))?).unwrap_or(u16::MAX))
}

/// Returns the number of bits of ns(n), and the number of values that take one bit less.
const fn sizes(n: u32) -> (u32, u32) {
    let width = u32::BITS - n.leading_zeros();
    (width, (1 << width) - n)
}

/// Reads ns(n): a number below `n`.
pub(super) fn below(bits: &mut BitReader<'_>, n: u32) -> Result<u32, Truncated> {
    let (width, short) = sizes(n);
    let value = bits.bits(width.saturating_sub(1))?;
    if value < short {
        return Ok(value);
    }
    Ok((value << 1).saturating_sub(short).saturating_add(bits.bits(1)?))
}

/// Writer of bits at the end of a byte string.
#[derive(Debug)]
pub(super) struct BitWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Number of unused bits of the last byte.
    free: u32,
}

impl<'o> BitWriter<'o> {
    pub(super) const fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, free: 0 }
    }

    /// Appends the lowest `count` bits of a number.
    pub(super) fn put(&mut self, value: u32, count: u32) {
        for at in (0..count.min(u32::BITS)).rev() {
            if self.free == 0 {
                self.out.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.out.last_mut() {
                *last |= u8::from(value >> at & 1 == 1) << self.free;
            }
        }
    }

    /// Appends ns(n).
    pub(super) fn put_below(&mut self, value: u32, n: u32) {
        let (width, short) = sizes(n);
        if value < short {
            self.put(value, width.saturating_sub(1));
        } else {
            self.put(value.saturating_add(short), width);
        }
    }
}
