//! The store of records: one file, which is loaded as a whole at start. Changes are written in batches, each with one
//! fsync.
//!
//! All reads are served from memory; the store only makes records durable. Flow:
//! 1. [`Store::load`] at start reads all records. If it fails, the server does not start.
//! 2. Control gathers changes and sends [`Request::Commit`]. The store's thread sends a [`Reply`] once they are on
//!    disk.
//! 3. After a failed commit, the content of the file counts as unknown (docs/robustness.md B-04). Commits fail until
//!    [`Request::Rebuild`] has written a new file from memory and put it in place of the old one. A write that has
//!    failed is never retried and then reported as durable. Further attempts begin with a [`Request::Probe`], and
//!    pauses between them grow to half a minute.
//! 4. [`Request::Backup`] copies a snapshot on a separate thread, while commits continue ([`backup`]).

pub mod backup;
mod memory;
mod redb;
pub mod salvage;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

pub use self::memory::{Faults, Memory};
pub use self::redb::{RedbStore, check_copy};
use crate::types::StreamKey;
use backup::Backup;

/// Reasons why the store failed. The texts are for the log and the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store is open in another process.
    #[error("{0}: in use by another process")]
    Locked(String),
    /// The file is not a store, or partly unreadable.
    #[error("{path}: damaged: {reason}")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Kind of damage.
        reason: String,
    },
    /// The file was written by a newer server.
    #[error("{path}: has version {version}, which this server does not know")]
    Version {
        /// Path of the file.
        path: String,
        /// Version of the file.
        version: u64,
    },
    /// The system reported an error.
    #[error("{path}: {reason}")]
    Io {
        /// Path of the file.
        path: String,
        /// Text of the operating system.
        reason: String,
    },
    /// The disk, or the share of it that the server may use, is full.
    #[error("{path}: {reason}")]
    Full {
        /// The file's path.
        path: String,
        /// The text of the operating system.
        reason: String,
    },
    /// The file is missing, although this home has had a store before.
    #[error("{0}: missing, although this home has been used; its users and records would be gone")]
    Missing(String),
    /// The file was removed or replaced while the server ran.
    #[error("{0}: was removed or replaced while the server runs")]
    Gone(String),
    /// The content of the file is unknown after a failed commit. Only a rebuild helps.
    #[error("the store must be rebuilt after an earlier failure")]
    Unknown,
}

/// The kind of a record. The store has a table for each kind and does not interpret records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A broadcast of an application.
    Broadcast,
    /// A token of a stream.
    Token,
    /// A subscriber of a stream.
    Subscriber,
    /// A user of the management API, without an application.
    User,
    /// A playable file of an application.
    Vod,
}

impl Kind {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Broadcast, Self::Token, Self::Subscriber, Self::User, Self::Vod];

    /// Returns the name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.table()
    }

    /// Returns the name of the kind's table. The table's record count in the file has the same name.
    const fn table(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcasts",
            Self::Token => "tokens",
            Self::Subscriber => "subscribers",
            Self::User => "users",
            Self::Vod => "vods",
        }
    }
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind of the record.
    pub kind: Kind,
    /// Name of the application, without a slash; empty for records that belong to no application.
    pub app: Arc<str>,
    /// Id, unique within kind and application.
    pub id: Arc<str>,
}

impl Key {
    /// Makes a key.
    #[must_use]
    pub fn new(kind: Kind, app: &str, id: &str) -> Self {
        Self { kind, app: app.into(), id: id.into() }
    }
}

impl From<StreamKey> for Key {
    fn from(key: StreamKey) -> Self {
        Self { kind: Kind::Broadcast, app: key.app, id: key.id }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.id)
    }
}

/// A change to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Insert or replace.
    Put(Key, Bytes),
    /// Remove the record. Does nothing if it is missing.
    Delete(Key),
}

impl Op {
    /// Returns the key of the changed record.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// A task on a store, from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Check the whole store, or a copy.
    Check(Option<PathBuf>),
    /// Copy the store, even while the server runs. If a path is given, copy it to that file, too.
    Backup(Option<PathBuf>),
    /// Replace the store with a copy.
    Restore(PathBuf),
    /// Print all records, of the store or a copy.
    Export(Option<PathBuf>),
    /// Rescue readable records from a damaged store.
    Salvage(Option<PathBuf>),
    /// Create records for recordings that have none.
    Reindex,
}

/// Durable storage of records.
pub trait Store: Send {
    /// Passes all committed records to `give`, in order of their keys.
    ///
    /// # Errors
    /// Some records cannot be read. A server must not start with the records that were already passed to `give`.
    fn read(&mut self, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error>;

    /// Returns all committed records, in order of their keys.
    ///
    /// # Errors
    /// Some records are unreadable.
    fn load(&mut self) -> Result<Vec<(Key, Bytes)>, Error> {
        let mut all = Vec::new();
        self.read(&mut |key, bytes| all.push((key, bytes)))?;
        Ok(all)
    }

    /// Commits either all of the changes or none of them.
    ///
    /// # Errors
    /// The content of the file is unknown afterwards. Later commits fail until a rebuild.
    fn commit(&mut self, ops: &[Op]) -> Result<(), Error>;

    /// Checks by a small file that a new file can be written. A store that does not write files succeeds.
    ///
    /// # Errors
    /// A rebuild would fail.
    fn probe(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Replaces the file by a new one that contains these records.
    ///
    /// # Errors
    /// As for [`Store::commit`].
    fn rebuild(&mut self, all: &[(Key, Bytes)]) -> Result<(), Error>;

    /// Takes a snapshot. The function that is returned copies the snapshot. It can run on any thread, while commits
    /// continue.
    fn backup(&mut self, backup: &Backup) -> Copying;
}

/// The remaining work of a backup.
pub type Copying = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// A request from control to the store's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Commit changes.
    Commit {
        /// Number of the request, returned in the reply.
        batch: u64,
        /// Changes, of which either all or none are made.
        ops: Vec<Op>,
    },
    /// Check that a new file can be written, after a failed rebuild.
    Probe {
        /// Number of the request, returned in the reply.
        batch: u64,
    },
    /// Write all records to a new file.
    Rebuild {
        /// Number of the request, returned in the reply.
        batch: u64,
        /// All records.
        all: Vec<(Key, Bytes)>,
    },
    /// Copy the committed records.
    Backup {
        /// Number of the request, returned in the reply. Replies to later requests may come first.
        batch: u64,
        /// Name of the copy, and number of copies to keep.
        backup: Backup,
    },
}

/// Number of the replies that report a failed commit of another process, after which the store has to be rebuilt.
pub const OF_OTHERS: u64 = 0;

/// The reply to a request. Replies to commits and rebuilds are sent in the order of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Number of the request.
    pub batch: u64,
    /// Result of the request.
    pub result: Result<(), Error>,
}

/// Handles one request.
pub fn handle(store: &mut dyn Store, request: Request) -> Reply {
    match request {
        Request::Commit { batch, ops } => Reply { batch, result: store.commit(&ops) },
        Request::Probe { batch } => Reply { batch, result: store.probe() },
        Request::Rebuild { batch, all } => Reply { batch, result: store.rebuild(&all) },
        Request::Backup { batch, backup } => Reply { batch, result: store.backup(&backup)() },
    }
}
