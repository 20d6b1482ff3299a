//! HMAC with a kept key state, for protocols that authenticate each packet.

use crate::primitives::provider::{Chosen, HmacSha1, Provider};

/// HMAC-SHA1 (RFC 2104) key. Its two padded key blocks are hashed only once.
pub struct HmacSha1Key(<Chosen as Provider>::HmacSha1);

impl HmacSha1Key {
    /// Creates the key from bytes of any length.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(HmacSha1::new(key))
    }

    /// Computes the tag over the concatenation of `parts`.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; 20] {
        HmacSha1::sign(&self.0, parts)
    }
}

/// Never prints the key.
impl std::fmt::Debug for HmacSha1Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HmacSha1Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a kept key with the one-shot function, which is checked with the vectors of RFC 2202.
    #[test]
    fn a_kept_key_is_the_same() {
        for key in [&b"Jefe"[..], &[0xaa; 80]] {
            let kept = HmacSha1Key::new(key);
            for _ in 0..2 {
                assert_eq!(
                    kept.sign(&[b"what do ya ", b"", b"want"]),
                    crate::hmac_sha1(key, b"what do ya want")
                );
            }
        }
    }
}
