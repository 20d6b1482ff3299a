//! Signatures over messages, with keys in the forms of certificates and PKCS#8.

#[cfg(fuzzing)]
use crate::primitives::null::{sign, verify};
use crate::primitives::provider::{Chosen, Provider, Signer};
use crate::{Hash, NotAuthentic};

type Pair = <Chosen as Provider>::Signer;

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

/// Public key of a peer.
#[derive(Debug)]
pub struct PublicKey {
    kind: KeyKind,
    spki: Box<[u8]>,
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo` in DER (RFC 5280 §4.1) of the stated `kind`. The kind and the point on the curve
    /// are checked only when a signature is verified. Returns `None` for a key that is too long or has another form.
    #[must_use]
    pub fn new(kind: KeyKind, spki: &[u8]) -> Option<Self> {
        (spki.len() <= RSA_KEY_BYTES_MAX && has_form(kind, spki)).then(|| Self { kind, spki: spki.into() })
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
        let is_valid = verify(self.kind, algorithm, &self.spki, message, signature);
        if is_valid { Ok(()) } else { Err(NotAuthentic) }
    }
}

/// Returns whether a value in DER is a sequence that begins with a sequence, and whether a point at its end is
/// uncompressed (RFC 8422 §5.1.1). Libraries differ in the other forms of keys and points that they accept.
fn has_form(kind: KeyKind, spki: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const UNCOMPRESSED: u8 = 4;
    let Some(([SEQUENCE, length], content)) = spki.split_first_chunk::<2>() else { return false };
    // A long form of the length has the number of its bytes in the low bits (X.690 §8.1.3.5).
    let skipped = if *length < 0x80 { 0 } else { usize::from(*length & 0x7f) };
    let has_point = match kind {
        KeyKind::P256 => spki.last_chunk::<65>().is_some_and(|point| point.first() == Some(&UNCOMPRESSED)),
        KeyKind::P384 => spki.last_chunk::<97>().is_some_and(|point| point.first() == Some(&UNCOMPRESSED)),
        KeyKind::Rsa => true,
    };
    has_point && content.get(skipped) == Some(&SEQUENCE)
}

/// Private key that makes signatures.
pub struct SigningKey {
    kind: KeyKind,
    pair: Pair,
}

impl SigningKey {
    /// Reads a P-256 or RSA key from PKCS#8 in DER (RFC 5958). Returns `None` for anything else.
    #[must_use]
    pub fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let pair = Pair::from_pkcs8(pkcs8)?;
        Some(Self { kind: pair.kind(), pair })
    }

    /// Generates a P-256 key and returns it as PKCS#8. The key is random and does not depend on a seed.
    #[must_use]
    pub fn generate_p256() -> Option<Vec<u8>> {
        Pair::generate_p256()
    }

    /// Kind of the key, P-256 or RSA.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Public key: an uncompressed point, or `RSAPublicKey` in DER.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.pair.public()
    }

    /// Signs a message. The randomness is the library's: with aws-lc two signatures of a message differ, with RustCrypto
    /// two of ECDSA are the same (RFC 6979). Returns `None` if the key does not support the algorithm.
    #[must_use]
    pub fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        sign(&self.pair, algorithm, message)
    }
}

#[cfg(not(fuzzing))]
fn verify(
    kind: KeyKind,
    algorithm: SignatureAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    Chosen::verify(kind, algorithm, spki, message, signature)
}

#[cfg(not(fuzzing))]
fn sign(pair: &Pair, algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
    pair.sign(algorithm, message)
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

    /// A bare point, a compressed one, and one of the hybrid form (X9.62 §4.3.6) are no keys of a certificate.
    #[test]
    fn only_uncompressed_points_of_certificates_are_keys() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate_p256().unwrap()).unwrap();
        let point = key.public();
        let hybrid = [&[6 | (point[64] & 1)], &point[1..]].concat();
        let compressed = [&[2 | (point[64] & 1)], &point[1..33]].concat();
        assert!(PublicKey::new(KeyKind::P256, &p256_spki(point)).is_some());
        for refused in [point.to_vec(), p256_spki(&hybrid), p256_spki(&compressed), Vec::new()] {
            assert!(PublicKey::new(KeyKind::P256, &refused).is_none());
        }
        assert!(PublicKey::new(KeyKind::P384, &p256_spki(point)).is_none());
        assert!(PublicKey::new(KeyKind::Rsa, &[0x30, 3, 2, 1, 1]).is_none());
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
