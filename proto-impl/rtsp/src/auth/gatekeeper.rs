//! The server's side of authentication: makes challenges from a secret and the time, and verifies answers.

use std::time::{Duration, Instant};

use crypto::{Seed, constant_time_eq, hmac_sha256};

use super::{Algorithm, Authorization, Challenge, Computation, DigestAnswer, DigestChallenge, hex};

/// Lifetime of a nonce. A client with an older nonce gets a new one, without its user being asked for the password
/// again (RFC 7616 §3.3).
const NONCE_LIFE: Duration = Duration::from_secs(300);
/// Number of hexadecimal digits of the time in a nonce.
const TIME_DIGITS: usize = 16;

/// Result of verifying credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The credentials are valid.
    Accepted,
    /// The credentials prove the password, but the nonce is too old.
    Stale,
    /// The credentials are wrong or missing.
    Refused,
}

/// Makes challenges and verifies answers, without keeping any state per challenge. A nonce contains the time and a MAC
/// of the time. The key of the MAC is derived from the connection's seed, so a nonce is valid on this connection only.
pub struct Gatekeeper {
    key: [u8; 32],
    start: Instant,
    realm: String,
    allows_basic: bool,
}

impl Gatekeeper {
    /// Creates the gatekeeper. `allows_basic` permits sending the password itself, which is safe over TLS.
    #[must_use]
    pub fn new(now: Instant, seed: &Seed, realm: &str, allows_basic: bool) -> Self {
        let mut key = [0; 32];
        seed.derive("rtsp nonce", 0).random().fill(&mut key);
        Self { key, start: now, realm: realm.to_owned(), allows_basic }
    }

    /// Returns the challenges of a 401; each is sent in a field of its own. MD5 comes first and without the name of
    /// its algorithm, because some clients read only the first field and know no other algorithm.
    #[must_use]
    pub fn challenges(&self, now: Instant, stale: bool) -> Vec<Challenge> {
        let nonce = self.nonce(now);
        let digest = |algorithm| {
            Challenge::Digest(DigestChallenge {
                realm: self.realm.clone(),
                nonce: nonce.clone(),
                opaque: None,
                algorithm,
                names_algorithm: algorithm != Algorithm::Md5,
                qop_auth: algorithm != Algorithm::Md5,
                stale,
            })
        };
        let mut challenges = vec![digest(Algorithm::Md5), digest(Algorithm::Sha256)];
        if self.allows_basic {
            challenges.push(Challenge::Basic { realm: self.realm.clone() });
        }
        challenges
    }

    /// Verifies the credentials of a request with this method and URL against the password of one user.
    #[must_use]
    pub fn verify(
        &self,
        now: Instant,
        (method, uri): (&str, &str),
        authorization: &Authorization,
        (user, password): (&str, &str),
    ) -> Verdict {
        match authorization {
            Authorization::Basic(credentials) => {
                // User and password are always both compared, so that a wrong user takes as long as a wrong password.
                let is_user = same(&credentials.user, user);
                let is_password = same(&credentials.password, password);
                if self.allows_basic & is_user & is_password { Verdict::Accepted } else { Verdict::Refused }
            }
            Authorization::Digest(answer) => self.verify_digest(now, (method, uri), answer, (user, password)),
        }
    }

    fn verify_digest(
        &self,
        now: Instant,
        (method, uri): (&str, &str),
        answer: &DigestAnswer,
        (user, password): (&str, &str),
    ) -> Verdict {
        let Some(age) = self.age(now, &answer.nonce) else { return Verdict::Refused };
        let auth = answer.auth.as_ref().map(|(count, cnonce)| (count.as_str(), cnonce.as_str()));
        let algorithm = answer.algorithm.unwrap_or(Algorithm::Md5);
        let computation = Computation {
            algorithm,
            realm: &self.realm,
            nonce: &answer.nonce,
            method,
            uri: &answer.uri,
            auth,
        };
        let proved = same(&computation.response(user, password), &answer.response.to_ascii_lowercase());
        if !(proved & same(&answer.user, user) & (answer.realm == self.realm) & covers(&answer.uri, uri)) {
            return Verdict::Refused;
        }
        if age > NONCE_LIFE { Verdict::Stale } else { Verdict::Accepted }
    }

    fn nonce(&self, now: Instant) -> String {
        let millis = now.saturating_duration_since(self.start).as_millis();
        let time = format!("{:016x}", u64::try_from(millis).unwrap_or(u64::MAX));
        let mac = self.mac(&time);
        time + &mac
    }

    /// Returns the age of a nonce; `None` if the nonce was not made by this gatekeeper.
    fn age(&self, now: Instant, nonce: &str) -> Option<Duration> {
        let (time, mac) = nonce.split_at_checked(TIME_DIGITS)?;
        let made = Duration::from_millis(u64::from_str_radix(time, 16).ok()?);
        let is_ours = same(&self.mac(time), mac);
        is_ours.then(|| now.saturating_duration_since(self.start).saturating_sub(made))
    }

    fn mac(&self, time: &str) -> String {
        let mac = hmac_sha256(&self.key, &[time.as_bytes()]);
        hex(mac.first_chunk::<16>().unwrap_or(&[0; 16]))
    }
}

/// Never prints the key.
impl std::fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatekeeper").field("allows_basic", &self.allows_basic).finish_non_exhaustive()
    }
}

/// Compares digests of the texts in constant time, so that not even their lengths leak.
fn same(a: &str, b: &str) -> bool {
    constant_time_eq(&crypto::sha256(&[a.as_bytes()]), &crypto::sha256(&[b.as_bytes()]))
}

/// True if an answer computed for the URL `proved` is valid for `uri`: both are the same, or `proved` is the URL of
/// the whole session and `uri` that of a track (VLC), or `proved` lacks scheme and host (some cameras' own clients).
fn covers(proved: &str, uri: &str) -> bool {
    let trimmed = proved.trim_end_matches('/');
    let continues = |uri: &str| {
        uri.strip_prefix(trimmed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    };
    let path = uri.split_once("://").and_then(|(_, rest)| rest.find('/').and_then(|at| rest.get(at..)));
    uri == proved || !trimmed.is_empty() && (continues(uri) || path.is_some_and(continues))
}
