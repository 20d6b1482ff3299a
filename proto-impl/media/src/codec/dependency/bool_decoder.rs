//! The boolean decoder of VP8 (RFC 6386 §7), for flags and numbers whose bits are 0 or 1 with equal probability.

/// Boolean decoder for bits that are 0 or 1 with equal probability. After the end of the data it returns zeros, as all
/// decoders do (§7.3).
#[derive(Debug)]
pub(super) struct BoolDecoder<'a> {
    rest: core::slice::Iter<'a, u8>,
    value: u32,
    range: u32,
    /// Number of unread bits in `value`, in addition to the eight that are compared.
    spare: u32,
}

impl<'a> BoolDecoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes.iter(), value: 0, range: 255, spare: 0 }.begun()
    }

    fn begun(mut self) -> Self {
        self.value = self.byte() << 8 | self.byte();
        self.spare = 8;
        self
    }

    fn byte(&mut self) -> u32 {
        self.rest.next().copied().unwrap_or(0).into()
    }

    /// Reads a bit.
    pub(super) fn bit(&mut self) -> bool {
        let split = 1 + ((self.range - 1) >> 1);
        let big = split << 8;
        let is_set = self.value >= big;
        if is_set {
            self.range -= split;
            self.value -= big;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.value <<= 1;
            self.range <<= 1;
            self.spare -= 1;
            if self.spare == 0 {
                self.value |= self.byte();
                self.spare = 8;
            }
        }
        is_set
    }

    /// Reads a number of `count` bits.
    pub(super) fn bits(&mut self, count: u32) -> u32 {
        (0..count).fold(0, |number, _| number << 1 | u32::from(self.bit()))
    }

    /// Skips a flag and, if the flag is set, the number of `count` bits that follows. Returns the
    /// flag.
    pub(super) fn skip_optional(&mut self, count: u32) -> bool {
        let is_there = self.bit();
        if is_there {
            self.bits(count);
        }
        is_there
    }
}
