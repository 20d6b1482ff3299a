//! Files uploaded as the body of a request: control's grant, and the outcome.

use std::sync::Arc;

use crate::jobs::AppendFile;

/// Control's permission to accept a file.
#[derive(Debug, Clone)]
pub struct UploadGrant {
    /// The empty file to write to.
    pub file: Arc<dyn AppendFile>,
    /// The maximum length of the body in bytes.
    pub bytes_max: u64,
}

/// The outcome of a granted upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadNews {
    /// The whole file is written; the session waits for the answer.
    Received {
        /// The form's `metadata` part.
        metadata: Option<String>,
    },
    /// The file cannot be written; the session waits for the answer.
    Failed(&'static str),
    /// The request has ended; no answer is awaited.
    Gone,
}
