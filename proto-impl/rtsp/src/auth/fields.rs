//! The header fields `WWW-Authenticate` and `Authorization`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Algorithm, Credentials};
use crate::limits::CHALLENGES_MAX;
use crate::transport::split_unquoted;

/// A server's request for credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// Basic: the password itself is requested.
    Basic {
        /// Realm that the password belongs to.
        realm: String,
    },
    /// Digest: a proof of the password is requested.
    Digest(DigestChallenge),
}

/// Parameters of a Digest challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestChallenge {
    /// Realm that the password belongs to.
    pub realm: String,
    /// Nonce with which the response must be computed.
    pub nonce: String,
    /// Value that the client must return unchanged.
    pub opaque: Option<String>,
    /// Hash algorithm.
    pub algorithm: Algorithm,
    /// True if the challenge names its algorithm. If it does not, the answer omits the algorithm, too,
    /// because the server may not understand the parameter.
    pub names_algorithm: bool,
    /// True if the server offers `qop=auth`.
    pub qop_auth: bool,
    /// True if only the nonce of the last answer was wrong.
    pub stale: bool,
}

impl Challenge {
    /// Reads the challenges of all `WWW-Authenticate` fields. A field may contain several; unknown and malformed ones
    /// are skipped.
    pub fn read_all<'a>(values: impl Iterator<Item = &'a str>) -> Vec<Self> {
        let mut all = Vec::new();
        for value in values {
            // `Digest realm="a", nonce="b", Basic realm="c"`: a part with a space before its first `=` begins
            // another challenge.
            let mut scheme = "";
            let mut parameters = Vec::new();
            for part in split_unquoted(value, ',').map(str::trim_ascii) {
                let name = part.split('=').next().unwrap_or_default().trim_ascii();
                let begins = name.split_once(char::is_whitespace);
                if begins.is_some() || !part.contains('=') {
                    all.extend(Self::of(scheme, &parameters));
                    parameters.clear();
                    let (first, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                    scheme = first;
                    parameters.extend(parameter(rest));
                } else {
                    parameters.extend(parameter(part));
                }
            }
            all.extend(Self::of(scheme, &parameters));
        }
        all.truncate(CHALLENGES_MAX);
        all
    }

    /// Returns the most secure challenge: Digest with SHA-256, then with MD5, then Basic.
    #[must_use]
    pub fn strongest(challenges: Vec<Self>) -> Option<Self> {
        challenges.into_iter().rev().max_by_key(|challenge| match challenge {
            Self::Basic { .. } => None,
            Self::Digest(digest) => Some(digest.algorithm),
        })
    }

    fn of(scheme: &str, parameters: &[(&str, String)]) -> Option<Self> {
        let get = |name: &str| {
            parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("Basic") {
            return Some(Self::Basic { realm: get("realm").unwrap_or_default() });
        }
        if !scheme.eq_ignore_ascii_case("Digest") {
            return None;
        }
        let algorithm = get("algorithm");
        let qop = get("qop");
        let qop_auth = qop
            .as_deref()
            .is_some_and(|list| list.split(',').any(|one| one.trim_ascii().eq_ignore_ascii_case("auth")));
        // If the server offers only `auth-int`, the challenge cannot be answered.
        if qop.as_deref().is_some_and(|list| !list.is_empty()) && !qop_auth {
            return None;
        }
        Some(Self::Digest(DigestChallenge {
            realm: get("realm")?,
            nonce: get("nonce")?,
            opaque: get("opaque"),
            algorithm: algorithm.as_deref().map_or(Some(Algorithm::Md5), Algorithm::read)?,
            names_algorithm: algorithm.is_some(),
            qop_auth,
            stale: get("stale").is_some_and(|value| value.eq_ignore_ascii_case("true")),
        }))
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { realm } => write!(f, "Basic realm=\"{}\"", escaped(realm)),
            Self::Digest(digest) => {
                let (realm, nonce) = (escaped(&digest.realm), escaped(&digest.nonce));
                write!(f, "Digest realm=\"{realm}\", nonce=\"{nonce}\"")?;
                if let Some(opaque) = &digest.opaque {
                    write!(f, ", opaque=\"{}\"", escaped(opaque))?;
                }
                if digest.names_algorithm {
                    write!(f, ", algorithm={}", digest.algorithm.as_str())?;
                }
                if digest.qop_auth {
                    f.write_str(", qop=\"auth\"")?;
                }
                f.write_str(if digest.stale { ", stale=TRUE" } else { "" })
            }
        }
    }
}

/// Credentials as sent by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Basic: user and password.
    Basic(Credentials),
    /// Digest: a proof of the password.
    Digest(DigestAnswer),
}

/// A Digest answer with the values it was computed from.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestAnswer {
    /// User name.
    pub user: String,
    /// Realm that the password belongs to.
    pub realm: String,
    /// Nonce of the challenge.
    pub nonce: String,
    /// URL that the answer was computed for.
    pub uri: String,
    /// Response digest, in hexadecimal digits.
    pub response: String,
    /// Hash algorithm; `None` if the field does not name one.
    pub algorithm: Option<Algorithm>,
    /// Nonce count and client nonce, if `qop=auth` is used.
    pub auth: Option<(String, String)>,
    /// Value returned to the server unchanged.
    pub opaque: Option<String>,
}

/// Does not print the response, because it would allow guessing the password offline.
impl fmt::Debug for DigestAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestAnswer").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Authorization {
    /// Reads the field. `None` if it is malformed, or has an unsupported scheme, algorithm or `qop`.
    #[must_use]
    pub fn read(value: &str) -> Option<Self> {
        let (scheme, rest) = value.trim_ascii().split_once(char::is_whitespace)?;
        if scheme.eq_ignore_ascii_case("Basic") {
            let text = String::from_utf8(STANDARD.decode(rest.trim_ascii()).ok()?).ok()?;
            let (user, password) = text.split_once(':')?;
            return Some(Self::Basic(Credentials { user: user.to_owned(), password: password.to_owned() }));
        }
        if !scheme.eq_ignore_ascii_case("Digest") {
            return None;
        }
        let parameters: Vec<(&str, String)> = split_unquoted(rest, ',').filter_map(parameter).collect();
        let get = |name: &str| {
            let mut values = parameters.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            // A repeated parameter is ambiguous and therefore ignored.
            values.next().filter(|_| values.next().is_none()).map(|(_, value)| value.clone())
        };
        let algorithm = match get("algorithm") {
            Some(name) => Some(Algorithm::read(&name)?),
            None => None,
        };
        let auth = match get("qop") {
            Some(qop) if qop.eq_ignore_ascii_case("auth") => Some((get("nc")?, get("cnonce")?)),
            Some(qop) if !qop.is_empty() => return None,
            Some(_) | None => None,
        };
        Some(Self::Digest(DigestAnswer {
            user: get("username")?,
            realm: get("realm")?,
            nonce: get("nonce")?,
            uri: get("uri")?,
            response: get("response")?,
            algorithm,
            auth,
            opaque: get("opaque"),
        }))
    }

    /// User name as claimed by the client, without proof.
    #[must_use]
    pub fn user(&self) -> &str {
        match self {
            Self::Basic(credentials) => &credentials.user,
            Self::Digest(answer) => &answer.user,
        }
    }

    /// Returns the value of the field. The value is a secret.
    #[must_use]
    pub fn write(&self) -> String {
        match self {
            Self::Basic(Credentials { user, password }) => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Digest(answer) => answer.write(),
        }
    }
}

impl DigestAnswer {
    fn write(&self) -> String {
        let mut text = "Digest ".to_owned();
        let quoted = [
            ("username", Some(&self.user)),
            ("realm", Some(&self.realm)),
            ("nonce", Some(&self.nonce)),
            ("uri", Some(&self.uri)),
            ("response", Some(&self.response)),
            ("opaque", self.opaque.as_ref()),
        ];
        let quoted: Vec<String> = quoted
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}=\"{}\"", escaped(value?))))
            .collect();
        text.push_str(&quoted.join(", "));
        if let Some(algorithm) = self.algorithm {
            text.push_str(", algorithm=");
            text.push_str(algorithm.as_str());
        }
        if let Some((count, cnonce)) = &self.auth {
            text.push_str(&format!(", qop=auth, nc={count}, cnonce=\"{}\"", escaped(cnonce)));
        }
        text
    }
}

/// Parses `name=value` or `name="value"`.
fn parameter(text: &str) -> Option<(&str, String)> {
    let (name, value) = text.split_once('=')?;
    let value = value.trim_ascii();
    let Some(quoted) = value.strip_prefix('"') else {
        return Some((name.trim_ascii(), value.to_owned()));
    };
    let quoted = quoted.strip_suffix('"').unwrap_or(quoted);
    let mut plain = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Some((name.trim_ascii(), plain))
}

/// Escapes text for a quoted string.
fn escaped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
        .collect()
}
