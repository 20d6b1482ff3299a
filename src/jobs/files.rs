//! Work on files: opening, reading, appending. Paths are names below a root folder that the server sets for the job
//! service.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A file open for reading. Only the job service uses its methods. The file is closed when its last
/// owner drops it.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// Reads up to `length` bytes at `offset`; empty at the end or after an error. May block, so only jobs call it.
    fn read_block(&self, offset: u64, length: usize) -> Bytes;
}

/// A file open for appending. Only the job service uses its methods. The file is closed when its
/// last owner drops it.
pub trait AppendFile: fmt::Debug + Send + Sync {
    /// Appends all of the data and returns the new length. May block, so only jobs call it.
    ///
    /// # Errors
    /// A failed write; part of the data may be in the file.
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError>;

    /// Waits until all appended data is on the disk. May block, so only jobs call it.
    ///
    /// # Errors
    /// The system could not sync the file.
    fn sync(&self) -> Result<(), AppendError>;
}

/// An open file with its properties.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// Handle for [`super::Work::FileRead`].
    pub file: Arc<dyn BlockSource>,
    /// Length in bytes.
    pub length: u64,
    /// Time of the last change, in milliseconds of Unix time.
    pub modified_ms: u64,
    /// Text that changes with the content, for the entity tag.
    pub tag: String,
}

/// The file to append to.
#[derive(Debug, Clone)]
pub enum AppendTo {
    /// A new file. Missing folders are created.
    New {
        /// Path of the file: the folders below the root folder, then the file's name. Links are not
        /// followed.
        path: Vec<String>,
    },
    /// A file that is created if it is missing. An existing file is appended to.
    Path {
        /// Path of the file: the folders below the root folder, then the file's name. Links are not
        /// followed.
        path: Vec<String>,
    },
    /// A new file, as for `New`. It gets a free name of the series `a.mp4`, `a_1.mp4`, `a_2.mp4`, … A name is free if
    /// neither a file with this name nor an unfinished one exists. The file is created under the unfinished form of the
    /// name, which has the suffix [`super::UNFINISHED`].
    Recording {
        /// Path of the first file of the series: the folders below the root folder, then `a.mp4`.
        path: Vec<String>,
        /// The first number to try; 0 for `a.mp4`.
        from: u64,
    },
    /// An open file from an earlier append.
    Open(Arc<dyn AppendFile>),
}

/// The result of an append.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Handle for the next append and for [`super::Work::FileSync`].
    pub file: Arc<dyn AppendFile>,
    /// Length in bytes after the append.
    pub length: u64,
    /// The name that a new recording will have.
    pub name: Option<String>,
}

/// Reasons why a file could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// The file does not exist, or must not be served.
    NotFound,
    /// The path leads to a folder.
    Directory,
    /// The operating system refused, for any other reason.
    Failed,
}

/// Reasons why a file could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendError {
    /// The path leads to something that cannot be written: a folder, a link, a pipe.
    Path,
    /// The file exists, although a new one was requested.
    Exists,
    /// The disk is full, or the quota is used up.
    Full,
    /// The operating system refused, for any other reason.
    Failed,
}
