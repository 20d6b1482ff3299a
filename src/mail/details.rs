//! The members of a broadcast's record that workers use while its stream is live.

use std::sync::Arc;

use super::MainTrack;

/// The members of a broadcast's record that workers use while its stream is live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamDetails {
    /// True if control must be notified of each viewer of the stream.
    pub tell_viewers: bool,
    /// True if control must be asked about each viewer that watches by separate requests (e.g. HLS), because the record
    /// limits the number of viewers.
    pub limits_polled: bool,
    /// Id of the main track that the stream belongs to, if any.
    pub main_track: Option<Arc<str>>,
    /// Role of the stream's publisher as a participant in a room; empty if it has none.
    pub role: Arc<str>,
    /// Folder below the application's `streams` that holds the stream's playlists, with a trailing slash; empty if the
    /// playlists are directly in `streams`.
    pub folder: String,
    /// Settings of the application that this stream overrides, by their keys.
    pub overrides: Vec<(&'static str, String)>,
    /// The main track, if the application's subtracks are renditions of the same programme.
    pub main: Option<MainTrack>,
    /// True if the stream is a copy from another process of this server, which keeps the stream's files.
    pub writes_nothing: bool,
    /// Wall-clock time at which the stream's clock was zero, in milliseconds since the Unix epoch.
    pub zero_ms: i64,
    /// Number of video tracks that the publisher sends, if there are several.
    pub videos: usize,
    /// Number of audio tracks that the publisher sends, if there are several.
    pub sounds: usize,
    /// True if a standby sends media, so that the publisher may not be silent.
    pub has_standby: bool,
}
