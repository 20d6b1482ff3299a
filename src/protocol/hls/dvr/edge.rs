//! The live edge of a playlist with low latency (RFC 8216bis): the parts of its newest segments, and the growing one.

use hls::playlist::{MediaPlaylist, Part, Segment};

/// First words of lines that the head of a playlist has only with low latency.
pub(super) const CONTROLS: [&str; 2] = ["#EXT-X-SERVER-CONTROL:", "#EXT-X-PART-INF:"];

/// The live edge of a playlist.
#[derive(Debug)]
pub(super) struct Edge<'p> {
    newest: &'p [Segment],
    /// The lines to add to the head of a playlist.
    pub(super) control: String,
    /// The lines of the growing segment, to add after the last segment.
    pub(super) growing: String,
}

impl<'p> Edge<'p> {
    /// Returns the edge of a playlist; `None` without low latency.
    pub(super) fn of(live: &'p MediaPlaylist) -> Option<Self> {
        let low = live.low_latency.as_ref()?;
        let last = live.segments.last()?;
        // The attributes of the last segment still apply to the growing one.
        let last = Segment { parts: Vec::new(), date_ranges: Vec::new(), ..last.clone() };
        let head = MediaPlaylist {
            segments: vec![last.clone()],
            low_latency: Some(low.clone()),
            independent_segments: live.independent_segments,
            ..MediaPlaylist::default()
        };
        let text = head.to_string();
        let is_control = |line: &&str| CONTROLS.iter().any(|start| line.starts_with(start));
        let control = text.split_inclusive('\n').filter(is_control).collect();
        let (_, growing) = text.split_once(&format!("\n{}\n", last.uri))?;
        let first = live.segments.iter().position(|segment| !segment.parts.is_empty());
        let newest = first.and_then(|first| live.segments.get(first..)).unwrap_or_default();
        Some(Self { newest, control, growing: growing.to_owned() })
    }

    /// Returns the parts of a segment that are listed.
    pub(super) fn parts(&self, uri: &str) -> Vec<Part> {
        let segment = self.newest.iter().find(|segment| segment.uri == uri);
        segment.map(|segment| segment.parts.clone()).unwrap_or_default()
    }
}
