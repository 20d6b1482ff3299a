//! Files that come as the body of a request: control's permission, and what became of one.

use std::sync::Arc;

use crate::jobs::AppendFile;

/// Control's permission to take a file in.
#[derive(Debug, Clone)]
pub struct UploadGrant {
    /// The empty file that it goes into.
    pub file: Arc<dyn AppendFile>,
    /// The longest body.
    pub bytes_max: u64,
}

/// The outcome of a file that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadNews {
    /// All of it is written; the session waits for the answer.
    Received {
        /// The part `metadata` of the form.
        metadata: Option<String>,
    },
    /// The file cannot be written; the session waits for the answer.
    Failed(&'static str),
    /// Nobody waits for it any more.
    Gone,
}
