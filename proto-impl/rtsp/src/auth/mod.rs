//! Basic (RFC 7617) and Digest (RFC 2617, RFC 7616) authentication as RTSP uses it (RFC 2326 §12.5, §12.44).
//!
//! [`Challenge`] and [`Authorization`] are the two header fields. [`Gatekeeper`] makes challenges and verifies answers
//! for a server; [`Answerer`] answers for a client. MD5 is supported because cameras and ffmpeg support nothing else.
//! If a server offers both algorithms, the client answers with SHA-256.

mod answerer;
mod fields;
mod gatekeeper;

use std::fmt;

pub use answerer::Answerer;
pub use fields::{Authorization, Challenge, DigestAnswer, DigestChallenge};
pub use gatekeeper::{Gatekeeper, Verdict};

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name, which must not contain a colon.
    pub user: String,
    /// The password.
    pub password: String,
}

/// Never prints the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Hash algorithm of Digest authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// MD5 (RFC 2617), the default if a field names no algorithm.
    Md5,
    /// SHA-256 (RFC 7616).
    Sha256,
}

impl Algorithm {
    /// Returns the algorithm with this name; `None` for unsupported ones such as the `-sess` variants.
    fn read(name: &str) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("MD5") { Some(Self::Md5) } else { is("SHA-256").then_some(Self::Sha256) }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    /// Returns the hash in lower-case hexadecimal digits.
    fn hex(self, parts: &[&str]) -> String {
        let joined = parts.join(":");
        match self {
            Self::Md5 => hex(&crypto::md5(&[joined.as_bytes()])),
            Self::Sha256 => hex(&crypto::sha256(&[joined.as_bytes()])),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Input of a Digest response (RFC 7616 §3.4.1).
struct Computation<'a> {
    algorithm: Algorithm,
    realm: &'a str,
    nonce: &'a str,
    method: &'a str,
    uri: &'a str,
    /// Nonce count and client nonce with `qop=auth`; `None` for a response without them, as in RFC 2069.
    auth: Option<(&'a str, &'a str)>,
}

impl Computation<'_> {
    fn response(&self, user: &str, password: &str) -> String {
        let one = self.algorithm.hex(&[user, self.realm, password]);
        let two = self.algorithm.hex(&[self.method, self.uri]);
        match self.auth {
            Some((count, cnonce)) => self.algorithm.hex(&[&one, self.nonce, count, cnonce, "auth", &two]),
            None => self.algorithm.hex(&[&one, self.nonce, &two]),
        }
    }
}

#[cfg(test)]
mod tests;
