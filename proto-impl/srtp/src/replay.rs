//! The window of indices that were there (RFC 3711 §3.3.2).

/// How far behind the newest index a packet may be (RFC 3711 §3.3.2 asks for 64 at least).
pub const WINDOW: u64 = 128;

/// Which of the [`WINDOW`] indices up to the newest were there. Two words rather than one of 128 bits, which would
/// align a source's state to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayWindow {
    newest: u64,
    /// Bit n of the pair: the index n behind the newest.
    seen: [u64; 2],
}

/// Where an index is, seen from the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not there yet.
    Fresh,
    /// There before.
    Seen,
    /// Behind the window.
    Old,
}

impl ReplayWindow {
    /// With a first index, which was there.
    pub(crate) const fn new(first: u64) -> Self {
        Self { newest: first, seen: [1, 0] }
    }

    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    pub(crate) fn place(&self, index: u64) -> Place {
        let Some(behind) = self.newest.checked_sub(index) else {
            return Place::Fresh;
        };
        match behind {
            WINDOW.. => Place::Old,
            _ if self.bits() >> behind & 1 == 1 => Place::Seen,
            _ => Place::Fresh,
        }
    }

    /// Marks an index that is [`Place::Fresh`].
    pub(crate) fn mark(&mut self, index: u64) {
        let bits = match index.checked_sub(self.newest) {
            Some(ahead) => {
                self.newest = index;
                u32::try_from(ahead).ok().and_then(|ahead| self.bits().checked_shl(ahead)).unwrap_or(0) | 1
            }
            None => self.bits() | 1 << self.newest.saturating_sub(index).min(WINDOW - 1),
        };
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let halves = [bits as u64, (bits >> 64) as u64];
        self.seen = halves;
    }

    fn bits(&self) -> u128 {
        let [low, high] = self.seen;
        u128::from(high) << 64 | u128::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_is_fresh_once() {
        let mut window = ReplayWindow::new(1000);
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

    /// Against a set of all that was there, with jumps of all sizes.
    #[test]
    fn it_agrees_with_a_set() {
        let mut random = crypto::Seed::from_number(3).random();
        let (mut window, mut there) = (ReplayWindow::new(500), std::collections::BTreeSet::from([500]));
        for _ in 0..20_000 {
            let leap = if random.chance(0.01) { 300 } else { 4 };
            let index = (window.newest() + random.below(leap)).saturating_sub(random.below(160));
            let expected = match () {
                () if window.newest() >= index + WINDOW => Place::Old,
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
}
