//! Writes the head of a file, and its clusters. Writers assume: a codec that WebM has no place for is a mistake of the caller.

mod cluster;
mod tracks;

use bytes::{BufMut, Bytes, BytesMut};

pub(crate) use self::cluster::{BLOCK_HEAD_BYTES, KEY_FRAME};
pub use self::cluster::{Block, clusters};
pub use self::tracks::{Description, carries};
use crate::ebml::{UNKNOWN_SIZE, VOID_HEAD_BYTES, put_binary, put_id, put_master, put_uint, put_void};
use crate::id;

/// Nanoseconds of a tick: a millisecond.
pub(crate) const TIMESTAMP_SCALE: u64 = 1_000_000;
/// Bytes of a `Duration`, and of the `Void` in its place.
pub(crate) const DURATION_BYTES: usize = 2 + 1 + 8;
/// Bytes of the `SeekHead` of a finished file: its head, and three times a `Seek` with an ID of four bytes and a place of eight.
pub(crate) const SEEK_HEAD_BYTES: usize = VOID_HEAD_BYTES + 3 * (3 + (3 + 4) + (3 + 8));
/// The program that a file names.
const APP: &[u8] = b"millstream";
/// The version of Matroska that has `CodecDelay`; that which a reader of `SimpleBlock` needs.
const DOC_TYPE_VERSION: u64 = 4;
const DOC_TYPE_READ_VERSION: u64 = 2;

/// The head of a file that is written while its media comes: it has room of so many bytes for what a finished file has in front.
/// The segment has no known size, and the duration is not told.
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
