//! User name fragments and passwords (RFC 8445 §5.3).

use std::fmt;

use crypto::{Random, Seed, constant_time_eq};

use crate::error::Error;
use crate::limits::{PASSWORD_CHARS, UFRAG_CHARS};

/// Characters of `ice-char` (RFC 8839 §5.4), six bits each.
const ICE_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Length of our user name fragments: 48 bits. RFC 8445 §5.3 requires 24, but a port with many sessions routes by them.
const UFRAG_DRAWN: usize = 8;
/// Length of our passwords: 144 bits; RFC 8445 §5.3 requires 128.
const PASSWORD_DRAWN: usize = 24;

/// The user name fragment of one side, and the password that authenticates requests to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    ufrag: String,
    password: String,
}

impl Credentials {
    /// Creates credentials from the peer's description. Any visible ASCII without a colon is accepted, since peers use
    /// more than `ice-char`.
    pub fn new(ufrag: &str, password: &str) -> Result<Self, Error> {
        let visible = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        let fits = UFRAG_CHARS.contains(&ufrag.len()) && PASSWORD_CHARS.contains(&password.len());
        if !fits || !visible(ufrag) || !visible(password) || ufrag.contains(':') {
            return Err(Error::Credentials);
        }
        Ok(Self { ufrag: ufrag.to_owned(), password: password.to_owned() })
    }

    /// Draws credentials from a seed.
    #[must_use]
    pub fn random(seed: &Seed) -> Self {
        let mut random = seed.derive("ice credentials", 0).random();
        Self { ufrag: draw(&mut random, UFRAG_DRAWN), password: draw(&mut random, PASSWORD_DRAWN) }
    }

    /// User name fragment, which is not secret.
    #[must_use]
    pub fn ufrag(&self) -> &str {
        &self.ufrag
    }

    /// Password, which gives access to the session's media.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.password.as_bytes()
    }
}

/// Never prints the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("ufrag", &self.ufrag).finish_non_exhaustive()
    }
}

/// True if `username` is `local:remote` (RFC 8445 §7.2.2), with any `remote` while the peer's fragment is unknown.
pub(crate) fn names(username: &[u8], local: &str, remote: Option<&str>) -> bool {
    let Some((first, rest)) = username.split_at_checked(local.len()) else { return false };
    let Some((b':', last)) = rest.split_first() else { return false };
    constant_time_eq(first, local.as_bytes()) && remote.is_none_or(|remote| last == remote.as_bytes())
}

fn draw(random: &mut Random, count: usize) -> String {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    let char_of = |byte: &u8| ICE_CHARS.get(usize::from(byte & 63)).copied().unwrap_or(b'A');
    bytes.iter().map(|byte| char::from(char_of(byte))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_valid_and_differs() {
        let a = Credentials::random(&Seed::from_number(1));
        assert_eq!(Credentials::new(a.ufrag(), a.password()), Ok(a.clone()));
        assert_ne!(a, Credentials::random(&Seed::from_number(2)));
        assert!(!format!("{a:?}").contains(a.password()));
    }

    #[test]
    fn lengths_and_characters() {
        let password = "p".repeat(22);
        for (ufrag, password, good) in [
            ("abcd", password.as_str(), true),
            ("abc", &password, false),
            ("ab:d", &password, false),
            ("ab d", &password, false),
            ("abcd", "short", false),
            (&"u".repeat(257), &password, false),
            ("abcd", &"p".repeat(257), false),
        ] {
            assert_eq!(Credentials::new(ufrag, password).is_ok(), good, "{ufrag} {password}");
        }
    }

    #[test]
    fn user_names_are_ours_before_the_colon() {
        for (username, remote, good) in [
            ("ours:theirs", Some("theirs"), true),
            ("ours:theirs", None, true),
            ("ours:", None, true),
            ("ours", None, false),
            ("our:stheirs", None, false),
            ("theirs:ours", Some("theirs"), false),
            ("ours:their", Some("theirs"), false),
            ("ours:theirs:", Some("theirs"), false),
            ("", None, false),
        ] {
            assert_eq!(names(username.as_bytes(), "ours", remote), good, "{username}");
        }
    }
}
