//! The files of a stream that viewers can go back in: segments, and lists of those that go together.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

/// The folder of an application that has these folders. Names that begin with a dot are not served.
pub const DVR: &str = ".dvr";
/// Ending of the names of lists. A list stands beside the segments that it names.
pub const LIST: &str = ".list";

/// Tells whether a stream writes to its folder: for as long as its value is there, however it ends.
#[derive(Debug, Clone, Default)]
pub struct Writer(Weak<()>);

impl Writer {
    /// Follows a value that a stream has while it writes.
    #[must_use]
    pub fn of(stream: &Arc<()>) -> Self {
        Self(Arc::downgrade(stream))
    }

    /// True if the stream writes.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for Writer {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Writer {}

/// Work on the files of one stream, or on those that streams have left, in a folder of its own. Its path is below the root folder, the application's name first; links are
/// not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DvrWork {
    /// Read the lists of a former run, and remove everything that they do not name.
    Resume {
        /// The folder.
        folder: Vec<String>,
        /// Folders of the application to which nothing was added for so long are removed.
        keep: Duration,
        /// The stream, whose folder stays while it is there.
        writer: Writer,
    },
    /// Write a file in one step.
    Put {
        /// The folder; it is created if missing.
        folder: Vec<String>,
        /// Name of the file.
        name: String,
        /// Complete content.
        data: Bytes,
        /// Bytes that all such folders of the application may have. Those of streams that are over go for a file that exceeds them.
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
    /// Remove folders of streams that are over which viewers cannot go back to any more: those to which nothing was added for as long as
    /// the last [`Self::Resume`] or [`Self::Put`] of the application has said, or for a day where there was none since the start.
    Sweep {
        /// The applications.
        apps: Vec<String>,
    },
}

impl DvrWork {
    /// Returns the bytes that the work holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Put { data, .. } => data.len(),
            Self::Resume { .. } | Self::Drop { .. } | Self::Clear { .. } | Self::Sweep { .. } => 0,
        }
    }
}

/// The result of [`DvrWork`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DvrDone {
    /// Lists of a former run, the oldest first.
    pub lists: Vec<Bytes>,
    /// Bytes in the folders of the application's streams that write.
    pub app_bytes: u64,
    /// Streams that write.
    pub folders: u64,
}
