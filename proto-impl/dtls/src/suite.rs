//! Cipher suites, groups and signature schemes, in the order in which they are preferred.

use crypto::{AeadAlgorithm, AgreementGroup, Hash, KeyKind, SignatureAlgorithm};

/// A cipher suite: ECDHE with an AEAD (RFC 5289, RFC 7905).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CipherSuite {
    /// `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`
    EcdheEcdsaAes128Gcm,
    /// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`
    EcdheRsaAes128Gcm,
    /// `TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384`
    EcdheEcdsaAes256Gcm,
    /// `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`
    EcdheRsaAes256Gcm,
    /// `TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256`
    EcdheEcdsaChaCha20,
    /// `TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256`
    EcdheRsaChaCha20,
}

impl CipherSuite {
    /// All cipher suites, the preferred one first.
    pub const ALL: [Self; 6] = [
        Self::EcdheEcdsaAes128Gcm,
        Self::EcdheRsaAes128Gcm,
        Self::EcdheEcdsaAes256Gcm,
        Self::EcdheRsaAes256Gcm,
        Self::EcdheEcdsaChaCha20,
        Self::EcdheRsaChaCha20,
    ];

    /// The number as sent on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::EcdheEcdsaAes128Gcm => 0xc02b,
            Self::EcdheRsaAes128Gcm => 0xc02f,
            Self::EcdheEcdsaAes256Gcm => 0xc02c,
            Self::EcdheRsaAes256Gcm => 0xc030,
            Self::EcdheEcdsaChaCha20 => 0xcca9,
            Self::EcdheRsaChaCha20 => 0xcca8,
        }
    }

    pub(crate) fn of_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    pub(crate) const fn aead(self) -> AeadAlgorithm {
        match self {
            Self::EcdheEcdsaAes128Gcm | Self::EcdheRsaAes128Gcm => AeadAlgorithm::Aes128Gcm,
            Self::EcdheEcdsaAes256Gcm | Self::EcdheRsaAes256Gcm => AeadAlgorithm::Aes256Gcm,
            Self::EcdheEcdsaChaCha20 | Self::EcdheRsaChaCha20 => AeadAlgorithm::ChaCha20Poly1305,
        }
    }

    /// The hash of the pseudorandom function.
    pub(crate) const fn hash(self) -> Hash {
        match self.aead() {
            AeadAlgorithm::Aes256Gcm => Hash::Sha384,
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::ChaCha20Poly1305 => Hash::Sha256,
        }
    }

    /// Whether a server with a key of this kind can use it.
    pub(crate) const fn fits(self, kind: KeyKind) -> bool {
        let rsa = matches!(self, Self::EcdheRsaAes128Gcm | Self::EcdheRsaAes256Gcm | Self::EcdheRsaChaCha20);
        rsa == matches!(kind, KeyKind::Rsa)
    }
}

/// Signalled among the suites: no renegotiation info, but understood (RFC 5746 §3.3).
pub(crate) const RENEGOTIATION_SCSV: u16 = 0x00ff;

/// The groups, the preferred one first.
pub(crate) const GROUPS: [AgreementGroup; 2] = [AgreementGroup::X25519, AgreementGroup::P256];

/// The group's number on the wire (RFC 8422 §5.1.1).
pub(crate) const fn group_number(group: AgreementGroup) -> u16 {
    match group {
        AgreementGroup::P256 => 23,
        AgreementGroup::X25519 => 29,
    }
}

pub(crate) fn group_of_number(number: u16) -> Option<AgreementGroup> {
    GROUPS.into_iter().find(|group| group_number(*group) == number)
}

/// The signature schemes (RFC 8446 §4.2.3, whose numbers TLS 1.2 reads as hash and signature), the preferred one
/// first. Under TLS 1.2 an ECDSA scheme says the hash and not the curve. SHA-1 is not among them.
pub(crate) const SCHEMES: [(u16, SignatureAlgorithm); 9] = [
    (0x0403, SignatureAlgorithm::Ecdsa(Hash::Sha256)),
    (0x0804, SignatureAlgorithm::RsaPss(Hash::Sha256)),
    (0x0401, SignatureAlgorithm::RsaPkcs1(Hash::Sha256)),
    (0x0503, SignatureAlgorithm::Ecdsa(Hash::Sha384)),
    (0x0805, SignatureAlgorithm::RsaPss(Hash::Sha384)),
    (0x0501, SignatureAlgorithm::RsaPkcs1(Hash::Sha384)),
    (0x0806, SignatureAlgorithm::RsaPss(Hash::Sha512)),
    (0x0601, SignatureAlgorithm::RsaPkcs1(Hash::Sha512)),
    (0x0603, SignatureAlgorithm::Ecdsa(Hash::Sha512)),
];

pub(crate) fn scheme_of_number(number: u16) -> Option<SignatureAlgorithm> {
    SCHEMES.into_iter().find(|(known, _)| *known == number).map(|(_, algorithm)| algorithm)
}

/// The first of our schemes that a key of `kind` signs with and the peer takes.
pub(crate) fn choose_scheme(kind: KeyKind, offered: &[u16]) -> Option<(u16, SignatureAlgorithm)> {
    SCHEMES.into_iter().find(|(number, algorithm)| {
        let signs = match (kind, algorithm) {
            // The library's P-256 key signs over SHA-256 only.
            (KeyKind::P256, SignatureAlgorithm::Ecdsa(hash)) => *hash == Hash::Sha256,
            (KeyKind::Rsa, SignatureAlgorithm::RsaPss(_) | SignatureAlgorithm::RsaPkcs1(_)) => true,
            (KeyKind::P256 | KeyKind::P384 | KeyKind::Rsa, _) => false,
        };
        signs && offered.contains(number)
    })
}
