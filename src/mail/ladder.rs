//! Ladders: the renditions of one programme, which are tracks of a stream or several streams, and the playlist that lists them.

use std::sync::Arc;
use std::time::Duration;

use crate::types::StreamKey;

/// The main track of a stream that is a rendition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MainTrack {
    /// Its key.
    pub key: StreamKey,
    /// The folder below the application's `streams` that its playlists are in, with its slash; empty: none.
    pub folder: String,
}

/// The place of a blob in a ladder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laddered {
    /// The id of the main track: who may play that may have the blob.
    pub main: Arc<str>,
    /// The description of a rendition. It is one blob's, which is made anew as the rendition goes on.
    pub rung: Option<Rung>,
}

/// A rendition, for the playlist that lists all of them, and for the others of its ladder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rung {
    /// The kind of sink that makes it.
    pub sink: &'static str,
    /// Order by which renditions began, by the clock: the first one leads.
    pub began: u64,
    /// The name of its playlist, in the folder of the main track. `None`: it is not known yet.
    pub playlist: Option<String>,
    /// Whether its playlist is there.
    pub is_there: bool,
    /// Its codecs (RFC 6381), separated by commas.
    pub codecs: String,
    /// The peak and the average, in bits per second.
    pub bits: (u64, u64),
    /// The size of its pictures.
    pub size: Option<(u32, u32)>,
    /// Pictures in a thousand seconds.
    pub frame_rate_milli: Option<u64>,
    /// Whether all of its segments begin with a key frame.
    pub is_independent: bool,
    /// The target duration of its playlist, once it is known.
    pub target: Option<Duration>,
    /// The times of its newest key frames, in milliseconds.
    pub keys: Vec<i64>,
    /// The beginnings of its newest segments, the last one of that which grows.
    pub marks: Vec<Mark>,
}

/// The beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The number of the segment.
    pub number: u64,
    /// The discontinuities before it.
    pub discontinuities: u64,
    /// Its time, which all renditions of a ladder share, in milliseconds.
    pub begin_ms: i64,
}
