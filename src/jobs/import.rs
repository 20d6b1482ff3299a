//! Folders of files that are imported into an application: a link below its `streams`.

use std::sync::Arc;

use super::Finished;

/// Work on such a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportWork {
    /// Link it, and find its files.
    Link {
        /// The application.
        app: Arc<str>,
        /// The folder, as it was asked for; a path that is not absolute begins at the home.
        folder: String,
    },
    /// Remove the link. The folder and its files stay.
    Unlink {
        /// The application.
        app: Arc<str>,
        /// The folder, likewise.
        folder: String,
    },
}

/// A file of an imported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedFile {
    /// Its path below the application.
    pub path: String,
    /// The properties that the file gives of itself.
    pub finished: Finished,
}

/// The outcome of [`ImportWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// Linked, with these files.
    Linked(Vec<ImportedFile>),
    /// The link is removed. The paths of its files below the application began with this.
    Unlinked(String),
    /// In none of the folders that may be imported from.
    Outside,
    /// Not there, or no folder; or not linked.
    Missing,
    /// Something of this name is in `streams` already.
    Taken(String),
    /// More files, or more folders within folders, than are imported.
    TooMany,
    /// The reason of a failure. Nothing is linked.
    Failed(String),
}
