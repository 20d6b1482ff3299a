//! The subset of certificates (RFC 5280) that WebRTC needs: reading the public key, computing fingerprints, and
//! creating a self-signed certificate. Chains, names, dates and signatures are ignored, because trust comes
//! from the announced fingerprint (RFC 8122 §5).

use crypto::{Hash, KeyKind, PublicKey, SigningKey, constant_time_eq};
use wire::Reader;

use crate::config::{Expected, PeerCheck};
use crate::der::{self, Tag};
use crate::error::{Error, Failure};

/// Maximum size of an accepted certificate, in bytes. Certificates of WebRTC peers have 300 to 1,100.
const CERTIFICATE_BYTES_MAX: usize = 8 * 1024;

/// `id-ecPublicKey` (RFC 5480 §2.1.1).
const OID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// `secp256r1` (RFC 5480 §2.1.1.1).
const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// `secp384r1`.
const OID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
/// `rsaEncryption` (RFC 3279 §2.3.1).
const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Returns the public key of a certificate in DER.
pub fn public_key(certificate: &[u8]) -> Result<PublicKey, Failure> {
    if certificate.len() > CERTIFICATE_BYTES_MAX {
        return Err(Failure::CertificateMalformed);
    }
    let spki = subject_public_key_info(certificate).ok_or(Failure::CertificateMalformed)?;
    let kind = key_kind(spki).ok_or(Failure::CertificateMalformed)?.ok_or(Failure::CertificateKind)?;
    PublicKey::new(kind, spki).ok_or(Failure::CertificateKind)
}

/// Returns the `SubjectPublicKeyInfo` of a certificate (RFC 5280 §4.1) with its header.
fn subject_public_key_info(certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = Reader::new(certificate);
    let mut whole = Reader::new(der::take(&mut outer, Tag::SEQUENCE)?);
    let mut tbs = Reader::new(der::take(&mut whole, Tag::SEQUENCE)?);
    der::take(&mut whole, Tag::SEQUENCE)?;
    der::take(&mut whole, Tag::BIT_STRING)?;
    if !(whole.is_empty() && outer.is_empty()) {
        return None;
    }
    if tbs.peek() == Some(Tag::VERSION.0) {
        der::take(&mut tbs, Tag::VERSION)?;
    }
    // Skips serial number, signature algorithm, issuer, validity, subject.
    for tag in [Tag::INTEGER, Tag::SEQUENCE, Tag::SEQUENCE, Tag::SEQUENCE, Tag::SEQUENCE] {
        der::take(&mut tbs, tag)?;
    }
    der::take_whole(&mut tbs, Tag::SEQUENCE)
}

/// Returns the kind of a key. `None` if the key is malformed; `Some(None)` if its kind is unsupported.
fn key_kind(spki: &[u8]) -> Option<Option<KeyKind>> {
    let mut r = Reader::new(der::take(&mut Reader::new(spki), Tag::SEQUENCE)?);
    let mut algorithm = Reader::new(der::take(&mut r, Tag::SEQUENCE)?);
    der::take(&mut r, Tag::BIT_STRING)?;
    let oid = der::take(&mut algorithm, Tag::OBJECT_IDENTIFIER)?;
    if oid == OID_RSA {
        return Some(Some(KeyKind::Rsa));
    }
    if oid != OID_EC {
        return Some(None);
    }
    // Only named curves are supported; explicit parameters are not (RFC 5480 §2.1.1).
    let curve = der::take(&mut algorithm, Tag::OBJECT_IDENTIFIER).unwrap_or_default();
    Some(match curve {
        OID_P256 => Some(KeyKind::P256),
        OID_P384 => Some(KeyKind::P384),
        _ => None,
    })
}

/// A fingerprint of the peer's certificate, announced in its session description (RFC 8122 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    hash: Hash,
    digest: Box<[u8]>,
}

impl Fingerprint {
    /// Creates a fingerprint from a digest and the SDP name of its hash, ignoring case. `None` for weak hashes
    /// (`sha-1`, `md5`), unknown hashes, and digests of the wrong length.
    #[must_use]
    pub fn new(hash: &str, digest: &[u8]) -> Option<Self> {
        let (hash, bytes) = match hash.to_ascii_lowercase().as_str() {
            "sha-256" => (Hash::Sha256, 32),
            "sha-384" => (Hash::Sha384, 48),
            "sha-512" => (Hash::Sha512, 64),
            _ => return None,
        };
        (digest.len() == bytes).then(|| Self { hash, digest: digest.into() })
    }

    /// Returns the SHA-256 fingerprint of a certificate in DER.
    #[must_use]
    pub fn sha256(certificate: &[u8]) -> Self {
        Self { hash: Hash::Sha256, digest: Hash::Sha256.digest(certificate).into() }
    }

    /// Digest of the certificate.
    #[must_use]
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// True if the certificate has this fingerprint.
    #[must_use]
    pub fn matches(&self, certificate: &[u8]) -> bool {
        constant_time_eq(&self.hash.digest(certificate), &self.digest)
    }
}

/// Returns the key of a peer's certificate and its SHA-256 digest, if the certificate is acceptable.
pub(crate) fn check_peer(
    check: PeerCheck,
    expected: &Expected,
    leaf: &[u8],
) -> Result<(PublicKey, Option<[u8; 32]>), Failure> {
    if leaf.len() > CERTIFICATE_BYTES_MAX {
        return Err(Failure::CertificateMalformed);
    }
    if check == PeerCheck::Fingerprint {
        match expected {
            Expected::OneOf(list) if list.is_empty() => return Err(Failure::NoFingerprint),
            Expected::OneOf(list) if list.iter().any(|one| one.matches(leaf)) => {}
            Expected::OneOf(_) | Expected::Unknown => return Err(Failure::Fingerprint),
        }
    }
    Ok((public_key(leaf)?, Hash::Sha256.digest(leaf).try_into().ok()))
}

/// Our certificate and its private key.
#[derive(Debug)]
pub struct Identity {
    certificate: Box<[u8]>,
    key: SigningKey,
}

impl Identity {
    /// Creates an identity from a certificate in DER and its key, P-256 or RSA, in PKCS#8.
    pub fn new(certificate: &[u8], pkcs8: &[u8]) -> Result<Self, Error> {
        let key = SigningKey::from_pkcs8(pkcs8).ok_or(Error::Key)?;
        let public = public_key(certificate).map_err(|_| Error::Certificate)?;
        let algorithm = match key.kind() {
            KeyKind::Rsa => crypto::SignatureAlgorithm::RsaPkcs1(Hash::Sha256),
            KeyKind::P256 | KeyKind::P384 => crypto::SignatureAlgorithm::Ecdsa(Hash::Sha256),
        };
        let proof = key.sign(algorithm, certificate).ok_or(Error::Key)?;
        public.verify(algorithm, certificate, &proof).map_err(|_| Error::Certificate)?;
        Ok(Self { certificate: certificate.into(), key })
    }

    /// Creates a P-256 key and a self-signed certificate, for the lifetime of a process. The certificate's
    /// validity period is long; peers ignore it.
    pub fn self_signed(seed: &crypto::Seed) -> Result<Self, Error> {
        let pkcs8 = SigningKey::generate_p256().ok_or(Error::Key)?;
        let key = SigningKey::from_pkcs8(&pkcs8).ok_or(Error::Key)?;
        let mut serial = [0; 16];
        seed.derive("certificate serial", 0).random().fill(&mut serial);
        let certificate = der::self_signed(&key, serial).ok_or(Error::Key)?;
        Ok(Self { certificate: certificate.into(), key })
    }

    /// Certificate in DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the SHA-256 fingerprint for the session description.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::sha256(&self.certificate)
    }

    pub(crate) const fn key(&self) -> &SigningKey {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RSA_CERTIFICATE, RSA_KEY, identity};

    #[test]
    fn keys_are_found() {
        assert_eq!(public_key(identity(1).certificate()).unwrap().kind(), KeyKind::P256);
        assert_eq!(public_key(RSA_CERTIFICATE).unwrap().kind(), KeyKind::Rsa);
        assert!(Identity::new(RSA_CERTIFICATE, RSA_KEY).is_ok());
        assert_eq!(Identity::new(identity(1).certificate(), RSA_KEY).unwrap_err(), Error::Certificate);
        assert_eq!(Identity::new(RSA_CERTIFICATE, b"").unwrap_err(), Error::Key);
    }

    /// A certificate that is truncated or damaged at any byte gives an error or a key, but never a panic.
    #[test]
    fn d_13_junk_in_a_certificate() {
        for certificate in [identity(1).certificate(), RSA_CERTIFICATE] {
            for at in 0..certificate.len() {
                assert_eq!(public_key(&certificate[..at]).unwrap_err(), Failure::CertificateMalformed);
                for value in [0, 1, 0x7f, 0x80, 0x81, 0x84, 0xff] {
                    let mut damaged = certificate.to_vec();
                    damaged[at] = value;
                    let _ = public_key(&damaged);
                }
            }
            let longer = [certificate, &[0]].concat();
            assert_eq!(public_key(&longer).unwrap_err(), Failure::CertificateMalformed);
        }
        let mut huge = vec![0x30, 0x83, 0x00, 0xff, 0xfb];
        huge.resize(0xffff, 0x30);
        assert_eq!(public_key(&huge).unwrap_err(), Failure::CertificateMalformed);
    }

    #[test]
    fn d_02_only_hashes_that_prove_something() {
        for (hash, bytes, good) in [
            ("sha-256", 32, true),
            ("SHA-256", 32, true),
            ("sha-384", 48, true),
            ("Sha-512", 64, true),
            ("sha-1", 20, false),
            ("md5", 16, false),
            ("sha-256", 31, false),
            ("sha-256", 0, false),
            ("", 0, false),
        ] {
            assert_eq!(Fingerprint::new(hash, &vec![1; bytes]).is_some(), good, "{hash} {bytes}");
        }
    }
}
