//! Recordings: control orders them, the sink that writes one says what becomes of its files.

use crate::types::{RecordingId, StreamId};

/// The time of a clip, in milliseconds of Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClipRange {
    /// Its beginning.
    pub start_ms: i64,
    /// Its end.
    pub end_ms: i64,
}

/// A recording of a live stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingOrder {
    /// The recording.
    pub recording: RecordingId,
    /// The kind of sink that writes it.
    pub kind: &'static str,
    /// The stream.
    pub stream: StreamId,
    /// Names of the folders below the root of files.
    pub folder: Vec<String>,
    /// The name of the file, without its extension.
    pub stem: String,
    /// The most milliseconds of a file; the next one begins behind it. `None`: no limit.
    pub file_ms_max: Option<u64>,
    /// The most bytes of a file, as far as a key frame allows. `None`: no limit.
    pub file_bytes_max: Option<u64>,
    /// The time of a clip, which is written of what memory has. `None`: a recording from now on.
    pub clip: Option<ClipRange>,
}

/// News of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingNews {
    /// A file is written; it is unfinished.
    Begun {
        /// Names below the root of files, the finished file's last.
        path: Vec<String>,
    },
    /// Nothing more comes into the file.
    Ended {
        /// As it was when it began.
        path: Vec<String>,
    },
    /// The recording is over: the reason.
    Over(String),
}
