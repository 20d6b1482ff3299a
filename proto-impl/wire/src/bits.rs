//! Bits, most significant first, with the Exp-Golomb codes of H.264 §9.1.

use crate::Truncated;

/// Reader of the bits of a borrowed slice.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    bit: usize,
}

impl<'a> BitReader<'a> {
    /// Starts at the most significant bit of the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, bit: 0 }
    }

    /// Reads one bit.
    pub fn bit(&mut self) -> Result<bool, Truncated> {
        let byte = self.bytes.get(self.bit / 8).ok_or(Truncated { at: self.bit / 8, need: 1 })?;
        let set = byte & (0x80 >> (self.bit % 8)) != 0;
        self.bit += 1;
        Ok(set)
    }

    /// Reads `n` bits, at most 32.
    pub fn bits(&mut self, n: u32) -> Result<u32, Truncated> {
        let mut value = 0;
        for _ in 0..n.min(32) {
            value = (value << 1) | u32::from(self.bit()?);
        }
        Ok(value)
    }

    /// Skips `n` bits.
    pub fn skip(&mut self, n: usize) -> Result<(), Truncated> {
        let end = self.bit.saturating_add(n);
        if end > self.bytes.len().saturating_mul(8) {
            return Err(Truncated { at: self.bit / 8, need: n });
        }
        self.bit = end;
        Ok(())
    }

    /// Reads ue(v) (H.264 §9.1). A code with more than 32 leading zeros is not a value of any field and counts as
    /// truncated.
    pub fn ue(&mut self) -> Result<u32, Truncated> {
        let mut zeros = 0;
        while !self.bit()? {
            zeros += 1;
            if zeros > 32 {
                return Err(Truncated { at: self.bit / 8, need: 1 });
            }
        }
        let suffix = u64::from(self.bits(zeros)?);
        u32::try_from((1u64 << zeros) - 1 + suffix).map_err(|_| Truncated { at: self.bit / 8, need: 1 })
    }

    /// Reads se(v) (H.264 §9.1.1).
    pub fn se(&mut self) -> Result<i32, Truncated> {
        let code = i64::from(self.ue()?);
        let magnitude = (code + 1) / 2;
        let value = if code % 2 == 0 { -magnitude } else { magnitude };
        i32::try_from(value).map_err(|_| Truncated { at: self.bit / 8, need: 1 })
    }

    /// Number of remaining bits.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len().saturating_mul(8).saturating_sub(self.bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_golomb_codes_of_table_9_2() {
        // 1 | 010 | 011 | 00100 | 00111 -> 0 1 2 3 6
        let mut r = BitReader::new(&[0b1010_0110, 0b0100_0011, 0b1000_0000]);
        let codes: Vec<u32> = (0..5).map(|_| r.ue().unwrap()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 6]);
        let mut r = BitReader::new(&[0b1010_0110, 0b0100_0011, 0b1000_0000]);
        let signed: Vec<i32> = (0..5).map(|_| r.se().unwrap()).collect();
        assert_eq!(signed, [0, 1, -1, 2, -3]);
    }

    #[test]
    fn an_endless_code_ends() {
        assert!(BitReader::new(&[0; 64]).ue().is_err());
        assert_eq!(
            BitReader::new(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]).ue(),
            Err(Truncated { at: 8, need: 1 })
        );
        assert!(BitReader::new(&[]).bit().is_err());
    }

    #[test]
    fn skip_stops_at_the_end() {
        let mut r = BitReader::new(&[0xf0]);
        r.skip(4).unwrap();
        assert_eq!(r.bits(4), Ok(0));
        assert!(r.skip(1).is_err());
        assert_eq!(r.remaining(), 0);
    }
}
