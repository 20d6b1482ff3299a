//! AES key wrap (RFC 3394, NIST SP 800-38F KW).
//!
//! The crypto library supports key wrap with AES-128 and AES-256. For AES-192 this module performs the steps of RFC
//! 3394 §2.2 with the library's block cipher.

use aws_lc_rs::key_wrap::{AES_128, AES_256, AesKek, KeyWrap};

use crate::aes::{AesBlock, AesKeyLength, BLOCK_BYTES};
use crate::constant_time_eq;

/// Length of the integrity check value in bytes (RFC 3394 §2.2.3). A wrapped key is longer than the key by this
/// number.
const CHECK_BYTES: usize = 8;
/// Initial value of the integrity check (RFC 3394 §2.2.3.1).
const INITIAL_VALUE: [u8; CHECK_BYTES] = [0xa6; CHECK_BYTES];
/// Number of passes over the registers (RFC 3394 §2.2.1).
const PASSES: u64 = 6;

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
    match AesKeyLength::from_bytes(kek.len())? {
        AesKeyLength::Bytes16 => AesKek::new(&AES_128, kek).ok()?.wrap(key, &mut out).ok().map(drop)?,
        AesKeyLength::Bytes32 => AesKek::new(&AES_256, kek).ok()?.wrap(key, &mut out).ok().map(drop)?,
        AesKeyLength::Bytes24 => out = wrap_by_steps(&AesBlock::new(kek)?, key)?,
    }
    Some(out)
}

/// Unwraps a key. Fails unless the key was wrapped with `kek` and not changed since.
pub fn unwrap_key(kek: &[u8], wrapped: &[u8]) -> Result<Vec<u8>, NotUnwrapped> {
    let key_bytes = wrapped.len().checked_sub(CHECK_BYTES).ok_or(NotUnwrapped)?;
    if key_bytes < 2 * CHECK_BYTES || !key_bytes.is_multiple_of(CHECK_BYTES) {
        return Err(NotUnwrapped);
    }
    let unwrap = |algorithm, out: &mut Vec<u8>| {
        let kek = AesKek::new(algorithm, kek).map_err(|_| NotUnwrapped)?;
        kek.unwrap(wrapped, out).map(drop).map_err(|_| NotUnwrapped)
    };
    let mut out = vec![0; key_bytes];
    match AesKeyLength::from_bytes(kek.len()).ok_or(NotUnwrapped)? {
        AesKeyLength::Bytes16 => unwrap(&AES_128, &mut out)?,
        AesKeyLength::Bytes32 => unwrap(&AES_256, &mut out)?,
        AesKeyLength::Bytes24 => {
            out = unwrap_by_steps(&AesBlock::new(kek).ok_or(NotUnwrapped)?, wrapped)?;
        }
    }
    Ok(out)
}

/// Joins the check register and a key register to a block.
fn join(check: [u8; 8], register: [u8; 8]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let (left, right) = block.split_at_mut(CHECK_BYTES);
    left.copy_from_slice(&check);
    right.copy_from_slice(&register);
    block
}

fn split(block: [u8; BLOCK_BYTES]) -> ([u8; 8], [u8; 8]) {
    let number = u128::from_be_bytes(block);
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a block")]
    let (left, right) = ((number >> 64) as u64, number as u64);
    (left.to_be_bytes(), right.to_be_bytes())
}

/// Combines the number of the step with the check register (RFC 3394 §2.2.1, step 2).
fn with_step(check: [u8; 8], step: u64) -> [u8; 8] {
    (u64::from_be_bytes(check) ^ step).to_be_bytes()
}

fn registers(bytes: &[u8]) -> Vec<[u8; 8]> {
    bytes.as_chunks::<8>().0.to_vec()
}

/// Wraps a key with the steps of RFC 3394 §2.2.1.
fn wrap_by_steps(cipher: &AesBlock, key: &[u8]) -> Option<Vec<u8>> {
    let (mut check, mut registers, mut step) = (INITIAL_VALUE, registers(key), 0u64);
    for _ in 0..PASSES {
        for register in &mut registers {
            let mut block = join(check, *register);
            cipher.encrypt(&mut block).then_some(())?;
            step = step.wrapping_add(1);
            let (left, right) = split(block);
            check = with_step(left, step);
            *register = right;
        }
    }
    Some([&check[..], registers.as_flattened()].concat())
}

/// Unwraps a key with the steps of RFC 3394 §2.2.2.
fn unwrap_by_steps(cipher: &AesBlock, wrapped: &[u8]) -> Result<Vec<u8>, NotUnwrapped> {
    let (check, rest) = wrapped.split_first_chunk::<CHECK_BYTES>().ok_or(NotUnwrapped)?;
    let (mut check, mut registers) = (*check, registers(rest));
    let count = u64::try_from(registers.len()).map_err(|_| NotUnwrapped)?;
    let mut step = count.saturating_mul(PASSES);
    for _ in 0..PASSES {
        for register in registers.iter_mut().rev() {
            let mut block = join(with_step(check, step), *register);
            if !cipher.decrypt(&mut block) {
                return Err(NotUnwrapped);
            }
            step = step.wrapping_sub(1);
            (check, *register) = split(block);
        }
    }
    if !constant_time_eq(&check, &INITIAL_VALUE) {
        return Err(NotUnwrapped);
    }
    Ok(registers.as_flattened().to_vec())
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

    /// Compares this module's own steps with the library, for the key lengths that the library supports.
    #[test]
    fn own_steps_agree_with_the_library() {
        for kek_bytes in [16usize, 32] {
            let (kek, key) = (vec![7; kek_bytes], (0..48).collect::<Vec<u8>>());
            let cipher = AesBlock::new(&kek).unwrap();
            let wrapped = wrap_key(&kek, &key).unwrap();
            assert_eq!(wrap_by_steps(&cipher, &key).unwrap(), wrapped);
            assert_eq!(unwrap_by_steps(&cipher, &wrapped).unwrap(), key);
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
