//! Files in object storage.

use std::sync::Arc;

use crate::config::S3Settings;

/// Work on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectWork {
    /// The storage.
    pub storage: Arc<S3Settings>,
    /// The object's name.
    pub name: String,
    /// The operation.
    pub action: ObjectAction,
}

/// An operation on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectAction {
    /// Upload a file.
    Put {
        /// Names below the root folder, the file's last.
        path: Vec<String>,
    },
    /// Remove it.
    Remove,
}

/// The outcome of [`ObjectWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// Done.
    Done,
    /// There is no such file.
    NoFile,
    /// The reason of a failure; it carries no credential.
    Failed(String),
}
