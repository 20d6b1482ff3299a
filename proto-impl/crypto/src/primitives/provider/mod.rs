//! The primitives as traits, which each library implements: aws-lc (feature `aws-lc`) and the crates of RustCrypto
//! (feature `rustcrypto`). With both features the crate uses aws-lc, and a test compares the two. The choice is made
//! by the compiler, so a packet costs no dynamic call.

#[cfg(feature = "aws-lc")]
mod aws_lc;
#[cfg(any(not(feature = "aws-lc"), test))]
#[cfg(feature = "rustcrypto")]
mod rust_crypto;
#[cfg(test)]
#[cfg(all(feature = "aws-lc", feature = "rustcrypto"))]
mod tests;

use std::num::NonZeroU32;

use crate::primitives::aes::BLOCK_BYTES;
use crate::{
    AEAD_NONCE_BYTES, AEAD_TAG_BYTES, AeadAlgorithm, AgreementGroup, HEADER_SAMPLE_BYTES, Hash, KeyKind,
    SignatureAlgorithm,
};

/// The library that this build of the crate uses.
#[cfg(feature = "aws-lc")]
pub(crate) type Chosen = aws_lc::AwsLc;
/// The library that this build of the crate uses.
#[cfg(not(feature = "aws-lc"))]
pub(crate) type Chosen = rust_crypto::RustCrypto;

/// A library of primitives.
pub(crate) trait Provider {
    type Aead: Aead;
    type Ctr: Ctr;
    type CbcSealer: Cbc;
    type CbcOpener: Cbc;
    type HmacSha1: HmacSha1;
    type Agreement: Agreement;
    type Signer: Signer;

    fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8>;

    /// HMAC (RFC 2104) over the concatenation of `parts`.
    fn mac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8>;

    /// The expansion of HKDF (RFC 5869 §2.3). `key` is not longer than a digest of SHA-512. False if `out` is longer
    /// than 255 digests.
    fn expand(hash: Hash, key: &[u8], info: &[&[u8]], out: &mut [u8]) -> bool;

    /// The pseudorandom function of TLS 1.2 (RFC 5246 §5). `secret` is not empty.
    fn tls12_prf(hash: Hash, secret: &[u8], label: &[u8], seed: &[u8], out: &mut [u8]) -> bool;

    fn pbkdf2_hmac_sha1(secret: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]);

    /// The first bytes of the mask for a packet number. `key` has the length that the algorithm needs.
    fn header_mask(
        algorithm: AeadAlgorithm,
        key: &[u8],
        sample: &[u8; HEADER_SAMPLE_BYTES],
    ) -> Option<[u8; 5]>;

    /// AES key wrap (RFC 3394). The length of `key` is valid, and `out` is longer by 8 bytes. False if `kek` is not a
    /// key of AES.
    fn wrap_key(kek: &[u8], key: &[u8], out: &mut [u8]) -> bool;

    /// Reverses [`Provider::wrap_key`]. False if the integrity check fails, too.
    fn unwrap_key(kek: &[u8], wrapped: &[u8], out: &mut [u8]) -> bool;

    /// True if `signature` is valid. `spki` has the form of a `SubjectPublicKeyInfo`, and is of a bounded length.
    #[cfg_attr(fuzzing, allow(dead_code, reason = "a fuzzer has a substitute"))]
    fn verify(
        kind: KeyKind,
        algorithm: SignatureAlgorithm,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> bool;
}

/// An AEAD key with its key schedule.
pub(crate) trait Aead: Sized {
    /// `None` if `key` does not have the length that the algorithm needs.
    fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self>;

    /// Encrypts in place and returns the tag. If the library fails, `in_out` is zeroed.
    fn seal(
        &self,
        nonce: [u8; AEAD_NONCE_BYTES],
        associated: &[u8],
        in_out: &mut [u8],
    ) -> [u8; AEAD_TAG_BYTES];

    /// Decrypts in place. False if the tag is invalid or does not have the length of a tag.
    fn open(&self, nonce: [u8; AEAD_NONCE_BYTES], associated: &[u8], tag: &[u8], in_out: &mut [u8]) -> bool;
}

/// AES in counter mode with its key schedule.
pub(crate) trait Ctr: Sized {
    /// `None` if `key` is not a key of AES.
    fn new(key: &[u8]) -> Option<Self>;

    /// Applies the key stream from a counter block on. If the library fails, `in_out` is zeroed.
    fn apply(&self, initial: [u8; BLOCK_BYTES], in_out: &mut [u8]);
}

/// A direction of AES in cipher block chaining.
pub(crate) trait Cbc: Sized {
    /// `None` if `key` is not a key of AES.
    fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self>;

    /// Encrypts or decrypts the next blocks in place. The length is a multiple of the block size. If the library
    /// fails, `in_out` is zeroed.
    fn apply(&mut self, in_out: &mut [u8]) -> bool;
}

/// An HMAC-SHA1 key whose padded key blocks are hashed.
pub(crate) trait HmacSha1 {
    fn new(key: &[u8]) -> Self;
    fn sign(&self, parts: &[&[u8]]) -> [u8; 20];
}

/// A private key for an agreement.
pub(crate) trait Agreement: Sized {
    /// `None` if the group has no such key.
    fn from_bytes(group: AgreementGroup, bytes: &[u8]) -> Option<Self>;
    fn public(&self) -> Vec<u8>;

    /// Passes the shared secret to `derive`. `None` if `peer` is not in the group, or if the secret would be zero.
    /// `peer` has the form of a public value.
    fn agree<R>(&self, peer: &[u8], derive: impl FnOnce(&[u8]) -> R) -> Option<R>;
}

/// A private key that makes signatures.
pub(crate) trait Signer: Sized {
    /// Reads a P-256 or RSA key.
    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self>;

    /// Generates a P-256 key as PKCS#8.
    fn generate_p256() -> Option<Vec<u8>>;
    fn kind(&self) -> KeyKind;

    /// An uncompressed point, or `RSAPublicKey` in DER.
    fn public(&self) -> &[u8];

    /// `None` if the key does not support the algorithm.
    #[cfg_attr(fuzzing, allow(dead_code, reason = "a fuzzer has a substitute"))]
    fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>>;
}
