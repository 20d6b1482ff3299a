//! MESSAGE-INTEGRITY with short-term credentials (RFC 8489 §14.5) and FINGERPRINT (§14.7).

use crypto::{HmacSha1Key, constant_time_eq};

use super::HEADER_BYTES;

/// Length of the HMAC.
pub(super) const INTEGRITY_BYTES: usize = 20;
/// Value XORed to the checksum: "STUN".
const FINGERPRINT_XOR: u32 = 0x5354_554e;

/// Returns the HMAC of a message whose MESSAGE-INTEGRITY begins at `at`. The HMAC is computed with the length
/// field of a message that ends with that attribute.
pub(super) fn integrity(bytes: &[u8], at: usize, key: &[u8]) -> Option<[u8; INTEGRITY_BYTES]> {
    let covered = bytes.get(..at)?;
    let (kind, rest) = covered.split_first_chunk::<2>()?;
    let (_, rest) = rest.split_first_chunk::<2>()?;
    let end = at.checked_add(4 + INTEGRITY_BYTES)?.checked_sub(HEADER_BYTES)?;
    let length = u16::try_from(end).ok()?.to_be_bytes();
    Some(HmacSha1Key::new(key).sign(&[kind, &length, rest]))
}

/// True if the HMAC at `at` is valid for `key`.
pub(super) fn verify(bytes: &[u8], at: usize, key: &[u8]) -> bool {
    let value = at.checked_add(4).and_then(|from| bytes.get(from..)?.get(..INTEGRITY_BYTES));
    match (value, integrity(bytes, at, key)) {
        (Some(value), Some(own)) => constant_time_eq(value, &own),
        _ => false,
    }
}

/// Returns the FINGERPRINT of the bytes before it.
pub(super) fn fingerprint(covered: &[u8]) -> u32 {
    crc32(covered) ^ FINGERPRINT_XOR
}

/// Computes the CRC-32 of ITU-T V.42 (RFC 8489 §14.7) byte by byte, which is enough for messages of about a
/// hundred bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0)
    };
    !bytes.iter().fold(u32::MAX, step)
}

const TABLE: [u32; 256] = table();

#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated by the compiler")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies the check value of CRC-32/ISO-HDLC.
    #[test]
    fn crc32_check_value() {
        assert_eq!((crc32(b"123456789"), crc32(b"")), (0xcbf4_3926, 0));
    }
}
