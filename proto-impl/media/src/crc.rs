//! The checksum at the end of MPEG-TS sections.

/// Returns the CRC-32 of ISO/IEC 13818-1 annex A. Over a section that includes its checksum, the
/// result is zero.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
            if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_that_of_the_standard() {
        // The check value of CRC-32/MPEG-2.
        assert_eq!(crc32(b"123456789"), 0x0376_e6e7);
        assert_eq!(crc32(&[b"123456789", &0x0376_e6e7u32.to_be_bytes()[..]].concat()), 0);
    }
}
