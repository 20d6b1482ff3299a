//! Files in object storage.

use std::sync::Arc;

use crate::config::S3Settings;

/// Work on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectWork {
    /// Object storage.
    pub storage: Arc<S3Settings>,
    /// Name of the object.
    pub name: String,
    /// Operation to do.
    pub action: ObjectAction,
}

/// An operation on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectAction {
    /// Upload a file.
    Put {
        /// Path of the file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
    /// Remove the object.
    Remove,
}

/// The outcome of [`ObjectWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// Success.
    Done,
    /// The file does not exist.
    NoFile,
    /// A failure, with a reason that has no credentials.
    Failed(String),
}
