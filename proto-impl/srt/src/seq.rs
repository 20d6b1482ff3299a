//! Sequence numbers of data packets: 31 bits that wrap (draft-sharabayko-srt-01 §3.1).

const MASK: u32 = 0x7fff_ffff;
/// Half of the number space. A number that is further ahead than this counts as earlier.
const HALF: u32 = 0x4000_0000;

/// A sequence number. Numbers wrap, so two of them have a distance but no order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seq(u32);

impl Seq {
    /// Creates a number from the lower 31 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The value as sent on the wire.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the number `count` places after this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the previous number.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(MASK)
    }

    /// Returns the distance from `base` to this number. `None` if this number is before `base`, that
    /// is, if the shorter way around leads backwards.
    #[must_use]
    pub const fn ahead_of(self, base: Self) -> Option<u32> {
        let distance = self.0.wrapping_sub(base.0) & MASK;
        if distance < HALF { Some(distance) } else { None }
    }
}

impl std::fmt::Debug for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_31_bits_and_distances_go_the_shorter_way() {
        let last = Seq::new(0x7fff_ffff);
        assert_eq!(
            (last.next(), Seq::new(0).previous(), Seq::new(0x8000_0001)),
            (Seq::new(0), last, Seq::new(1))
        );
        assert_eq!((Seq::new(3).ahead_of(last), last.ahead_of(Seq::new(3))), (Some(4), None));
        assert_eq!(last.ahead_of(last), Some(0));
        assert_eq!(Seq::new(HALF).ahead_of(Seq::new(0)), None);
        assert_eq!(Seq::new(HALF - 1).ahead_of(Seq::new(0)), Some(HALF - 1));
    }
}
