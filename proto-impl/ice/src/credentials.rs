//! User name fragments and passwords (RFC 8445 §5.3).

use std::fmt;

use crypto::{Random, Seed, constant_time_eq};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::error::Error;
use crate::limits::{PASSWORD_CHARS, UFRAG_CHARS};
use crate::stun::username_fragment;

/// Characters of `ice-char` (RFC 8839 §5.4), six bits each.
const ICE_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Length of our user name fragments: 48 bits. RFC 8445 §5.3 requires 24, but a port shared by many sessions
/// routes by fragment.
const UFRAG_DRAWN: usize = 8;
/// Length of our passwords: 144 bits. RFC 8445 §5.3 requires 128.
const PASSWORD_DRAWN: usize = 24;

/// Number at the beginning of our user name fragments. If several receivers share a port, the number tells which
/// receiver has the session that a STUN request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u16);

impl Tag {
    /// Number of tags: two characters of six bits.
    pub const COUNT: u16 = 4096;

    /// Creates a tag; `None` if the number is [`Tag::COUNT`] or more.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns the tag of a user name fragment; `None` if the fragment does not begin with two characters of
    /// the tag alphabet. A fragment without a tag may begin with two such characters by chance.
    #[must_use]
    pub fn of_fragment(ufrag: &[u8]) -> Option<Self> {
        let [high, low, ..] = ufrag else { return None };
        let bits = |char: &u8| ICE_CHARS.iter().position(|known| known == char);
        let number = (bits(high)? << 6) | bits(low)?;
        u16::try_from(number).ok().map(Self)
    }

    /// Returns the tag of the session that a STUN request is for; `None` for any other datagram.
    #[must_use]
    pub fn of_request(datagram: &[u8]) -> Option<Self> {
        Self::of_fragment(username_fragment(datagram)?)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    fn chars(self) -> [char; 2] {
        [self.0 >> 6, self.0].map(|bits| char_of(bits.to_be_bytes()[1]))
    }
}

/// The user name fragment of one side, and the password that authenticates requests to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    ufrag: String,
    password: Zeroizing<String>,
}

/// Compiles only if the value is wiped when it is dropped.
const fn wipes<T: ZeroizeOnDrop>(_: &T) {}

const _: fn(&Credentials) = |credentials| wipes(&credentials.password);

impl Credentials {
    /// Creates credentials from the peer's description. Accepts any visible ASCII without a colon, since peers
    /// use characters other than `ice-char`.
    pub fn new(ufrag: &str, password: &str) -> Result<Self, Error> {
        let visible = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        let fits = UFRAG_CHARS.contains(&ufrag.len()) && PASSWORD_CHARS.contains(&password.len());
        if !fits || !visible(ufrag) || !visible(password) || ufrag.contains(':') {
            return Err(Error::Credentials);
        }
        Ok(Self { ufrag: ufrag.to_owned(), password: Zeroizing::new(password.to_owned()) })
    }

    /// Draws credentials from a seed.
    #[must_use]
    pub fn random(seed: &Seed) -> Self {
        let mut random = seed.derive("ice credentials", 0).random();
        Self {
            ufrag: draw(&mut random, UFRAG_DRAWN),
            password: Zeroizing::new(draw(&mut random, PASSWORD_DRAWN)),
        }
    }

    /// Draws credentials whose user name fragment begins with `tag`.
    #[must_use]
    pub fn tagged(seed: &Seed, tag: Tag) -> Self {
        let Self { ufrag, password } = Self::random(seed);
        Self { ufrag: tag.chars().into_iter().chain(ufrag.chars()).collect(), password }
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

/// True if `username` is `local:remote` (RFC 8445 §7.2.2). While the peer's fragment is unknown, any `remote`
/// matches.
pub(crate) fn names(username: &[u8], local: &str, remote: Option<&str>) -> bool {
    let Some((first, rest)) = username.split_at_checked(local.len()) else { return false };
    let Some((b':', last)) = rest.split_first() else { return false };
    constant_time_eq(first, local.as_bytes()) && remote.is_none_or(|remote| last == remote.as_bytes())
}

fn draw(random: &mut Random, count: usize) -> String {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    bytes.iter().map(|byte| char_of(*byte)).collect()
}

/// Returns the character for the lower six bits.
fn char_of(byte: u8) -> char {
    ICE_CHARS.get(usize::from(byte & 63)).copied().unwrap_or(b'A').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_heads_the_fragment_and_the_rest_is_drawn() {
        let seed = Seed::from_number(1);
        let plain = Credentials::random(&seed);
        for number in [0, 1, 63, 64, 1023, 4095] {
            let tag = Tag::new(number).unwrap();
            let tagged = Credentials::tagged(&seed, tag);
            assert_eq!(Tag::of_fragment(tagged.ufrag().as_bytes()).map(Tag::number), Some(number));
            assert_eq!((&tagged.ufrag()[2..], tagged.password()), (plain.ufrag(), plain.password()));
            assert!(Credentials::new(tagged.ufrag(), tagged.password()).is_ok());
        }
        assert_eq!(Tag::new(Tag::COUNT), None);
        for foreign in ["", "A", "A-B", "\u{e4}A"] {
            assert_eq!(Tag::of_fragment(foreign.as_bytes()), None, "{foreign}");
        }
    }

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
