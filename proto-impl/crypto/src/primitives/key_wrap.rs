//! AES key wrap (RFC 3394, NIST SP 800-38F KW).

use crate::primitives::provider::{Chosen, Provider};

/// Length of the integrity check value in bytes (RFC 3394 §2.2.3). A wrapped key is longer than the key by this
/// number.
pub(crate) const CHECK_BYTES: usize = 8;

/// Error of a failed unwrap: the wrapped key was damaged or wrapped with another key, or has an impossible length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUnwrapped;

/// Wraps `key` with a key encryption key of 16, 24 or 32 bytes. Returns `None` unless the length of `key` is a
/// multiple of 8 bytes, and at least 16 bytes.
#[must_use]
pub fn wrap_key(kek: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < 2 * CHECK_BYTES || !key.len().is_multiple_of(CHECK_BYTES) {
        return None;
    }
    let mut out = vec![0; key.len().checked_add(CHECK_BYTES)?];
    Chosen::wrap_key(kek, key, &mut out).then_some(out)
}

/// Unwraps a key. Fails unless the key was wrapped with `kek` and not changed since.
pub fn unwrap_key(kek: &[u8], wrapped: &[u8]) -> Result<Vec<u8>, NotUnwrapped> {
    let key_bytes = wrapped.len().checked_sub(CHECK_BYTES).ok_or(NotUnwrapped)?;
    if key_bytes < 2 * CHECK_BYTES || !key_bytes.is_multiple_of(CHECK_BYTES) {
        return Err(NotUnwrapped);
    }
    let mut out = vec![0; key_bytes];
    Chosen::unwrap_key(kek, wrapped, &mut out).then_some(out).ok_or(NotUnwrapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Checks the vectors of RFC 3394 §4.1 to §4.6.
    #[test]
    fn rfc_3394_vectors() {
        let kek = hex("000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F");
        let key = hex("00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F");
        for (kek_bytes, key_bytes, wrapped) in [
            (16, 16, "1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5"),
            (24, 16, "96778B25AE6CA435F92B5B97C050AED2468AB8A17AD84E5D"),
            (32, 16, "64E8C3F9CE0F5BA263E9777905818A2A93C8191E7D6E8AE7"),
            (24, 24, "031D33264E15D33268F24EC260743EDCE1C6C7DDEE725A936BA814915C6762D2"),
            (32, 24, "A8F9BC1612C68B3FF6E6F4FBE30E71E4769C8B80A32CB8958CD5D17D6B254DA1"),
            (32, 32, "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21"),
        ] {
            let (kek, key) = (&kek[..kek_bytes], &key[..key_bytes]);
            assert_eq!(wrap_key(kek, key).unwrap(), hex(wrapped));
            assert_eq!(unwrap_key(kek, &hex(wrapped)).unwrap(), key);
        }
    }

    #[test]
    fn any_damage_is_noticed_and_no_length_is_trusted() {
        for kek_bytes in [16usize, 24, 32] {
            let kek = vec![1; kek_bytes];
            let wrapped = wrap_key(&kek, &[9; 24]).unwrap();
            for at in 0..wrapped.len() {
                let mut damaged = wrapped.clone();
                damaged[at] ^= 1;
                assert_eq!(unwrap_key(&kek, &damaged), Err(NotUnwrapped));
            }
            for length in 0..80 {
                let _ = unwrap_key(&kek, &vec![3; length]);
                assert_eq!(wrap_key(&kek, &vec![3; length]).is_some(), length >= 16 && length % 8 == 0);
            }
        }
        assert!(wrap_key(&[0; 15], &[0; 16]).is_none());
    }

    /// Runs the Wycheproof cases of all key sizes. Valid cases are unwrapped and wrapped again, and invalid ones are
    /// refused.
    #[test]
    fn wycheproof_aes_wrap() {
        let mut counts = [0; 2];
        let bytes = |text: &str| if text == "-" { Vec::new() } else { hex(text) };
        for line in include_str!("wycheproof_aes_wrap.txt").lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let &[id, result, kek, key, wrapped] = &fields[..] else { panic!("{line}") };
            let (kek, key, wrapped) = (bytes(kek), bytes(key), bytes(wrapped));
            match result {
                "valid" => {
                    assert_eq!(unwrap_key(&kek, &wrapped).as_ref(), Ok(&key), "{id}");
                    assert_eq!(wrap_key(&kek, &key).as_ref(), Some(&wrapped), "{id}");
                    counts[0] += 1;
                }
                // Wycheproof calls keys of eight bytes "acceptable", but RFC 3394 does not allow them.
                _ => {
                    assert_eq!(unwrap_key(&kek, &wrapped), Err(NotUnwrapped), "{id} {result}");
                    counts[1] += 1;
                }
            }
        }
        assert_eq!(counts, [36, 129]);
    }
}
