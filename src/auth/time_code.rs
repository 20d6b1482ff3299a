//! Time-based codes (RFC 6238 over HMAC-SHA1, six digits), used by subscribers of a stream (docs/security.md).

use crypto::{constant_time_eq, hmac_sha1};
use data_encoding::{BASE32, BASE32_NOPAD};

/// Longest Base32 secret, in bytes.
const SECRET_BYTES_MAX: usize = 1024;
/// Digits of a code.
const DIGITS: u32 = 6;
/// Multiple to which the length of a derived key is padded.
const PADDING: usize = 8;

/// Decodes a subscriber's own secret: Base32 with a length that is a multiple of eight.
#[must_use]
pub fn key_of_secret(secret: &str) -> Option<Vec<u8>> {
    let fits = !secret.is_empty() && secret.len() <= SECRET_BYTES_MAX && secret.len().is_multiple_of(PADDING);
    if !fits {
        return None;
    }
    let secret = secret.to_ascii_uppercase();
    let decode = |encoding: data_encoding::Encoding| encoding.decode(secret.as_bytes()).ok();
    decode(BASE32).or_else(|| decode(BASE32_NOPAD)).filter(|key| !key.is_empty())
}

/// Derives a key for a subscriber that has no secret of its own: from the application's secret, the subscriber, the
/// stream and the purpose of the code.
///
/// With an empty `separator`, as in clients of Ant Media Server, keys can coincide: `bob1` on `free-vip` has the key of
/// `bob1free-` on `vip`. With `/`, which no stream id contains, all keys differ.
#[must_use]
pub fn derived_key(secret: &str, subscriber: &str, stream: &str, kind: &str, separator: &str) -> Vec<u8> {
    let mut key = [secret, subscriber, stream, kind].join(separator).into_bytes();
    let length = key.len().next_multiple_of(PADDING);
    key.resize(length, b'X');
    key
}

/// Returns the code that is valid at the wall-clock time `wall_ms`.
#[must_use]
pub fn code(key: &[u8], period_s: u64, wall_ms: u64) -> String {
    code_of_step(key, step(period_s, wall_ms))
}

/// True if a code is valid now, or in the period before or after, since clocks differ and typing takes time.
#[must_use]
pub fn is_valid(key: &[u8], period_s: u64, wall_ms: u64, given: &str) -> bool {
    let now = step(period_s, wall_ms);
    let steps = [now.saturating_sub(1), now, now.saturating_add(1)];
    // All codes are computed, so that the time taken does not reveal the code that matched.
    steps.iter().fold(false, |valid, step| {
        constant_time_eq(code_of_step(key, *step).as_bytes(), given.as_bytes()) | valid
    })
}

fn step(period_s: u64, wall_ms: u64) -> u64 {
    wall_ms / period_s.saturating_mul(1000).max(1)
}

/// Computes the code of a period (RFC 4226 §5.3).
fn code_of_step(key: &[u8], step: u64) -> String {
    let hash = hmac_sha1(key, &step.to_be_bytes());
    let offset = usize::from(hash.last().copied().unwrap_or(0) & 0x0f);
    let word = hash.get(offset..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
    let number = (u32::from_be_bytes(word) & 0x7fff_ffff) % 10u32.pow(DIGITS);
    format!("{number:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of RFC 6238 appendix B, with the last six of the eight digits.
    #[test]
    fn the_vectors_of_the_rfc() {
        let key = b"12345678901234567890";
        for (seconds, expected) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code(key, 30, seconds * 1000), expected);
        }
    }

    #[test]
    fn one_period_of_difference_is_forgiven_and_no_more() {
        let key = b"12345678901234567890";
        let then = code(key, 30, 90_000);
        let valid = |ms| is_valid(key, 30, ms, &then);
        assert!(valid(90_000) && valid(60_000) && valid(149_999));
        assert!(!valid(59_999) && !valid(150_000));
        assert!(!is_valid(key, 30, 90_000, "") && !is_valid(key, 30, 90_000, &format!("{then}0")));
    }

    #[test]
    fn secrets_are_base32_of_a_length_that_fits() {
        assert_eq!(key_of_secret("GEZDGNBV").unwrap(), b"12345");
        assert_eq!(key_of_secret("GEZDGNBVGY3TQ===").unwrap(), b"12345678");
        assert_eq!(key_of_secret("gezdgnbv").unwrap(), b"12345", "in any case");
        for bad in ["", "GEZDGNB", "GEZDGNB1", "GEZDGNBVG", "========"] {
            assert_eq!(key_of_secret(bad), None, "{bad}");
        }
        assert_eq!(derived_key("secret", "sub1", "s1", "play", ""), b"secretsub1s1play");
        assert_eq!(derived_key("secret", "sub1", "s1", "publish", ""), b"secretsub1s1publishXXXXX");
        let keys = ["", "/"].map(|separator| {
            [("bob1", "free-vip"), ("bob1free-", "vip")]
                .map(|(id, stream)| derived_key("s", id, stream, "play", separator))
        });
        assert!(keys[0][0] == keys[0][1] && keys[1][0] != keys[1][1]);
    }
}
