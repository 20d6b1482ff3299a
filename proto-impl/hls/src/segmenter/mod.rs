//! A live stream as segments and playlists (RFC 8216, RFC 8216bis), and as the manifest of DASH for the same segments.
//!
//! 1. Access units go in, in decoding order, each with its time in milliseconds and its date ([`Timed`]). The tracks that decode them
//!    are set before ([`TsSegmenter::set_tracks`], [`Mp4Segmenter::set_tracks`]), and again when they change.
//! 2. A [`Window`] says where a segment ends: at key frames where that is possible, and by time and size where it is not. It keeps the
//!    playlist of the newest segments.
//! 3. [`TsSegmenter`] writes segments of MPEG-TS, which a [`Sealer`] may encrypt; [`Mp4Segmenter`] writes fragmented MP4, with parts for
//!    low latency. Files come out before a playlist names them.
//! 4. Names that the playlist has dropped come out twice: when it drops them, and when no player fetches them any more.
//! 5. [`Presentation::manifest`] describes the segments of several [`Mp4Segmenter`]s by their [`Outline`]s, side by side, for players of DASH.
//! 6. Before all this, [`Lineup`] puts tracks that are apart in time beside each other, and [`Dates`] finds the dates of units.
//!
//! Nothing here reads a clock, serves a request or keeps a file: the owner says what time it is, stores the files under their names, and
//! forgets those that are gone. A stream is bounded by [`Rules::list_size`], [`SEGMENT_BYTES_MAX`] and [`PLAYLIST_BYTES_MAX`].

mod cues;
mod dates;
mod lineup;
mod manifest;
mod mp4;
mod names;
mod outline;
mod protect;
mod seal;
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
pub use protect::is_protectable;
pub use seal::{GivenKey, Scope, Sealer, Sealing};
pub use ts::{Cut, TsSegmenter};
pub use window::{Mark, NUMBERS_FROM_MS, PLAYLIST_BYTES_MAX, SEGMENT_BYTES_MAX, Start, Window};

/// Largest number of ID3 tags between two units, or before one fragment.
const EVENTS_MAX: usize = 64;

/// The rules by which a stream is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The least length of a segment, in milliseconds: it ends at the first key frame after it.
    pub segment_ms: i64,
    /// The most segments in the playlist.
    pub list_size: usize,
    /// The wanted length of a part, in milliseconds.
    pub part_ms: i64,
    /// The wanted length of a fragment of fragmented MP4 without parts, in milliseconds. `None`: a segment is one fragment.
    pub fragment_ms: Option<i64>,
    /// The form of the numbers in the names of segments.
    pub suffix: Suffix,
}

impl Rules {
    /// Segments of two seconds and one fragment, fifteen in the playlist, parts of 300 ms, numbers of nine digits.
    pub const DEFAULT: Self = Self {
        segment_ms: 2000,
        list_size: 15,
        part_ms: 300,
        fragment_ms: None,
        suffix: Suffix::NINE_DIGITS,
    };
}

/// An access unit with its place in the time of the playlist.
#[derive(Debug, Clone, Copy)]
pub struct Timed<'a> {
    /// The unit, with times in the timescale of its track.
    pub unit: &'a AccessUnit,
    /// DTS in milliseconds.
    pub dts_ms: i64,
    /// Date of the unit, in milliseconds of Unix time.
    pub date_ms: i64,
}
