//! Replay windows (RFC 3711 §3.3.2).

/// Size of the replay window (RFC 3711 §3.3.2 requires at least 64). A peer without RTX repeats a lost packet
/// with its original index, at least a round trip later; this size covers a quarter of a second at 40 Mb/s.
pub const WINDOW: u64 = 1024;
/// Size of the replay window for RTCP, which is not retransmitted.
pub(crate) const RTCP_WINDOW: u64 = 128;

/// Number of words of a replay window for RTP.
pub(crate) const WORDS: usize = 16;
/// Number of words of a replay window for RTCP.
pub(crate) const RTCP_WORDS: usize = 2;
const _: () = assert!(WORDS as u64 * 64 == WINDOW && RTCP_WORDS as u64 * 64 == RTCP_WINDOW);

/// A replay window: one bit for each of the newest indices, set if the index was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayWindow<const N: usize> {
    newest: u64,
    /// Ring of bits; an index uses the bit whose number is the index modulo the size of the window.
    seen: [u64; N],
}

/// Position of an index relative to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not received yet.
    Fresh,
    /// Received before.
    Seen,
    /// Older than the window.
    Old,
}

impl<const N: usize> ReplayWindow<N> {
    const BITS: u64 = N as u64 * 64;

    /// Creates a window in which `first` was received.
    pub(crate) fn new(first: u64) -> Self {
        let mut window = Self { newest: first, seen: [0; N] };
        window.set(first, true);
        window
    }

    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    pub(crate) fn place(&self, index: u64) -> Place {
        let Some(behind) = self.newest.checked_sub(index) else {
            return Place::Fresh;
        };
        if behind >= Self::BITS {
            return Place::Old;
        }
        let (word, bit) = Self::bit_of(index);
        if self.seen.get(word).is_some_and(|word| word & bit != 0) { Place::Seen } else { Place::Fresh }
    }

    /// Marks an index as received; it must be [`Place::Fresh`].
    pub(crate) fn mark(&mut self, index: u64) {
        if let Some(ahead) = index.checked_sub(self.newest) {
            // The indices between the former newest one and this one were not received. A jump beyond the
            // window clears each bit only once.
            for behind in 0..ahead.min(Self::BITS) {
                self.set(index.saturating_sub(behind), false);
            }
            self.newest = index;
        }
        self.set(index, true);
    }

    fn set(&mut self, index: u64, was_there: bool) {
        let (word, bit) = Self::bit_of(index);
        if let Some(word) = self.seen.get_mut(word) {
            *word = if was_there { *word | bit } else { *word & !bit };
        }
    }

    fn bit_of(index: u64) -> (usize, u64) {
        let at = index % Self::BITS;
        (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_is_fresh_once() {
        let mut window = ReplayWindow::<2>::new(1000);
        for (index, place) in [
            (1000, Place::Seen),
            (999, Place::Fresh),
            (873, Place::Fresh),
            (872, Place::Old),
            (0, Place::Old),
            (1001, Place::Fresh),
        ] {
            assert_eq!(window.place(index), place, "{index}");
        }
        window.mark(873);
        window.mark(1001);
        assert_eq!(
            (window.place(873), window.place(874), window.place(1000)),
            (Place::Old, Place::Fresh, Place::Seen)
        );
        window.mark(1001 + 127);
        assert_eq!(
            (window.place(1001), window.place(1002), window.newest()),
            (Place::Seen, Place::Fresh, 1128)
        );
        window.mark(u64::MAX);
        assert_eq!((window.place(1128), window.place(u64::MAX - 1)), (Place::Old, Place::Fresh));
        assert_eq!(window.place(u64::MAX), Place::Seen);
    }

    /// Compares the window with a set of all received indices, for jumps of all sizes.
    fn agrees_with_a_set<const N: usize>() {
        let size = ReplayWindow::<N>::BITS;
        let mut random = crypto::Seed::from_number(3).random();
        let (mut window, mut there) = (ReplayWindow::<N>::new(500), std::collections::BTreeSet::from([500]));
        for _ in 0..20_000 {
            let leap = if random.chance(0.01) { size * 2 + 44 } else { 4 };
            let index = (window.newest() + random.below(leap)).saturating_sub(random.below(size + 32));
            let expected = match () {
                () if window.newest() >= index + size => Place::Old,
                () if there.contains(&index) => Place::Seen,
                () => Place::Fresh,
            };
            assert_eq!(window.place(index), expected);
            if expected == Place::Fresh {
                window.mark(index);
                there.insert(index);
            }
        }
    }

    #[test]
    fn it_agrees_with_a_set() {
        agrees_with_a_set::<RTCP_WORDS>();
        agrees_with_a_set::<WORDS>();
    }
}
