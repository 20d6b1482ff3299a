//! Randomness as an input: in production a seed from the operating system, in a test a number.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hmac_sha256;

/// Error if the operating system gave no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no randomness")]
pub struct NoEntropy;

/// Seed of 32 bytes from which a protocol's state machine draws all its random values.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Drop for Seed {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Seed {}

impl Seed {
    /// Draws a seed from the randomness of the operating system. A program does this once, when it starts, and derives
    /// a seed for each state machine with [`Seed::derive`].
    ///
    /// # Errors
    /// Returns an error if the system has no randomness.
    pub fn from_os() -> Result<Self, NoEntropy> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
        Ok(Self(bytes))
    }

    /// Creates a seed from 32 bytes of entropy.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Creates a seed from a number, for tests and simulations.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(hmac_sha256(b"millstream seed", &[&number.to_be_bytes()]))
    }

    /// Derives an independent seed for the part named by `label` and `index`.
    #[must_use]
    pub fn derive(&self, label: &str, index: u64) -> Self {
        Self(hmac_sha256(&self.0, &[label.as_bytes(), &[0], &index.to_be_bytes()]))
    }

    /// Creates the generator of this seed.
    #[must_use]
    pub fn random(&self) -> Random {
        Random { key: Zeroizing::new(self.0), counter: 0, block: Zeroizing::default(), used: 32 }
    }
}

/// Never prints the seed, because cookies and session ids are drawn from it.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Random generator: HMAC-SHA256 in counter mode over a [`Seed`].
#[derive(Clone)]
pub struct Random {
    key: Zeroizing<[u8; 32]>,
    counter: u64,
    block: Zeroizing<[u8; 32]>,
    used: usize,
}

impl Random {
    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            *byte = self.byte();
        }
    }

    /// Draws a 64-bit number.
    pub fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// Draws a number below `bound` (0 if `bound` is 0). The modulo bias is below 2^-32 for the bounds in use.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.u64().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        #[allow(clippy::cast_precision_loss, reason = "53 bits are enough for a probability")]
        let unit = (self.u64() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }

    fn byte(&mut self) -> u8 {
        if self.used >= self.block.len() {
            *self.block = hmac_sha256(&*self.key, &[&self.counter.to_be_bytes()]);
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        let byte = self.block.get(self.used).copied().unwrap_or(0);
        self.used += 1;
        byte
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence_other_label_other_sequence() {
        let draw = |seed: &Seed| (0..5).scan(seed.random(), |r, _| Some(r.u64())).collect::<Vec<_>>();
        let seed = Seed::from_number(7);
        assert_eq!(draw(&seed), draw(&Seed::from_number(7)));
        assert_ne!(draw(&seed), draw(&Seed::from_number(8)));
        assert_ne!(draw(&seed.derive("a", 1)), draw(&seed.derive("a", 2)));
        assert_ne!(draw(&seed.derive("a", 1)), draw(&seed.derive("b", 1)));
    }

    #[test]
    fn seeds_of_the_system_differ_and_bytes_are_taken_as_they_are() {
        let (a, b) = (Seed::from_os().unwrap(), Seed::from_os().unwrap());
        assert_ne!(a, b);
        assert_ne!(a, Seed::from_bytes([0; 32]));
        assert_eq!(Seed::from_bytes([7; 32]), Seed::from_bytes([7; 32]));
        assert_ne!(Seed::from_bytes([7; 32]).random().u64(), Seed::from_bytes([8; 32]).random().u64());
    }

    #[test]
    fn bounds_and_chances_hold() {
        let mut r = Seed::from_number(1).random();
        assert!((0..1000).all(|_| r.below(10) < 10));
        assert_eq!(r.below(0), 0);
        let hits = (0..10_000).filter(|_| r.chance(0.25)).count();
        assert!((2200..2800).contains(&hits), "{hits}");
        assert!(!format!("{:?}{:?}", r, Seed::from_number(1)).contains(char::is_numeric));
    }
}
