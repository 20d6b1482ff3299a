//! The store of records: one file, loaded whole at start, written in batches with one fsync each.
//!
//! Memory is what everybody reads; the store only makes it survive. Flow:
//! 1. [`Store::load`] at start: everything, or an error and no start.
//! 2. Control gathers changes and sends [`Request::Commit`]; [`run`] answers a [`Reply`] once the disk has them.
//! 3. After a failed commit the file is treated as unknown (docs/robustness.md B-04): commits fail until
//!    [`Request::Rebuild`] has written a fresh file from memory and swapped it in. A write is never retried and
//!    then called good.
//! 4. [`Request::Backup`] copies a snapshot on a thread of its own, beside the commits ([`backup`]).

pub mod backup;
mod memory;
mod redb;
pub mod salvage;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use bytes::Bytes;

pub use self::memory::{Faults, Memory};
pub use self::redb::{RedbStore, check_copy};
use crate::types::StreamKey;
use backup::Backup;

/// The reason the store failed. The text is for the log and the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has opened the store.
    #[error("{0}: in use by another process")]
    Locked(String),
    /// The file is not a store, or not all of it can be read.
    #[error("{path}: damaged: {reason}")]
    Damaged {
        /// The file's path.
        path: String,
        /// The damage that was found.
        reason: String,
    },
    /// Written by a newer server.
    #[error("{path}: has version {version}, which this server does not know")]
    Version {
        /// The file's path.
        path: String,
        /// The version found.
        version: u64,
    },
    /// The system refused.
    #[error("{path}: {reason}")]
    Io {
        /// The file's path.
        path: String,
        /// The text of the operating system.
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
    /// There is no file where one has been before.
    #[error("{0}: missing, although this home has been used; its users and records would be gone")]
    Missing(String),
    /// The file was removed or replaced under the server.
    #[error("{0}: was removed or replaced while the server runs")]
    Gone(String),
    /// An earlier commit failed; only a rebuild helps.
    #[error("the store must be rebuilt after an earlier failure")]
    Unknown,
}

/// The kind of a record. The store keeps each in a table of its own and looks into none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A broadcast of an application.
    Broadcast,
    /// A token of a stream.
    Token,
    /// A subscriber of a stream.
    Subscriber,
    /// A user of the management API; of no application.
    User,
    /// A file of an application that can be played.
    Vod,
}

impl Kind {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Broadcast, Self::Token, Self::Subscriber, Self::User, Self::Vod];

    /// The name of such records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.table()
    }

    /// The table's name; also that of its count in the file.
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
    /// The record's kind.
    pub kind: Kind,
    /// The application, whose name has no slash; empty for records without one.
    pub app: Arc<str>,
    /// The id within kind and application.
    pub id: Arc<str>,
}

impl Key {
    /// A key of these parts.
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

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Insert or replace.
    Put(Key, Bytes),
    /// Remove; nothing happens when it is not there.
    Delete(Key),
}

impl Op {
    /// The key of the record that it changes.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }
}

/// A task of the command line for a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Read the whole store, or a copy of one.
    Check(Option<PathBuf>),
    /// Copy it, while the server runs or not; into a file as well, if one is named.
    Backup(Option<PathBuf>),
    /// Put a copy in its place.
    Restore(PathBuf),
    /// Print all records, those of a copy if one is named.
    Export(Option<PathBuf>),
    /// Rescue what can be read of a damaged one.
    Salvage(Option<PathBuf>),
    /// Make records of the recordings that have none.
    Reindex,
}

/// Durable storage of records.
pub trait Store: Send {
    /// Gives everything that was committed, in order of the keys.
    ///
    /// # Errors
    /// Not everything can be read. The records given until then are too few to start with.
    fn read(&mut self, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error>;

    /// Everything that was committed, in order of the keys.
    ///
    /// # Errors
    /// Not everything can be read.
    fn load(&mut self) -> Result<Vec<(Key, Bytes)>, Error> {
        let mut all = Vec::new();
        self.read(&mut |key, bytes| all.push((key, bytes)))?;
        Ok(all)
    }

    /// Makes the changes durable, all or none.
    ///
    /// # Errors
    /// Nothing may be assumed about the file then; later commits fail until a rebuild.
    fn commit(&mut self, ops: &[Op]) -> Result<(), Error>;

    /// Replaces the file by a fresh one with these records.
    ///
    /// # Errors
    /// As for a commit.
    fn rebuild(&mut self, all: &[(Key, Bytes)]) -> Result<(), Error>;

    /// Takes a snapshot. The work that it gives copies it, on whatever thread, while commits go on.
    fn backup(&mut self, backup: &Backup) -> Copying;
}

/// The rest of a backup.
pub type Copying = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// A request of control to the store's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Make durable.
    Commit {
        /// Comes back in the reply.
        batch: u64,
        /// The changes: all or none are made.
        ops: Vec<Op>,
    },
    /// Write everything afresh.
    Rebuild {
        /// Comes back in the reply.
        batch: u64,
        /// All records.
        all: Vec<(Key, Bytes)>,
    },
    /// Copy what is committed.
    Backup {
        /// Comes back in the reply, which may be behind those of later requests.
        batch: u64,
        /// The name of the copy, and what is kept.
        backup: Backup,
    },
}

/// The answer to one request. Commits and rebuilds are answered in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The batch of the request.
    pub batch: u64,
    /// The request's result.
    pub result: Result<(), Error>,
}

/// Does one request.
pub fn handle(store: &mut dyn Store, request: Request) -> Reply {
    match request {
        Request::Commit { batch, ops } => Reply { batch, result: store.commit(&ops) },
        Request::Rebuild { batch, all } => Reply { batch, result: store.rebuild(&all) },
        Request::Backup { batch, backup } => Reply { batch, result: store.backup(&backup)() },
    }
}

/// The store's thread: does requests in order until their sender is gone. Nobody else waits for the disk. A backup is copied on a
/// thread of its own; the end does not wait for it, and what it leaves then is no copy.
pub fn run(
    mut store: Box<dyn Store>,
    requests: &Receiver<Request>,
    reply: impl Fn(Reply) + Clone + Send + 'static,
) {
    while let Ok(request) = requests.recv() {
        let Request::Backup { batch, backup } = request else {
            reply(handle(&mut *store, request));
            continue;
        };
        let (copying, answer) = (store.backup(&backup), reply.clone());
        let copy = move || answer(Reply { batch, result: copying() });
        if let Err(error) = thread::Builder::new().name("backup".to_owned()).spawn(copy) {
            let error = Error::Io { path: backup.name, reason: error.to_string() };
            reply(Reply { batch, result: Err(error) });
        }
    }
}
