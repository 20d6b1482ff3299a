//! Archives of HLS: files that are put in their place whole, and that go together.

use bytes::Bytes;

/// Work on the files of an archive. Paths are names below the root folder, the file's last; no link is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveWork {
    /// Put a file in its place. Whoever opens it finds what it was before or all of this, also after a crash or a power cut.
    Put {
        /// The file. Folders above it are made.
        path: Vec<String>,
        /// All of its content.
        data: Bytes,
    },
    /// Remove a media playlist, and the files in its folder that it names.
    Remove {
        /// The playlist; it may not be there.
        path: Vec<String>,
        /// The time of the first segment (`EXT-X-PROGRAM-DATE-TIME`, in milliseconds of Unix time): a playlist that begins
        /// otherwise is left alone. `None`: any is removed.
        begun_ms: Option<i64>,
    },
}
