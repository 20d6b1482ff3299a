//! Password hashes: PBKDF2-HMAC-SHA256 (RFC 8018) over the digest that clients send. Computing a hash takes some tenths
//! of a second.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::jobs::{PasswordDigest, PasswordOutcome, PasswordWork};

/// Number of rounds of a new hash. A stored hash contains its own number.
const ROUNDS: u32 = 600_000;
/// Maximum number of rounds that a stored hash may contain.
const ROUNDS_MAX: u32 = 10_000_000;
/// The scheme, at the beginning of every stored hash.
const SCHEME: &str = "pbkdf2-sha256";
/// The scheme of passwords imported from Ant Media Server. It stores the MD5 of the digest that clients send, so
/// the hash is computed over that MD5.
const IMPORTED: &str = "md5-pbkdf2-sha256";

pub(super) fn run(work: &PasswordWork) -> PasswordOutcome {
    match work {
        PasswordWork::Make { digest, salt } => PasswordOutcome::Made(make(digest, *salt)),
        PasswordWork::Verify { digest, stored } => PasswordOutcome::Verified(verify(digest, stored)),
    }
}

/// Returns the hash to store for a digest.
#[must_use]
pub(in crate::io) fn make(digest: &PasswordDigest, salt: [u8; 16]) -> String {
    make_as(SCHEME, digest, salt)
}

/// Returns the hash to store for an imported password. `digest` is the value that Ant Media Server has stored; a
/// client that knows only `digest` cannot log in.
#[must_use]
pub(in crate::io) fn make_imported(digest: &PasswordDigest, salt: [u8; 16]) -> String {
    make_as(IMPORTED, digest, salt)
}

fn make_as(scheme: &str, digest: &PasswordDigest, salt: [u8; 16]) -> String {
    let mut hash = [0; 32];
    let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, digest.as_bytes(), &mut hash);
    format!("{scheme}${ROUNDS}${}${}", STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash))
}

fn verify(digest: &PasswordDigest, stored: &str) -> bool {
    match parse(stored) {
        Some((scheme, rounds, salt, hash)) => {
            let given = match scheme {
                Scheme::Own => digest.as_bytes().to_vec(),
                Scheme::Imported => format!("{:x}", md5::compute(digest.as_bytes())).into_bytes(),
            };
            pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, &given, &hash).is_ok()
        }
        None => {
            // For an unknown user, spend as much time as for an existing one.
            let _ = make(digest, [0; 16]);
            false
        }
    }
}

/// The way in which a stored hash was made from the digest that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Own,
    Imported,
}

fn parse(stored: &str) -> Option<(Scheme, NonZeroU32, Vec<u8>, Vec<u8>)> {
    let mut parts = stored.split('$');
    let (scheme, rounds) = (parts.next()?, parts.next()?);
    let rounds = rounds.parse::<u32>().ok().filter(|rounds| *rounds <= ROUNDS_MAX)?;
    let [salt, hash] = [parts.next()?, parts.next()?].map(|part| STANDARD_NO_PAD.decode(part).ok());
    let scheme = match scheme {
        SCHEME => Scheme::Own,
        IMPORTED => Scheme::Imported,
        _ => return None,
    };
    let fits = parts.next().is_none();
    Some((scheme, NonZeroU32::new(rounds)?, salt?, hash.filter(|hash| fits && hash.len() == 32)?))
}

/// Returns the digest that a client sends for a plain password.
#[must_use]
pub(in crate::io) fn digest_of(plain: &str) -> Option<PasswordDigest> {
    PasswordDigest::parse(&format!("{:x}", md5::compute(plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_33_stored_hashes_are_salted_and_slow_and_only_the_password_fits() {
        let digest = digest_of("password").unwrap();
        assert_eq!(digest.as_bytes(), b"5f4dcc3b5aa765d61d8327deb882cf99");
        let stored = make(&digest, [7; 16]);
        assert!(stored.starts_with("pbkdf2-sha256$600000$") && !stored.contains("5f4dcc3b"));
        assert_ne!(stored, make(&digest, [8; 16]));
        assert!(verify(&digest, &stored));
        assert!(!verify(&digest_of("Password").unwrap(), &stored));
        // The stored hash does not even have the form of a password that clients send.
        assert_eq!(PasswordDigest::parse(&stored), None);
        for odd in [
            "",
            "x",
            "pbkdf2-sha256$0$AA$AA",
            "pbkdf2-sha256$600000$AA$",
            &format!("{stored}$"),
            "md5$1$AA$AA",
        ] {
            assert!(!verify(&digest, odd), "{odd}");
        }
    }

    #[test]
    fn r_33_an_imported_password_is_the_old_one_and_its_stored_form_is_none() {
        let digest = digest_of("password").unwrap();
        let of_the_reference =
            PasswordDigest::parse(&format!("{:x}", md5::compute(digest.as_bytes()))).unwrap();
        let stored = make_imported(&of_the_reference, [7; 16]);
        assert!(stored.starts_with("md5-pbkdf2-sha256$600000$"));
        assert!(verify(&digest, &stored));
        assert!(!verify(&of_the_reference, &stored), "what a stolen database has is no password");
        assert!(!verify(&digest_of("Password").unwrap(), &stored));
    }
}
