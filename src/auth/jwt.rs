//! JSON Web Tokens (RFC 7519, RFC 7515): HS256 with a secret, RS256 and ES256 with a set of public keys
//! ([`jwks`](super::jwks)), for the management API, the API of applications and streams alike.
//!
//! Deliberately strict (docs/robustness.md R-01, R-02): the verification key decides the algorithm, so that the token
//! cannot choose one; only canonical base64url without padding is accepted; header fields that name another key or
//! other rules (`crit`, `jku`, `jwk`, `x5u`, `x5c`) are refused. Times are compared to the wall clock without
//! tolerance, as in Ant Media Server. A key shorter than 32 bytes verifies nothing.

use super::jwks::{Algorithm, KeySet, Verdict};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crypto::{constant_time_eq, hmac_sha256};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Shortest secret, in bytes (RFC 7518 §3.2: as long as the hash).
pub const SECRET_BYTES_MIN: usize = 32;

/// The claims of a token. Callers interpret all members except the times.
pub type Claims = Map<String, Value>;

/// Reasons for refusing a token, for the operator's log. The peer gets the same text for every reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// Over 8 KiB.
    #[error("the token is too long")]
    TooLong,
    /// The secret is shorter than 32 bytes.
    #[error("the secret is too short")]
    WeakSecret,
    /// Not three parts of base64url, or not the expected JSON.
    #[error("the token is malformed")]
    Malformed,
    /// The algorithm does not fit the key material.
    #[error("the algorithm is not the expected one")]
    Algorithm,
    /// The token names an unknown key.
    #[error("its key is not in the set")]
    UnknownKey,
    /// No key set is available.
    #[error("there is no set of keys")]
    NoKeys,
    /// A critical header field that is not supported.
    #[error("the header has unsupported fields")]
    Header,
    /// Signed with another secret, or changed.
    #[error("the signature does not match")]
    Signature,
    /// `exp` is past, or no number.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is in the future, or not a number.
    #[error("the token is not valid yet")]
    NotYet,
}

/// Header of a token. Serde refuses duplicate members. A token is refused if its header has `crit` or any member
/// declared after `crit` here.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<Value>,
    crit: Option<IgnoredAny>,
    jku: Option<IgnoredAny>,
    jwk: Option<IgnoredAny>,
    x5u: Option<IgnoredAny>,
    x5c: Option<IgnoredAny>,
    b64: Option<IgnoredAny>,
    zip: Option<IgnoredAny>,
    enc: Option<IgnoredAny>,
}

impl Header {
    fn asks_more(&self) -> bool {
        let asked = [&self.crit, &self.jku, &self.jwk, &self.x5u, &self.x5c, &self.b64, &self.zip, &self.enc];
        asked.iter().any(|member| member.is_some())
    }
}

/// Verifies a token and returns its claims. An empty payload means no claims.
///
/// # Errors
/// The reason for refusing the token.
pub fn verify(token: &str, secret: &[u8], wall_ms: u64) -> Result<Claims, JwtError> {
    if token.len() <= TOKEN_BYTES_MAX && secret.len() < SECRET_BYTES_MIN {
        return Err(JwtError::WeakSecret);
    }
    let parts = Parts::of(token)?;
    if parts.header.alg != "HS256" {
        return Err(JwtError::Algorithm);
    }
    parts.check_header()?;
    let expected = hmac_sha256(secret, &[parts.signed.as_bytes()]);
    if !constant_time_eq(&expected, &parts.signature) {
        return Err(JwtError::Signature);
    }
    // The signature is valid, so the claims come from a holder of the secret.
    parts.claims(wall_ms)
}

/// Verifies a token with a set of public keys: RS256 and ES256.
///
/// # Errors
/// The reason for refusing the token.
pub fn verify_by_keys(token: &str, keys: &KeySet, wall_ms: u64) -> Result<Claims, JwtError> {
    let parts = Parts::of(token)?;
    let algorithm = Algorithm::named(&parts.header.alg).ok_or(JwtError::Algorithm)?;
    parts.check_header()?;
    let id = match &parts.header.kid {
        Some(Value::String(id)) => Some(id.as_str()),
        Some(_) => return Err(JwtError::Header),
        None => None,
    };
    match keys.verify(algorithm, id, parts.signed.as_bytes(), &parts.signature) {
        Verdict::Signed => parts.claims(wall_ms),
        Verdict::Forged => Err(JwtError::Signature),
        Verdict::UnknownKey => Err(JwtError::UnknownKey),
    }
}

/// The parts of a token, not verified yet.
struct Parts<'a> {
    header: Header,
    /// Header and payload, as signed.
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let header = serde_json::from_slice(&decoded(header)?).map_err(|_| JwtError::Malformed)?;
        Ok(Self { header, signed, payload, signature: decoded(signature)? })
    }

    fn check_header(&self) -> Result<(), JwtError> {
        if self.header.asks_more() { Err(JwtError::Header) } else { Ok(()) }
    }

    /// Decodes the claims of a token whose signature is valid, and checks their times.
    fn claims(&self, wall_ms: u64) -> Result<Claims, JwtError> {
        let claims = claims_of(&decoded(self.payload)?)?;
        check_times(&claims, wall_ms)?;
        Ok(claims)
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)
}

fn claims_of(payload: &[u8]) -> Result<Claims, JwtError> {
    let claims: Claims = if payload.is_empty() {
        Claims::new()
    } else {
        serde_json::from_slice(payload).map_err(|_| JwtError::Malformed)?
    };
    Ok(claims)
}

/// Checks `exp` and `nbf`, in seconds, possibly with fractions (RFC 7519 §2 NumericDate).
fn check_times(claims: &Claims, wall_ms: u64) -> Result<(), JwtError> {
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of some thousand years fit 53 bits")]
    let now = wall_ms as f64 / 1000.0;
    if let Some(exp) = claims.get("exp") {
        let exp = exp.as_f64().filter(|exp| exp.is_finite()).ok_or(JwtError::Expired)?;
        if now >= exp {
            return Err(JwtError::Expired);
        }
    }
    if let Some(nbf) = claims.get("nbf") {
        let nbf = nbf.as_f64().filter(|nbf| nbf.is_finite()).ok_or(JwtError::NotYet)?;
        if now < nbf {
            return Err(JwtError::NotYet);
        }
    }
    Ok(())
}

/// Makes a signed token.
#[must_use]
pub fn sign(claims: &Claims, secret: &[u8]) -> String {
    sign_json(r#"{"alg":"HS256","typ":"JWT"}"#, &to_json(claims), secret)
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn sign_json(header: &str, payload: &str, secret: &[u8]) -> String {
    let (header, payload) = (URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = hmac_sha256(secret, &[header.as_bytes(), b".", payload.as_bytes()]);
    format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_700_000_000_000;
    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    fn check(token: &str) -> Result<Claims, JwtError> {
        verify(token, SECRET, NOW)
    }

    fn with_payload(payload: &str) -> Result<Claims, JwtError> {
        check(&sign_json(HEADER, payload, SECRET))
    }

    /// RFC 7515 §A.1: a token signed by another implementation, with its key; the JSON has unusual white space.
    #[test]
    fn the_rfc_s_example_verifies() {
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQog\
                     Imh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let claims = verify(token, &key, 1_300_819_379_000).unwrap();
        assert_eq!(claims.get("iss").and_then(Value::as_str), Some("joe"));
        assert_eq!(verify(token, &key, 1_300_819_380_000), Err(JwtError::Expired));
    }

    #[test]
    fn own_tokens_verify_and_the_empty_payload_is_no_claims() {
        let mut claims = Claims::new();
        claims.insert("sub".into(), "s1".into());
        claims.insert("exp".into(), (NOW / 1000 + 1).into());
        assert_eq!(check(&sign(&claims, SECRET)), Ok(claims));
        assert_eq!(with_payload("{}"), Ok(Claims::new()));
        assert_eq!(with_payload(""), Ok(Claims::new()));
        assert_eq!(check(&sign_json(r#"{"alg":"HS256"}"#, "{}", SECRET)), Ok(Claims::new()));
        assert_eq!(check(&sign_json(r#"{"alg":"HS256","kid":"7"}"#, "{}", SECRET)), Ok(Claims::new()));
    }

    #[test]
    fn r_01_only_hs256() {
        for alg in
            ["\"none\"", "\"None\"", "\"nOnE\"", "\"HS384\"", "\"HS512\"", "\"RS256\"", "\"hs256\"", "\"\""]
        {
            let token = sign_json(&format!(r#"{{"alg":{alg}}}"#), "{}", SECRET);
            assert_eq!(check(&token), Err(JwtError::Algorithm), "{alg}");
            // A token without any signature is refused, too.
            let bare = token.rsplit_once('.').unwrap().0;
            assert!(check(&format!("{bare}.")).is_err());
        }
        for header in [
            "{}",
            r#"{"alg":["HS256"]}"#,
            r#"{"alg":null}"#,
            r#"{"alg":1}"#,
            r#"{"alg":"none","alg":"HS256"}"#,
            r#"{"typ":"JWT"}"#,
            "[]",
            "",
            "null",
            "HS256",
        ] {
            assert_eq!(check(&sign_json(header, "{}", SECRET)), Err(JwtError::Malformed), "{header}");
        }
    }

    #[test]
    fn r_02_whatever_is_not_a_canonical_token_is_refused() {
        let good = sign_json(HEADER, r#"{"sub":"a"}"#, SECRET);
        let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
        for token in [
            String::new(),
            ".".into(),
            "..".into(),
            "...".into(),
            format!("{header}.{payload}"),
            format!("{header}.{payload}."),
            format!("{good}."),
            format!("{good}.x"),
            format!("{good}="),
            format!("{header}=.{payload}.{signature}"),
            format!(" {good}"),
            format!("{good} "),
            format!("{good}\n"),
            format!("{header} .{payload}.{signature}"),
            format!("{header}.{payload}\r\n.{signature}"),
            format!("Bearer {good}"),
            format!("{header}.{payload}.{}", signature.replace(['-', '_'], "+") + "+"),
            format!("{header}..{signature}"),
            format!("{payload}.{header}.{signature}"),
            format!("{header}.{payload}.{}", &signature[..signature.len() - 1]),
            format!("{header}.{payload}.{signature}AA"),
            "\u{0}.\u{0}.\u{0}".into(),
            good.to_uppercase(),
        ] {
            assert!(check(&token).is_err(), "{token}");
        }
        assert_eq!(check(&format!("{good}{}", "A".repeat(1 << 20))), Err(JwtError::TooLong));
        for member in [
            r#""crit":["exp"]"#,
            r#""jku":"https://h/keys""#,
            r#""jwk":{"kty":"oct","k":"AA"}"#,
            r#""x5u":"https://h/c""#,
            r#""x5c":[]"#,
            r#""b64":false"#,
            r#""zip":"DEF""#,
        ] {
            let token = sign_json(&format!(r#"{{"alg":"HS256",{member}}}"#), "{}", SECRET);
            assert_eq!(check(&token), Err(JwtError::Header), "{member}");
        }
        for payload in ["[]", "null", "1", "{", r#"{"a":1}x"#, "\u{feff}{}", r#"{"exp":1e400}"#] {
            assert_eq!(with_payload(payload), Err(JwtError::Malformed), "{payload}");
        }
    }

    #[test]
    fn r_02_bits_beyond_the_last_byte_make_another_text_and_no_other_token() {
        let good = sign_json(HEADER, "{}", SECRET);
        // The signature's 32 bytes leave two unused bits in the last of its 43 characters.
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let (head, last) = good.split_at(good.len() - 1);
        let at = alphabet.find(last).unwrap();
        assert_eq!(at % 4, 0);
        for other in 0..64 {
            let token = format!("{head}{}", &alphabet[other..=other]);
            assert_eq!(check(&token).is_ok(), other == at, "{token}");
        }
    }

    #[test]
    fn r_03_every_bit_of_the_signature_counts() {
        let good = sign_json(HEADER, "{}", SECRET);
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        for bit in 0..256 {
            let mut changed = signature.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(changed));
            assert_eq!(check(&token), Err(JwtError::Signature), "{bit}");
        }
        assert_eq!(verify(&good, b"0123456789abcdef0123456789abcdeF", NOW), Err(JwtError::Signature));
    }

    #[test]
    fn r_04_times_are_numbers_on_the_wall_clock() {
        let now = NOW / 1000;
        for (payload, result) in [
            (format!(r#"{{"exp":{}}}"#, now + 1), Ok(())),
            (format!(r#"{{"exp":{now}.5}}"#), Ok(())),
            (format!(r#"{{"exp":{now}}}"#), Err(JwtError::Expired)),
            (format!(r#"{{"exp":{}}}"#, now - 86_400), Err(JwtError::Expired)),
            (format!(r#"{{"exp":"{}"}}"#, now + 99), Err(JwtError::Expired)),
            (r#"{"exp":-1}"#.into(), Err(JwtError::Expired)),
            (r#"{"exp":null}"#.into(), Err(JwtError::Expired)),
            (r#"{"exp":18446744073709551615}"#.into(), Ok(())),
            (format!(r#"{{"nbf":{now}}}"#), Ok(())),
            (format!(r#"{{"nbf":{}}}"#, now + 1), Err(JwtError::NotYet)),
            (r#"{"nbf":"0"}"#.into(), Err(JwtError::NotYet)),
            (r#"{"nbf":-5}"#.into(), Ok(())),
        ] {
            assert_eq!(with_payload(&payload).map(drop), result, "{payload}");
        }
        // The clock may jump while the server runs; only the present time of the clock counts.
        let token = sign_json(HEADER, &format!(r#"{{"exp":{}}}"#, now + 60), SECRET);
        let day = 86_400_000;
        assert_eq!(verify(&token, SECRET, NOW + day), Err(JwtError::Expired));
        assert!(verify(&token, SECRET, NOW - day).is_ok() && verify(&token, SECRET, NOW).is_ok());
    }

    #[test]
    fn a_short_secret_verifies_nothing() {
        let short = &SECRET[..31];
        assert_eq!(verify(&sign_json(HEADER, "{}", short), short, NOW), Err(JwtError::WeakSecret));
        assert_eq!(verify(&sign_json(HEADER, "{}", b""), b"", NOW), Err(JwtError::WeakSecret));
    }
}
