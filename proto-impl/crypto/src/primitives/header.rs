//! Masks for the numbers in packet headers, made from a sample of the ciphertext (RFC 9147 §4.2.3, RFC 9001 §5.4).

use crate::AeadAlgorithm;
use crate::primitives::provider::{Chosen, Provider};

/// Length of a sample in bytes, the same for all algorithms.
pub const HEADER_SAMPLE_BYTES: usize = 16;

/// Length of the longest key in bytes.
const KEY_BYTES_MAX: usize = 32;

/// Key that masks the numbers in packet headers. The key schedule is computed again for each mask: a session
/// has several of these keys and seldom uses them, and stored schedules would take most of its memory.
pub struct HeaderKey {
    algorithm: AeadAlgorithm,
    key: [u8; KEY_BYTES_MAX],
}

impl HeaderKey {
    /// Creates the key that belongs to an AEAD algorithm. Returns `None` if `key` does not have the length that the
    /// algorithm needs.
    #[must_use]
    pub fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if key.len() != algorithm.key_bytes() {
            return None;
        }
        let mut padded = [0; KEY_BYTES_MAX];
        padded.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        Some(Self { algorithm, key: padded })
    }

    /// Returns the first bytes of the mask for a sample. Returns `None` if the library fails, which only happens if a
    /// length is wrong.
    #[must_use]
    pub fn mask(&self, sample: &[u8; HEADER_SAMPLE_BYTES]) -> Option<[u8; 5]> {
        let key = self.key.get(..self.algorithm.key_bytes())?;
        Chosen::header_mask(self.algorithm, key, sample)
    }
}

/// Never prints the key.
impl std::fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeaderKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Checks the vectors of RFC 9001 §A.2, §A.3 (AES-128) and §A.5 (`ChaCha20`).
    #[test]
    fn mask_vectors() {
        for (algorithm, key, sample, mask) in [
            (
                AeadAlgorithm::Aes128Gcm,
                "9f50449e04a0e810283a1e9933adedd2",
                "d1b1c98dd7689fb8ec11d242b123dc9b",
                "437b9aec36",
            ),
            (
                AeadAlgorithm::Aes128Gcm,
                "c206b8d9b9f0f37644430b490eeaa314",
                "2cd0991cd25b0aac406a5816b6394100",
                "2ec0d8356a",
            ),
            (
                AeadAlgorithm::ChaCha20Poly1305,
                "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4",
                "5e5cd55c41f69080575d7999c25a5bfb",
                "aefefe7d03",
            ),
        ] {
            let key = HeaderKey::new(algorithm, &hex(key)).unwrap();
            let sample: [u8; 16] = hex(sample).try_into().unwrap();
            assert_eq!(key.mask(&sample).unwrap()[..], hex(mask));
        }
        assert!(HeaderKey::new(AeadAlgorithm::Aes256Gcm, &[0; 16]).is_none());
    }
}
