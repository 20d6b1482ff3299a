//! Recordings: the files that sinks have written, when they are complete or no longer wanted.

/// The ending of a recording's name while it is written.
pub const UNFINISHED: &str = ".tmp_extension";

/// Work on a recording. It may take as long as copying the file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingWork {
    /// Turn the written data into a plain file, also after a crash, and rename it to its final name.
    Finish {
        /// Names below the root folder, the finished file's last.
        path: Vec<String>,
    },
    /// Have an upload that is all there reach the disk, and give it its name.
    Adopt {
        /// Names below the root folder, the file's last.
        path: Vec<String>,
    },
    /// Find the unfinished recordings of these applications.
    Find {
        /// Their folders, the first names below the root folder.
        apps: Vec<String>,
    },
    /// Remove a recording, finished or not.
    Remove {
        /// Names below the root folder, the finished file's last.
        path: Vec<String>,
    },
}

/// A finished recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes of the file.
    pub bytes: u64,
    /// The duration in milliseconds; `None`: the file does not give it in a form that is known here.
    pub duration_ms: Option<u64>,
}

/// The outcome of [`RecordingWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingOutcome {
    /// Complete: it can be played.
    Finished(Finished),
    /// There is nothing in it; it is removed.
    Empty,
    /// There is something in it that is no recording. It is kept beside its place, under this name.
    SetAside(String),
    /// Removed, or not there.
    Removed,
    /// Unfinished recordings: names below the root folder, the finished file's last.
    Found(Vec<Vec<String>>),
    /// The reason of a failure. The file stays as it is.
    Failed(String),
}
