//! Passwords on their way through the hash, which takes tenths of a second and runs on two threads of its own.
//!
//! The client sends MD5 in hexadecimal, and nothing else is a password (docs/rest.md); what is stored is a salted, slow
//! hash of that.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::User;
use crate::control::rest::Origin;
use crate::control::{Control, Output};

/// Jobs that may wait; more are refused.
const JOBS_MAX: usize = 64;

/// A password as clients send it: the MD5 of the plain one, 32 digits in lower case. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenPassword(String);

impl GivenPassword {
    /// `None` for what is no MD5 in hexadecimal: not a password, whatever else it is (docs/robustness.md R-33).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase()))
    }

    /// For the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for GivenPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenPassword(..)")
    }
}

/// What to do with a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashWork {
    /// Make the text to store, with this salt.
    Make([u8; 16]),
    /// Compare with a stored text; an empty one takes as long, and never fits.
    Verify(String),
}

/// A job of the hash threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// The password.
    pub given: GivenPassword,
    /// What to do.
    pub work: HashWork,
}

/// The answer to a [`HashRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// Of which request.
    pub id: u64,
    /// What came out.
    pub result: HashedResult,
}

/// What came out.
#[derive(Clone, PartialEq, Eq)]
pub enum HashedResult {
    /// The text to store.
    Made(String),
    /// Whether it is the password.
    Verified(bool),
}

impl fmt::Debug for HashedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(_) => f.write_str("Made(..)"),
            Self::Verified(fits) => write!(f, "Verified({fits})"),
        }
    }
}

/// What a job is for.
#[derive(Debug)]
pub(in crate::control) enum Purpose {
    /// Somebody logs in.
    Login { origin: Origin, client: IpAddr, email: String },
    /// The first user, or a new one.
    Create { origin: Origin, user: Box<User>, initial: bool },
    /// A changed user gets a new password, too.
    Replace { origin: Origin, user: Box<User> },
    /// The old password of a user who wants a new one.
    CheckOld { origin: Origin, client: IpAddr, email: String, new: GivenPassword },
    /// The new one.
    SetNew { origin: Origin, email: String },
}

/// The jobs under way.
#[derive(Debug, Default)]
pub(in crate::control) struct Hashing {
    jobs: BTreeMap<u64, Purpose>,
    count: u64,
}

impl Hashing {
    /// What an answer is for.
    pub(in crate::control) fn take(&mut self, id: u64) -> Option<Purpose> {
        self.jobs.remove(&id)
    }

    /// Whether there is room for another job.
    pub(in crate::control) fn has_room(&self) -> bool {
        self.jobs.len() < JOBS_MAX
    }
}

impl Control {
    /// Has a password hashed for storing.
    pub(in crate::control) fn make_hash(&mut self, given: GivenPassword, purpose: Purpose) {
        let mut salt = [0; 16];
        self.random.fill(&mut salt);
        self.hash(given, HashWork::Make(salt), purpose);
    }

    /// Has a password compared with a stored one; with none when the user is unknown, so that it takes as long.
    pub(in crate::control) fn verify_hash(&mut self, given: GivenPassword, email: &str, purpose: Purpose) {
        let stored = self.user(email).map(|user| user.password_hash.0.clone()).unwrap_or_default();
        self.hash(given, HashWork::Verify(stored), purpose);
    }

    fn hash(&mut self, given: GivenPassword, work: HashWork, purpose: Purpose) {
        let hashing = &mut self.management.hashing;
        hashing.count += 1;
        hashing.jobs.insert(hashing.count, purpose);
        self.outputs.push_back(Output::Hash(HashRequest { id: hashing.count, given, work }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_33_a_password_is_32_hexadecimal_digits() {
        let md5 = "5f4dcc3b5aa765d61d8327deb882cf99";
        assert_eq!(GivenPassword::parse(&md5.to_uppercase()).unwrap().as_bytes(), md5.as_bytes());
        for text in
            ["", "password", &md5[1..], &format!("{md5}0"), &md5.replace('5', "g"), &"\u{e9}".repeat(16)]
        {
            assert_eq!(GivenPassword::parse(text), None, "{text}");
        }
        assert!(!format!("{:?}", GivenPassword::parse(md5)).contains("5f4d"));
    }
}
