//! The files of a stream that viewers can go back in: segments, and lists of those that go together.

use std::time::Duration;

use bytes::Bytes;

/// The folder of an application that has these folders. Names that begin with a dot are not served.
pub const DVR: &str = ".dvr";
/// Ending of the names of lists. A list stands beside the segments that it names.
pub const LIST: &str = ".list";

/// Work on the files of one stream, in a folder of its own. Its path is below the root folder, the application's name first; links are
/// not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DvrWork {
    /// Read the lists of a former run, and remove everything that they do not name.
    Resume {
        /// The folder.
        folder: Vec<String>,
        /// Folders of the application to which nothing was added for so long are removed.
        keep: Duration,
    },
    /// Write a file in one step.
    Put {
        /// The folder; it is created if missing.
        folder: Vec<String>,
        /// Name of the file.
        name: String,
        /// Complete content.
        data: Bytes,
        /// Bytes that all such folders of the application may have.
        cap: u64,
        /// As for [`Self::Resume`].
        keep: Duration,
    },
    /// Remove files; missing ones do not matter.
    Drop {
        /// The folder.
        folder: Vec<String>,
        /// Names of the files.
        names: Vec<String>,
    },
    /// Remove the folder.
    Clear {
        /// The folder.
        folder: Vec<String>,
    },
}

impl DvrWork {
    /// Returns the bytes that the work holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Put { data, .. } => data.len(),
            Self::Resume { .. } | Self::Drop { .. } | Self::Clear { .. } => 0,
        }
    }
}

/// The result of [`DvrWork`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DvrDone {
    /// Lists of a former run, the oldest first.
    pub lists: Vec<Bytes>,
    /// Bytes in all such folders of the application.
    pub app_bytes: u64,
    /// Streams that have a folder.
    pub folders: u64,
}
