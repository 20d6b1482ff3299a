//! Alerts (RFC 5246 §7.2, RFC 8446 §6): a level and a description, one byte each.

use wire::{Reader, Truncated};

/// The description of an alert (RFC 5246 §7.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlertDescription(pub u8);

impl AlertDescription {
    /// The sender will send no more data.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message arrived at the wrong time.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record exceeds the maximum length.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// No common parameters were found.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// The certificate is malformed, or its fingerprint was not announced.
    pub const BAD_CERTIFICATE: Self = Self(42);
    /// The certificate is of an unsupported type.
    pub const UNSUPPORTED_CERTIFICATE: Self = Self(43);
    /// A field is out of range or contradicts another.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message could not be decoded.
    pub const DECODE_ERROR: Self = Self(50);
    /// A signature or a Finished does not verify.
    pub const DECRYPT_ERROR: Self = Self(51);
    /// The version is not supported.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// An internal error, unrelated to the peer.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The sender aborts the handshake for a reason outside the protocol; `close_notify` follows (RFC 8446
    /// §6.1).
    pub const USER_CANCELED: Self = Self(90);
    /// Renegotiation is refused.
    pub const NO_RENEGOTIATION: Self = Self(100);
    /// A mandatory extension is missing (RFC 8446 §6.2).
    pub const MISSING_EXTENSION: Self = Self(109);
    /// A message contains an extension that was not offered.
    pub const UNSUPPORTED_EXTENSION: Self = Self(110);
    /// A certificate is required, but the client sent none (RFC 8446 §6.2).
    pub const CERTIFICATE_REQUIRED: Self = Self(116);
}

impl std::fmt::Display for AlertDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match *self {
            Self::CLOSE_NOTIFY => "close_notify",
            Self::UNEXPECTED_MESSAGE => "unexpected_message",
            Self::RECORD_OVERFLOW => "record_overflow",
            Self::HANDSHAKE_FAILURE => "handshake_failure",
            Self::BAD_CERTIFICATE => "bad_certificate",
            Self::UNSUPPORTED_CERTIFICATE => "unsupported_certificate",
            Self::ILLEGAL_PARAMETER => "illegal_parameter",
            Self::DECODE_ERROR => "decode_error",
            Self::DECRYPT_ERROR => "decrypt_error",
            Self::PROTOCOL_VERSION => "protocol_version",
            Self::INTERNAL_ERROR => "internal_error",
            Self::USER_CANCELED => "user_canceled",
            Self::NO_RENEGOTIATION => "no_renegotiation",
            Self::MISSING_EXTENSION => "missing_extension",
            Self::UNSUPPORTED_EXTENSION => "unsupported_extension",
            Self::CERTIFICATE_REQUIRED => "certificate_required",
            Self(other) => return write!(f, "alert {other}"),
        };
        f.write_str(name)
    }
}

const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// An alert as sent in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alert {
    pub(crate) fatal: bool,
    pub(crate) description: AlertDescription,
}

impl Alert {
    pub(crate) const fn fatal(description: AlertDescription) -> Self {
        Self { fatal: true, description }
    }

    pub(crate) const fn warning(description: AlertDescription) -> Self {
        Self { fatal: false, description }
    }

    /// Reads an alert; `None` for an unknown level.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Truncated> {
        let mut r = Reader::new(bytes);
        let (level, description) = (r.u8()?, AlertDescription(r.u8()?));
        let known = r.is_empty() && (level == WARNING || level == FATAL);
        Ok(known.then_some(Self { fatal: level == FATAL, description }))
    }

    pub(crate) const fn write(self) -> [u8; 2] {
        [if self.fatal { FATAL } else { WARNING }, self.description.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for alert in [
            Alert::fatal(AlertDescription::DECODE_ERROR),
            Alert::warning(AlertDescription::CLOSE_NOTIFY),
            Alert::fatal(AlertDescription(255)),
        ] {
            assert_eq!(Alert::read(&alert.write()), Ok(Some(alert)));
        }
        for (bytes, read) in [(&[3, 0][..], Ok(None)), (&[2, 0, 0], Ok(None))] {
            assert_eq!(Alert::read(bytes), read);
        }
        assert!(Alert::read(&[2]).is_err());
    }
}
