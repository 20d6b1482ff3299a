//! HMAC and HKDF (RFC 2104, RFC 5869) over a hash that the protocol negotiated.

use crate::Hash;
use crate::primitives::provider::{Chosen, Provider};

/// Maximum length of a key for the expansion, in bytes: that of an SHA-512 digest.
const PRK_BYTES_MAX: usize = 64;

impl Hash {
    /// Length of a digest in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Computes the HMAC over the concatenation of `parts`. If the key is a salt, this is the extraction of HKDF (RFC
    /// 5869 §2.2).
    #[must_use]
    pub fn mac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        Chosen::mac(self, key, parts)
    }

    /// Fills `out` with the expansion of HKDF (RFC 5869 §2.3). Fills it with zeros and returns false if `out` is
    /// longer than 255 digests, or the key is longer than a digest of SHA-512.
    #[must_use]
    pub fn expand(self, key: &[u8], info: &[&[u8]], out: &mut [u8]) -> bool {
        let done = key.len() <= PRK_BYTES_MAX && Chosen::expand(self, key, info, out);
        if !done {
            out.fill(0);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Checks the vectors of RFC 5869 §A.1 and §A.3.
    #[test]
    fn hkdf_vectors() {
        let secret = [0x0b; 22];
        for (salt, info, prk, start) in [
            (
                "000102030405060708090a0b0c",
                "f0f1f2f3f4f5f6f7f8f9",
                "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
            ),
            (
                "",
                "",
                "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d",
            ),
        ] {
            let extracted = Hash::Sha256.mac(&hex(salt), &[&secret]);
            assert_eq!(extracted, hex(prk));
            let mut out = [0; 42];
            assert!(Hash::Sha256.expand(&extracted, &[&hex(info)], &mut out));
            assert!(out.starts_with(&hex(start)));
        }
    }

    #[test]
    fn lengths_have_bounds() {
        for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            assert_eq!(hash.digest(b"").len(), hash.bytes());
            assert_eq!(hash.mac(b"key", &[]).len(), hash.bytes());
            assert!(hash.expand(&[1; 64], &[], &mut vec![0; hash.bytes() * 255]));
            let mut long = vec![1; hash.bytes() * 255 + 1];
            assert!(!hash.expand(&[1; 64], &[], &mut long));
            assert!(long.iter().all(|byte| *byte == 0));
            assert!(!hash.expand(&[1; 65], &[], &mut [0; 4]));
        }
    }
}
