//! Ephemeral credentials (draft-uberti-behave-turn-rest-00 §2.2): the user name begins with its expiry time,
//! and the password is an HMAC of the user name.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::limits::USERNAME_BYTES_MAX;

/// User name and password of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name `SECONDS:USER`, with the expiry time in seconds since 1970.
    pub username: String,
    /// Password.
    pub password: String,
}

impl Credentials {
    /// Creates credentials for `user` that expire at `until`, in seconds since 1970.
    #[must_use]
    pub fn ephemeral(secret: &[u8], until: u64, user: &str) -> Self {
        let username = format!("{until}:{user}");
        let password = password(secret, username.as_bytes());
        Self { username, password }
    }
}

/// Prints no password.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

fn password(secret: &[u8], username: &[u8]) -> String {
    STANDARD.encode(crypto::hmac_sha1(secret, username))
}

/// The key of long-term credentials (RFC 8489 §9.2.2).
pub(crate) type Key = [u8; 16];

pub(crate) fn long_term_key(username: &[u8], realm: &str, password: &str) -> Key {
    crypto::md5(&[username, b":", realm.as_bytes(), b":", password.as_bytes()])
}

/// Returns the key of a user name; `None` if the expiry time in the name has passed at `unix`, or is missing.
pub(crate) fn key_of(secret: &[u8], realm: &str, username: &[u8], unix: u64) -> Option<Key> {
    (username.len() <= USERNAME_BYTES_MAX).then_some(())?;
    let until = username.split(|byte| *byte == b':').next()?;
    let is_number = !until.is_empty() && until.iter().all(u8::is_ascii_digit);
    let until: u64 = std::str::from_utf8(until).ok().filter(|_| is_number)?.parse().ok()?;
    (until > unix).then(|| long_term_key(username, realm, &password(secret, username)))
}

/// Returns the user in a user name: the part after the expiry time, or the whole name if there is no expiry
/// time.
pub(crate) fn user_of(username: &[u8]) -> &[u8] {
    let colon = username.iter().position(|byte| *byte == b':');
    colon.and_then(|at| username.get(at + 1..)).filter(|user| !user.is_empty()).unwrap_or(username)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the vector of RFC 5769 §2.4: a request with long-term credentials.
    #[test]
    fn the_key_is_that_of_the_rfc() {
        let hex = "000100602112a44278ad3433c6ad72c029da412e00060012e3839ee38388e383aae38383e382afe382b90000\
                   0015001c662f2f3439396b39353464364f4c33346f4c394653547679363473410014000b6578616d706c652e\
                   6f72670000080014f67024656dd64a3e02b8e0712e85c9a28ca89666";
        let digits: Vec<u8> = hex.bytes().collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let request: Vec<u8> = digits.chunks(2).map(byte).collect();
        let message = ice::stun::Message::read(&request).unwrap();
        let name = message.username().unwrap();
        assert!(message.is_authentic(&long_term_key(name, "example.org", "TheMatrIX")));
        assert!(!message.is_authentic(&long_term_key(name, "example.com", "TheMatrIX")));
    }

    /// Checks the password against `openssl dgst -sha1 -hmac north -binary | base64` of the user name.
    #[test]
    fn the_password_is_that_of_other_implementations() {
        let made = Credentials::ephemeral(b"north", 1_433_895_918, "user");
        assert_eq!(made.username, "1433895918:user");
        assert_eq!(made.password, "/gk4t5tUc08OpM3NjrVjHSFVNmY=");
        assert!(!format!("{made:?}").contains(&made.password));
    }

    #[test]
    fn v_04_credentials_end_with_their_time() {
        let key = |name: &str, unix| key_of(b"s", "r", name.as_bytes(), unix);
        assert!(key("100:u", 99).is_some() && key("100", 99).is_some());
        for (name, unix) in [
            ("100:u", 100),
            ("100:u", 101),
            ("u", 1),
            ("", 1),
            (":u", 1),
            ("+100:u", 1),
            ("1e9:u", 1),
            ("99999999999999999999:u", 1),
        ] {
            assert_eq!(key(name, unix), None, "{name} at {unix}");
        }
        assert_eq!(key(&format!("100:{}", "u".repeat(USERNAME_BYTES_MAX)), 1), None);
        assert_ne!(key("100:u", 1), key_of(b"t", "r", b"100:u", 1));
    }

    #[test]
    fn a_user_is_the_same_at_all_times() {
        for (name, user) in [("1:a", "a"), ("2:a", "a"), ("1:a:b", "a:b"), ("1", "1"), ("1:", "1:")] {
            assert_eq!(user_of(name.as_bytes()), user.as_bytes());
        }
    }
}
