//! The primitives of aws-lc, through `aws-lc-rs`.

mod cipher;
mod key_wrap;
mod signature;

use std::num::NonZeroU32;

use aws_lc_rs::aead::quic::{self, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::{digest, hkdf, hmac, pbkdf2, tls_prf};

use super::{Aead, Agreement, HmacSha1, Provider};
use crate::{
    AEAD_NONCE_BYTES, AEAD_TAG_BYTES, AeadAlgorithm, AgreementGroup, HEADER_SAMPLE_BYTES, Hash, KeyKind,
    SignatureAlgorithm,
};

/// Names the library.
pub(crate) enum AwsLc {}

impl Provider for AwsLc {
    type Aead = LessSafeKey;
    type Ctr = cipher::Ctr;
    type CbcSealer = cipher::CbcSealer;
    type CbcOpener = cipher::CbcOpener;
    type HmacSha1 = hmac::Key;
    type Agreement = AgreementKey;
    type Signer = signature::Pair;

    fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match hash {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    fn mac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match hash {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha384 => hmac::HMAC_SHA384,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        sign(&hmac::Key::new(algorithm, key), parts).as_ref().to_vec()
    }

    fn expand(hash: Hash, key: &[u8], info: &[&[u8]], out: &mut [u8]) -> bool {
        let algorithm = match hash {
            Hash::Sha256 => hkdf::HKDF_SHA256,
            Hash::Sha384 => hkdf::HKDF_SHA384,
            Hash::Sha512 => hkdf::HKDF_SHA512,
        };
        hkdf::Prk::new_less_safe(algorithm, key)
            .expand(info, Length(out.len()))
            .and_then(|material| material.fill(out))
            .is_ok()
    }

    fn tls12_prf(hash: Hash, secret: &[u8], label: &[u8], seed: &[u8], out: &mut [u8]) -> bool {
        let algorithm = match hash {
            Hash::Sha256 => &tls_prf::P_SHA256,
            Hash::Sha384 => &tls_prf::P_SHA384,
            Hash::Sha512 => &tls_prf::P_SHA512,
        };
        let secret = tls_prf::Secret::new(algorithm, secret);
        let Ok(derived) = secret.and_then(|secret| secret.derive(label, seed, out.len())) else {
            return false;
        };
        out.copy_from_slice(derived.as_ref());
        true
    }

    fn pbkdf2_hmac_sha1(secret: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, iterations, salt, secret, out);
    }

    fn header_mask(
        algorithm: AeadAlgorithm,
        key: &[u8],
        sample: &[u8; HEADER_SAMPLE_BYTES],
    ) -> Option<[u8; 5]> {
        let algorithm = match algorithm {
            AeadAlgorithm::Aes128Gcm => &quic::AES_128,
            AeadAlgorithm::Aes256Gcm => &quic::AES_256,
            AeadAlgorithm::ChaCha20Poly1305 => &quic::CHACHA20,
        };
        HeaderProtectionKey::new(algorithm, key).ok()?.new_mask(sample).ok()
    }

    fn wrap_key(kek: &[u8], key: &[u8], out: &mut [u8]) -> bool {
        key_wrap::wrap(kek, key, out).is_some()
    }

    fn unwrap_key(kek: &[u8], wrapped: &[u8], out: &mut [u8]) -> bool {
        key_wrap::unwrap(kek, wrapped, out).is_some()
    }

    fn verify(
        kind: KeyKind,
        algorithm: SignatureAlgorithm,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        signature::verify(kind, algorithm, spki, message, signature)
    }
}

fn sign(key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    context.sign()
}

/// Output length in the form that the library needs.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Aead for LessSafeKey {
    fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        let algorithm = match algorithm {
            AeadAlgorithm::Aes128Gcm => &AES_128_GCM,
            AeadAlgorithm::Aes256Gcm => &AES_256_GCM,
            AeadAlgorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key).ok().map(Self::new)
    }

    #[inline]
    fn seal(
        &self,
        nonce: [u8; AEAD_NONCE_BYTES],
        associated: &[u8],
        in_out: &mut [u8],
    ) -> [u8; AEAD_TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let mut tag = [0; AEAD_TAG_BYTES];
        if self.seal_in_place_scatter(nonce, Aad::from(associated), in_out, &[], &mut tag).is_err() {
            // The library only fails for more than 64 GiB. Even then, no plaintext may be sent.
            in_out.fill(0);
        }
        tag
    }

    #[inline]
    fn open(&self, nonce: [u8; AEAD_NONCE_BYTES], associated: &[u8], tag: &[u8], in_out: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.open_in_place_separate_tag(nonce, Aad::from(associated), tag, in_out).is_ok()
    }
}

impl HmacSha1 for hmac::Key {
    fn new(key: &[u8]) -> Self {
        Self::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key)
    }

    #[inline]
    fn sign(&self, parts: &[&[u8]]) -> [u8; 20] {
        // An SHA-1 digest has 20 bytes, so the conversion never fails.
        sign(self, parts).as_ref().try_into().unwrap_or([0; 20])
    }
}

/// A private key; the library's type does not tell its algorithm.
pub(crate) struct AgreementKey {
    group: AgreementGroup,
    key: PrivateKey,
}

impl AgreementKey {
    const fn algorithm(group: AgreementGroup) -> &'static aws_lc_rs::agreement::Algorithm {
        match group {
            AgreementGroup::X25519 => &X25519,
            AgreementGroup::P256 => &ECDH_P256,
        }
    }
}

impl Agreement for AgreementKey {
    fn from_bytes(group: AgreementGroup, bytes: &[u8]) -> Option<Self> {
        let key = PrivateKey::from_private_key(Self::algorithm(group), bytes).ok()?;
        Some(Self { group, key })
    }

    fn public(&self) -> Vec<u8> {
        self.key.compute_public_key().map(|key| key.as_ref().to_vec()).unwrap_or_default()
    }

    fn agree<R>(&self, peer: &[u8], derive: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let peer = UnparsedPublicKey::new(Self::algorithm(self.group), peer);
        agree(&self.key, peer, (), |secret| Ok(derive(secret))).ok()
    }
}
