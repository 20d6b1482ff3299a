//! Archives of HLS: files that are written in one step, and removed together.

use bytes::Bytes;

use super::dvr::DvrWork;

/// Work on files of an archive. A path lists the folders below the root folder, then the file;
/// links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveWork {
    /// Write a file in one step. A reader sees either the old or the new content, even after a crash or a power cut.
    Put {
        /// Path of the file. Missing folders are created.
        path: Vec<String>,
        /// Complete content.
        data: Bytes,
    },
    /// Remove a media playlist, and the files in its folder that it names.
    Remove {
        /// Path of the playlist, which may be missing.
        path: Vec<String>,
        /// Time of the first segment (`EXT-X-PROGRAM-DATE-TIME`, in milliseconds of Unix time). A playlist with another
        /// time stays. `None` removes any playlist.
        begun_ms: Option<i64>,
    },
    /// Remove a file if it still has this content. Otherwise it is that of a newer archive, and stays.
    Withdraw {
        /// Path of the file, which may be missing.
        path: Vec<String>,
        /// Complete content.
        data: Bytes,
    },
    /// Remove all files that an earlier archive has left in a folder: those whose names begin with the last name of the
    /// path.
    Clear {
        /// Path of the folder, which may be missing, and the beginning of the names.
        path: Vec<String>,
    },
    /// Work on the files of a stream that viewers can rewind.
    Dvr(DvrWork),
}
