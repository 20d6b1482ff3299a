//! Clusters of simple blocks (RFC 9559 §5.1.3, §10.2).
//!
//! ```text
//! SimpleBlock: track (VINT) | time relative to the cluster (16) | key frame (1) 0(3) invisible(1) lacing(2) discardable(1) | frame
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::ebml::{WIDE_SIZE_BYTES, put_id, put_size, put_uint, size_bytes};
use crate::id;

/// Number of bytes of a block before its frame. Tracks have numbers up to 126.
pub(crate) const BLOCK_HEAD_BYTES: usize = 1 + 2 + 1;
/// Flag of a frame at which decoding can begin.
pub(crate) const KEY_FRAME: u8 = 0x80;

/// Frame of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Number of the track.
    pub track: u8,
    /// Presentation time in milliseconds of the file, including the track's `CodecDelay`. Must not be negative.
    pub at_ms: i64,
    /// True if decoding can begin with this frame.
    pub key_frame: bool,
    /// Encoded frame.
    pub frame: Bytes,
}

/// Writes blocks as clusters, in the order given. A new cluster begins at each key frame of the leading track, so that
/// players can seek to it, and where the time since the cluster's beginning does not fit 16 bits.
#[must_use]
pub fn clusters(blocks: &[Block], lead: Option<u8>) -> Vec<Bytes> {
    let mut slices = Vec::with_capacity(blocks.len().saturating_mul(2));
    let mut rest = blocks;
    while let Some((first, others)) = rest.split_first() {
        let goes_on = |block: &Block| {
            relative(block, first).is_some() && !(block.key_frame && Some(block.track) == lead)
        };
        let length = others.iter().take_while(|block| goes_on(block)).count().saturating_add(1);
        let (cluster, next) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        put_cluster(&mut slices, first, cluster);
        rest = next;
    }
    slices
}

/// Returns the time of a block relative to the cluster that begins with `first`.
fn relative(block: &Block, first: &Block) -> Option<i16> {
    i16::try_from(block.at_ms.checked_sub(first.at_ms)?).ok()
}

fn put_cluster(slices: &mut Vec<Bytes>, first: &Block, blocks: &[Block]) {
    let mut out = BytesMut::with_capacity(64);
    put_uint(&mut out, id::TIMESTAMP, u64::try_from(first.at_ms).unwrap_or(0));
    let timestamp = out.split();
    let body_bytes = |block: &Block| block.frame.len().saturating_add(BLOCK_HEAD_BYTES) as u64;
    let element_bytes = |block: &Block| {
        let body = body_bytes(block);
        body.saturating_add(size_bytes(body) as u64).saturating_add(1)
    };
    let size = blocks.iter().map(element_bytes).fold(timestamp.len() as u64, u64::saturating_add);
    put_id(&mut out, id::CLUSTER);
    // The size field has its maximum length, because it is overwritten if a crash leaves the cluster incomplete.
    put_size(&mut out, size, WIDE_SIZE_BYTES);
    out.put_slice(&timestamp);
    for block in blocks {
        let body = body_bytes(block);
        put_id(&mut out, id::SIMPLE_BLOCK);
        put_size(&mut out, body, size_bytes(body));
        put_size(&mut out, block.track.into(), 1);
        out.put_i16(relative(block, first).unwrap_or(0));
        out.put_u8(if block.key_frame { KEY_FRAME } else { 0 });
        slices.push(out.split().freeze());
        slices.push(block.frame.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block, blocks};

    fn written(blocks: &[Block], lead: Option<u8>) -> (usize, Vec<Block>) {
        let file = clusters(blocks, lead).concat();
        let found = crate::testing::blocks(&file);
        (
            found.iter().map(|(cluster, _)| cluster).max().map_or(0, |last| last + 1),
            found.into_iter().map(|(_, block)| block).collect(),
        )
    }

    #[test]
    fn a_cluster_begins_with_each_key_frame_of_the_lead() {
        let all = vec![
            block(1, 0, true),
            block(2, 0, true),
            block(1, 33, false),
            block(2, 20, true),
            block(1, 66, true),
            block(2, 40, true),
        ];
        assert_eq!(written(&all, Some(1)), (2, all.clone()));
        assert_eq!(written(&all, None), (1, all));
        assert!(clusters(&[], None).is_empty());
    }

    #[test]
    fn times_are_relative_to_the_cluster_and_may_lie_before_it() {
        let near = vec![block(1, 40_000, true), block(2, 40_000 - 32_768, true), block(1, 72_767, false)];
        assert_eq!(written(&near, Some(1)), (1, near));
        for (far, clusters) in [(40_000 - 32_769, 2), (72_768, 2), (0, 2), (i64::MAX, 2)] {
            let all = vec![block(1, 40_000, true), block(2, far, true)];
            assert_eq!(written(&all, Some(1)), (clusters, all), "{far}");
        }
    }

    #[test]
    fn frames_of_any_length_are_whole() {
        for length in [0, 1, 122, 123, 124, 16_378, 16_379, 100_000] {
            let all = [Block { frame: vec![7; length].into(), ..block(3, 5, false) }];
            let file = clusters(&all, None).concat();
            assert_eq!(blocks(&file), [(0, all[0].clone())], "{length}");
        }
    }
}
