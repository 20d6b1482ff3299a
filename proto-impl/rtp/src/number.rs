//! Newtypes for the numbers in a packet.

use core::fmt;

/// A synchronization source (RFC 3550 §3): the identifier of a stream's sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ssrc(pub u32);

impl Ssrc {
    /// The value as sent on the wire.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Ssrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for Ssrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Half of the number space. A number that is farther ahead counts as being behind.
const HALF: u16 = 0x8000;
/// Number of packets in one cycle of the sequence numbers.
const CYCLE: u64 = 1 << 16;

/// A sequence number: 16 bits that wrap around (RFC 3550 §5.1), so two numbers have a distance but no absolute
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceNumber(pub u16);

impl SequenceNumber {
    /// The value as sent on the wire.
    #[must_use]
    pub const fn value(self) -> u16 {
        self.0
    }

    /// Returns the number `count` places after this one.
    #[must_use]
    pub const fn plus(self, count: u16) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the distance from `base` to this number, the shorter way around; `None` if this number is behind
    /// `base`.
    #[must_use]
    pub const fn ahead_of(self, base: Self) -> Option<u16> {
        let distance = self.0.wrapping_sub(base.0);
        if distance < HALF { Some(distance) } else { None }
    }

    /// True if this number comes after `other`, the shorter way around.
    #[must_use]
    pub const fn is_newer_than(self, other: Self) -> bool {
        self.0 != other.0 && self.ahead_of(other).is_some()
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A sequence number extended by a count of its cycles, which gives it an absolute order. Counting starts in
/// cycle 1, so that packets sent before the first received one have numbers, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedSequence(u64);

impl ExtendedSequence {
    /// Returns the extended number of the first packet.
    #[must_use]
    pub const fn first(number: SequenceNumber) -> Self {
        Self(CYCLE + number.0 as u64)
    }

    /// Returns the extended number for `number` nearest to this one; `None` before the start of the count.
    #[must_use]
    pub const fn nearest(self, number: SequenceNumber) -> Option<Self> {
        let ahead = number.0.wrapping_sub(self.number().0);
        let value = if ahead < HALF {
            self.0.checked_add(ahead as u64)
        } else {
            // The distance backwards is the rest of a full cycle: 1 to HALF.
            self.0.checked_sub(ahead.wrapping_neg() as u64)
        };
        match value {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The lower 16 bits, as in the packet.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower 16 bits are the number")]
    pub const fn number(self) -> SequenceNumber {
        SequenceNumber(self.0 as u16)
    }

    /// Cycles and number as in a report block, which counts the first cycle as 0 (RFC 3550 §6.4.1).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the field has 32 bits and wraps")]
    pub const fn reported(self) -> u32 {
        self.0.wrapping_sub(CYCLE) as u32
    }

    /// The whole count.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Returns the number `count` places after this one, without wrapping.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the number of packets from `base` to this one; 0 when this one is not later.
    #[must_use]
    pub const fn since(self, base: Self) -> u64 {
        self.0.saturating_sub(base.0)
    }
}

impl fmt::Debug for ExtendedSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 / CYCLE, self.0 % CYCLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_go_the_shorter_way() {
        let last = SequenceNumber(0xffff);
        assert_eq!((last.next(), last.plus(3)), (SequenceNumber(0), SequenceNumber(2)));
        assert_eq!(SequenceNumber(2).ahead_of(last), Some(3));
        assert_eq!(last.ahead_of(SequenceNumber(2)), None);
        assert_eq!(last.ahead_of(last), Some(0));
        assert!(SequenceNumber(2).is_newer_than(last) && !last.is_newer_than(last));
        assert_eq!(SequenceNumber(HALF).ahead_of(SequenceNumber(0)), None);
    }

    #[test]
    fn a_count_goes_on_over_the_end_of_the_numbers() {
        let start = ExtendedSequence::first(SequenceNumber(0xfffe));
        let after = start.nearest(SequenceNumber(1)).unwrap();
        assert_eq!((after.since(start), start.since(after), after.number()), (3, 0, SequenceNumber(1)));
        assert_eq!((start.reported(), after.reported()), (0xfffe, 0x1_0001));
        assert_eq!(after.nearest(SequenceNumber(0xfffe)), Some(start));
        // Packets sent before the first one have numbers too, at most one cycle back.
        let early = ExtendedSequence::first(SequenceNumber(0)).nearest(SequenceNumber(0x8000)).unwrap();
        assert_eq!((early.value(), early.reported()), (0x8000, 0xffff_8000));
        assert_eq!(ExtendedSequence(3).nearest(SequenceNumber(0xfff0)), None);
        assert_eq!(start.nearest(start.number()), Some(start));
    }
}
