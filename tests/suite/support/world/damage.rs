//! Damage to bytes in transit, as from a broken or hostile peer.

use crypto::{Random, Seed};

/// Choices for the maximum number of bytes between two damaged places.
const DISTANCES: [u64; 4] = [30, 300, 3000, 30_000];
/// Maximum size of a damaged place in bytes.
const PLACE_BYTES_MAX: u64 = 64;

/// Damages the bytes that an end sends.
#[derive(Debug)]
pub(super) struct Damage {
    random: Random,
    distance: u64,
    /// Number of bytes before the next damaged place.
    left: u64,
}

impl Damage {
    pub(super) fn new(seed: &Seed, is_any: bool) -> Self {
        let mut random = seed.derive("damage", 0).random();
        let distance = DISTANCES[usize::try_from(random.below(4)).unwrap()];
        let left = if is_any { random.below(distance) } else { u64::MAX };
        Self { random, distance, left }
    }

    /// Returns the bytes that arrive instead of these.
    pub(super) fn apply(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut rest, mut out) = (bytes, Vec::with_capacity(bytes.len()));
        while let Some((whole, from)) =
            usize::try_from(self.left).ok().and_then(|at| rest.split_at_checked(at))
            && !from.is_empty()
        {
            out.extend_from_slice(whole);
            let length = usize::try_from(1 + self.random.below(PLACE_BYTES_MAX)).unwrap();
            let (place, behind) = from.split_at(length.min(from.len()));
            self.spoil(place, &mut out);
            rest = behind;
            self.left = 1 + self.random.below(self.distance);
        }
        self.left -= rest.len() as u64;
        out.extend_from_slice(rest);
        out
    }

    /// Flips a bit, or leaves out, repeats or replaces bytes.
    fn spoil(&mut self, place: &[u8], out: &mut Vec<u8>) {
        match self.random.below(5) {
            0 | 1 => {
                let bit = 1 << self.random.below(8);
                out.push(place[0] ^ bit);
                out.extend_from_slice(&place[1..]);
            }
            2 => {}
            3 => out.extend_from_slice(&[place, place].concat()),
            _ => {
                let filler = [0, 0xff, self.random.u64().to_be_bytes()[0]];
                let filler = filler[usize::try_from(self.random.below(3)).unwrap()];
                out.resize(out.len() + place.len(), filler);
            }
        }
    }
}
