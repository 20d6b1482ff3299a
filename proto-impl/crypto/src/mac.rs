//! HMAC with a kept key state, for protocols that authenticate each packet.

use aws_lc_rs::hmac;

/// HMAC-SHA1 (RFC 2104) key. Its two padded key blocks are hashed only once.
pub struct HmacSha1Key(hmac::Key);

impl HmacSha1Key {
    /// Creates the key from bytes of any length.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key))
    }

    /// Computes the tag over the concatenation of `parts`.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; 20] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        let tag = context.sign();
        // An SHA-1 digest has 20 bytes, so the conversion never fails.
        tag.as_ref().try_into().unwrap_or([0; 20])
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
