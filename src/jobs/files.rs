//! Files: opening, reading, appending. Paths are names below a root folder that the server gives to the job service.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A file that is open for reading. Only the job service looks inside; it is closed with its last owner.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// Reads at most `length` bytes at `offset`; empty at the end and when it cannot be read. It may block: only jobs call
    /// it.
    fn read_block(&self, offset: u64, length: usize) -> Bytes;
}

/// A file that is open for appending. Only the job service looks inside; it is closed with its last owner.
pub trait AppendFile: fmt::Debug + Send + Sync {
    /// Writes all of it at the end and gives the length of the file then. It may block: only jobs call it.
    ///
    /// # Errors
    /// The system refuses; a part may have been written.
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError>;

    /// Returns when everything that was appended has reached the disk. It may block: only jobs call it.
    ///
    /// # Errors
    /// The system cannot promise it.
    fn sync(&self) -> Result<(), AppendError>;
}

/// An open file and what is known of it.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// The file, for [`super::Work::FileRead`].
    pub file: Arc<dyn BlockSource>,
    /// The file's length in bytes.
    pub length: u64,
    /// The time at which it was changed, in milliseconds since the Unix epoch.
    pub modified_ms: u64,
    /// Changes with its content: for the entity tag.
    pub tag: String,
}

/// The file to append to.
#[derive(Debug, Clone)]
pub enum AppendTo {
    /// The file of this name, which must not exist yet; folders above it are made.
    New {
        /// Names below the root folder, the file's last. No link is followed.
        path: Vec<String>,
    },
    /// As `New`, but an existing file is continued at its end.
    Path {
        /// Names below the root folder, the file's last. No link is followed.
        path: Vec<String>,
    },
    /// As `New`, under the first free of the names `a.mp4`, `a_1.mp4`, `a_2.mp4`, ...: neither it is taken, nor it with the
    /// ending of an unfinished recording ([`super::UNFINISHED`]), which the new file has.
    Recording {
        /// Names below the root folder, the first of those names last.
        path: Vec<String>,
    },
    /// A file of an earlier append.
    Open(Arc<dyn AppendFile>),
}

/// The result of an append.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The file, for the next append and for [`super::Work::FileSync`].
    pub file: Arc<dyn AppendFile>,
    /// The file's length in bytes after the append.
    pub length: u64,
    /// The name that a new recording will have.
    pub name: Option<String>,
}

/// The reason a file could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// The file does not exist, or is not to be served.
    NotFound,
    /// The path leads to a folder.
    Directory,
    /// The system says no.
    Failed,
}

/// The reason a file could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendError {
    /// The path leads to something that is not written: a folder, a link, a pipe.
    Path,
    /// The file exists already, and a new one was wanted.
    Exists,
    /// The disk is full, or the quota used up.
    Full,
    /// The system says no.
    Failed,
}
