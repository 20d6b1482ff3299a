//! Sets of public keys (RFC 7517) of other servers that sign tokens: RS256 and ES256 (RFC 7518 §3.3, §3.4).
//!
//! Only the first usable keys of a set are used, up to a limit; keys that are weak or of unknown kinds are skipped. A
//! malformed set is an error and verifies nothing.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crypto::{Hash, KeyKind, PublicKey, SignatureAlgorithm};
use serde::Deserialize;

/// Largest set, in bytes.
pub const SET_BYTES_MAX: usize = 256 << 10;
/// Maximum number of keys in a set.
const KEYS_MAX: usize = 64;
/// Maximum number of keys tried for a token without a key id.
const TRIED_MAX: usize = 4;
/// Bytes of an RSA modulus: 2048 to 4096 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=512;
/// Bytes of a coordinate on P-256, and of each half of a signature.
const P256_BYTES: usize = 32;

/// The JSON document. Unknown members are ignored (RFC 7517 §4, §5).
#[derive(Deserialize)]
struct Document {
    keys: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Signature algorithm that a token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl Algorithm {
    /// Returns the algorithm with this name; `None` for any other name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }

    const fn kind(self) -> KeyKind {
        match self {
            Self::Rs256 => KeyKind::Rsa,
            Self::Es256 => KeyKind::P256,
        }
    }
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    public: PublicKey,
}

/// The usable keys of a set.
#[derive(Debug)]
pub struct KeySet(Vec<Key>);

/// The result of verifying a token's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Signed with a key of the set.
    Signed,
    /// No tried key verifies the signature. If the token names a key, only keys with that id are tried.
    Forged,
    /// The token names a key that is missing in the set.
    UnknownKey,
}

impl KeySet {
    /// Parses a set.
    ///
    /// # Errors
    /// The bytes are not a key set, or the set has no usable key. The error is the reason.
    pub fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() > SET_BYTES_MAX {
            return Err("it is larger than 256 KiB");
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|_| "it is no set of keys")?;
        let keys: Vec<Key> = document.keys.iter().filter_map(key).take(KEYS_MAX).collect();
        if keys.is_empty() { Err("it has no key for RS256 or ES256") } else { Ok(Self(keys)) }
    }

    /// Returns the number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the set is empty, which never happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies the signature of a message with the key named by `id`. Without an id, tries a few keys.
    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Verdict {
        let of_kind = self.0.iter().filter(|key| key.public.kind() == algorithm.kind());
        let mut named =
            of_kind.filter(|key| id.is_none() || key.id.as_deref() == id).take(TRIED_MAX).peekable();
        if named.peek().is_none() {
            return Verdict::UnknownKey;
        }
        let (scheme, signature) = match algorithm {
            Algorithm::Rs256 => (SignatureAlgorithm::RsaPkcs1(Hash::Sha256), Some(signature.to_vec())),
            Algorithm::Es256 => (SignatureAlgorithm::Ecdsa(Hash::Sha256), ecdsa_signature(signature)),
        };
        let Some(signature) = signature else { return Verdict::Forged };
        if named.any(|key| key.public.verify(scheme, message, &signature).is_ok()) {
            Verdict::Signed
        } else {
            Verdict::Forged
        }
    }
}

/// Reads a key that is usable for signatures.
fn key(written: &Written) -> Option<Key> {
    if written.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let is_for = |algorithm| written.alg.as_deref().is_none_or(|alg| alg == algorithm);
    let decoded = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    let public = match written.kty.as_str() {
        "RSA" if is_for("RS256") => rsa_key(&decoded(&written.n)?, &decoded(&written.e)?)?,
        "EC" if is_for("ES256") && written.crv.as_deref() == Some("P-256") => {
            p256_key(&decoded(&written.x)?, &decoded(&written.y)?)?
        }
        _ => return None,
    };
    Some(Key { id: written.kid.clone(), public })
}

/// Encodes an RSA key as in certificates (RFC 8017 §A.1.1).
fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Option<PublicKey> {
    /// AlgorithmIdentifier of rsaEncryption, with its NULL parameters.
    const ALGORITHM: &[u8] =
        &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    if !MODULUS_BYTES.contains(&stripped(modulus).len()) || stripped(exponent).len() > 8 {
        return None;
    }
    let key = element(SEQUENCE, &[integer(modulus), integer(exponent)].concat());
    PublicKey::new(KeyKind::Rsa, &public_key(ALGORITHM, &key))
}

/// Encodes a P-256 key as in certificates (RFC 5480 §2).
fn p256_key(x: &[u8], y: &[u8]) -> Option<PublicKey> {
    /// AlgorithmIdentifier of id-ecPublicKey on secp256r1.
    const ALGORITHM: &[u8] = &[
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
        0x3d, 0x03, 0x01, 0x07,
    ];
    /// Prefix of an uncompressed point.
    const PLAIN: u8 = 4;
    if x.len() != P256_BYTES || y.len() != P256_BYTES {
        return None;
    }
    PublicKey::new(KeyKind::P256, &public_key(ALGORITHM, &[&[PLAIN], x, y].concat()))
}

/// Tags of DER (X.690 §8).
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

fn public_key(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let key = element(BIT_STRING, &[&[0], key].concat());
    element(SEQUENCE, &[algorithm, &key].concat())
}

/// Encodes a signature of two halves in DER (RFC 7518 §3.4, RFC 3279 §2.2.3).
fn ecdsa_signature(halves: &[u8]) -> Option<Vec<u8>> {
    let (r, s) = halves.split_at_checked(P256_BYTES).filter(|(_, s)| s.len() == P256_BYTES)?;
    Some(element(SEQUENCE, &[integer(r), integer(s)].concat()))
}

/// Returns a number without leading zeros.
fn stripped(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

fn integer(number: &[u8]) -> Vec<u8> {
    let number = stripped(number);
    let sign: &[u8] = if number.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    element(INTEGER, &[sign, number].concat())
}

/// Encodes a DER element of up to 65535 bytes; no key here is longer.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, 0..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, content].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::auth::jwt::{self, JwtError};

    /// Keys made by OpenSSL, and one of an unknown kind.
    pub(crate) const SET: &str = r#"{"keys": [{"kty": "RSA", "kid": "r1", "alg": "RS256", "use": "sig", "n": "pkql6wfCMsX4bpcHOOZ_okdIONr1QlOhU_vXo5BWGjgsBe4hcNJtMZuEoblPbqRnO8MmZOPEexCTkCBhVIOqvEPXXv5EHclCj3fyGE_g2aqsPsQt4Q1F8bq2_EnF26R2b4nWHgIUEBIg5Br40HMNGoboWF80-2gHK61Y6hR9V2Db-Z-Yta2X-d26IwLe-G_bVZmMVhpOMdO5SP6QrAapYIZHaRu0NINHxXLFtP2CpyA55FcagPZfM-Y-BKHVC3rE1eK_vjje2IQeYw7Gp_gmEilZJRd1gcmgK4IyuJauCWrWf-Xl7iBVifzJoS09iLn_PJ_4wUGumsDRiGHUgZX-gQ", "e": "AQAB"}, {"kty": "EC", "kid": "e1", "crv": "P-256", "alg": "ES256", "x": "ibwvqf-7pgD83IE2kEBabiJuM85jRa5wx_AQhaBao70", "y": "XkDn0HRAA26Vnw-Cb5kZSGswgX9PDncy7YPKAvhmK6Q"}, {"kty": "OKP", "kid": "o1", "crv": "Ed25519", "x": "AAAA"}]}"#;
    /// Tokens for viewers of `s1` until 2100, signed by OpenSSL: with the RSA key, with the P-256 key, with the RSA key
    /// but no key id, and with an unknown key id.
    pub(crate) const RS256: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InIxIn0.eyJzdWIiOiJzMSIsInN0cmVhbUlkIjoiczEiLCJ0eXBlIjoicGxheSIsImV4cCI6NDEwMjQ0NDgwMH0.Rjfddb1h68DCbjavFmVaxZYe_PR2cr2AeqeFuhgLsxFu99j3Q5wrmeGLnCoqfeTGXsw3h6MRJcCfUziYHazz-HTzzO0xqiHiHPG66I8dgT9WM0k3qKTA-q6FGrOcmLrTYAM5A1uJoj14t_hSBrVDcOmtgKymtBXRygaW56pGgp4-0FAuS377lj4JBGRywA7SiJwJDZH7Afk0ybEk0vawHOYZI0PxQeTpxzfcA8PUBNRwyI7kG9_t9JXvqMDIj_LWo5ThwzEKzft3Ih09ecKKla4ZL6qgFvjHu86wQHuWyVq0o-fPwJQA-pwR1xPXr52kE4gDWPPG68365lhmTSoUsA";
    pub(crate) const ES256: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImUxIn0.eyJzdWIiOiJzMSIsInN0cmVhbUlkIjoiczEiLCJ0eXBlIjoicGxheSIsImV4cCI6NDEwMjQ0NDgwMH0.4dYHb_TmG1KOrthw_rOjlXx5oNidpOxm3DhKc9q3x_WI8cPybs7E90hhDpJAo2FPDNKmcQI-4gvz9dH7a_joRw";
    const UNNAMED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzMSIsInN0cmVhbUlkIjoiczEiLCJ0eXBlIjoicGxheSIsImV4cCI6NDEwMjQ0NDgwMH0.iTx_g3M7FazIhjRp45bW_lNWiYBYtD78T_YEME0ySI7pVMnRJbjWJPt3vyXSFu0u05ZWQr07DqGAqAY4MinH65gOtUsNsNS6tSJdPUmXbZyDikESNv_3eCkyH4W1YUxZhA-QyxjlkVWERHgOP6iQ2R5GHuGGuWSR0dC2DP6SwOeW5joXB-YiIjqcwMGYVD-_qhH8C_jr7NT2WjwAsjUoLsmi5aCioLzgrHVwE2_RWcLd1rtTU2PLTokCkXDai3JSb0k-WSHAR9tOf9V9JFy_tbEOl_ae22_1sSWwAVae3tNleIHGRqYqBharyUOU18SiRNxdvKPB9rNXIw7lbdyzxQ";
    pub(crate) const OTHER: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIyIn0.eyJzdWIiOiJzMSIsInN0cmVhbUlkIjoiczEiLCJ0eXBlIjoicGxheSIsImV4cCI6NDEwMjQ0NDgwMH0.OLe6QMUGyW2skXfKjj3L95Tdn26iWYtRnbOOn3AhHDSwig8iwgfPe7VK5oWT-W_0pvn-esdzsu4E256FH3il1juNLboL7Fuls7ewqLDiQ6s8Y_8b55zMithUD4JtFcpbCgZFcUFQCZbtMvi9gmV6lgG7pg7QT7r-G0rbIUFQA2gk0L_spgSf-4DvTe2cmbTPpKOruAGhNgOSGgMq3jHGy9ChtNmnv7z-8bjVKHz2M1YFzFkkQDZ4BCfgaHUDkJIsm4WpIhLaqxr87xzIb-tV8QdQdoyiyghg8dD7Dqybuj4LyNS7cWci9ZYmXT0KFIsZAjYIGhw01r434ykfXAO53A";
    const NOW: u64 = 1_800_000_000_000;

    fn set() -> KeySet {
        KeySet::read(SET.as_bytes()).unwrap()
    }

    #[test]
    fn tokens_of_openssl_verify_and_others_do_not() {
        let set = set();
        assert_eq!((set.len(), set.is_empty()), (2, false));
        for token in [RS256, ES256, UNNAMED] {
            let claims = jwt::verify_by_keys(token, &set, NOW).unwrap();
            assert_eq!(claims["streamId"], "s1");
            assert_eq!(jwt::verify_by_keys(token, &set, 4_102_444_800_000), Err(JwtError::Expired));
            // A change of any byte of payload or signature is detected.
            let (signed, _) = token.rsplit_once('.').unwrap();
            for at in (signed.len() / 2..token.len()).step_by(7) {
                let mut bytes = token.as_bytes().to_vec();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(bytes).unwrap();
                assert!(changed == token || jwt::verify_by_keys(&changed, &set, NOW).is_err(), "{at}");
            }
            assert!(jwt::verify_by_keys(&format!("{signed}."), &set, NOW).is_err());
        }
        assert_eq!(jwt::verify_by_keys(OTHER, &set, NOW), Err(JwtError::UnknownKey));
    }

    /// Public keys are not secrets: an HS256 token signed with one is refused.
    #[test]
    fn r_01_a_token_cannot_choose_another_algorithm() {
        let set = set();
        let claims: jwt::Claims = serde_json::from_str(r#"{"streamId":"s1"}"#).unwrap();
        for secret in [SET.as_bytes(), RS256.as_bytes()] {
            assert_eq!(jwt::verify_by_keys(&jwt::sign(&claims, secret), &set, NOW), Err(JwtError::Algorithm));
        }
        assert_eq!(jwt::verify(RS256, SET.as_bytes(), NOW), Err(JwtError::Algorithm));
        // A key must not verify signatures of another algorithm.
        let mixed = SET.replace("\"r1\"", "\"x\"").replace("\"e1\"", "\"r1\"");
        let mixed = KeySet::read(mixed.as_bytes()).unwrap();
        assert_eq!(jwt::verify_by_keys(RS256, &mixed, NOW), Err(JwtError::UnknownKey));
    }

    #[test]
    fn what_is_no_usable_set_is_refused() {
        let weak = format!(r#"{{"keys":[{{"kty":"RSA","n":"{}","e":"AQAB"}}]}}"#, "A".repeat(171));
        let short = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}"#;
        let cipher = SET.replace("\"use\": \"sig\"", "\"use\": \"enc\"").replace("P-256", "P-384");
        for bad in ["", "[]", "{}", r#"{"keys":[]}"#, r#"{"keys":[{}]}"#, &weak, short, &cipher] {
            assert!(KeySet::read(bad.as_bytes()).is_err(), "{bad}");
        }
        let many = r#"{"kty":"OKP"},"#.repeat(100);
        assert!(KeySet::read(SET.replace("[{", &format!("[{many}{{")).as_bytes()).is_ok());
        assert!(KeySet::read(" ".repeat(SET_BYTES_MAX + 1).as_bytes()).is_err());
    }
}
