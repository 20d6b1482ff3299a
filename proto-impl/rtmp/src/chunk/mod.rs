//! Chunks (§5.3): messages cut into pieces, so that none blocks the others for long.
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
/// The chunk stream of data messages and of statuses about a message stream.
pub const STATUS: u32 = 5;
/// The chunk stream of video.
pub const VIDEO: u32 = 6;

/// The chunk size before any Set Chunk Size (§5.4.1).
pub const CHUNK_SIZE_DEFAULT: usize = 128;
/// No message is longer, so no chunk needs to be.
pub const CHUNK_SIZE_MAX: u32 = 0xff_ffff;
/// The timestamp field that announces an extended timestamp.
const EXTENDED: u32 = 0xff_ffff;
/// The largest chunk stream id: two bytes behind 64.
const CHUNK_STREAM_MAX: u32 = 65_599;

/// A whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The chunk stream it came on.
    pub chunk_stream: u32,
    /// Milliseconds, wrapping.
    pub timestamp: u32,
    /// The message type id.
    pub kind: u8,
    /// The message stream it belongs to; 0 is the connection.
    pub message_stream: u32,
    /// The body.
    pub payload: Bytes,
}

/// The head of a message that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHead {
    /// The chunk stream to use, 2 to 65 599.
    pub chunk_stream: u32,
    /// Milliseconds, wrapping.
    pub timestamp: u32,
    /// The message type id.
    pub kind: u8,
    /// The message stream it belongs to.
    pub message_stream: u32,
}

#[cfg(test)]
mod tests;
