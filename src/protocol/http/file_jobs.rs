//! The file jobs of a transfer.

use std::sync::Arc;

use bytes::Bytes;

pub(super) use crate::jobs::{BlockSource, FileError, OpenedFile};
use crate::jobs::{Job, JobDone, JobId, Outcome, Work};

/// A job of a file transfer; at most one is in progress.
#[derive(Debug, Clone)]
pub(super) enum FileAsk {
    /// Open the file.
    Open {
        /// Path below `webapps`. Each name is that of a folder or file, and no link is followed.
        segments: Vec<String>,
    },
    /// Open the answer to an ACME challenge with this token.
    Challenge {
        /// The token.
        token: String,
    },
    /// Read a block of the file.
    Read {
        /// The file.
        file: Arc<dyn BlockSource>,
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes.
        length: usize,
    },
}

/// The answer to a [`FileAsk`].
#[derive(Debug, Clone)]
pub(super) enum FileReply {
    /// The result of [`FileAsk::Open`] or [`FileAsk::Challenge`].
    Opened(Result<OpenedFile, FileError>),
    /// The result of [`FileAsk::Read`].
    Block(Bytes),
}

/// Ids of a session's file jobs. At most one job is in progress; the id in its answer tells
/// which kind it was.
const OPEN: JobId = JobId(0);
const READ: JobId = JobId(1);

impl From<FileAsk> for Job {
    fn from(ask: FileAsk) -> Self {
        match ask {
            FileAsk::Open { segments } => {
                Self { id: OPEN, app: None, work: Work::FileOpen { path: segments } }
            }
            FileAsk::Challenge { token } => Self { id: OPEN, app: None, work: Work::ChallengeOpen { token } },
            FileAsk::Read { file, offset, length } => {
                Self { id: READ, app: None, work: Work::FileRead { file, offset, length } }
            }
        }
    }
}

impl From<JobDone> for FileReply {
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the file was not looked after")]
    fn from(done: JobDone) -> Self {
        match done.outcome {
            Outcome::Opened(result) => Self::Opened(result),
            Outcome::Block(block) => Self::Block(block),
            _ if done.id == OPEN => Self::Opened(Err(FileError::Failed)),
            _ => Self::Block(Bytes::new()),
        }
    }
}
