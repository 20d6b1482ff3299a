//! Authenticated encryption in place, with a nonce that the protocol defines.

use crate::primitives::provider::{self, Chosen, Provider};

/// Length of a nonce in bytes, the same for all algorithms.
pub const AEAD_NONCE_BYTES: usize = 12;
/// Length of a tag in bytes, the same for all algorithms.
pub const AEAD_TAG_BYTES: usize = 16;

/// AEAD algorithms that the protocols here negotiate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AeadAlgorithm {
    /// AES-128 in Galois/counter mode (NIST SP 800-38D).
    Aes128Gcm,
    /// AES-256 in Galois/counter mode.
    Aes256Gcm,
    /// `ChaCha20` and `Poly1305` (RFC 8439).
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
    /// Length of a key in bytes.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// Error of a failed decryption: the key, the nonce or the associated data is wrong, or the bytes were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct NotAuthentic;

/// AEAD key with its key schedule. The caller must never encrypt twice with the same nonce.
pub struct Aead(<Chosen as Provider>::Aead);

impl Aead {
    /// Creates the key from its bytes. Returns `None` if `key` does not have the length that the algorithm needs.
    #[must_use]
    pub fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        provider::Aead::new(algorithm, key).map(Self)
    }

    /// Encrypts `in_out`. Returns the tag over the encrypted bytes and over `associated`, which is not encrypted.
    #[must_use]
    pub fn seal(
        &self,
        nonce: [u8; AEAD_NONCE_BYTES],
        associated: &[u8],
        in_out: &mut [u8],
    ) -> [u8; AEAD_TAG_BYTES] {
        provider::Aead::seal(&self.0, nonce, associated, in_out)
    }

    /// Decrypts `in_out` if `tag` is valid for it and for `associated`. After an error, the content of `in_out` must
    /// not be used.
    pub fn open(
        &self,
        nonce: [u8; AEAD_NONCE_BYTES],
        associated: &[u8],
        tag: &[u8],
        in_out: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let is_open = provider::Aead::open(&self.0, nonce, associated, tag, in_out);
        if is_open { Ok(()) } else { Err(NotAuthentic) }
    }
}

/// Never prints the key.
impl std::fmt::Debug for Aead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aead(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Test cases 4 and 16 of the GCM specification (McGrew, Viega), and RFC 8439 §2.8.2.
    #[test]
    fn vectors() {
        let gcm_clear = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
        let gcm_associated = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
        let sunscreen = "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a204966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73637265656e20776f756c642062652069742e";
        for (algorithm, key, nonce, associated, clear, sealed_head, tag) in [
            (
                AeadAlgorithm::Aes128Gcm,
                "feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbaddecaf888",
                gcm_associated,
                gcm_clear,
                "42831ec2217774244b7221b784d0d49c",
                "5bc94fbc3221a5db94fae95ae7121a47",
            ),
            (
                AeadAlgorithm::Aes256Gcm,
                "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbaddecaf888",
                gcm_associated,
                gcm_clear,
                "522dc1f099567d07f47f37a32a84427d",
                "76fc6ece0f4e1768cddf8853bb2d551b",
            ),
            (
                AeadAlgorithm::ChaCha20Poly1305,
                "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
                "070000004041424344454647",
                "50515253c0c1c2c3c4c5c6c7",
                sunscreen,
                "d31a8d34648e60db7b86afbc53ef7ec2",
                "1ae10b594f09e26a7e902ecbd0600691",
            ),
        ] {
            assert_eq!(hex(key).len(), algorithm.key_bytes());
            let key = Aead::new(algorithm, &hex(key)).unwrap();
            let (nonce, associated, clear) = (hex(nonce).try_into().unwrap(), hex(associated), hex(clear));
            let mut text = clear.clone();
            assert_eq!(key.seal(nonce, &associated, &mut text).to_vec(), hex(tag));
            assert_eq!(text[..16], hex(sealed_head)[..]);

            key.open(nonce, &associated, &hex(tag), &mut text).unwrap();
            assert_eq!(text, clear);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Aead::new(AeadAlgorithm::Aes128Gcm, &[0; 15]).is_none());
        let key = Aead::new(AeadAlgorithm::Aes128Gcm, &[0; 16]).unwrap();
        let mut text = *b"clear";
        let tag = key.seal([1; 12], b"head", &mut text);
        for (nonce, head, tag) in [
            ([2; 12], b"head", &tag[..]),
            ([1; 12], b"hand", &tag),
            ([1; 12], b"head", &tag[..15]),
            ([1; 12], b"head", &[]),
        ] {
            assert_eq!(key.open(nonce, head, tag, &mut text.clone()), Err(NotAuthentic));
        }
        assert!(!format!("{key:?}").contains('0'));
    }
}
