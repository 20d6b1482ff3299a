//! Signatures over messages, with keys in the forms of certificates and PKCS#8.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, VerificationAlgorithm,
};
#[cfg(not(fuzzing))]
use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512,
};

#[cfg(fuzzing)]
use crate::null::{sign, verify};
use crate::{Hash, NotAuthentic};

/// Maximum length of an RSA key in bytes: a modulus of 4096 bits and the structure around it. The limit is needed
/// because the peer chooses the length, and the cost of a verification grows with its square.
const RSA_KEY_BYTES_MAX: usize = 600;

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Key on the NIST curve P-256.
    P256,
    /// Key on the NIST curve P-384.
    P384,
    /// RSA key of 2048 to 4096 bits.
    Rsa,
}

/// Signature algorithm with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignatureAlgorithm {
    /// ECDSA over a hash (FIPS 186-5), in DER.
    Ecdsa(Hash),
    /// RSASSA-PKCS1-v1_5 (RFC 8017 §8.2).
    RsaPkcs1(Hash),
    /// RSASSA-PSS (RFC 8017 §8.1) with a salt as long as the hash.
    RsaPss(Hash),
}

impl SignatureAlgorithm {
    fn verifier(self, kind: KeyKind) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, kind) {
            (Self::Ecdsa(Hash::Sha256), KeyKind::P256) => &ECDSA_P256_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), KeyKind::P256) => &ECDSA_P256_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), KeyKind::P256) => &ECDSA_P256_SHA512_ASN1,
            (Self::Ecdsa(Hash::Sha256), KeyKind::P384) => &ECDSA_P384_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), KeyKind::P384) => &ECDSA_P384_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), KeyKind::P384) => &ECDSA_P384_SHA512_ASN1,
            (Self::RsaPkcs1(Hash::Sha256), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA256,
            (Self::RsaPkcs1(Hash::Sha384), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA384,
            (Self::RsaPkcs1(Hash::Sha512), KeyKind::Rsa) => &RSA_PKCS1_2048_8192_SHA512,
            (Self::RsaPss(Hash::Sha256), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA256,
            (Self::RsaPss(Hash::Sha384), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA384,
            (Self::RsaPss(Hash::Sha512), KeyKind::Rsa) => &RSA_PSS_2048_8192_SHA512,
            (Self::Ecdsa(_), KeyKind::Rsa)
            | (Self::RsaPkcs1(_) | Self::RsaPss(_), KeyKind::P256 | KeyKind::P384) => return None,
        })
    }
}

/// Public key of a peer.
#[derive(Debug)]
pub struct PublicKey {
    kind: KeyKind,
    spki: Box<[u8]>,
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo` in DER (RFC 5280 §4.1) of the stated `kind`. The kind and the point on the curve
    /// are checked only when a signature is verified.
    #[must_use]
    pub fn new(kind: KeyKind, spki: &[u8]) -> Option<Self> {
        (spki.len() <= RSA_KEY_BYTES_MAX).then(|| Self { kind, spki: spki.into() })
    }

    /// Kind of the key.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Verifies that `message` was signed with the private key that belongs to this key.
    pub fn verify(
        &self,
        algorithm: SignatureAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        verify(algorithm.verifier(self.kind).ok_or(NotAuthentic)?, &self.spki, message, signature)
    }
}

pub(crate) enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(rsa::KeyPair),
}

impl Pair {
    pub(crate) fn public(&self) -> &[u8] {
        match self {
            Self::Ecdsa(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }
}

/// Private key that makes signatures.
pub struct SigningKey(Pair);

impl SigningKey {
    /// Reads a P-256 or RSA key from PKCS#8 in DER (RFC 5958). Returns `None` for anything else.
    #[must_use]
    pub fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).ok().map(Pair::Ecdsa);
        ecdsa.or_else(|| rsa::KeyPair::from_pkcs8(pkcs8).ok().map(Pair::Rsa)).map(Self)
    }

    /// Generates a P-256 key and returns it as PKCS#8. The key is random and does not depend on a seed.
    #[must_use]
    pub fn generate_p256() -> Option<Vec<u8>> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        document.ok().map(|document| document.as_ref().to_vec())
    }

    /// Kind of the key, P-256 or RSA.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        match self.0 {
            Pair::Ecdsa(_) => KeyKind::P256,
            Pair::Rsa(_) => KeyKind::Rsa,
        }
    }

    /// Public key: an uncompressed point, or `RSAPublicKey` in DER.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.0.public()
    }

    /// Signs a message with randomness of the library. Returns `None` if the key does not support the algorithm.
    #[must_use]
    pub fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        sign(&self.0, algorithm, message)
    }
}

#[cfg(not(fuzzing))]
fn verify(
    verifier: &'static dyn VerificationAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let key = ParsedPublicKey::new(verifier, spki).map_err(|_| NotAuthentic)?;
    key.verify_sig(message, signature).map_err(|_| NotAuthentic)
}

#[cfg(not(fuzzing))]
fn sign(pair: &Pair, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    let pair = match (pair, algorithm) {
        (Pair::Ecdsa(pair), SignatureAlgorithm::Ecdsa(Hash::Sha256)) => {
            return pair.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec());
        }
        (Pair::Rsa(pair), _) => pair,
        (Pair::Ecdsa(_), _) => return None,
    };
    let padding: &'static dyn aws_lc_rs::signature::RsaEncoding = match algorithm {
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

/// Never prints the key.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({:?}, ..)", self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Makes a `SubjectPublicKeyInfo` of a point on P-256.
    fn p256_spki(point: &[u8]) -> Vec<u8> {
        [&hex("3059301306072a8648ce3d020106082a8648ce3d030107034200")[..], point].concat()
    }

    #[test]
    fn what_is_signed_is_verified_and_nothing_else() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate_p256().unwrap()).unwrap();
        let algorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
        let signature = key.sign(algorithm, b"message").unwrap();
        let public = PublicKey::new(KeyKind::P256, &p256_spki(key.public())).unwrap();
        assert_eq!(public.verify(algorithm, b"message", &signature), Ok(()));
        assert_eq!(public.verify(algorithm, b"massage", &signature), Err(NotAuthentic));
        assert_eq!(
            public.verify(SignatureAlgorithm::Ecdsa(Hash::Sha384), b"message", &signature),
            Err(NotAuthentic)
        );
        assert_eq!(
            public.verify(SignatureAlgorithm::RsaPss(Hash::Sha256), b"message", &signature),
            Err(NotAuthentic)
        );
        assert!(key.sign(SignatureAlgorithm::RsaPss(Hash::Sha256), b"").is_none());
        assert!(SigningKey::from_pkcs8(b"no key").is_none());
        assert!(PublicKey::new(KeyKind::Rsa, &[0; RSA_KEY_BYTES_MAX + 1]).is_none());
    }

    fn wycheproof(kind: KeyKind, algorithm: SignatureAlgorithm, text: &str) -> [usize; 2] {
        let mut counts = [0; 2];
        let mut public = None;
        let bytes = |text: &str| if text == "-" { Vec::new() } else { hex(text) };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[..] {
                ["key", spki] => public = PublicKey::new(kind, &hex(spki)),
                [id, result, message, signature] => {
                    let key = public.as_ref().unwrap();
                    let verdict = key.verify(algorithm, &bytes(message), &bytes(signature));
                    assert_eq!(verdict.is_ok(), result == "valid", "{id}");
                    counts[usize::from(verdict.is_err())] += 1;
                }
                _ => panic!("{line}"),
            }
        }
        counts
    }

    #[test]
    fn d_13_wycheproof_ecdsa_p256() {
        let text = include_str!("wycheproof_ecdsa_p256.txt");
        assert_eq!(wycheproof(KeyKind::P256, SignatureAlgorithm::Ecdsa(Hash::Sha256), text), [174, 310]);
    }

    #[test]
    fn d_13_wycheproof_ecdsa_p384() {
        let text = include_str!("wycheproof_ecdsa_p384.txt");
        assert_eq!(wycheproof(KeyKind::P384, SignatureAlgorithm::Ecdsa(Hash::Sha384), text), [194, 310]);
    }
}
