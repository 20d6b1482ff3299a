//! Chunks of an earlier run that follow one another.
//!
//! The list of the newest segments that a crash leaves behind may overlap chunks written after it, or reach further
//! than they do. The chunks are therefore not simply taken in order: of all paths from list to list, the one that
//! ends last is used; of those, the one that begins first, preferably without cutting a list.

use std::cmp::Reverse;

use super::Chunk;

/// A chunk, with the number and the date at which the next one begins.
type Link = (Chunk, Option<(u64, i64)>);

/// The best continuation from a chunk.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// The number after the last segment of the continuation.
    end: u64,
    /// True if the next chunk begins where this one ends, so that no list is cut.
    is_exact: bool,
    next: Option<usize>,
}

/// Returns the best chain of chunks, in which each chunk continues the one before it, oldest first; and all other
/// chunks.
pub(super) fn of(mut chunks: Vec<Chunk>) -> (Vec<Link>, Vec<Chunk>) {
    chunks.sort_by_key(|chunk| (chunk.mark.number, chunk.mark.segments));
    // Computed from the last chunk to the first, because each continuation needs those of later chunks.
    let mut ways: Vec<Way> = Vec::with_capacity(chunks.len());
    for (at, chunk) in chunks.iter().enumerate().rev() {
        let way = way_from(chunk, chunks.iter().enumerate().skip(at.saturating_add(1)), |at| {
            let behind = chunks.len().checked_sub(at.checked_add(1)?)?;
            ways.get(behind).copied()
        });
        ways.push(way);
    }
    ways.reverse();
    let firsts = ways.iter().zip(&chunks).enumerate();
    let best = firsts.max_by_key(|(_, (way, chunk))| (way.end, Reverse(chunk.mark.number), way.is_exact));
    let mut at = best.map(|(at, _)| at);
    let begins: Vec<(u64, i64)> =
        chunks.iter().map(|chunk| (chunk.mark.number, chunk.mark.begin_ms)).collect();
    let (mut chain, mut others) = (Vec::new(), Vec::new());
    for (index, chunk) in chunks.into_iter().enumerate() {
        if at == Some(index) {
            at = ways.get(index).and_then(|way| way.next);
            chain.push((chunk, at.and_then(|next| begins.get(next).copied())));
        } else {
            others.push(chunk);
        }
    }
    (chain, others)
}

fn way_from<'c>(
    chunk: &Chunk,
    behind: impl Iterator<Item = (usize, &'c Chunk)>,
    way_of: impl Fn(usize) -> Option<Way>,
) -> Way {
    let end = chunk.end();
    let near = behind.take_while(|(_, next)| next.mark.number <= end);
    let steps = near.filter(|(_, next)| is_followed(chunk, next)).filter_map(|(at, next)| {
        let way = way_of(at).filter(|way| way.end > end)?;
        Some((way, next.mark.number == end, at))
    });
    match steps.max_by_key(|(way, is_exact, _)| (way.end, *is_exact, way.is_exact)) {
        Some((way, is_exact, at)) => Way { end: way.end, is_exact, next: Some(at) },
        None => Way { end, is_exact: true, next: None },
    }
}

/// True if `next` begins where `chunk` ends, or at one of its segments.
fn is_followed(chunk: &Chunk, next: &Chunk) -> bool {
    let steps = next.mark.number.saturating_sub(chunk.mark.number);
    let is_at_end = steps == chunk.mark.segments;
    let is_within = || usize::try_from(steps).is_ok_and(|at| chunk.uris().nth(at) == next.uris().next());
    steps > 0 && chunk.mark.target == next.mark.target && (is_at_end || is_within())
}
