//! Chunks (§5.3): messages are cut into chunks, so that a long message does not block the others for
//! long.
//!
//! ```text
//!  0 1 2     7
//! +---+--------+-----------+--------------------------------------------+---------------------+------
//! |fmt| csid   | csid - 64 | timestamp(3) length(3) type(1) stream(4 LE) | extended timestamp(4) | data
//! +---+--------+-----------+--------------------------------------------+---------------------+------
//!      0: 1 byte,  1: 2 bytes   fmt 0: all 11   1: 7   2: 3   3: none     if timestamp = ff ff ff
//! ```

mod reader;
mod writer;

use bytes::Bytes;

pub use reader::{Limits, Reader};
pub use writer::write_message;

/// The chunk stream of control messages (§5.4).
pub const CONTROL: u32 = 2;
/// The chunk stream of commands.
pub const COMMAND: u32 = 3;
/// The chunk stream of audio.
pub const AUDIO: u32 = 4;
/// The chunk stream of data messages, and of status commands about a message stream.
pub const STATUS: u32 = 5;
/// The chunk stream of video.
pub const VIDEO: u32 = 6;

/// The chunk size until a Set Chunk Size message changes it (§5.4.1).
pub const CHUNK_SIZE_DEFAULT: usize = 128;
/// Largest useful chunk size: no message is longer.
pub const CHUNK_SIZE_MAX: u32 = 0xff_ffff;
/// Value of the timestamp field that announces an extended timestamp.
const EXTENDED: u32 = 0xff_ffff;
/// Largest chunk stream id: 64 plus the largest number of two bytes.
const CHUNK_STREAM_MAX: u32 = 65_599;

/// A complete message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Chunk stream on which the message arrived.
    pub chunk_stream: u32,
    /// Timestamp in milliseconds, which wraps.
    pub timestamp: u32,
    /// Message type id.
    pub kind: u8,
    /// Message stream id. 0 stands for the connection itself.
    pub message_stream: u32,
    /// Body of the message.
    pub payload: Bytes,
}

/// Header of a message to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHead {
    /// Chunk stream to use, 2 to 65 599.
    pub chunk_stream: u32,
    /// Timestamp in milliseconds, which wraps.
    pub timestamp: u32,
    /// Message type id.
    pub kind: u8,
    /// Message stream id.
    pub message_stream: u32,
}

#[cfg(test)]
mod tests;
