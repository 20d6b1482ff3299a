//! Rules for publishing and playing a stream that need no state (docs/security.md): the checks that an application
//! enables, and the credentials of a peer. Control handles one-time tokens, subscribers and hooks.

use std::fmt;

use crypto::{constant_time_eq, sha256};
use serde_json::Value;

use super::{HookUrl, jwt};

/// The direction of media: to or from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Media is sent to the server.
    Publish,
    /// Media is sent to the peer.
    Play,
}

impl Direction {
    /// Returns the word used in tokens, hashes, codes and records.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Play => "play",
        }
    }
}

/// A secret text, never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text, for a computation.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True if the secret is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(none)" } else { "***" })
    }
}

/// Switches for the checks of one direction. All enabled checks must pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// Token that is valid once.
    pub token: bool,
    /// Signed token.
    pub jwt: bool,
    /// Time-based code.
    pub time_code: bool,
    /// Hash of the stream's id.
    pub hash: bool,
    /// Key of the broadcast; for publishers only.
    pub publish_key: bool,
    /// URL of the hook to ask, if set.
    pub hook: Option<HookUrl>,
}

impl Checks {
    /// True if any check is on.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.token || self.jwt || self.time_code || self.hash || self.publish_key || self.hook.is_some()
    }
}

/// The key material that signed tokens are verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// A secret: HS256.
    Secret(Secret),
    /// A set of public keys at this address: RS256 and ES256.
    Keys(HookUrl),
}

impl Trust {
    /// Returns the address of the key set, if used.
    #[must_use]
    pub const fn keys(&self) -> Option<&HookUrl> {
        match self {
            Self::Keys(url) => Some(url),
            Self::Secret(_) => None,
        }
    }
}

/// The secrets of an application's checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// `jwtStreamSecretKey`.
    pub jwt: Secret,
    /// `jwksURL`: address of a set of public keys. Tokens signed with one of them are valid, too.
    pub keys: Option<HookUrl>,
    /// `tokenHashSecret`.
    pub hash: Secret,
    /// `timeTokenSecretForPublish`.
    pub time_code_publish: Secret,
    /// `timeTokenSecretForPlay`.
    pub time_code_play: Secret,
    /// `timeTokenPeriod`, in seconds.
    pub time_code_period: u64,
    /// `timeTokenSeparators`: the parts from which a key is derived are joined with a separator.
    pub time_code_separators: bool,
    /// `timeTokenStoredSubscribersOnly`: codes of subscribers without a stored record are refused.
    pub time_code_stored_only: bool,
}

impl Secrets {
    /// Returns the application's secret, from which codes are derived for subscribers without a secret of their own.
    #[must_use]
    pub const fn time_code(&self, direction: Direction) -> &Secret {
        match direction {
            Direction::Publish => &self.time_code_publish,
            Direction::Play => &self.time_code_play,
        }
    }
}

/// True if a text is a valid stream id: `[A-Za-z0-9._-]{1,128}` without a leading dot (docs/robustness.md R-10).
#[must_use]
pub fn is_stream_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// The check that failed. Each protocol reports the failure in words of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The one-time token is missing, expired, or for another stream or direction.
    Token,
    /// Invalid signed token.
    Jwt,
    /// Wrong hash.
    Hash,
    /// Wrong publish key.
    PublishKey,
    /// Invalid subscriber or code.
    TimeCode,
    /// Overlong subscriber name.
    LongName,
    /// Blocked subscriber.
    Blocked(String),
    /// Too many connections of the subscriber.
    Connections,
    /// Too many viewers.
    Viewers,
    /// Denial by the hook receiver.
    Hook,
    /// No timely answer from the hook receiver.
    HookSilent,
    /// An operator ended this viewer a short time ago.
    Ended,
    /// The right to play was withdrawn before the request was decided.
    Withdrawn,
}

impl Denial {
    /// Returns the text of the HTTP refusal.
    #[must_use]
    pub fn text(&self, stream: &str) -> String {
        match self {
            Self::Token => format!("Invalid Token for streamId:{stream}"),
            Self::Jwt => "Invalid JWT Token".to_owned(),
            Self::Hash => "Invalid Hash".to_owned(),
            Self::PublishKey => format!("Invalid publish key for streamId:{stream}"),
            Self::TimeCode | Self::LongName => "Time Based subscriber id or code is invalid".to_owned(),
            Self::Blocked(subscriber) => format!("Subscriber {subscriber} is blocked"),
            Self::Viewers => "Viewer Limit Reached".to_owned(),
            Self::Ended => "The operator has ended this playback".to_owned(),
            Self::Connections | Self::Hook | Self::HookSilent | Self::Withdrawn => {
                "Not allowed to play the stream due to security".to_owned()
            }
        }
    }

    /// True if the peer could be admitted with other credentials.
    #[must_use]
    pub const fn is_of_credentials(&self) -> bool {
        match self {
            Self::Token | Self::Jwt | Self::Hash | Self::PublishKey | Self::TimeCode | Self::LongName => true,
            Self::Blocked(_)
            | Self::Connections
            | Self::Viewers
            | Self::Hook
            | Self::HookSilent
            | Self::Ended
            | Self::Withdrawn => false,
        }
    }

    /// Returns the reason for the log.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Token => "the one-time token is not valid",
            Self::Jwt => "the signed token is not valid",
            Self::Hash => "the hash is not valid",
            Self::PublishKey => "the publish key is missing or wrong",
            Self::TimeCode => "the subscriber or its time code is not valid",
            Self::LongName => "the subscriberId is too long",
            Self::Blocked(_) => "the subscriber is blocked",
            Self::Connections => "the subscriber has reached its connection limit",
            Self::Viewers => "the viewer limit of the stream or its application is reached",
            Self::Hook => "the hook refused",
            Self::HookSilent => "the hook did not answer",
            Self::Ended => "an operator disconnected the viewer",
            Self::Withdrawn => "the right to play was withdrawn meanwhile",
        }
    }
}

/// Parameter that holds a publish key.
pub const PUBLISH_KEY: &str = "key";

/// Parameters that a peer sent: names and values, in the order sent.
pub type Params = Vec<(String, String)>;

/// The credentials that a peer presents.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// `token`, used by several checks.
    pub token: Option<&'a str>,
    /// `subscriberId`.
    pub subscriber: Option<&'a str>,
    /// `subscriberCode`.
    pub code: Option<&'a str>,
    /// `key`: the publish key.
    pub publish_key: Option<&'a str>,
}

/// Prints the subscriber only, never secrets.
impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("subscriber", &self.subscriber).finish_non_exhaustive()
    }
}

impl<'a> Credentials<'a> {
    /// Reads the credentials from the first parameter of each name; an empty value counts as absent.
    #[must_use]
    pub fn of(params: &'a [(String, String)]) -> Self {
        let first = |name: &str| {
            let value = params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            value.filter(|value| !value.is_empty())
        };
        Self {
            token: first("token"),
            subscriber: first("subscriberId"),
            code: first("subscriberCode"),
            publish_key: first(PUBLISH_KEY),
        }
    }

    /// Removes the credentials that none of the enabled checks uses, so that they are not forwarded and do not
    /// distinguish peers. The subscriber is always kept.
    #[must_use]
    pub fn counting(self, checks: &Checks) -> Self {
        let asks = checks.hook.is_some();
        Self {
            token: self.token.filter(|_| checks.token || checks.jwt || checks.hash || asks),
            code: self.code.filter(|_| checks.time_code || asks),
            ..self
        }
    }
}

/// Returns the token of the hash check: hex of SHA-256 over id, direction and secret.
#[must_use]
pub fn hash_token(stream: &str, direction: Direction, secret: &Secret) -> String {
    let hash = sha256(&[stream.as_bytes(), direction.word().as_bytes(), secret.reveal().as_bytes()]);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True if a token is the hash of this stream, in hex of either case.
#[must_use]
pub fn is_hash(token: Option<&str>, stream: &str, direction: Direction, secret: &Secret) -> bool {
    let expected = hash_token(stream, direction, secret);
    let given = token.unwrap_or("").to_ascii_lowercase();
    !secret.is_empty() && constant_time_eq(expected.as_bytes(), given.as_bytes())
}

/// Signs a token for a stream, valid until `expires_s` (Unix seconds). The token names the stream both as `streamId`
/// and as `sub`; checks accept either.
#[must_use]
pub fn sign_jwt(stream: &str, kind: &str, expires_s: i64, secret: &Secret) -> Option<String> {
    if secret.reveal().len() < jwt::SECRET_BYTES_MIN {
        return None;
    }
    let mut claims = jwt::Claims::new();
    claims.insert("sub".to_owned(), stream.into());
    claims.insert("streamId".to_owned(), stream.into());
    claims.insert("type".to_owned(), kind.into());
    claims.insert("exp".to_owned(), expires_s.into());
    Some(jwt::sign(&claims, secret.reveal().as_bytes()))
}

/// True if a signed token is for this stream and direction. The token names the stream as `streamId` or, from older
/// clients, as `sub`; if it has both, both must match.
#[must_use]
pub fn is_jwt(
    token: Option<&str>,
    stream: &str,
    direction: Direction,
    secret: &Secret,
    wall_ms: u64,
) -> bool {
    let Some(token) = token else { return false };
    let claims = jwt::verify(token, secret.reveal().as_bytes(), wall_ms);
    claims.is_ok_and(|claims| is_for_stream(&claims, stream, direction))
}

/// True if verified claims are for this stream and direction.
#[must_use]
pub fn is_for_stream(claims: &jwt::Claims, stream: &str, direction: Direction) -> bool {
    let is = |name: &str, wanted: &str| match claims.get(name) {
        Some(Value::String(text)) => Some(text == wanted),
        Some(_) => Some(false),
        None => None,
    };
    let names = [is("streamId", stream), is("sub", stream)];
    is("type", direction.word()) == Some(true) && names.contains(&Some(true)) && !names.contains(&Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn secret() -> Secret {
        Secret::new("0123456789abcdef0123456789abcdef")
    }

    #[test]
    fn the_hash_is_over_id_direction_and_secret() {
        // echo -n s1publishsecret | sha256sum
        let secret = Secret::new("secret");
        let token = hash_token("s1", Direction::Publish, &secret);
        assert_eq!(token, "6c2e80fb786c2f38031aa97e7237c686ca6677635e091230beb55b275d52535a");
        assert!(is_hash(Some(&token.to_uppercase()), "s1", Direction::Publish, &secret));
        assert!(!is_hash(Some(&token), "s1", Direction::Play, &secret));
        assert!(!is_hash(Some(&token), "s2", Direction::Publish, &secret));
        assert!(!is_hash(None, "s1", Direction::Publish, &secret));
        let of_nothing = hash_token("s1", Direction::Publish, &Secret::default());
        assert!(!is_hash(Some(&of_nothing), "s1", Direction::Publish, &Secret::default()));
    }

    #[test]
    fn a_signed_token_is_for_one_stream_one_way_and_some_time() {
        let token = sign_jwt("s1", "play", 1_700_000_010, &secret()).unwrap();
        let valid = |stream, direction, ms| is_jwt(Some(&token), stream, direction, &secret(), ms);
        assert!(valid("s1", Direction::Play, NOW));
        assert!(!valid("s1", Direction::Publish, NOW) && !valid("s2", Direction::Play, NOW));
        assert!(!valid("s1", Direction::Play, NOW + 10_000));
        assert!(!is_jwt(None, "s1", Direction::Play, &secret(), NOW));
        assert_eq!(sign_jwt("s1", "play", 1, &Secret::new("short")), None);
    }

    #[test]
    fn both_names_of_the_stream_are_read_and_must_agree() {
        let valid = |json: &str| {
            let claims: jwt::Claims = serde_json::from_str(json).unwrap();
            let token = jwt::sign(&claims, secret().reveal().as_bytes());
            is_jwt(Some(&token), "s1", Direction::Play, &secret(), NOW)
        };
        assert!(valid(r#"{"streamId":"s1","type":"play"}"#));
        assert!(valid(r#"{"sub":"s1","type":"play"}"#));
        for json in [
            "{}",
            r#"{"type":"play"}"#,
            r#"{"streamId":"s1"}"#,
            r#"{"streamId":"s1","sub":"s2","type":"play"}"#,
            r#"{"streamId":1,"sub":"s1","type":"play"}"#,
            r#"{"streamId":"s1","type":"PLAY"}"#,
        ] {
            assert!(!valid(json), "{json}");
        }
    }

    #[test]
    fn r_42_secrets_and_credentials_are_not_printed() {
        let params =
            vec![("token".to_owned(), "canary".to_owned()), ("subscriberId".to_owned(), "u".to_owned())];
        let shown = format!("{:?} {:?}", Credentials::of(&params), Secret::new("canary"));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
