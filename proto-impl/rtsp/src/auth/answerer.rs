//! The client's side of authentication: answers the strongest challenge.

use crypto::{Random, Seed};

use super::{Authorization, Challenge, Computation, Credentials, DigestAnswer, DigestChallenge, hex};

/// Answers challenges with one user's credentials.
pub struct Answerer {
    credentials: Credentials,
    allows_basic: bool,
    challenge: Option<Challenge>,
    count: u32,
    random: Random,
}

impl Answerer {
    /// Creates the answerer. `allows_basic` permits sending the password itself to a server that requires it.
    #[must_use]
    pub fn new(credentials: Credentials, allows_basic: bool, seed: &Seed) -> Self {
        let random = seed.derive("rtsp cnonce", 0).random();
        Self { credentials, allows_basic, challenge: None, count: 0, random }
    }

    /// Takes the challenges of a 401. Returns false if none can be answered, or if the server has refused the
    /// credentials: after a first answer, another one is only useful if the challenge marks the nonce as stale
    /// (RFC 7616 §3.3).
    pub fn challenged(&mut self, challenges: Vec<Challenge>, was_answered: bool) -> bool {
        let known = challenges
            .into_iter()
            .filter(|challenge| self.allows_basic || !matches!(challenge, Challenge::Basic { .. }));
        let Some(challenge) = Challenge::strongest(known.collect()) else { return false };
        let stale = matches!(&challenge, Challenge::Digest(digest) if digest.stale);
        if was_answered && !stale {
            return false;
        }
        self.challenge = Some(challenge);
        self.count = 0;
        true
    }

    /// Returns the value of `Authorization` for a request; `None` if there was no challenge yet.
    pub fn answer(&mut self, method: &str, uri: &str) -> Option<String> {
        let authorization = match self.challenge.clone()? {
            Challenge::Basic { .. } => Authorization::Basic(self.credentials.clone()),
            Challenge::Digest(challenge) => Authorization::Digest(self.prove(challenge, method, uri)),
        };
        Some(authorization.write())
    }

    fn prove(&mut self, challenge: DigestChallenge, method: &str, uri: &str) -> DigestAnswer {
        let auth = challenge.qop_auth.then(|| {
            self.count = self.count.wrapping_add(1);
            let mut cnonce = [0; 8];
            self.random.fill(&mut cnonce);
            (format!("{:08x}", self.count), hex(&cnonce))
        });
        let DigestChallenge { realm, nonce, opaque, algorithm, names_algorithm, .. } = challenge;
        let computation = Computation {
            algorithm,
            realm: &realm,
            nonce: &nonce,
            method,
            uri,
            auth: auth.as_ref().map(|(count, cnonce)| (count.as_str(), cnonce.as_str())),
        };
        let response = computation.response(&self.credentials.user, &self.credentials.password);
        let algorithm = names_algorithm.then_some(algorithm);
        let (user, uri) = (self.credentials.user.clone(), uri.to_owned());
        DigestAnswer { user, realm, nonce, uri, response, algorithm, auth, opaque }
    }
}

/// Never prints the credentials.
impl std::fmt::Debug for Answerer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answerer").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}
