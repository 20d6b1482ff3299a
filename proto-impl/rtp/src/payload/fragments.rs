//! Divides payloads into equal parts.

/// Divides `body` into the fewest pieces of at most `max` bytes, all of equal size except that the last may be
/// smaller. Each piece has two flags: true for the first piece, and true for the last.
pub(super) fn equal(body: &[u8], max: usize) -> impl Iterator<Item = (&[u8], bool, bool)> {
    pieces(body, equal_size(body.len(), max))
}

/// Divides `body` into pieces of `size` bytes, of which the last may be smaller. The flags are those of [`equal`].
pub(super) fn pieces(body: &[u8], size: usize) -> impl Iterator<Item = (&[u8], bool, bool)> {
    let size = size.max(1);
    let last = body.len().div_ceil(size).saturating_sub(1);
    body.chunks(size).enumerate().map(move |(n, piece)| (piece, n == 0, n == last))
}

/// Returns the size of the pieces if `length` bytes are divided into the fewest pieces of at most `max` bytes.
pub(super) const fn equal_size(length: usize, max: usize) -> usize {
    let max = if max == 0 { 1 } else { max };
    let count = length.div_ceil(max);
    if count == 0 { 1 } else { length.div_ceil(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_few_as_possible_and_of_one_size() {
        for length in 1..400usize {
            let body: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            for max in 1..60 {
                let pieces: Vec<_> = equal(&body, max).collect();
                assert!(pieces.len() <= length.div_ceil(max), "{length} {max}");
                let size = pieces[0].0.len();
                assert!(size <= max && pieces.iter().rev().skip(1).all(|(piece, _, _)| piece.len() == size));
                assert!(pieces.last().unwrap().0.len() <= size);
                assert_eq!(pieces.iter().flat_map(|(piece, _, _)| *piece).copied().collect::<Vec<_>>(), body);
                assert_eq!(pieces.iter().filter(|(_, first, _)| *first).count(), 1);
                assert!(pieces[0].1 && pieces.last().unwrap().2);
            }
        }
        assert_eq!(equal(&[], 10).count(), 0);
    }
}
