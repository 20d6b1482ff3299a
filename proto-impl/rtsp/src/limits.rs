//! Limits on the memory that a peer can take. Real messages are far below them.

/// Bytes of a request's URL.
pub const URL_BYTES_MAX: usize = 2048;
/// Bytes of a request line or status line: a URL, a method, a version.
pub const START_LINE_BYTES_MAX: usize = URL_BYTES_MAX + 128;
/// Header fields of a message.
pub const HEADERS_MAX: usize = 255;
/// Bytes of a header field's name.
pub const HEADER_NAME_BYTES_MAX: usize = 512;
/// Bytes of a header field's value. The longest real ones are `RTP-Info` and Digest responses, below 1 KiB.
pub const HEADER_VALUE_BYTES_MAX: usize = 2048;
/// Bytes of a message up to its body.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a body: a session description, whose own limit is the same.
pub const BODY_BYTES_MAX: usize = 128 * 1024;
/// Payload of an interleaved frame; its length has 16 bits (RFC 2326 §10.12).
pub const FRAME_BYTES_MAX: usize = 65_535;
/// Alternatives of a `Transport` field.
pub const TRANSPORTS_MAX: usize = 16;
/// Challenges of a 401. Servers send Basic and one or two of Digest.
pub const CHALLENGES_MAX: usize = 8;
/// Tracks of a session; interleaved, there is room for 128.
pub const TRACKS_MAX: usize = 64;
/// Bytes between two frames or messages that are neither.
pub const STRAY_BYTES_MAX: usize = 64 * 1024;
