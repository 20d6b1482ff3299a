//! Work on files that sinks have recorded: finishing complete recordings, and removing unwanted ones.

/// Suffix of a recording's name while it is being written.
pub const UNFINISHED: &str = ".tmp_extension";

/// Work on a recording. It may take as long as copying the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingWork {
    /// Turn the written data into a plain file, also after a crash, and rename it to its final name.
    Finish {
        /// Path of the finished file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
    /// Sync a complete upload to the disk, and rename it to its final name.
    Adopt {
        /// Path of the file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
    /// Find the unfinished recordings of these applications.
    Find {
        /// Applications whose folders are searched: the first names below the root folder.
        apps: Vec<String>,
    },
    /// Remove a recording, finished or not.
    Remove {
        /// Path of the finished file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
}

/// A finished recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes of the file.
    pub bytes: u64,
    /// Duration in milliseconds; `None` if the file does not contain it in a known form.
    pub duration_ms: Option<u64>,
}

/// The outcome of [`RecordingWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingOutcome {
    /// The recording is complete and can be played.
    Finished(Finished),
    /// The recording was empty and has been removed.
    Empty,
    /// The file contains data but is not a recording. It was kept in the same folder and renamed to
    /// this name.
    SetAside(String),
    /// The file was removed, or did not exist.
    Removed,
    /// Unfinished recordings, each with the path that its finished file will have: the folders
    /// below the root folder, then the file's name.
    Found(Vec<Vec<String>>),
    /// The reason of a failure. The file was left unchanged.
    Failed(String),
}
