//! Cipher suites, groups and signature schemes, in order of preference.

use crypto::{AeadAlgorithm, AgreementGroup, Hash, KeyKind, SignatureAlgorithm};

/// A cipher suite: ECDHE with an AEAD. A suite of DTLS 1.2 (RFC 5289, RFC 7905) also determines the type of the
/// server's key; one of DTLS 1.3 does not (RFC 8446 §B.4).
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
    /// `TLS_AES_128_GCM_SHA256`
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`
    ChaCha20,
}

impl CipherSuite {
    /// Cipher suites of DTLS 1.3 in order of preference.
    pub const V13: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20];

    /// Cipher suites of DTLS 1.2 in order of preference.
    pub const V12: [Self; 6] = [
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
            Self::Aes128Gcm => 0x1301,
            Self::Aes256Gcm => 0x1302,
            Self::ChaCha20 => 0x1303,
        }
    }

    /// Returns the suite of DTLS 1.2 with this number.
    pub(crate) fn v12_of_number(number: u16) -> Option<Self> {
        Self::V12.into_iter().find(|suite| suite.number() == number)
    }

    /// Returns the suite of DTLS 1.3 with this number.
    pub(crate) fn v13_of_number(number: u16) -> Option<Self> {
        Self::V13.into_iter().find(|suite| suite.number() == number)
    }

    pub(crate) const fn aead(self) -> AeadAlgorithm {
        match self {
            Self::EcdheEcdsaAes128Gcm | Self::EcdheRsaAes128Gcm | Self::Aes128Gcm => AeadAlgorithm::Aes128Gcm,
            Self::EcdheEcdsaAes256Gcm | Self::EcdheRsaAes256Gcm | Self::Aes256Gcm => AeadAlgorithm::Aes256Gcm,
            Self::EcdheEcdsaChaCha20 | Self::EcdheRsaChaCha20 | Self::ChaCha20 => {
                AeadAlgorithm::ChaCha20Poly1305
            }
        }
    }

    /// Returns the hash used by the pseudorandom function.
    pub(crate) const fn hash(self) -> Hash {
        match self.aead() {
            AeadAlgorithm::Aes256Gcm => Hash::Sha384,
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::ChaCha20Poly1305 => Hash::Sha256,
        }
    }

    /// True if a server with this kind of key can use the suite under DTLS 1.2.
    pub(crate) const fn fits(self, kind: KeyKind) -> bool {
        let rsa = matches!(self, Self::EcdheRsaAes128Gcm | Self::EcdheRsaAes256Gcm | Self::EcdheRsaChaCha20);
        rsa == matches!(kind, KeyKind::Rsa)
    }
}

/// Signalling value among the cipher suites, equivalent to an empty `renegotiation_info` (RFC 5746 §3.3).
pub(crate) const RENEGOTIATION_SCSV: u16 = 0x00ff;

/// End of the random value of a server that supports DTLS 1.3 but negotiates 1.2 (RFC 8446 §4.1.3).
pub(crate) const DOWNGRADE: &[u8; 8] = b"DOWNGRD\x01";
/// End of the random value of a server that negotiates TLS 1.1 or below (RFC 8446 §4.1.3).
pub(crate) const DOWNGRADE_FURTHER: &[u8; 8] = b"DOWNGRD\x00";

/// Groups in order of preference.
pub(crate) const GROUPS: [AgreementGroup; 2] = [AgreementGroup::X25519, AgreementGroup::P256];

/// Returns the group's number on the wire (RFC 8422 §5.1.1).
pub(crate) const fn group_number(group: AgreementGroup) -> u16 {
    match group {
        AgreementGroup::P256 => 23,
        AgreementGroup::X25519 => 29,
    }
}

pub(crate) fn group_of_number(number: u16) -> Option<AgreementGroup> {
    GROUPS.into_iter().find(|group| group_number(*group) == number)
}

/// Signature schemes in order of preference (RFC 8446 §4.2.3; TLS 1.2 interprets the numbers as hash and
/// signature). With TLS 1.2, an ECDSA scheme determines the hash but not the curve. SHA-1 is excluded.
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

/// Returns the scheme with this number by the rules of DTLS 1.3: an ECDSA scheme also determines the curve, and
/// RSA must be PSS (RFC 8446 §4.2.3).
pub(crate) fn scheme_of_v13(number: u16, kind: KeyKind) -> Option<SignatureAlgorithm> {
    scheme_of_number(number).filter(|algorithm| {
        matches!(
            (kind, algorithm),
            (KeyKind::P256, SignatureAlgorithm::Ecdsa(Hash::Sha256))
                | (KeyKind::P384, SignatureAlgorithm::Ecdsa(Hash::Sha384))
                | (KeyKind::Rsa, SignatureAlgorithm::RsaPss(_))
        )
    })
}

/// Like [`choose_scheme`], for DTLS 1.3.
pub(crate) fn choose_scheme_v13(kind: KeyKind, offered: &[u16]) -> Option<(u16, SignatureAlgorithm)> {
    let numbers = SCHEMES.into_iter().map(|(number, _)| number).filter(|number| offered.contains(number));
    numbers.filter_map(|number| Some((number, scheme_of_v13(number, kind)?))).next()
}

/// Returns our first scheme that a key of `kind` supports and that the peer accepts.
pub(crate) fn choose_scheme(kind: KeyKind, offered: &[u16]) -> Option<(u16, SignatureAlgorithm)> {
    SCHEMES.into_iter().find(|(number, algorithm)| {
        let signs = match (kind, algorithm) {
            // The cryptographic library's P-256 key only signs with SHA-256.
            (KeyKind::P256, SignatureAlgorithm::Ecdsa(hash)) => *hash == Hash::Sha256,
            (KeyKind::Rsa, SignatureAlgorithm::RsaPss(_) | SignatureAlgorithm::RsaPkcs1(_)) => true,
            (KeyKind::P256 | KeyKind::P384 | KeyKind::Rsa, _) => false,
        };
        signs && offered.contains(number)
    })
}
