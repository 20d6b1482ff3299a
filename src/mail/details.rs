//! The members of a broadcast's record that workers use while its stream is live.

use std::sync::Arc;

use super::MainTrack;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamDetails {
    /// Control wants to know who plays it.
    pub tell_viewers: bool,
    /// Control has to be asked about each viewer that watches by separate requests: there may be only so many.
    pub limits_polled: bool,
    /// The id of its main track.
    pub main_track: Option<Arc<str>>,
    /// The role of its participant in a room; empty: none.
    pub role: Arc<str>,
    /// The folder below the application's `streams` that its playlists are in, with its slash; empty: none.
    pub folder: String,
    /// Settings of the application that are others for this stream, by their keys.
    pub overrides: Vec<(&'static str, String)>,
    /// The main track, where the application's subtracks are renditions of it.
    pub main: Option<MainTrack>,
    /// The wall clock at which its clock was zero, in milliseconds since the Unix epoch.
    pub zero_ms: i64,
    /// The video tracks that its publisher sends, where there are several.
    pub videos: usize,
}
