//! Cuts an input into pieces by its first byte.

/// Maximum number of bytes of an input that are used. More would reach nothing new.
pub(crate) const INPUT_MAX: usize = 64 * 1024;

/// Takes off the first byte, which seeds the cuts and carries flags.
pub(crate) fn head(data: &[u8]) -> Option<(u8, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((*first, rest.get(..INPUT_MAX).unwrap_or(rest)))
}

/// Cuts bytes into pieces; the seed 0 cuts at every byte.
pub(crate) fn pieces(seed: u8, mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut state = u32::from(seed);
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let most = if seed == 0 { 1 } else { 1usize << (seed % 8) };
        let length = 1 + (state >> 16) as usize % most;
        let (piece, rest) = bytes.split_at(length.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
