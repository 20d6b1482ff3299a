//! AES (FIPS 197): counter mode with a kept key schedule, and cipher block chaining.

use crate::primitives::provider::{self, Chosen, Provider};

/// The block size of AES in bytes.
pub(crate) const BLOCK_BYTES: usize = 16;

/// Lengths of an AES key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AesKeyLength {
    /// AES-128.
    Bytes16,
    /// AES-192.
    Bytes24,
    /// AES-256.
    Bytes32,
}

impl AesKeyLength {
    /// Length of the key in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes16 => 16,
            Self::Bytes24 => 24,
            Self::Bytes32 => 32,
        }
    }

    /// Returns the key length for this number of bytes, or `None` if AES has no such key.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            16 => Some(Self::Bytes16),
            24 => Some(Self::Bytes24),
            32 => Some(Self::Bytes32),
            _ => None,
        }
    }
}

/// AES in counter mode (NIST SP 800-38A §6.5); each message has its own counter block. The key schedule is computed
/// once. Encryption and decryption are the same operation.
pub struct AesCtr(<Chosen as Provider>::Ctr);

impl AesCtr {
    /// Creates the cipher from a key of 16, 24 or 32 bytes. Returns `None` for another length.
    #[must_use]
    pub fn new(key: &[u8]) -> Option<Self> {
        provider::Ctr::new(key).map(Self)
    }

    /// Applies the key stream that begins with the counter block `initial`. The caller must never use the same counter
    /// block twice with a key.
    pub fn apply(&self, initial: [u8; BLOCK_BYTES], in_out: &mut [u8]) {
        provider::Ctr::apply(&self.0, initial, in_out);
    }
}

/// Never prints the key.
impl std::fmt::Debug for AesCtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AesCtr(..)")
    }
}

/// Decryption with AES in cipher block chaining (NIST SP 800-38A §6.2), piece by piece. The caller handles padding.
pub struct AesCbcOpener(<Chosen as Provider>::CbcOpener);

impl AesCbcOpener {
    /// Creates the cipher from a key of 16, 24 or 32 bytes and the initialization vector. Returns `None` for a key of
    /// another length.
    #[must_use]
    pub fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        provider::Cbc::new(key, initial).map(Self)
    }

    /// Decrypts the next blocks in place. Returns false, without decrypting anything, if the length is not a multiple
    /// of the block size.
    pub fn open(&mut self, in_out: &mut [u8]) -> bool {
        in_out.len().is_multiple_of(BLOCK_BYTES) && provider::Cbc::apply(&mut self.0, in_out)
    }
}

/// Never prints the key.
impl std::fmt::Debug for AesCbcOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AesCbcOpener(..)")
    }
}

/// Encryption with AES in cipher block chaining (NIST SP 800-38A §6.2), piece by piece. The caller handles padding.
pub struct AesCbcSealer(<Chosen as Provider>::CbcSealer);

impl AesCbcSealer {
    /// Creates the cipher from a key of 16, 24 or 32 bytes and the initialization vector. The vector must be random and
    /// must not be used twice. Returns `None` for a key of another length.
    #[must_use]
    pub fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        provider::Cbc::new(key, initial).map(Self)
    }

    /// Encrypts the next blocks in place. Returns false, without encrypting anything, if the length is not a multiple
    /// of the block size.
    pub fn seal(&mut self, in_out: &mut [u8]) -> bool {
        in_out.len().is_multiple_of(BLOCK_BYTES) && provider::Cbc::apply(&mut self.0, in_out)
    }
}

/// Never prints the key.
impl std::fmt::Debug for AesCbcSealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AesCbcSealer(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Checks the first two blocks of NIST SP 800-38A §F.5.1, F.5.3 and F.5.5.
    #[test]
    fn counter_mode_vectors() {
        let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let initial: [u8; 16] = hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").try_into().unwrap();
        for (key, wanted) in [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff",
            ),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e94",
            ),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5",
            ),
        ] {
            let cipher = AesCtr::new(&hex(key)).unwrap();
            let mut data = plain.clone();
            cipher.apply(initial, &mut data);
            assert_eq!(data, hex(wanted));
            // The same cipher is used again, for part of a block: the first use must not have left any state.
            cipher.apply(initial, &mut data[..19]);
            assert_eq!(data[..19], plain[..19]);
        }
        assert!(AesCtr::new(&[0; 15]).is_none() && AesCtr::new(&[]).is_none());
    }

    /// Checks the vectors of NIST SP 800-38A §F.2.1 and §F.2.2, at once and block by block.
    #[test]
    fn block_chaining_vectors() {
        let initial: [u8; 16] = hex("000102030405060708090a0b0c0d0e0f").try_into().unwrap();
        let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
        let sealed = hex("7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2");
        let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        for step in [16, 32] {
            let mut opener = AesCbcOpener::new(&key, initial).unwrap();
            let mut data = sealed.clone();
            assert!(data.chunks_mut(step).all(|blocks| opener.open(blocks)));
            assert_eq!(data, plain);
            assert!(opener.open(&mut []) && !opener.open(&mut [0; 15]));
            let mut sealer = AesCbcSealer::new(&key, initial).unwrap();
            assert!(data.chunks_mut(step).all(|blocks| sealer.seal(blocks)));
            assert_eq!(data, sealed);
            assert!(sealer.seal(&mut []) && !sealer.seal(&mut [0; 15]));
        }
        assert!(AesCbcSealer::new(&[0; 15], initial).is_none());
        assert!(AesCbcOpener::new(&[0; 15], initial).is_none());
    }
}
