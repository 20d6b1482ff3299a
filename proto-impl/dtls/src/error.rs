//! Errors: misuse of the API by the owner, and failures of the handshake.

use crate::alert::AlertDescription;
use crate::handshake::MessageType;

/// Reason why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The handshake is not complete, or the connection has ended.
    #[error("not connected")]
    NotConnected,
    /// The data does not fit into a datagram.
    #[error("{length} bytes exceed the datagram limit of {most}")]
    TooLong {
        /// Length of the data, in bytes.
        length: usize,
        /// Maximum length accepted, in bytes.
        most: usize,
    },
    /// Earlier data is still waiting to be sent.
    #[error("the queue is full")]
    Full,
    /// The private key is neither P-256 nor RSA in PKCS#8.
    #[error("unsupported private key")]
    Key,
    /// The certificate is not X.509 in DER, or belongs to another key.
    #[error("the certificate does not match the key")]
    Certificate,
    /// The exporter label is used by the protocol itself (RFC 5705 §4), or the context exceeds 64 KiB.
    #[error("invalid exporter label or context")]
    Export,
}

/// Reason why the handshake failed. [`Failure::alert`] is the alert sent to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A message could not be parsed.
    #[error("malformed message")]
    Malformed,
    /// An authentic record consists only of padding (RFC 8446 §5.4).
    #[error("record without a type")]
    Typeless,
    /// The peer used up its epochs or message numbers with key changes (RFC 9147 §8).
    #[error("too many key updates")]
    TooManyUpdates,
    /// A message arrived at the wrong time.
    #[error("unexpected message ({0:?})")]
    Unexpected(MessageType),
    /// The peer supports none of our versions.
    #[error("no common version")]
    Version,
    /// No common cipher suite matches the type of our key.
    #[error("no common cipher suite")]
    NoCommonSuite,
    /// There is no common group.
    #[error("no common group")]
    NoCommonGroup,
    /// There is no common signature algorithm.
    #[error("no common signature algorithm")]
    NoCommonSignature,
    /// The peer lacks the extended master secret (RFC 7627 §5.3).
    #[error("no extended master secret")]
    NoExtendedMasterSecret,
    /// The peer lacks `use_srtp`, or supports none of our profiles (RFC 5764 §4.1).
    #[error("no common SRTP profile")]
    NoCommonSrtpProfile,
    /// The handshake claims to be a renegotiation (RFC 5746).
    #[error("renegotiation refused")]
    Renegotiation,
    /// A field is out of range or contradicts another.
    #[error("illegal field: {0}")]
    Illegal(&'static str),
    /// The peer sent an extension that was not offered.
    #[error("extension {0} was not offered")]
    UnsupportedExtension(u16),
    /// A mandatory extension is missing (RFC 8446 §9.2).
    #[error("extension {0} is missing")]
    MissingExtension(u16),
    /// The client sent no certificate although one was requested (DTLS 1.3).
    #[error("no certificate of the client")]
    CertificateRequired,
    /// The peer sent no certificate.
    #[error("no certificate")]
    NoCertificate,
    /// The certificate is not valid X.509.
    #[error("malformed certificate")]
    CertificateMalformed,
    /// The certificate's key is neither on P-256 or P-384, nor RSA of up to 4096 bits.
    #[error("the certificate's key is of another kind")]
    CertificateKind,
    /// The certificate matches none of the announced fingerprints.
    #[error("the certificate's fingerprint does not match")]
    Fingerprint,
    /// No usable fingerprint was announced, so no peer can be authenticated.
    #[error("no usable fingerprint was announced")]
    NoFingerprint,
    /// The peer's public value is not in the group.
    #[error("the public value is not in the group")]
    PublicValue,
    /// A signature does not verify.
    #[error("invalid signature")]
    Signature,
    /// Finished does not match the transcript.
    #[error("invalid Finished")]
    Finished,
    /// A message, or all messages together, exceed a size limit.
    #[error("message over the limits")]
    TooLarge,
    /// A cryptographic primitive failed.
    #[error("a primitive failed")]
    Internal,
}

impl Failure {
    /// Returns the alert for this failure (RFC 5246 §7.2.2).
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
