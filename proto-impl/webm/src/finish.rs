//! Steps that make a recorded file seekable. After each step the file can be played, and the remaining steps can
//! still be performed.
//!
//! 1. The size of the last cluster is corrected, so that the cluster ends with its last whole block. The caller has
//!    truncated the file there.
//! 2. `Cues` is written after the media, unless it fits into the room: the space kept free before `Info`.
//! 3. The duration is written, and the content of the room except for its first nine bytes.
//! 4. The first nine bytes of the room are written: a `SeekHead` replaces the `Void`.
//! 5. The size of the segment is written. The file is then finished.

use bytes::{BufMut, Bytes, BytesMut};

use crate::ebml::{
    VOID_HEAD_BYTES, WIDE_SIZE_BYTES, put_binary, put_float, put_id, put_master, put_size, put_uint, put_void,
};
use crate::indexer::{Cue, Indexed};
use crate::writer::{DURATION_BYTES, SEEK_HEAD_BYTES};
use crate::{Error, id};

/// Bytes that overwrite a part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Offset of the patch in the file.
    pub at: u64,
    /// Bytes of the patch.
    pub bytes: Bytes,
}

/// Length in bytes of the size of `SeekHead`. Its header is as long as that of the `Void` that it replaces.
const SEEK_HEAD_SIZE_BYTES: usize = VOID_HEAD_BYTES - 4;

/// Returns the steps that finish a file. All patches of a step must be on the disk before the next step begins. The
/// caller must first truncate the file to `indexed.end`.
///
/// # Errors
/// Returns an error if the file has no room before `Info`.
pub fn finish(indexed: &Indexed) -> Result<Vec<Vec<Patch>>, Error> {
    let cues = cues(indexed);
    let (front, behind) = match front(indexed, &cues, true)? {
        Some(front) => (front, None),
        None => (front(indexed, &cues, false)?.ok_or(Error::Invalid("room"))?, Some(cues)),
    };
    let end = indexed.end.saturating_add(behind.as_ref().map_or(0, |cues| cues.len() as u64));
    let mut steps = Vec::new();
    if let Some((at, size)) = indexed.torn {
        steps.push(vec![Patch { at, bytes: wide_size(size) }]);
    }
    if let Some(cues) = behind {
        steps.push(vec![Patch { at: indexed.end, bytes: cues }]);
    }
    let (first, rest) = front.split_at_checked(VOID_HEAD_BYTES).ok_or(Error::Invalid("room"))?;
    let mut step = vec![Patch {
        at: indexed.segment_at.saturating_add(VOID_HEAD_BYTES as u64),
        bytes: Bytes::copy_from_slice(rest),
    }];
    step.extend(indexed.duration_at.map(|at| Patch { at, bytes: duration(indexed.duration_ms) }));
    steps.push(step);
    steps.push(vec![Patch { at: indexed.segment_at, bytes: Bytes::copy_from_slice(first) }]);
    let size_at = indexed.segment_at.saturating_sub(WIDE_SIZE_BYTES as u64);
    let size = end.saturating_sub(indexed.segment_at);
    steps.push(vec![Patch { at: size_at, bytes: wide_size(size) }]);
    Ok(steps)
}

fn wide_size(size: u64) -> Bytes {
    let mut out = BytesMut::new();
    put_size(&mut out, size, WIDE_SIZE_BYTES);
    out.freeze()
}

fn duration(ms: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(DURATION_BYTES);
    #[allow(clippy::cast_precision_loss, reason = "exact for longer than a file can last")]
    put_float(&mut out, id::DURATION, ms as f64);
    out.freeze()
}

/// Makes the `Cues` (RFC 9559 §5.1.5). It lists the clusters that a player can seek to, by their positions in the
/// segment.
fn cues(indexed: &Indexed) -> Bytes {
    let mut out = BytesMut::new();
    put_master(&mut out, id::CUES, |out| {
        for Cue { track, at_ms, cluster_at } in &indexed.cues {
            put_master(out, id::CUE_POINT, |out| {
                put_uint(out, id::CUE_TIME, *at_ms);
                put_master(out, id::CUE_TRACK_POSITIONS, |out| {
                    put_uint(out, id::CUE_TRACK, u64::from(*track));
                    put_uint(out, id::CUE_CLUSTER_POSITION, cluster_at.saturating_sub(indexed.segment_at));
                });
            });
        }
    });
    out.freeze()
}

/// Makes the bytes between the beginning of the segment and `Info`. Returns `None` if they do not fit.
fn front(indexed: &Indexed, cues: &Bytes, with_cues: bool) -> Result<Option<BytesMut>, Error> {
    let room = indexed.info_at.saturating_sub(indexed.segment_at);
    let room = usize::try_from(room).map_err(|_| Error::Invalid("room"))?;
    let cues_at =
        if with_cues { indexed.segment_at.saturating_add(SEEK_HEAD_BYTES as u64) } else { indexed.end };
    let within = |at: u64| at.saturating_sub(indexed.segment_at);
    let mut out = seek_head([indexed.info_at, indexed.tracks_at, cues_at].map(within));
    let in_front = if with_cues { cues.len() } else { 0 };
    // The rest of the room becomes a `Void`, so there must be enough for its header.
    let left = room.checked_sub(SEEK_HEAD_BYTES).and_then(|room| room.checked_sub(in_front));
    let Some(left) = left.filter(|left| *left >= VOID_HEAD_BYTES) else { return Ok(None) };
    if with_cues {
        out.put_slice(cues);
    }
    put_void(&mut out, left);
    Ok(Some(out))
}

/// Makes the element with the positions of `Info`, `Tracks` and `Cues` (RFC 9559 §5.1.1). Its length is constant.
fn seek_head(positions: [u64; 3]) -> BytesMut {
    let mut body = BytesMut::new();
    for (id, position) in [id::INFO, id::TRACKS, id::CUES].into_iter().zip(positions) {
        put_master(&mut body, id::SEEK, |out| {
            put_binary(out, id::SEEK_ID, &id.to_be_bytes());
            put_binary(out, id::SEEK_POSITION, &position.to_be_bytes());
        });
    }
    let mut out = BytesMut::new();
    put_id(&mut out, id::SEEK_HEAD);
    put_size(&mut out, body.len() as u64, SEEK_HEAD_SIZE_BYTES);
    out.put_slice(&body);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_head_has_one_length_wherever_it_leads() {
        assert_eq!(seek_head([0; 3]).len(), SEEK_HEAD_BYTES);
        assert_eq!(seek_head([1, 1 << 40, u64::MAX]).len(), SEEK_HEAD_BYTES);
    }
}
