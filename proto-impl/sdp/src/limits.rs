//! Limits on the memory that a description uses.

/// Maximum size of a description, in bytes.
pub const BYTES_MAX: usize = 128 * 1024;
/// Maximum size of a line without its line break, in bytes. The longest lines in practice, with H.265
/// parameter sets of cameras, are below 1 KiB.
pub const LINE_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of lines in a description, including empty ones.
pub const LINES_MAX: usize = 4096;
/// Maximum number of media sections. A viewer of a room needs two sections for each participant.
pub const MEDIA_MAX: usize = 128;
/// Maximum number of attributes in one section. Browsers send up to two hundred, plus their candidates.
pub const ATTRIBUTES_MAX: usize = 512;
/// Maximum number of `b=` lines in one section.
pub const BANDWIDTHS_MAX: usize = 16;
/// Maximum number of values in one line: parameters, mids of a group, SSRCs, layers, extensions of a candidate.
pub const VALUES_MAX: usize = 128;
/// Maximum number of formats in one `m=` line; there are 128 payload types.
pub const FORMATS_MAX: usize = 128;
/// Maximum number of feedback types of one format, including those for `*`; further ones are ignored. Browsers list
/// five.
pub const FEEDBACK_MAX: usize = 16;
/// Maximum length of an ICE user name fragment or password, in characters (RFC 8839 §5.4).
pub const ICE_CHARS_MAX: usize = 256;
