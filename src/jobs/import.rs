//! Folders of files that are imported into an application through a link below its `streams`.

use std::sync::Arc;

use super::Finished;

/// Work on an imported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportWork {
    /// Link the folder, and find its files.
    Link {
        /// Name of the application.
        app: Arc<str>,
        /// Folder as requested; a relative path starts at the home folder.
        folder: String,
    },
    /// Remove the link, but keep the folder and its files.
    Unlink {
        /// Name of the application.
        app: Arc<str>,
        /// Folder as requested; a relative path starts at the home folder.
        folder: String,
    },
}

/// A file of an imported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedFile {
    /// Path below the application.
    pub path: String,
    /// Properties read from the file.
    pub finished: Finished,
}

/// The outcome of [`ImportWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The link exists; these are the files.
    Linked(Vec<ImportedFile>),
    /// The link is removed. The text is the former prefix of the files' paths below the application.
    Unlinked(String),
    /// The folder is outside all importable folders.
    Outside,
    /// The folder is missing or not a folder, or the link is missing.
    Missing,
    /// Another entry in `streams` has this name.
    Taken(String),
    /// Too many files, or too many levels of folders.
    TooMany,
    /// A failure, with the reason. Nothing is linked.
    Failed(String),
}
