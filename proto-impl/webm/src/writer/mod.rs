//! Writers of the head of a file and of its clusters. The caller must not pass a codec that WebM does not support.

mod cluster;
mod tracks;

use bytes::{BufMut, Bytes, BytesMut};

pub(crate) use self::cluster::{BLOCK_HEAD_BYTES, KEY_FRAME};
pub use self::cluster::{Block, clusters};
pub use self::tracks::{Description, carries};
use crate::ebml::{UNKNOWN_SIZE, VOID_HEAD_BYTES, put_binary, put_id, put_master, put_uint, put_void};
use crate::id;

/// Duration of a tick in nanoseconds: a millisecond.
pub(crate) const TIMESTAMP_SCALE: u64 = 1_000_000;
/// Length in bytes of a `Duration`, and of the `Void` that is written before the duration is known.
pub(crate) const DURATION_BYTES: usize = 2 + 1 + 8;
/// Length in bytes of the `SeekHead` of a finished file: its header, and three `Seek` elements with an ID of four bytes
/// and a position of eight.
pub(crate) const SEEK_HEAD_BYTES: usize = VOID_HEAD_BYTES + 3 * (3 + (3 + 4) + (3 + 8));
/// Name of the program in a file.
const APP: &[u8] = b"millstream";
/// Version of Matroska that has `CodecDelay`.
const DOC_TYPE_VERSION: u64 = 4;
/// Version of Matroska that a reader needs for `SimpleBlock`.
const DOC_TYPE_READ_VERSION: u64 = 2;

/// Writes the head of a file that is being recorded, with `room` bytes for elements that a finished file has before
/// `Info`. The segment has an unknown size and no duration.
#[must_use]
pub fn recording_head(tracks: &[Description], room: usize) -> Bytes {
    let mut out = BytesMut::new();
    put_master(&mut out, id::EBML, |out| {
        put_uint(out, id::EBML_VERSION, 1);
        put_uint(out, id::EBML_READ_VERSION, 1);
        put_uint(out, id::EBML_MAX_ID_LENGTH, 4);
        put_uint(out, id::EBML_MAX_SIZE_LENGTH, 8);
        put_binary(out, id::DOC_TYPE, b"webm");
        put_uint(out, id::DOC_TYPE_VERSION, DOC_TYPE_VERSION);
        put_uint(out, id::DOC_TYPE_READ_VERSION, DOC_TYPE_READ_VERSION);
    });
    put_id(&mut out, id::SEGMENT);
    out.put_slice(&UNKNOWN_SIZE);
    put_void(&mut out, room.max(VOID_HEAD_BYTES));
    put_master(&mut out, id::INFO, |out| {
        put_uint(out, id::TIMESTAMP_SCALE, TIMESTAMP_SCALE);
        put_binary(out, id::MUXING_APP, APP);
        put_binary(out, id::WRITING_APP, APP);
        put_void(out, DURATION_BYTES);
    });
    put_master(&mut out, id::TRACKS, |out| tracks.iter().for_each(|track| track.put(out)));
    out.freeze()
}
