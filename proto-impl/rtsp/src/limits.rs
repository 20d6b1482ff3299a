//! Limits on the memory that a peer can use. Real messages are far below them.

/// Longest URL of a request, in bytes.
pub const URL_BYTES_MAX: usize = 2048;
/// Longest request line or status line, in bytes: a URL, a method and a version.
pub const START_LINE_BYTES_MAX: usize = URL_BYTES_MAX + 128;
/// Maximum number of header fields of a message.
pub const HEADERS_MAX: usize = 255;
/// Longest name of a header field, in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 512;
/// Longest value of a header field, in bytes. The longest real ones, `RTP-Info` and Digest responses, are below 1 KiB.
pub const HEADER_VALUE_BYTES_MAX: usize = 2048;
/// Longest message head (everything before the body), in bytes.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Longest body, in bytes; session descriptions have the same limit.
pub const BODY_BYTES_MAX: usize = 128 * 1024;
/// Longest payload of an interleaved frame, whose length has 16 bits (RFC 2326 §10.12).
pub const FRAME_BYTES_MAX: usize = 65_535;
/// Maximum number of alternatives in a `Transport` field.
pub const TRANSPORTS_MAX: usize = 16;
/// Maximum number of challenges that are read from a 401. Servers send one Basic challenge and one or two Digest
/// challenges.
pub const CHALLENGES_MAX: usize = 8;
/// Maximum number of servers read from `Via` fields.
pub const VIA_MAX: usize = 64;
/// Maximum number of tracks of a session; interleaving has channels for 128.
pub const TRACKS_MAX: usize = 64;
/// Maximum number of successive bytes that belong to no frame and no message.
pub const STRAY_BYTES_MAX: usize = 64 * 1024;
