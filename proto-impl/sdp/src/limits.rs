//! Limits on the memory of a description.

/// Bytes of a description.
pub const BYTES_MAX: usize = 128 * 1024;
/// Bytes of a line without its end. The longest real ones are H.265 parameter sets of a camera, below 1 KiB.
pub const LINE_BYTES_MAX: usize = 8 * 1024;
/// Lines of a description, empty ones too.
pub const LINES_MAX: usize = 4096;
/// Media sections. A viewer of a room has two for each participant.
pub const MEDIA_MAX: usize = 128;
/// Attributes of one section. Browsers send up to two hundred, and their candidates.
pub const ATTRIBUTES_MAX: usize = 512;
/// `b=` lines of one section.
pub const BANDWIDTHS_MAX: usize = 16;
/// Values in one line: parameters, mids of a group, SSRCs, layers, extensions of a candidate.
pub const VALUES_MAX: usize = 128;
/// Payload types or other formats of one `m=` line: there are 128 payload types.
pub const FORMATS_MAX: usize = 128;
/// Characters of an ICE user name fragment or password (RFC 8839 §5.4).
pub const ICE_CHARS_MAX: usize = 256;
