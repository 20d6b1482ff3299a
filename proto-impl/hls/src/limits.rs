//! Limits on what a server can make us hold or do. Real playlists are far below them.

use std::time::Duration;

/// Bytes of a playlist. The longest real ones, recordings of a day, have about 700 KB.
pub const PLAYLIST_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a line: a URL, or a tag with a few of them.
pub const LINE_BYTES_MAX: usize = 16 * 1024;
/// Segments that are kept of a playlist, the last ones: 16 hours of 6 s.
pub const SEGMENTS_MAX: usize = 10_000;
/// Parts of a playlist: those of the last three target durations (RFC 8216bis §6.2.2), and more than any server leaves.
pub const PARTS_MAX: usize = 10_000;
/// Rendition reports of a playlist.
pub const REPORTS_MAX: usize = 100;
/// Date ranges of a playlist that are kept; more are passed over.
pub const DATE_RANGES_MAX: usize = 256;
/// Attributes of a tag. `EXT-X-MEDIA` has the most, 17.
pub const ATTRIBUTES_MAX: usize = 64;
/// Variants of a multivariant playlist.
pub const VARIANTS_MAX: usize = 100;
/// Renditions of a multivariant playlist: languages, in a few groups.
pub const RENDITIONS_MAX: usize = 100;
/// Bytes of a URL.
pub const URL_BYTES_MAX: usize = 4096;

/// Bytes of a segment: 20 s at 100 Mb/s.
pub const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of an initialization section (`EXT-X-MAP`). Real ones have about a kilobyte.
pub const INIT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a key: AES-128 (RFC 8216 §4.3.2.4).
pub const KEY_BYTES: usize = 16;
/// Keys that are remembered.
pub const KEYS_MAX: usize = 4;
/// Redirections of one request.
pub const REDIRECTS_MAX: u8 = 5;
/// Events that wait to be polled. Whoever does not poll them loses the stream.
pub const EVENTS_MAX: usize = 4096;
/// Failures in a row, of segments or of a playlist, that end a stream.
pub const FAILURES_MAX: u32 = 5;

/// The least time from one request of a playlist to the next, whatever its target duration says.
pub const RELOAD_MIN: Duration = Duration::from_millis(500);
/// The longest target duration that is believed.
pub const TARGET_DURATION_MAX: Duration = Duration::from_secs(60);
/// The longest duration of a segment that is believed.
pub const SEGMENT_DURATION_MAX: Duration = Duration::from_secs(600);
/// The least time from one request to the next, of any kind: segments without length, or without bytes, are not asked
/// for in a storm.
pub const REQUEST_SPACING: Duration = Duration::from_millis(10);
/// The pause before a segment is asked for again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The least time without a change after which a live playlist is given up.
pub const STALL_MIN: Duration = Duration::from_secs(10);
/// The time by which a recording is fetched ahead of its playback time: it is pulled as if it were live.
pub const AHEAD_MAX: Duration = Duration::from_secs(10);
