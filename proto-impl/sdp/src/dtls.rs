//! Identity and role of a DTLS peer: `a=fingerprint` (RFC 8122 §5), `a=setup` (RFC 4145 §4, RFC 8842 §5).

use alloc::fmt;
use alloc::vec::Vec;

use bytes::Bytes;

/// Hash function of a fingerprint. MD2 and MD5 are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashFunction {
    /// SHA-1. Supported, but not to be trusted if there is a better hash.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256; all current peers send it.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashFunction {
    const ALL: [Self; 5] = [Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Returns the hash function with this name, ignoring case.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.name().eq_ignore_ascii_case(name))
    }

    /// Name of the hash function.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha-1",
            Self::Sha224 => "sha-224",
            Self::Sha256 => "sha-256",
            Self::Sha384 => "sha-384",
            Self::Sha512 => "sha-512",
        }
    }

    /// Length of the hash value, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// `a=fingerprint`: hash of the peer's certificate. If there are several, one of them has to match (RFC 8122
/// §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    hash: HashFunction,
    value: Bytes,
}

impl Fingerprint {
    /// Creates a fingerprint; `None` if the value's length does not match the hash function.
    #[must_use]
    pub fn new(hash: HashFunction, value: Bytes) -> Option<Self> {
        (value.len() == hash.bytes()).then_some(Self { hash, value })
    }

    /// Parses the attribute's value: `sha-256 AA:BB:...`, with hexadecimal digits in either case.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (hash, digits) = crate::text::first_word(text);
        let value: Option<Vec<u8>> = digits.split(':').map(octet).collect();
        Self::new(HashFunction::read(hash)?, Bytes::from(value?))
    }

    /// The hash function.
    #[must_use]
    pub const fn hash(&self) -> HashFunction {
        self.hash
    }

    /// The hash value; its length is that of the hash function.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

fn octet(digits: &str) -> Option<u8> {
    let two = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if two { u8::from_str_radix(digits, 16).ok() } else { None }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hash.name())?;
        for (at, byte) in self.value.iter().enumerate() {
            write!(f, "{}{byte:02X}", if at == 0 { ' ' } else { ':' })?;
        }
        Ok(())
    }
}

/// `a=setup`: which side opens the association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setup {
    /// The sender of the description is the DTLS client.
    Active,
    /// The sender of the description is the DTLS server.
    Passive,
    /// Only in offers: the answerer decides.
    ActPass,
    /// No connection is opened for now.
    HoldConn,
}

impl Setup {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text.trim_ascii() {
            "active" => Some(Self::Active),
            "passive" => Some(Self::Passive),
            "actpass" => Some(Self::ActPass),
            "holdconn" => Some(Self::HoldConn),
            _ => None,
        }
    }

    /// Returns the answer of a side that prefers the role `preferred`, which is `Active` or `Passive` (RFC 8842
    /// §5.3).
    #[must_use]
    pub const fn answer(self, preferred: Self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
            Self::ActPass => preferred,
            Self::HoldConn => Self::HoldConn,
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Passive => "passive",
            Self::ActPass => "actpass",
            Self::HoldConn => "holdconn",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_as_long_as_their_hash() {
        for hash in HashFunction::ALL {
            let print = Fingerprint::new(hash, Bytes::from(vec![0xa5; hash.bytes()])).unwrap();
            assert_eq!(Fingerprint::read(&print.to_string().to_ascii_lowercase()), Some(print.clone()));
            assert_eq!(Fingerprint::read(&print.to_string().to_ascii_uppercase()), Some(print));
        }
        let short = "AA:".repeat(31);
        for bad in ["sha-256", "sha-256 AA", &format!("sha-256 {short}A"), &format!("sha-256 {short}+A")] {
            assert_eq!(Fingerprint::read(bad), None, "{bad}");
        }
        assert!(Fingerprint::read(&format!("SHA-256 {short}0a")).is_some());
    }

    #[test]
    fn roles_answer_roles() {
        assert_eq!(Setup::ActPass.answer(Setup::Passive), Setup::Passive);
        assert_eq!(Setup::Active.answer(Setup::Active), Setup::Passive);
        assert_eq!(Setup::Passive.answer(Setup::Passive), Setup::Active);
        for setup in [Setup::Active, Setup::Passive, Setup::ActPass, Setup::HoldConn] {
            assert_eq!(Setup::read(&setup.to_string()), Some(setup));
        }
        assert_eq!(Setup::read("ACTPASS "), None);
    }
}
