//! Signatures of aws-lc.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, EcdsaKeyPair, KeyPair,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
    VerificationAlgorithm,
};

use crate::primitives::provider::Signer;
use crate::{Hash, KeyKind, SignatureAlgorithm};

/// A private key of either kind.
pub(crate) enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(rsa::KeyPair),
}

impl Signer for Pair {
    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).ok().map(Self::Ecdsa);
        ecdsa.or_else(|| rsa::KeyPair::from_pkcs8(pkcs8).ok().map(Self::Rsa))
    }

    fn generate_p256() -> Option<Vec<u8>> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        document.ok().map(|document| document.as_ref().to_vec())
    }

    fn kind(&self) -> KeyKind {
        match self {
            Self::Ecdsa(_) => KeyKind::P256,
            Self::Rsa(_) => KeyKind::Rsa,
        }
    }

    fn public(&self) -> &[u8] {
        match self {
            Self::Ecdsa(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let pair = match (self, algorithm) {
            (Self::Ecdsa(pair), SignatureAlgorithm::Ecdsa(Hash::Sha256)) => {
                return pair.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec());
            }
            (Self::Rsa(pair), _) => pair,
            (Self::Ecdsa(_), _) => return None,
        };
        let padding: &'static dyn RsaEncoding = match algorithm {
            SignatureAlgorithm::RsaPkcs1(Hash::Sha256) => &RSA_PKCS1_SHA256,
            SignatureAlgorithm::RsaPkcs1(Hash::Sha384) => &RSA_PKCS1_SHA384,
            SignatureAlgorithm::RsaPkcs1(Hash::Sha512) => &RSA_PKCS1_SHA512,
            SignatureAlgorithm::RsaPss(Hash::Sha256) => &RSA_PSS_SHA256,
            SignatureAlgorithm::RsaPss(Hash::Sha384) => &RSA_PSS_SHA384,
            SignatureAlgorithm::RsaPss(Hash::Sha512) => &RSA_PSS_SHA512,
            SignatureAlgorithm::Ecdsa(_) => return None,
        };
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(padding, &random, message, &mut signature).ok()?;
        Some(signature)
    }
}

pub(super) fn verify(
    kind: KeyKind,
    algorithm: SignatureAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Some(verifier) = verifier(kind, algorithm) else { return false };
    ParsedPublicKey::new(verifier, spki).is_ok_and(|key| key.verify_sig(message, signature).is_ok())
}

fn verifier(kind: KeyKind, algorithm: SignatureAlgorithm) -> Option<&'static dyn VerificationAlgorithm> {
    use SignatureAlgorithm::{Ecdsa, RsaPkcs1, RsaPss};
    Some(match (algorithm, kind) {
        (Ecdsa(Hash::Sha256), KeyKind::P256) => &ECDSA_P256_SHA256_ASN1,
        (Ecdsa(Hash::Sha384), KeyKind::P256) => &ECDSA_P256_SHA384_ASN1,
        (Ecdsa(Hash::Sha512), KeyKind::P256) => &ECDSA_P256_SHA512_ASN1,
        (Ecdsa(Hash::Sha256), KeyKind::P384) => &ECDSA_P384_SHA256_ASN1,
        (Ecdsa(Hash::Sha384), KeyKind::P384) => &ECDSA_P384_SHA384_ASN1,
        (Ecdsa(Hash::Sha512), KeyKind::P384) => &ECDSA_P384_SHA512_ASN1,
        (RsaPkcs1(Hash::Sha256), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA256,
        (RsaPkcs1(Hash::Sha384), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA384,
        (RsaPkcs1(Hash::Sha512), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA512,
        (RsaPss(Hash::Sha256), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA256,
        (RsaPss(Hash::Sha384), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA384,
        (RsaPss(Hash::Sha512), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA512,
        (Ecdsa(_), KeyKind::Rsa) | (RsaPkcs1(_) | RsaPss(_), KeyKind::P256 | KeyKind::P384) => return None,
    })
}
