//! Limits on the memory and work that a server can cause. Real playlists are far below them.

use std::time::Duration;

/// Maximum size of a playlist. The longest real ones, recordings of a day, have about 700 KB.
pub const PLAYLIST_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of a line: a URL, or a tag with a few of them.
pub const LINE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of segments kept of a playlist, the newest ones: 16 hours of 6 s segments.
pub const SEGMENTS_MAX: usize = 10_000;
/// Maximum number of parts in a playlist. Servers list those of the last three target durations (RFC 8216bis
/// §6.2.2), which are far fewer.
pub const PARTS_MAX: usize = 10_000;
/// Maximum number of rendition reports in a playlist.
pub const REPORTS_MAX: usize = 100;
/// Maximum number of date ranges kept of a playlist; further ones are ignored.
pub const DATE_RANGES_MAX: usize = 256;
/// Maximum number of attributes of a tag. `EXT-X-MEDIA` has the most, 17.
pub const ATTRIBUTES_MAX: usize = 64;
/// Maximum number of variants in a multivariant playlist.
pub const VARIANTS_MAX: usize = 100;
/// Maximum number of renditions in a multivariant playlist: languages, in a few groups.
pub const RENDITIONS_MAX: usize = 100;
/// Maximum size of a URL.
pub const URL_BYTES_MAX: usize = 4096;

/// Maximum size of a segment: 20 s at 100 Mb/s.
pub const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum size of an initialization section (`EXT-X-MAP`). Real ones have about a kilobyte.
pub const INIT_BYTES_MAX: usize = 1024 * 1024;
/// Size of a key for AES-128 (RFC 8216 §4.3.2.4).
pub const KEY_BYTES: usize = 16;
/// Maximum number of keys remembered.
pub const KEYS_MAX: usize = 4;
/// Maximum number of redirections of one request.
pub const REDIRECTS_MAX: u8 = 5;
/// Maximum number of events waiting to be polled; the stream ends if there are more.
pub const EVENTS_MAX: usize = 4096;
/// Number of consecutive failed segments after which the client gives up their variant.
pub const FAILURES_MAX: u32 = 5;

/// Minimum interval between requests for a playlist, whatever its target duration.
pub const RELOAD_MIN: Duration = Duration::from_millis(500);
/// Upper bound applied to the target duration.
pub const TARGET_DURATION_MAX: Duration = Duration::from_secs(60);
/// Upper bound applied to the duration of a segment.
pub const SEGMENT_DURATION_MAX: Duration = Duration::from_secs(600);
/// Minimum interval between requests of any kind, so that segments without duration or content do not cause a
/// request storm.
pub const REQUEST_SPACING: Duration = Duration::from_millis(10);
/// Pause before a failed segment is requested again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Minimum time without a change after which a live playlist is given up.
pub const STALL_MIN: Duration = Duration::from_secs(10);
/// A recording is pulled at its playback speed, as if it were live. Segments are fetched this long
/// before their time has come.
pub const AHEAD_MAX: Duration = Duration::from_secs(10);
