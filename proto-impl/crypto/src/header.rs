//! Masks over the numbers in packet heads, made from a sample of the ciphertext (RFC 9147 §4.2.3, RFC 9001 §5.4).

use aws_lc_rs::aead::quic::{AES_128, AES_256, CHACHA20, HeaderProtectionKey};

use crate::AeadAlgorithm;

/// Bytes of a sample, for each of the algorithms.
pub const HEADER_SAMPLE_BYTES: usize = 16;

/// A key that masks numbers in heads.
pub struct HeaderKey(HeaderProtectionKey);

impl HeaderKey {
    /// Makes the key that goes with an AEAD. `None` when `key` has not the length that the algorithm wants.
    #[must_use]
    pub fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        let algorithm = match algorithm {
            AeadAlgorithm::Aes128Gcm => &AES_128,
            AeadAlgorithm::Aes256Gcm => &AES_256,
            AeadAlgorithm::ChaCha20Poly1305 => &CHACHA20,
        };
        HeaderProtectionKey::new(algorithm, key).ok().map(Self)
    }

    /// The first bytes of the mask for a sample; `None` when the library fails, which it does for other lengths only.
    #[must_use]
    pub fn mask(&self, sample: &[u8; HEADER_SAMPLE_BYTES]) -> Option<[u8; 5]> {
        self.0.new_mask(sample).ok()
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

    /// RFC 9001 §A.2, §A.3 (AES-128) and §A.5 (`ChaCha20`).
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
