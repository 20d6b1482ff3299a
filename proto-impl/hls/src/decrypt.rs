//! AES-128 decryption of segments (RFC 8216 §4.3.2.4) as they arrive.

use bytes::Bytes;
use crypto::AesCbcOpener;

const BLOCK: usize = 16;

/// The decryption of one segment or initialization section.
#[derive(Debug)]
pub(crate) struct Decrypter {
    opener: AesCbcOpener,
    /// Bytes not decrypted yet: 1 to 16 of them, since the last block may contain the padding.
    rest: Vec<u8>,
}

impl Decrypter {
    pub(crate) fn new(key: [u8; BLOCK], initial: [u8; BLOCK]) -> Option<Self> {
        Some(Self { opener: AesCbcOpener::new(&key, initial)?, rest: Vec::new() })
    }

    /// Decrypts the bytes that are complete blocks, except for the last block.
    pub(crate) fn update(&mut self, piece: &[u8]) -> Bytes {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(piece);
        let whole = all.len().saturating_sub(1) / BLOCK * BLOCK;
        self.rest = all.split_off(whole);
        // `all` is a whole number of blocks. If decryption failed nonetheless, no encrypted bytes would be
        // passed on.
        if self.opener.open(&mut all) { all.into() } else { Bytes::new() }
    }

    /// Decrypts the last block and removes its padding (RFC 5652 §6.3). `None` if the block or the padding is
    /// invalid.
    pub(crate) fn finish(mut self) -> Option<Bytes> {
        if self.rest.len() != BLOCK || !self.opener.open(&mut self.rest) {
            return None;
        }
        let padding = usize::from(*self.rest.last()?);
        let kept = BLOCK.checked_sub(padding).filter(|kept| *kept < BLOCK)?;
        let is_padded = self.rest.iter().skip(kept).all(|byte| usize::from(*byte) == padding);
        self.rest.truncate(kept);
        is_padded.then(|| self.rest.into())
    }
}

/// Output of `openssl enc -aes-128-cbc` for the bytes 0 to 19, with a key and a vector of zeros.
#[cfg(test)]
pub(crate) const SEALED: [u8; 32] = [
    0x7a, 0xca, 0x0f, 0xd9, 0xbc, 0xd6, 0xec, 0x7c, 0x9f, 0x97, 0x46, 0x66, 0x16, 0xe6, 0xa2, 0x82, 0x03,
    0x05, 0xbd, 0x3d, 0xb5, 0xc7, 0xbe, 0x94, 0x15, 0x11, 0x02, 0x60, 0x6b, 0xa1, 0x63, 0xbe,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_opens_the_same() {
        for cut in 0..=SEALED.len() {
            let mut decrypter = Decrypter::new([0; 16], [0; 16]).unwrap();
            let mut out = decrypter.update(&SEALED[..cut]).to_vec();
            out.extend_from_slice(&decrypter.update(&SEALED[cut..]));
            out.extend_from_slice(&decrypter.finish().unwrap());
            assert_eq!(out, (0..20).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn what_is_cut_off_or_has_no_padding_is_noticed() {
        for end in 0..SEALED.len() {
            let mut decrypter = Decrypter::new([0; 16], [0; 16]).unwrap();
            decrypter.update(&SEALED[..end]);
            assert_eq!(decrypter.finish(), None, "{end}");
        }
    }
}
