//! ECDSA on P-256 and P-384, and RSA.

use p256::elliptic_curve::Generate;
use p256::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey};
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::signature::hazmat::PrehashVerifier;
use rsa::signature::{RandomizedSigner, SignatureEncoding, Signer as _, Verifier};
use rsa::traits::PublicKeyParts;
use rsa::{pkcs1v15, pss};
use sha2::{Sha256, Sha384, Sha512};

use super::RustCrypto;
use crate::primitives::provider::{Provider, Signer};
use crate::{Hash, KeyKind, SignatureAlgorithm};

/// Shortest modulus of an RSA key in bits.
const RSA_BITS_MIN: u32 = 2048;

/// A private key of either kind, with its public key in the form that is shown.
pub(crate) struct Pair {
    private: Private,
    public: Box<[u8]>,
}

enum Private {
    Ecdsa(p256::ecdsa::SigningKey),
    Rsa(Box<rsa::PrivateKey>),
}

impl Signer for Pair {
    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        if let Ok(key) = p256::ecdsa::SigningKey::from_pkcs8_der(pkcs8) {
            let public = key.verifying_key().to_sec1_point(false).as_bytes().into();
            return Some(Self { private: Private::Ecdsa(key), public });
        }
        let key = rsa::PrivateKey::from_pkcs8_der(pkcs8).ok()?;
        is_long_enough(&key).then_some(())?;
        let public = key.to_public_key().to_pkcs1_der().ok()?.as_bytes().into();
        Some(Self { private: Private::Rsa(Box::new(key)), public })
    }

    fn generate_p256() -> Option<Vec<u8>> {
        let key = p256::SecretKey::try_generate_from_rng(&mut getrandom::SysRng).ok()?;
        Some(key.to_pkcs8_der().ok()?.as_bytes().to_vec())
    }

    fn kind(&self) -> KeyKind {
        match self.private {
            Private::Ecdsa(_) => KeyKind::P256,
            Private::Rsa(_) => KeyKind::Rsa,
        }
    }

    fn public(&self) -> &[u8] {
        &self.public
    }

    /// ECDSA takes its number from the key and the message (RFC 6979). RSA is blinded, and PSS salted, with the
    /// randomness of the operating system.
    fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        use SignatureAlgorithm::{Ecdsa, RsaPkcs1, RsaPss};
        let key = match (&self.private, algorithm) {
            (Private::Ecdsa(key), Ecdsa(Hash::Sha256)) => {
                let signature: p256::ecdsa::DerSignature = key.try_sign(message).ok()?;
                return Some(signature.as_bytes().to_vec());
            }
            (Private::Rsa(key), _) => rsa::PrivateKey::clone(key),
            (Private::Ecdsa(_), _) => return None,
        };
        match algorithm {
            RsaPkcs1(Hash::Sha256) => signed(&pkcs1v15::SigningKey::<Sha256>::new(key), message),
            RsaPkcs1(Hash::Sha384) => signed(&pkcs1v15::SigningKey::<Sha384>::new(key), message),
            RsaPkcs1(Hash::Sha512) => signed(&pkcs1v15::SigningKey::<Sha512>::new(key), message),
            RsaPss(Hash::Sha256) => signed(&pss::SigningKey::<Sha256>::new(key), message),
            RsaPss(Hash::Sha384) => signed(&pss::SigningKey::<Sha384>::new(key), message),
            RsaPss(Hash::Sha512) => signed(&pss::SigningKey::<Sha512>::new(key), message),
            Ecdsa(_) => None,
        }
    }
}

fn signed<S: SignatureEncoding>(key: &impl RandomizedSigner<S>, message: &[u8]) -> Option<Vec<u8>> {
    Some(key.try_sign_with_rng(&mut getrandom::SysRng, message).ok()?.to_vec())
}

fn is_long_enough(key: &impl PublicKeyParts) -> bool {
    key.n().bit_width_vartime() >= RSA_BITS_MIN
}

pub(super) fn verify(
    kind: KeyKind,
    algorithm: SignatureAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    use SignatureAlgorithm::{Ecdsa, RsaPkcs1, RsaPss};
    match (kind, algorithm) {
        (KeyKind::P256, Ecdsa(hash)) => {
            let key = p256::ecdsa::VerifyingKey::from_public_key_der(spki).ok()?;
            let signature = p256::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&RustCrypto::digest(hash, message), &signature).ok()
        }
        (KeyKind::P384, Ecdsa(hash)) => {
            let key = p384::ecdsa::VerifyingKey::from_public_key_der(spki).ok()?;
            let signature = p384::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&RustCrypto::digest(hash, message), &signature).ok()
        }
        (KeyKind::Rsa, RsaPkcs1(hash)) => {
            let key = rsa_key(spki)?;
            let signature = signature.try_into().ok()?;
            match hash {
                Hash::Sha256 => pkcs1v15::VerifyingKey::<Sha256>::new(key).verify(message, &signature),
                Hash::Sha384 => pkcs1v15::VerifyingKey::<Sha384>::new(key).verify(message, &signature),
                Hash::Sha512 => pkcs1v15::VerifyingKey::<Sha512>::new(key).verify(message, &signature),
            }
            .ok()
        }
        (KeyKind::Rsa, RsaPss(hash)) => {
            let key = rsa_key(spki)?;
            let signature = signature.try_into().ok()?;
            match hash {
                Hash::Sha256 => pss::VerifyingKey::<Sha256>::new(key).verify(message, &signature),
                Hash::Sha384 => pss::VerifyingKey::<Sha384>::new(key).verify(message, &signature),
                Hash::Sha512 => pss::VerifyingKey::<Sha512>::new(key).verify(message, &signature),
            }
            .ok()
        }
        (KeyKind::P256 | KeyKind::P384, RsaPkcs1(_) | RsaPss(_)) | (KeyKind::Rsa, Ecdsa(_)) => None,
    }
}

fn rsa_key(spki: &[u8]) -> Option<rsa::PublicKey> {
    rsa::PublicKey::from_public_key_der(spki).ok().filter(is_long_enough)
}
