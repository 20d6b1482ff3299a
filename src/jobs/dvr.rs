//! The files of a stream that viewers can rewind: segments, and lists of segments that belong together.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

/// Folder of an application that contains the folders of streams that viewers can rewind. Its name begins with a
/// dot, so its files are not served.
pub const DVR: &str = ".dvr";
/// Suffix of the names of lists. A list is in the folder of the segments that it names.
pub const LIST: &str = ".list";

/// Tells whether a stream still writes to its folder. The stream holds an `Arc` while it writes and drops it
/// when it ends, in whatever way; this value observes that.
#[derive(Debug, Clone, Default)]
pub struct Writer(Weak<()>);

impl Writer {
    /// Observes a value that a stream holds while it writes.
    #[must_use]
    pub fn of(stream: &Arc<()>) -> Self {
        Self(Arc::downgrade(stream))
    }

    /// True if the stream has not ended, so that it may still write.
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

/// Work on the files of one stream, or on the folders of ended streams. A path is relative to the root folder and
/// begins with the application's name; links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DvrWork {
    /// Read the lists that an earlier run of the stream has left, and remove all files that they do
    /// not name. Nothing is done while another stream writes to the folder ([`DvrDone::is_taken`]).
    Resume {
        /// The folder.
        folder: Vec<String>,
        /// Time after which folders of the application are removed if nothing was added to them.
        keep: Duration,
        /// The stream. A stream has a folder for each of its playlists.
        stream: String,
        /// The writer of the folder. The folder is kept as long as the writer exists.
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
        /// Maximum bytes of the application's [`DVR`] folder. To make room for a file, folders of ended streams
        /// are removed.
        cap: u64,
        /// Time after which folders of the application are removed if nothing was added to them.
        keep: Duration,
    },
    /// Remove files. Files that do not exist are skipped.
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
    /// Remove all folders whose names begin with `start`; a stream has one for each track.
    ClearAll {
        /// The application.
        app: String,
        /// Beginning of the names; not empty.
        start: String,
    },
    /// Remove folders of ended streams to which viewers can no longer rewind, i.e. to which nothing was added for
    /// some time. The application's last [`Self::Resume`] or [`Self::Put`] has set this time; it is a day if there
    /// was none since the start.
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
            Self::Resume { .. }
            | Self::Drop { .. }
            | Self::Clear { .. }
            | Self::ClearAll { .. }
            | Self::Sweep { .. } => 0,
        }
    }
}

/// The result of [`DvrWork`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DvrDone {
    /// Lists that an earlier run of the stream has left, the oldest first.
    pub lists: Vec<Bytes>,
    /// Total bytes in the folders of the application's streams that are still writing.
    pub app_bytes: u64,
    /// Number of the application's streams that are still writing.
    pub streams: u64,
    /// Bytes in the folders of the stream for which the work was done, if it is still writing.
    pub stream_bytes: u64,
    /// True if nothing was done, because an earlier stream still writes to the folder.
    pub is_taken: bool,
}
