//! Password hashes: PBKDF2-HMAC-SHA256 (RFC 8018) over what clients send, on two threads, because each takes some tenths
//! of a second.

use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::office::{Desk, OfficeMail};
use crate::control::{GivenPassword, HashRequest, HashWork, Hashed, HashedResult};

/// Hashes that are computed at the same time.
const THREADS: usize = 2;
/// Rounds of a new hash; a stored one names its own.
const ROUNDS: u32 = 600_000;
/// More than a stored hash may ask for.
const ROUNDS_MAX: u32 = 10_000_000;
/// The scheme, in front of every stored hash.
const SCHEME: &str = "pbkdf2-sha256";

/// Starts the threads. Dropping the sender ends them. Control bounds what waits.
pub(super) fn start(desk: &Desk) -> std::io::Result<Sender<HashRequest>> {
    let (requests, queue) = channel::<HashRequest>();
    let queue = Arc::new(Mutex::new(queue));
    for index in 0..THREADS {
        let (queue, desk) = (Arc::clone(&queue), desk.clone());
        thread::Builder::new().name(format!("hash-{index}")).spawn(move || hash_all(&queue, &desk))?;
    }
    Ok(requests)
}

fn hash_all(queue: &Mutex<Receiver<HashRequest>>, desk: &Desk) {
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(HashRequest { id, given, work }) = request else { return };
        let result = match work {
            HashWork::Make(salt) => HashedResult::Made(make(&given, salt)),
            HashWork::Verify(stored) => HashedResult::Verified(verify(&given, &stored)),
        };
        desk.send(OfficeMail::Hashed(Hashed { id, result }));
    }
}

/// The text to store.
#[must_use]
pub fn make(given: &GivenPassword, salt: [u8; 16]) -> String {
    let mut hash = [0; 32];
    let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, given.as_bytes(), &mut hash);
    format!("{SCHEME}${ROUNDS}${}${}", STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash))
}

fn verify(given: &GivenPassword, stored: &str) -> bool {
    match parse(stored) {
        Some((rounds, salt, hash)) => {
            pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, given.as_bytes(), &hash).is_ok()
        }
        None => {
            // As long as for a user that exists.
            let _ = make(given, [0; 16]);
            false
        }
    }
}

fn parse(stored: &str) -> Option<(NonZeroU32, Vec<u8>, Vec<u8>)> {
    let mut parts = stored.split('$');
    let (scheme, rounds) = (parts.next()?, parts.next()?);
    let rounds = rounds.parse::<u32>().ok().filter(|rounds| *rounds <= ROUNDS_MAX)?;
    let [salt, hash] = [parts.next()?, parts.next()?].map(|part| STANDARD_NO_PAD.decode(part).ok());
    let fits = scheme == SCHEME && parts.next().is_none();
    Some((NonZeroU32::new(rounds)?, salt?, hash.filter(|hash| fits && hash.len() == 32)?))
}

/// What a client makes of a plain password.
#[must_use]
pub fn given_of_plain(plain: &str) -> Option<GivenPassword> {
    GivenPassword::parse(&format!("{:x}", md5::compute(plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_33_stored_hashes_are_salted_and_slow_and_only_the_password_fits() {
        let given = given_of_plain("password").unwrap();
        assert_eq!(given.as_bytes(), b"5f4dcc3b5aa765d61d8327deb882cf99");
        let stored = make(&given, [7; 16]);
        assert!(stored.starts_with("pbkdf2-sha256$600000$") && !stored.contains("5f4dcc3b"));
        assert_ne!(stored, make(&given, [8; 16]));
        assert!(verify(&given, &stored));
        assert!(!verify(&given_of_plain("Password").unwrap(), &stored));
        // The stored text is no password: it is not even one in form.
        assert_eq!(GivenPassword::parse(&stored), None);
        for odd in [
            "",
            "x",
            "pbkdf2-sha256$0$AA$AA",
            "pbkdf2-sha256$600000$AA$",
            &format!("{stored}$"),
            "md5$1$AA$AA",
        ] {
            assert!(!verify(&given, odd), "{odd}");
        }
    }
}
