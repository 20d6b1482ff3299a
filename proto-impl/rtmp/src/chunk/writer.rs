//! The chunk writer. It has no state: every message starts with a full header (type 0), so the same bytes can be sent
//! to every viewer, whatever was sent to that viewer before.

use bytes::{BufMut, Bytes, BytesMut};

use super::{CHUNK_STREAM_MAX, EXTENDED, MessageHead};

/// Longest header, in bytes: 3 basic, 11 message, 4 extended timestamp.
const HEADER_BYTES_MAX: usize = 18;

/// Appends the chunks of one message to `out`.
///
/// The body is `prefix` (an FLV tag header) followed by `payload`. Headers and the prefix are written to `scratch`
/// and split off from it; the payload is sliced, not copied. An extended timestamp is repeated in every type 3
/// header. ffmpeg, librtmp and all servers do and expect this (§5.3.1.3).
pub fn write_message(
    scratch: &mut BytesMut,
    head: &MessageHead,
    prefix: &[u8],
    payload: &Bytes,
    chunk_size: usize,
    out: &mut Vec<Bytes>,
) {
    let chunk_size = chunk_size.max(1);
    let length = prefix.len().saturating_add(payload.len());
    let chunks = length.div_ceil(chunk_size).max(1);
    // Reserves enough for all headers, so that a message needs a single allocation. The first header is the largest.
    let headers = HEADER_BYTES_MAX.saturating_add(chunks.saturating_mul(7));
    scratch.reserve(headers.saturating_add(prefix.len()));
    put_full_header(scratch, head, length);
    let mut prefix = prefix;
    let mut at = 0usize;
    let mut room = chunk_size;
    loop {
        let (now, later) = prefix.split_at(prefix.len().min(room));
        scratch.put_slice(now);
        prefix = later;
        room = room.saturating_sub(now.len());
        let end = at.saturating_add(room).min(payload.len());
        if at < end {
            out.push(scratch.split().freeze());
            out.push(payload.slice(at..end));
            at = end;
        }
        if prefix.is_empty() && at >= payload.len() {
            break;
        }
        put_short_header(scratch, head);
        room = chunk_size;
    }
    if !scratch.is_empty() {
        out.push(scratch.split().freeze());
    }
}

/// Appends a header of type 0.
fn put_full_header(scratch: &mut BytesMut, head: &MessageHead, length: usize) {
    put_basic(scratch, 0, head.chunk_stream);
    put_u24(scratch, head.timestamp.min(EXTENDED));
    put_u24(scratch, u32::try_from(length).unwrap_or(EXTENDED));
    scratch.put_u8(head.kind);
    scratch.put_u32_le(head.message_stream);
    put_extended(scratch, head.timestamp);
}

/// Appends a header of type 3.
fn put_short_header(scratch: &mut BytesMut, head: &MessageHead) {
    put_basic(scratch, 3, head.chunk_stream);
    put_extended(scratch, head.timestamp);
}

/// Appends a basic header (§5.3.1.1).
fn put_basic(scratch: &mut BytesMut, format: u8, chunk_stream: u32) {
    let format = format << 6;
    let above = chunk_stream.min(CHUNK_STREAM_MAX).saturating_sub(64);
    let [_, _, high, low] = above.to_be_bytes();
    match chunk_stream {
        0..64 => {
            let [.., id] = chunk_stream.to_be_bytes();
            scratch.put_u8(format | id);
        }
        64..320 => scratch.put_slice(&[format, low]),
        _ => scratch.put_slice(&[format | 1, low, high]),
    }
}

fn put_u24(scratch: &mut BytesMut, value: u32) {
    let [_, a, b, c] = value.to_be_bytes();
    scratch.put_slice(&[a, b, c]);
}

fn put_extended(scratch: &mut BytesMut, timestamp: u32) {
    if timestamp >= EXTENDED {
        scratch.put_u32(timestamp);
    }
}
