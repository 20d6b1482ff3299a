//! Hashing of passwords.
//!
//! Clients of the management API send the MD5 of a password in hexadecimal; no other form is accepted (docs/rest.md).
//! The server stores a salted, slow hash of that MD5.

use std::fmt;

/// Minimum number of characters of a new password. It is enforced where the plain text is known: in `millstream user
/// add` and in the panel. The API only gets the MD5.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// MD5 of the empty text.
const OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// A password as sent by clients: the MD5 of the plain text, 32 digits in lower case. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordDigest(String);

impl PasswordDigest {
    /// Parses a digest; `None` if the text is not an MD5 in hexadecimal, or is that of the empty text
    /// (docs/robustness.md R-33).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase())).filter(|digest| digest.0 != OF_NOTHING)
    }

    /// Returns the bytes to hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordDigest(..)")
    }
}

/// Work on a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordWork {
    /// Make the text to store.
    Make {
        /// Digest of the password to store.
        digest: PasswordDigest,
        /// Random salt, used only once.
        salt: [u8; 16],
    },
    /// Compare the password with a stored text. If the stored text is empty, the comparison takes the same
    /// time and never succeeds.
    Verify {
        /// Digest of the password to compare.
        digest: PasswordDigest,
        /// Stored text.
        stored: String,
    },
}

/// Hides the stored hash.
impl fmt::Debug for PasswordWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Make { .. } => "Make { .. }",
            Self::Verify { .. } => "Verify { .. }",
        })
    }
}

/// The outcome of [`PasswordWork`].
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordOutcome {
    /// The text to store.
    Made(String),
    /// True if the password matches.
    Verified(bool),
}

impl fmt::Debug for PasswordOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(_) => f.write_str("Made(..)"),
            Self::Verified(fits) => write!(f, "Verified({fits})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_33_a_password_is_32_hexadecimal_digits() {
        let md5 = "5f4dcc3b5aa765d61d8327deb882cf99";
        assert_eq!(PasswordDigest::parse(&md5.to_uppercase()).unwrap().as_bytes(), md5.as_bytes());
        for text in [
            "",
            "password",
            OF_NOTHING,
            &OF_NOTHING.to_uppercase(),
            &md5[1..],
            &format!("{md5}0"),
            &md5.replace('5', "g"),
            &"\u{e9}".repeat(16),
        ] {
            assert_eq!(PasswordDigest::parse(text), None, "{text}");
        }
        assert!(!format!("{:?}", PasswordDigest::parse(md5)).contains("5f4d"));
    }

    #[test]
    fn the_panel_wants_as_many_characters_as_the_command() {
        let pages =
            [include_str!("../../panel/panel-login.js"), include_str!("../../panel/panel-users.js")].concat();
        let lengths: Vec<&str> =
            pages.split("minlength=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(lengths, vec![PASSWORD_CHARS_MIN.to_string(); 4]);
    }
}
