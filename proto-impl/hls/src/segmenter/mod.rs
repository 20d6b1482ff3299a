//! Cuts a live stream into segments, and writes playlists (RFC 8216, RFC 8216bis) and a DASH manifest for them.
//!
//! 1. Access units are passed in decoding order, each with its time in milliseconds and its date ([`Timed`]).
//!    Their tracks are set before ([`TsSegmenter::set_tracks`], [`Mp4Segmenter::set_tracks`]), and again
//!    whenever they change.
//! 2. A [`Window`] decides where a segment ends: at key frames where possible, otherwise by time and size. It
//!    keeps the playlist of the newest segments.
//! 3. [`TsSegmenter`] writes segments of MPEG-TS, which a [`Sealer`] may encrypt; [`Mp4Segmenter`] writes
//!    fragmented MP4, with parts for low latency. Files are returned before a playlist lists them.
//! 4. The names of removed files are returned twice: when the playlist no longer lists the files, and when no
//!    player fetches them any more.
//! 5. [`Presentation::manifest`] describes the segments of several [`Mp4Segmenter`]s, given their [`Outline`]s,
//!    for DASH players.
//! 6. [`Past::manifest`] describes segments that playlists no longer list, from [`Piece`]s that the owner keeps.
//! 7. [`Subtitles`] makes the WebVTT segments of a language, beside the segments of another rendition.
//! 8. Before units are passed to a segmenter, [`Lineup`] aligns tracks that arrive at different times, and
//!    [`Dates`] determines the dates of the units.
//!
//! The segmenter reads no clock, serves no requests and stores no files: the owner passes the time, stores files
//! under their names, and deletes those that are no longer needed. Memory is bounded by [`Rules::list_size`],
//! [`SEGMENT_BYTES_MAX`] and [`PLAYLIST_BYTES_MAX`].

mod cues;
mod dates;
mod left;
mod lineup;
mod manifest;
mod mp4;
mod names;
mod outline;
mod past;
mod protect;
mod seal;
mod subtitles;
mod ts;
mod window;

use media::AccessUnit;

pub use cues::Cue;
pub use dates::{Arrival, Dates};
pub use lineup::Lineup;
pub use manifest::{MARK, Moments, Presentation, Stretch, for_viewer};
pub use mp4::{Described, Made, Mp4Segmenter, Span, Spanned};
pub use names::{Names, Suffix};
pub use outline::{Accessibility, Outline};
pub use past::{Anchor, Excerpt, Past, Piece, select};
pub use protect::is_protectable;
pub use seal::{GivenKey, Scope, Sealer, Sealing};
pub use subtitles::{LINES_MAX, Line, Subtitles, SubtitlesOf, Zero};
pub use ts::{Cut, TsSegmenter};
pub use window::{Mark, NUMBERS_FROM_MS, PLAYLIST_BYTES_MAX, SEGMENT_BYTES_MAX, Start, Window};

/// Maximum number of ID3 tags between two units of MPEG-TS, or waiting for one fragment of MP4.
const EVENTS_MAX: usize = 64;

/// Rules for cutting a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Minimum duration of a segment in milliseconds. The segment ends at the first key frame after this time.
    pub segment_ms: i64,
    /// Maximum number of segments in the playlist.
    pub list_size: usize,
    /// Wanted duration of a part, in milliseconds.
    pub part_ms: i64,
    /// Wanted duration of a fragment of fragmented MP4 without parts, in milliseconds. `None`: a segment is a
    /// single fragment.
    pub fragment_ms: Option<i64>,
    /// Format of the numbers in segment names.
    pub suffix: Suffix,
}

impl Rules {
    /// Segments of two seconds that are a single fragment; fifteen segments in the playlist; parts of 300 ms;
    /// numbers of nine digits.
    pub const DEFAULT: Self = Self {
        segment_ms: 2000,
        list_size: 15,
        part_ms: 300,
        fragment_ms: None,
        suffix: Suffix::NINE_DIGITS,
    };
}

/// An access unit with its decode time and its date in the playlist.
#[derive(Debug, Clone, Copy)]
pub struct Timed<'a> {
    /// The unit, with times in the timescale of its track.
    pub unit: &'a AccessUnit,
    /// DTS in milliseconds.
    pub dts_ms: i64,
    /// Date of the unit, in milliseconds of Unix time.
    pub date_ms: i64,
}
