//! Recordings: control orders them, and the sink that writes one reports the outcome of its files.

use std::time::Instant;

use crate::types::{RecordingId, StreamId};

/// The time range of a clip, in milliseconds of Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClipRange {
    /// Beginning of the clip.
    pub start_ms: i64,
    /// End of the clip.
    pub end_ms: i64,
}

/// An order to record a live stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingOrder {
    /// The recording.
    pub recording: RecordingId,
    /// The kind of sink that writes the recording.
    pub kind: &'static str,
    /// The stream to record.
    pub stream: StreamId,
    /// Names of the folders below the root of files that lead to the recording.
    pub folder: Vec<String>,
    /// The name of the file, without its extension.
    pub stem: String,
    /// The number after the name from which on names are free as far as records tell (`stem_3`); 0 for none.
    pub number: u64,
    /// The maximum duration of a file in milliseconds; the next file begins after it. `None` for no limit.
    pub file_ms_max: Option<u64>,
    /// The maximum size of a file in bytes, met as closely as key frames allow. `None` for no limit.
    pub file_bytes_max: Option<u64>,
    /// Time range of a clip, which is written from media that is still in memory. `None` for a recording
    /// from now on.
    pub clip: Option<ClipRange>,
}

/// The time at which a unit reached this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The time, by the monotonic clock.
    pub at: Instant,
    /// The time by the wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// News of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingNews {
    /// A file was started; it is not finished yet.
    Begun {
        /// Path of the finished file below the root of files.
        path: Vec<String>,
        /// The arrival of its first unit.
        first: Arrival,
    },
    /// A file is complete; nothing more is written to it.
    Ended {
        /// Path of the file, as given in `Begun`.
        path: Vec<String>,
    },
    /// The recording has ended, for this reason.
    Over(String),
}
