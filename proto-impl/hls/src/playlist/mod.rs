//! Playlists (RFC 8216 §4): [`Playlist::read`] reads either kind, `Display` writes it.
//!
//! The reader accepts deviations that occur in practice: a byte order mark, CR LF or blanks at the end of a
//! line, attributes in any order, unknown tags, durations with or without a fraction. It resolves references to
//! earlier lines: every [`Segment`] contains its own key, initialization section and byte offset. A playlist
//! that was read and written again reads the same. Content that the types cannot represent is dropped:
//! client-defined attributes of date ranges, parts that are byte ranges, I-frame and session tags, and
//! `EXT-X-BITRATE`.
//!
//! The writer does not check that values make sense. Text from third parties is safe to write: quotes and
//! control characters are dropped.

mod attributes;
mod date;
mod date_range;
mod media;
mod multivariant;
mod number;
mod read_media;
mod read_multivariant;
#[cfg(test)]
mod tests;
mod write;

pub use date::Date;
pub use date_range::{DateRange, SpliceKind};
pub use media::{ByteRange, Key, Kind, LowLatency, Map, MediaPlaylist, Method, Part, Report, Segment};
pub use multivariant::{ClosedCaptions, MultivariantPlaylist, Rendition, RenditionKind, Resolution, Variant};
pub use write::SegmentLines;

use std::fmt;

use crate::limits::{LINE_BYTES_MAX, PLAYLIST_BYTES_MAX};
use crate::{Error, Limit, Violation};

/// A playlist of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Playlist {
    /// A list of segments (RFC 8216 §4.3.3).
    Media(MediaPlaylist),
    /// A list of variants of a presentation, each of which is a media playlist (§4.3.4).
    Multivariant(MultivariantPlaylist),
}

impl Playlist {
    /// Reads a whole playlist.
    ///
    /// # Errors
    /// Fails if the text violates the format or exceeds a [limit](crate::limits).
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > PLAYLIST_BYTES_MAX {
            return Err(Error::Limit { line: 0, limit: Limit::Bytes });
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(Error::Violation { line: 0, violation: Violation::Encoding });
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Text after `#EXTM3U` is tolerated, because TV tuners write such playlists (`#EXTM3U x-tvg-url=…`).
        let first = text.lines().next().unwrap_or_default();
        if !first.strip_prefix("#EXTM3U").is_some_and(|rest| rest.is_empty() || rest.starts_with(BLANKS)) {
            return Err(Error::Violation { line: 1, violation: Violation::Header });
        }
        match (has_tag(text, &MEDIA_TAGS), has_tag(text, &MULTIVARIANT_TAGS)) {
            (true, true) => Err(Error::Violation { line: 0, violation: Violation::Mixed }),
            (true, false) => read_media::read(text).map(Self::Media),
            (false, true) => read_multivariant::read(text).map(Self::Multivariant),
            (false, false) => Err(Error::Violation { line: 0, violation: Violation::Neither }),
        }
    }
}

impl fmt::Display for Playlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media(playlist) => playlist.fmt(f),
            Self::Multivariant(playlist) => playlist.fmt(f),
        }
    }
}

const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// Tags that only a media playlist has (RFC 8216 §4.3.2, §4.3.3).
const MEDIA_TAGS: [&str; 2] = ["#EXTINF:", "#EXT-X-TARGETDURATION:"];
/// Tags that only a multivariant playlist has (§4.3.4).
const MULTIVARIANT_TAGS: [&str; 2] = ["#EXT-X-STREAM-INF:", "#EXT-X-MEDIA:"];

fn has_tag(text: &str, tags: &[&str]) -> bool {
    text.lines().any(|line| tags.iter().any(|tag| line.starts_with(tag)))
}

/// A line that is neither blank nor a comment.
#[derive(Debug, Clone, Copy)]
enum Line<'a> {
    /// A tag: its name without `#`, and the text after its colon.
    Tag(&'a str, &'a str),
    /// A URI.
    Uri(&'a str),
}

/// Iterates over the lines that are neither blank nor comments, each with its line number.
fn lines(text: &str) -> impl Iterator<Item = (usize, Result<Line<'_>, Error>)> {
    text.lines().zip(1..).filter_map(|(whole, line)| {
        if whole.len() > LINE_BYTES_MAX {
            return Some((line, Err(Error::Limit { line, limit: Limit::Line })));
        }
        let text = whole.trim_matches(BLANKS);
        let is_comment = text.starts_with('#') && !text.starts_with("#EXT");
        if text.is_empty() || is_comment {
            return None;
        }
        if text.contains(is_control) {
            return Some((line, Err(Error::Violation { line, violation: Violation::Control })));
        }
        let item = match text.strip_prefix('#') {
            Some(tag) => {
                let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
                Line::Tag(name, value.trim_start_matches(BLANKS))
            }
            None => Line::Uri(text),
        };
        Some((line, Ok(item)))
    })
}

/// True for a control character other than the tab.
fn is_control(c: char) -> bool {
    c.is_control() && c != '\t'
}
