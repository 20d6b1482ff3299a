//! Files: what a session asks of the helper threads that read them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A file that [`crate::io`] has opened. Nobody else looks inside; it is closed with its last owner.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// Reads at most `length` bytes at `offset`; empty at the end and when it cannot be read. It may block: only helper
    /// threads call it.
    fn read_block(&self, offset: u64, length: usize) -> Bytes;
}

/// What a session wants of a file. One wish is outstanding per session.
#[derive(Debug, Clone)]
pub enum FileAsk {
    /// Open it.
    Open {
        /// Names below `webapps`. Each is the name of one folder or file, and no link is followed.
        segments: Vec<String>,
    },
    /// Read a block of it.
    Read {
        /// Which.
        file: Arc<dyn BlockSource>,
        /// From where.
        offset: u64,
        /// How much at most.
        length: usize,
    },
}

/// The answer to a [`FileAsk`].
#[derive(Debug, Clone)]
pub enum FileReply {
    /// To [`FileAsk::Open`].
    Opened(Result<OpenedFile, FileError>),
    /// To [`FileAsk::Read`].
    Block(Bytes),
}

/// An open file and what is known of it.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// For [`FileAsk::Read`].
    pub file: Arc<dyn BlockSource>,
    /// Bytes.
    pub length: u64,
    /// When it was changed, in milliseconds since the Unix epoch.
    pub modified_ms: u64,
    /// Changes with its content: for the entity tag.
    pub tag: String,
}

/// Why a file was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// There is none, or not one to be served.
    NotFound,
    /// It is a folder.
    Directory,
    /// The system says no.
    Failed,
}
