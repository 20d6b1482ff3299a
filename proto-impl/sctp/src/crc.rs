//! CRC32c (RFC 9260 appendix A): the Castagnoli polynomial, reflected.

const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRCs of each byte value, followed by no, one, two or three zero bytes.
static TABLES: [[u32; 256]; 4] = tables();

#[allow(clippy::indexing_slicing, reason = "computed by the compiler, which checks it")]
const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let (mut at, mut byte) = (0, 0);
    while at < 256 {
        let (mut sum, mut bit): (u32, u32) = (byte, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][at] = sum;
        at += 1;
        byte += 1;
    }
    let mut table = 1;
    while table < 4 {
        let mut at = 0;
        while at < 256 {
            let before: u32 = tables[table - 1][at];
            let [low, ..] = before.to_le_bytes();
            let mut index = 0;
            let mut count = 0;
            while count < low {
                index += 1;
                count += 1;
            }
            tables[table][at] = (before >> 8) ^ tables[0][index];
            at += 1;
        }
        table += 1;
    }
    tables
}

fn look(table: usize, byte: u8) -> u32 {
    TABLES.get(table).and_then(|table| table.get(usize::from(byte))).copied().unwrap_or_default()
}

/// Returns the checksum of the concatenated `parts`.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut sum = u32::MAX;
    for part in parts {
        let (words, rest) = part.as_chunks::<4>();
        for word in words {
            let [a, b, c, d] = (sum ^ u32::from_le_bytes(*word)).to_le_bytes();
            sum = look(3, a) ^ look(2, b) ^ look(1, c) ^ look(0, d);
        }
        for byte in rest {
            let [low, ..] = sum.to_le_bytes();
            sum = (sum >> 8) ^ look(0, low ^ byte);
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the vectors of RFC 3720 appendix B.4.
    #[test]
    fn sums_are_those_of_the_standard() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        for (bytes, sum) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(&[bytes]), sum, "{bytes:?}");
            let (head, tail) = bytes.split_at(bytes.len() / 3);
            assert_eq!(crc32c(&[head, &[], tail]), sum, "in parts");
        }
    }
}
