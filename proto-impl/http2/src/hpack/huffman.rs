//! The Huffman code of strings (RFC 7541 §5.2, Appendix B). The code is canonical, so it is defined by the lengths
//! of its codes.

/// Code length of each byte, and of the end-of-string symbol.
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
/// End-of-string symbol; only a prefix of its code is used, as padding.
const END: u16 = 256;
const BITS_MIN: u8 = 5;
const BITS_MAX: u8 = 30;

/// All codes of one length.
#[derive(Debug, Clone, Copy)]
struct Rank {
    /// First code of this length.
    code: u32,
    /// Number of codes of this length.
    count: u16,
    /// Index in the list of all symbols at which the symbols of these codes begin.
    at: u16,
}

/// Code tables, computed from the lengths at compile time.
struct Tables {
    ranks: [Rank; 31],
    symbols: [u16; 257],
    codes: [u32; 257],
}

static TABLES: Tables = tables();

#[allow(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which refuses an index that is out of bounds"
)]
const fn tables() -> Tables {
    let mut ranks = [Rank { code: 0, count: 0, at: 0 }; 31];
    let (mut symbols, mut codes) = ([0; 257], [0; 257]);
    let (mut bits, mut code, mut at) = (BITS_MIN, 0u32, 0u16);
    let mut place = 0;
    while bits <= BITS_MAX {
        let mut rank = Rank { code, count: 0, at };
        let (mut symbol, mut index) = (0u16, 0);
        while symbol <= END {
            if BITS[index] == bits {
                symbols[place] = symbol;
                codes[index] = code;
                code += 1;
                at += 1;
                place += 1;
                rank.count += 1;
            }
            symbol += 1;
            index += 1;
        }
        let mut slot = 0;
        let mut length = 0;
        while length < bits {
            length += 1;
            slot += 1;
        }
        ranks[slot] = rank;
        code <<= 1;
        bits += 1;
    }
    Tables { ranks, symbols, codes }
}

/// Decodes a string. `None` for an invalid code, an end-of-string symbol inside, or padding that is not a prefix of
/// that symbol (RFC 7541 §5.2).
pub(super) fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has five bits.
    let mut decoded = Vec::with_capacity(encoded.len().saturating_mul(8) / 5);
    let (mut window, mut bits): (u64, u8) = (0, 0);
    let mut rest = encoded.iter();
    loop {
        while bits <= 48
            && let Some(byte) = rest.next()
        {
            window = (window << 8) | u64::from(*byte);
            bits = bits.saturating_add(8);
        }
        match symbol(window, bits) {
            Some((symbol, used)) => {
                decoded.push(u8::try_from(symbol).ok()?);
                bits = bits.checked_sub(used)?;
                window &= mask(bits);
            }
            None => break,
        }
    }
    (bits < 8 && window == mask(bits)).then_some(decoded)
}

/// Returns the symbol whose code begins the last `bits` bits of `window`, and the length of the code.
fn symbol(window: u64, bits: u8) -> Option<(u16, u8)> {
    (BITS_MIN..=BITS_MAX.min(bits)).find_map(|length| {
        let rank = TABLES.ranks.get(usize::from(length))?;
        let code = u32::try_from(window >> bits.checked_sub(length)?).ok()?;
        let offset =
            u16::try_from(code.checked_sub(rank.code)?).ok().filter(|offset| *offset < rank.count)?;
        let symbol = TABLES.symbols.get(usize::from(rank.at.checked_add(offset)?))?;
        Some((*symbol, length))
    })
}

const fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1u64 << bits) - 1 }
}

/// Returns the length of a string when encoded.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits = |byte: &u8| BITS.get(usize::from(*byte)).map_or(0, |bits| usize::from(*bits));
    text.iter().map(bits).sum::<usize>().div_ceil(8)
}

/// Appends an encoded string.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut bits): (u64, u8) = (0, 0);
    for byte in text {
        let index = usize::from(*byte);
        let (Some(code), Some(length)) = (TABLES.codes.get(index), BITS.get(index)) else { continue };
        window = (window << *length) | u64::from(*code);
        bits = bits.saturating_add(*length);
        while bits >= 8 {
            bits -= 8;
            out.extend(u8::try_from((window >> bits) & 0xff));
        }
        window &= mask(bits);
    }
    if bits > 0 {
        let padding = 8u8.saturating_sub(bits);
        out.extend(u8::try_from(((window << padding) | mask(padding)) & 0xff));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_code_is_complete() {
        let used: u64 = BITS.iter().map(|bits| 1u64 << (30 - *bits)).sum();
        assert_eq!(used, 1 << 30, "Kraft's sum is one");
        // Some codes from the beginning, middle and end of RFC 7541, Appendix B.
        for (symbol, code) in [
            (0, 0x1ff8),
            (9, 0xff_ffea),
            (48, 0x0),
            (88, 0xfc),
            (92, 0x7fff0),
            (122, 0x7b),
            (127, 0xfff_fffc),
            (128, 0xf_ffe6),
            (249, 0xfff_fffe),
            (255, 0x3ff_ffee),
            (256, 0x3fff_ffff),
        ] {
            assert_eq!(TABLES.codes[symbol], code, "{symbol}");
        }
    }

    #[test]
    fn padding_is_short_and_all_ones() {
        // "a" is 00011.
        assert_eq!(decode(&[0b0001_1111]).as_deref(), Some(&b"a"[..]));
        for wrong in [&[0b0001_1110][..], &[0b0001_1111, 0xff], &[0xff; 4], &[0xff], &[0b0001_1011]] {
            assert_eq!(decode(wrong), None, "{wrong:02x?}");
        }
        assert_eq!(decode(&[]).as_deref(), Some(&[][..]));
    }

    proptest! {
        #[test]
        fn strings_come_back(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(out.len(), encoded_len(&text));
            prop_assert_eq!(decode(&out), Some(text));
        }

        #[test]
        fn each_string_has_one_code(code in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(text) = decode(&code) {
                let mut out = Vec::new();
                encode(&text, &mut out);
                prop_assert_eq!(out, code);
            }
        }
    }
}
