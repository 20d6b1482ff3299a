#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(all(fuzzing, not(debug_assertions)))]
compile_error!("`--cfg fuzzing` weakens the primitives: no server is built with it");

/// Fails to compile if the crate has no provider of primitives. The crates that need one begin with it, so that the error names
/// the features, and not each item that is missing.
#[cfg(not(any(feature = "aws-lc", feature = "rustcrypto")))]
#[macro_export]
macro_rules! needs_provider {
    () => {
        compile_error!("this crate needs a provider of primitives: enable its feature `aws-lc` (the default) or `rustcrypto`");
    };
}
/// Fails to compile if the crate has no provider of primitives. The crates that need one begin with it, so that the error names
/// the features, and not each item that is missing.
#[cfg(any(feature = "aws-lc", feature = "rustcrypto"))]
#[macro_export]
macro_rules! needs_provider {
    () => {};
}

#[cfg(any(feature = "aws-lc", feature = "rustcrypto"))]
mod primitives;
mod seed;

#[cfg(any(feature = "aws-lc", feature = "rustcrypto"))]
pub use primitives::{
    AEAD_NONCE_BYTES, AEAD_TAG_BYTES, Aead, AeadAlgorithm, AesCbcOpener, AesCbcSealer, AesCtr, AesKeyLength,
    AgreementGroup, AgreementKey, HEADER_SAMPLE_BYTES, Hash, HeaderKey, HmacSha1Key, KeyKind, NotAgreed,
    NotAuthentic, NotUnwrapped, PublicKey, SignatureAlgorithm, SigningKey, pbkdf2_hmac_sha1, tls12_prf,
    unwrap_key, wrap_key,
};
pub use seed::{NoEntropy, Random, Seed};

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// HMAC-SHA256 (RFC 2104, FIPS 180-4) over the concatenation of `parts`.
#[must_use]
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC accepts keys of any length (RFC 2104 §2), so this never fails.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// HMAC-SHA1 (RFC 2104, FIPS 180-4), only for the time-based codes of client apps (RFC 6238).
#[must_use]
pub fn hmac_sha1(key: &[u8], message: &[u8]) -> [u8; 20] {
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(key) else {
        return [0; 20];
    };
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// SHA-256 (FIPS 180-4) over the concatenation of `parts`.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// MD5 (RFC 1321) over the concatenation of `parts`, for the Digest authentication of RTSP (RFC 2617), because cameras
/// support nothing else. It is broken as a hash and must not be used for anything new.
#[must_use]
pub fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = md5::Context::new();
    for part in parts {
        hash.consume(part);
    }
    hash.finalize().0
}

/// Compares two slices in a time that does not depend on where they differ.
#[must_use]
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0u8, |acc, (x, y)| acc | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the vectors of RFC 4231 §4.2 and §4.3.
    #[test]
    fn hmac_vectors() {
        let hex = |b: [u8; 32]| b.iter().map(|x| format!("{x:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac_sha256(&[0x0b; 20], &[b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(hmac_sha256(b"Jefe", &[b"what do ya want for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    /// Checks RFC 2202 §3 case 2 and the example of FIPS 180-4.
    #[test]
    fn hash_vectors() {
        let hex = |b: &[u8]| b.iter().map(|x| format!("{x:02x}")).collect::<String>();
        assert_eq!(
            hex(&hmac_sha1(b"Jefe", b"what do ya want for nothing?")),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        assert_eq!(
            hex(&sha256(&[b"a", b"bc"])),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    /// Checks the vectors of RFC 1321 §A.5.
    #[test]
    fn md5_vectors() {
        let hex = |b: [u8; 16]| b.iter().map(|x| format!("{x:02x}")).collect::<String>();
        assert_eq!(hex(md5(&[])), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(md5(&[b"message ", b"digest"])), "f96b697d7cb7938d525a2f31aaf161d0");
    }

    #[test]
    fn equality_needs_equal_lengths() {
        assert!(constant_time_eq(b"abc", b"abc"));
        assert!(!constant_time_eq(b"abc", b"abd"));
        assert!(!constant_time_eq(b"abc", b"ab"));
    }
}
