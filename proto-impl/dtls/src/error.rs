//! Errors: misuse by the owner, and failures of a handshake.

use crate::alert::AlertDescription;
use crate::handshake::MessageType;

/// A call that was not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not connected yet, or no longer.
    #[error("not connected")]
    NotConnected,
    /// More than a datagram holds.
    #[error("{length} bytes exceed the datagram limit of {most}")]
    TooLong {
        /// The length that was passed.
        length: usize,
        /// The most that is accepted.
        most: usize,
    },
    /// Earlier data is still waiting to be sent.
    #[error("the queue is full")]
    Full,
    /// Neither a P-256 nor an RSA key in PKCS#8.
    #[error("unsupported private key")]
    Key,
    /// No X.509 certificate in DER, or one of another key.
    #[error("the certificate does not match the key")]
    Certificate,
    /// An exporter's label that the protocol itself uses (RFC 5705 §4), or a context of more than 64 KiB.
    #[error("invalid exporter label or context")]
    Export,
}

/// The reason the handshake failed. [`Failure::alert`] is the alert sent to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A message that cannot be read to its end.
    #[error("malformed message")]
    Malformed,
    /// An authentic record of nothing but padding (RFC 8446 §5.4).
    #[error("record without a type")]
    Typeless,
    /// The peer changed its keys as often as epochs and messages can be numbered (RFC 9147 §8).
    #[error("too many key updates")]
    TooManyUpdates,
    /// A message that does not belong here.
    #[error("unexpected message ({0:?})")]
    Unexpected(MessageType),
    /// A version that is not spoken.
    #[error("no common version")]
    Version,
    /// No common cipher suite for the kind of our key.
    #[error("no common cipher suite")]
    NoCommonSuite,
    /// No common group.
    #[error("no common group")]
    NoCommonGroup,
    /// No common signature algorithm.
    #[error("no common signature algorithm")]
    NoCommonSignature,
    /// The peer lacks the extended master secret (RFC 7627 §5.3).
    #[error("no extended master secret")]
    NoExtendedMasterSecret,
    /// The peer lacks `use_srtp`, or supports none of our profiles (RFC 5764 §4.1).
    #[error("no common SRTP profile")]
    NoCommonSrtpProfile,
    /// A handshake that says it renegotiates (RFC 5746).
    #[error("renegotiation refused")]
    Renegotiation,
    /// A field out of range, or one that contradicts another.
    #[error("illegal field: {0}")]
    Illegal(&'static str),
    /// An answer to an extension that was not offered.
    #[error("extension {0} was not offered")]
    UnsupportedExtension(u16),
    /// An extension without which there is no handshake is not there (RFC 8446 §9.2).
    #[error("extension {0} is missing")]
    MissingExtension(u16),
    /// A client that was asked for a certificate under DTLS 1.3 showed none.
    #[error("no certificate of the client")]
    CertificateRequired,
    /// The peer showed no certificate.
    #[error("no certificate")]
    NoCertificate,
    /// No X.509 structure.
    #[error("malformed certificate")]
    CertificateMalformed,
    /// A key that is neither on P-256 or P-384, nor RSA of up to 4096 bits.
    #[error("the certificate's key is of another kind")]
    CertificateKind,
    /// The certificate has none of the announced fingerprints.
    #[error("the certificate's fingerprint does not match")]
    Fingerprint,
    /// No usable fingerprint was announced: nobody can be authenticated.
    #[error("no usable fingerprint was announced")]
    NoFingerprint,
    /// The public value is not in the group.
    #[error("the public value is not in the group")]
    PublicValue,
    /// A signature does not fit.
    #[error("invalid signature")]
    Signature,
    /// Finished is of another transcript.
    #[error("invalid Finished")]
    Finished,
    /// A message, or all of them together, longer than the limits.
    #[error("message over the limits")]
    TooLarge,
    /// A primitive failed.
    #[error("a primitive failed")]
    Internal,
}

impl Failure {
    /// The alert for it (RFC 5246 §7.2.2).
    #[must_use]
    pub const fn alert(self) -> AlertDescription {
        match self {
            Self::Malformed => AlertDescription::DECODE_ERROR,
            Self::Unexpected(_) | Self::Typeless | Self::TooManyUpdates => {
                AlertDescription::UNEXPECTED_MESSAGE
            }
            Self::Version => AlertDescription::PROTOCOL_VERSION,
            Self::NoCommonSuite
            | Self::NoCommonGroup
            | Self::NoCommonSignature
            | Self::NoExtendedMasterSecret
            | Self::NoCommonSrtpProfile
            | Self::Renegotiation
            | Self::NoCertificate
            | Self::NoFingerprint => AlertDescription::HANDSHAKE_FAILURE,
            Self::Illegal(_) | Self::PublicValue | Self::TooLarge => AlertDescription::ILLEGAL_PARAMETER,
            Self::UnsupportedExtension(_) => AlertDescription::UNSUPPORTED_EXTENSION,
            Self::MissingExtension(_) => AlertDescription::MISSING_EXTENSION,
            Self::CertificateRequired => AlertDescription::CERTIFICATE_REQUIRED,
            Self::CertificateMalformed | Self::Fingerprint => AlertDescription::BAD_CERTIFICATE,
            Self::CertificateKind => AlertDescription::UNSUPPORTED_CERTIFICATE,
            Self::Signature | Self::Finished => AlertDescription::DECRYPT_ERROR,
            Self::Internal => AlertDescription::INTERNAL_ERROR,
        }
    }
}

impl From<wire::Truncated> for Failure {
    fn from(_: wire::Truncated) -> Self {
        Self::Malformed
    }
}
