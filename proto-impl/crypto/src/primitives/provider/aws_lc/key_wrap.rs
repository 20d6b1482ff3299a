//! AES key wrap. The library supports it with AES-128 and AES-256. For AES-192 this module performs the steps of RFC
//! 3394 §2.2 with the library's block cipher.

use aws_lc_rs::key_wrap::{AES_128, AES_256, AesKek, KeyWrap};

use super::cipher::Block;
use crate::primitives::aes::BLOCK_BYTES;
use crate::primitives::key_wrap::CHECK_BYTES;
use crate::{AesKeyLength, constant_time_eq};

/// Initial value of the integrity check (RFC 3394 §2.2.3.1).
const INITIAL_VALUE: [u8; CHECK_BYTES] = [0xa6; CHECK_BYTES];
/// Number of passes over the registers (RFC 3394 §2.2.1).
const PASSES: u64 = 6;

pub(super) fn wrap(kek: &[u8], key: &[u8], out: &mut [u8]) -> Option<()> {
    match AesKeyLength::from_bytes(kek.len())? {
        AesKeyLength::Bytes16 => AesKek::new(&AES_128, kek).ok()?.wrap(key, out).ok().map(drop),
        AesKeyLength::Bytes32 => AesKek::new(&AES_256, kek).ok()?.wrap(key, out).ok().map(drop),
        AesKeyLength::Bytes24 => wrap_by_steps(&Block::new(kek)?, key, out),
    }
}

pub(super) fn unwrap(kek: &[u8], wrapped: &[u8], out: &mut [u8]) -> Option<()> {
    match AesKeyLength::from_bytes(kek.len())? {
        AesKeyLength::Bytes16 => AesKek::new(&AES_128, kek).ok()?.unwrap(wrapped, out).ok().map(drop),
        AesKeyLength::Bytes32 => AesKek::new(&AES_256, kek).ok()?.unwrap(wrapped, out).ok().map(drop),
        AesKeyLength::Bytes24 => unwrap_by_steps(&Block::new(kek)?, wrapped, out),
    }
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
fn wrap_by_steps(cipher: &Block, key: &[u8], out: &mut [u8]) -> Option<()> {
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
    let (head, rest) = out.split_first_chunk_mut::<CHECK_BYTES>()?;
    *head = check;
    copy(&registers, rest)
}

/// Unwraps a key with the steps of RFC 3394 §2.2.2.
fn unwrap_by_steps(cipher: &Block, wrapped: &[u8], out: &mut [u8]) -> Option<()> {
    let (check, rest) = wrapped.split_first_chunk::<CHECK_BYTES>()?;
    let (mut check, mut registers) = (*check, registers(rest));
    let count = u64::try_from(registers.len()).ok()?;
    let mut step = count.saturating_mul(PASSES);
    for _ in 0..PASSES {
        for register in registers.iter_mut().rev() {
            let mut block = join(with_step(check, step), *register);
            cipher.decrypt(&mut block).then_some(())?;
            step = step.wrapping_sub(1);
            (check, *register) = split(block);
        }
    }
    constant_time_eq(&check, &INITIAL_VALUE).then_some(())?;
    copy(&registers, out)
}

/// Copies the registers to `out`, which has their length.
fn copy(registers: &[[u8; 8]], out: &mut [u8]) -> Option<()> {
    let bytes = registers.as_flattened();
    (bytes.len() == out.len()).then(|| out.copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the steps with the library, for the key lengths that the library supports.
    #[test]
    fn own_steps_agree_with_the_library() {
        for kek_bytes in [16usize, 32] {
            let (kek, key) = (vec![7; kek_bytes], (0..48).collect::<Vec<u8>>());
            let cipher = Block::new(&kek).unwrap();
            let (mut library, mut steps, mut unwrapped) = ([0; 56], [0; 56], [0; 48]);
            wrap(&kek, &key, &mut library).unwrap();
            wrap_by_steps(&cipher, &key, &mut steps).unwrap();
            assert_eq!(library, steps);
            unwrap_by_steps(&cipher, &steps, &mut unwrapped).unwrap();
            assert_eq!(unwrapped[..], key);
        }
    }
}
