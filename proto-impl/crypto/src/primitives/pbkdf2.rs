//! Keys from passwords.

use std::num::NonZeroU32;

use super::provider::{Chosen, Provider};

/// PBKDF2 with HMAC-SHA1 (RFC 8018 §5.2). It is slow by design: about a millisecond for 2048 iterations. A fuzzer runs
/// a single iteration.
pub fn pbkdf2_hmac_sha1(secret: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
    let iterations = if cfg!(fuzzing) { NonZeroU32::MIN } else { iterations };
    Chosen::pbkdf2_hmac_sha1(secret, salt, iterations, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks cases 2 and 5 of RFC 6070 §2.
    #[test]
    fn pbkdf2_vectors() {
        let derive = |secret: &[u8], salt: &[u8], iterations| {
            let mut out = [0; 20];
            pbkdf2_hmac_sha1(secret, salt, NonZeroU32::new(iterations).unwrap(), &mut out);
            out.iter().map(|x| format!("{x:02x}")).collect::<String>()
        };
        assert_eq!(derive(b"password", b"salt", 2), "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957");
        assert_eq!(
            derive(b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt", 4096),
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a96"
        );
    }
}
