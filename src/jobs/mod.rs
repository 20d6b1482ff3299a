//! Jobs: values that describe work that may block. State machines submit them; threads in [`crate::io`] do the work.
//!
//! 1. A submitter makes a [`Job`]: a [`JobId`] of its own choice and the [`Work`].
//! 2. The job service queues the job by [`Class`]. Each class has its own threads and queue, so that a full or hanging class does not block
//!    others. Within a class, each application has its share ([`shares`]). Jobs of an application for the same target begin in order of
//!    submission, but may end in another order if the class has several threads. A submitter that needs an order submits each job after the
//!    answer to the previous one.
//! 3. Every job is answered exactly once, with a [`JobDone`] that has its id: immediately with [`Outcome::Busy`] if the queue of its class
//!    is full, else when the work is done. The submitter keeps what is needed to continue after the answer.
//!
//! The store is not a class: its thread is the one writer of one file and gathers commits ([`crate::store`]).

mod admin;
mod archive;
mod compute;
mod dvr;
mod files;
mod import;
mod key_info;
mod node;
mod object;
mod password;
mod picture;
mod post;
mod recording;
mod relay;
pub mod shares;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::auth::HookUrl;
pub use admin::{AdminOutcome, AdminWork};
pub use archive::ArchiveWork;
pub use compute::{Compute, Computed};
pub use dvr::{DVR, DvrDone, DvrWork, LIST, Writer};
pub use files::{AppendError, AppendFile, AppendTo, Appended, BlockSource, FileError, OpenedFile};
pub use import::{ImportOutcome, ImportWork, ImportedFile};
pub use key_info::{KEY_BYTES, KEY_INFO_BYTES_MAX, KeyInfo, KeyInfoLines};
pub use node::{NodeOutcome, NodeWork};
pub use object::{ObjectAction, ObjectOutcome, ObjectWork};
pub use password::{PASSWORD_CHARS_MIN, PasswordDigest, PasswordOutcome, PasswordWork};
pub use picture::{KEY_FRAME_BYTES_MAX, NoPicture, PictureOutcome, PictureWork};
pub use post::{BodyType, Post, Receiver};
pub use recording::{Finished, RecordingOutcome, RecordingWork, UNFINISHED, numbered, series_of};
pub use relay::RelayWork;
use shares::Payer;

/// Identifies a job among all jobs of its submitter, which chooses the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Work, with an id for its answer.
#[derive(Debug)]
pub struct Job {
    /// Id, returned in [`JobDone`].
    pub id: JobId,
    /// Application for which the job counts ([`shares`]); `None` for the server itself. A session may leave this out;
    /// its worker then sets it.
    pub app: Option<Arc<str>>,
    /// The work to do.
    pub work: Work,
}

impl Job {
    /// Returns the application and target that the job counts for.
    #[must_use]
    pub fn payer(&self) -> Payer {
        Payer::new(self.app.as_ref(), &self.work.target())
    }
}

/// The answer to a [`Job`].
#[derive(Debug, Clone)]
pub struct JobDone {
    /// Id of the job.
    pub id: JobId,
    /// Outcome of the work.
    pub outcome: Outcome,
}

/// The work of a job.
#[derive(Debug)]
pub enum Work {
    /// Resolve a host name.
    Resolve {
        /// Host name; forms like `127.1` are left to the resolver.
        host: String,
        /// Port of the resulting addresses.
        port: u16,
    },
    /// Ask a STUN server for the address of this machine; answered like [`Self::Resolve`].
    FindSeen {
        /// Host of the server.
        server: String,
        /// UDP port of the server.
        port: u16,
    },
    /// Send a POST request to a receiver.
    Post(Post),
    /// Fetch a small document from an operator's server.
    Fetch {
        /// URL of the document.
        url: HookUrl,
    },
    /// Hash or verify a password.
    Password(PasswordWork),
    /// Do administrative work: settings, folders of applications, the log, certificates.
    Admin(AdminWork),
    /// Open a file for reading.
    FileOpen {
        /// Path of the file: the folders below the root folder, then the file's name. Links are not
        /// followed.
        path: Vec<String>,
    },
    /// Open the answer to a challenge of a certificate authority (RFC 8555 §8.3) for reading.
    ChallengeOpen {
        /// Token of the challenge, which is the file's name.
        token: String,
    },
    /// Read a block of an open file.
    FileRead {
        /// File from [`Outcome::Opened`].
        file: Arc<dyn BlockSource>,
        /// Offset of the block.
        offset: u64,
        /// Maximum bytes to read, up to [`READ_BYTES_MAX`].
        length: usize,
    },
    /// Read a key info file and the key that it names.
    KeyInfo {
        /// Path of the file, as given by the operator.
        path: Arc<Path>,
    },
    /// Append to a file, which is created if missing.
    FileAppend {
        /// File to append to.
        to: AppendTo,
        /// Data, in order. If empty, the file is only created and opened.
        data: Vec<Bytes>,
    },
    /// Sync all appended data to the disk (`fdatasync`).
    FileSync {
        /// File from [`Outcome::Appended`].
        file: Arc<dyn AppendFile>,
    },
    /// Finish or remove a recording.
    Recording(RecordingWork),
    /// Write or remove files of an HLS archive.
    Archive(ArchiveWork),
    /// Push a file of HLS to another server, or remove it there.
    Relay(RelayWork),
    /// Link a folder of files, or remove the link.
    Import(ImportWork),
    /// Upload a file to object storage, or remove it there.
    Object(ObjectWork),
    /// Let another node answer a call of the API.
    Node(NodeWork),
    /// Make a picture of a key frame.
    Picture(Box<PictureWork>),
    /// Run a computation that is too long for a worker's turn.
    Compute(Compute),
}

/// Maximum bytes that one [`Work::FileRead`] reads.
pub const READ_BYTES_MAX: usize = 1 << 20;

impl Work {
    /// Returns the class whose threads do the work.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Resolve { .. } | Self::FindSeen { .. } => Class::Resolve,
            Self::Post(post) => match post.receiver {
                Receiver::Hook => Class::Hook,
                Receiver::Admission => Class::Admission,
            },
            Self::Fetch { .. } => Class::Fetch,
            Self::Password(_) => Class::Password,
            Self::Admin(_) => Class::Admin,
            Self::FileOpen { .. }
            | Self::ChallengeOpen { .. }
            | Self::FileRead { .. }
            | Self::KeyInfo { .. } => Class::FileRead,
            Self::FileAppend { .. } => Class::FileWrite,
            Self::FileSync { .. } | Self::Archive(_) => Class::FileSync,
            Self::Recording(_) | Self::Import(_) => Class::Recording,
            Self::Relay(_) => Class::Relay,
            Self::Object(_) => Class::Object,
            Self::Node(_) => Class::Node,
            Self::Picture(_) => Class::Picture,
            Self::Compute(_) => Class::Compute,
        }
    }

    /// Returns the network peer on which the work depends: the zone of the name if a name is to be resolved,
    /// else the host. Empty for local work.
    #[must_use]
    pub fn target(&self) -> String {
        let of_url = |url: &url::Url| {
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0))
        };
        match self {
            Self::Resolve { host, .. } | Self::FindSeen { server: host, .. } => zone(host).to_owned(),
            Self::Post(post) => format!("{}:{}", post.url.host, post.url.port),
            Self::Fetch { url } => format!("{}:{}", url.host, url.port),
            Self::Relay(work) => of_url(&work.url),
            Self::Object(work) => of_url(&work.storage.endpoint),
            Self::Node(work) => format!("{}:{}", work.host, work.port),
            Self::Password(_)
            | Self::Admin(_)
            | Self::FileOpen { .. }
            | Self::ChallengeOpen { .. }
            | Self::FileRead { .. }
            | Self::KeyInfo { .. }
            | Self::FileAppend { .. }
            | Self::FileSync { .. }
            | Self::Recording(_)
            | Self::Archive(_)
            | Self::Import(_)
            | Self::Picture(_)
            | Self::Compute(_) => String::new(),
        }
    }

    /// Returns the bytes that the job holds while it waits.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::FileAppend { data, .. } => data.iter().map(Bytes::len).fold(0, usize::saturating_add),
            Self::Archive(ArchiveWork::Put { data, .. } | ArchiveWork::Withdraw { data, .. }) => data.len(),
            Self::Archive(ArchiveWork::Dvr(work)) => work.bytes(),
            Self::Relay(work) => work.data.as_ref().map_or(0, Bytes::len),
            Self::Post(post) => post.body.len(),
            Self::Node(work) => work.call.body.len(),
            Self::Picture(work) => work.bytes(),
            Self::Resolve { .. }
            | Self::FindSeen { .. }
            | Self::Fetch { .. }
            | Self::Password(_)
            | Self::Admin(_)
            | Self::FileOpen { .. }
            | Self::ChallengeOpen { .. }
            | Self::FileRead { .. }
            | Self::KeyInfo { .. }
            | Self::FileSync { .. }
            | Self::Recording(_)
            | Self::Archive(ArchiveWork::Remove { .. } | ArchiveWork::Clear { .. })
            | Self::Import(_)
            | Self::Object(_)
            | Self::Compute(_) => 0,
        }
    }
}

/// Returns the last two labels of a host name. Names in the same zone have the same name servers, so either all of them
/// can be resolved or none.
fn zone(host: &str) -> &str {
    let host = host.trim_end_matches('.');
    let mut dots = host.rmatch_indices('.').map(|(at, _)| at.saturating_add(1));
    dots.nth(1).and_then(|at| host.get(at..)).unwrap_or(host)
}

/// The outcome of a job.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// [`Work::Resolve`] and [`Work::FindSeen`]: the addresses in the resolver's order, or the reason for the failure.
    Resolved(Result<Vec<SocketAddr>, String>),
    /// [`Work::Post`]: the status of the response, or the reason for the failure.
    Posted(Result<u16, String>),
    /// [`Work::Fetch`]: the document, or the reason for the failure.
    Fetched(Result<Bytes, String>),
    /// [`Work::Password`].
    Password(PasswordOutcome),
    /// [`Work::Admin`].
    Admin(AdminOutcome),
    /// [`Work::FileOpen`] and [`Work::ChallengeOpen`].
    Opened(Result<OpenedFile, FileError>),
    /// [`Work::FileRead`]: empty at the end of the file or after an error.
    Block(Bytes),
    /// [`Work::KeyInfo`]: the key, or the reason for the failure.
    KeyInfo(Result<KeyInfo, String>),
    /// [`Work::FileAppend`]. After an error, part of the data may be in the file.
    Appended(Result<Appended, AppendError>),
    /// [`Work::FileSync`].
    Synced(Result<(), AppendError>),
    /// [`Work::Recording`].
    Recording(RecordingOutcome),
    /// [`Work::Archive`].
    Archived(Result<(), AppendError>),
    /// [`ArchiveWork::Dvr`].
    Dvr(Result<DvrDone, AppendError>),
    /// [`Work::Relay`], with the reason for a failure.
    Relayed(Result<(), String>),
    /// [`Work::Import`].
    Import(ImportOutcome),
    /// [`Work::Object`].
    Object(ObjectOutcome),
    /// [`Work::Node`].
    Node(NodeOutcome),
    /// [`Work::Picture`].
    Picture(PictureOutcome),
    /// [`Work::Compute`].
    Computed(Computed),
    /// The queue of the class is full, or holds too many bytes. Nothing was done.
    Busy,
    /// The work panicked, or no thread could be started.
    Failed,
}

impl Outcome {
    /// Returns the addresses of a name.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn resolved(self) -> Result<Vec<SocketAddr>, String> {
        if let Self::Resolved(result) = self { result } else { Err(self.reason().to_owned()) }
    }

    /// Returns the key of a key info file.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn key_info(self) -> Result<KeyInfo, String> {
        if let Self::KeyInfo(result) = self { result } else { Err(self.reason().to_owned()) }
    }

    /// Returns the status of a receiver's response.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn posted(self) -> Result<u16, String> {
        if let Self::Posted(result) = self { result } else { Err(self.reason().to_owned()) }
    }

    /// Returns a document.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn fetched(self) -> Result<Bytes, String> {
        if let Self::Fetched(result) = self { result } else { Err(self.reason().to_owned()) }
    }

    /// Returns the outcome of administrative work.
    #[must_use]
    pub fn admin(self) -> AdminOutcome {
        if let Self::Admin(outcome) = self { outcome } else { AdminOutcome::Failed(self.reason().to_owned()) }
    }

    /// Returns the outcome of work on a recording.
    #[must_use]
    pub fn recording(self) -> RecordingOutcome {
        if let Self::Recording(outcome) = self {
            outcome
        } else {
            RecordingOutcome::Failed(self.reason().to_owned())
        }
    }

    /// Returns the outcome of work on an archive.
    ///
    /// # Errors
    /// The reason why the work failed or is incomplete.
    pub fn archived(self) -> Result<(), AppendError> {
        if let Self::Archived(result) = self { result } else { Err(AppendError::Failed) }
    }

    /// Returns the outcome of work on the files of a stream that viewers can rewind.
    ///
    /// # Errors
    /// The reason why the work failed or is incomplete.
    pub fn dvr(self) -> Result<DvrDone, AppendError> {
        if let Self::Dvr(result) = self { result } else { Err(AppendError::Failed) }
    }

    /// Returns the outcome of work on an imported folder.
    #[must_use]
    pub fn import(self) -> ImportOutcome {
        if let Self::Import(outcome) = self {
            outcome
        } else {
            ImportOutcome::Failed(self.reason().to_owned())
        }
    }

    /// Returns the outcome of work on an object.
    #[must_use]
    pub fn object(self) -> ObjectOutcome {
        if let Self::Object(outcome) = self {
            outcome
        } else {
            ObjectOutcome::Failed(self.reason().to_owned())
        }
    }

    /// Returns the outcome of a call to another node.
    #[must_use]
    pub fn node(self) -> NodeOutcome {
        let reason = self.reason();
        // Only if no thread has taken the job (`Busy`), it is certain that nothing was sent.
        let is_sent = !matches!(self, Self::Busy);
        if let Self::Node(outcome) = self {
            outcome
        } else if is_sent {
            NodeOutcome::Failed(reason.to_owned())
        } else {
            NodeOutcome::NotSent(reason.to_owned())
        }
    }

    /// Returns a picture.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn picture(self) -> PictureOutcome {
        let reason = self.reason();
        if let Self::Picture(outcome) = self {
            outcome
        } else {
            Err(NoPicture::Unavailable(reason.to_owned()))
        }
    }

    /// True if the work was started and failed for a reason of this server.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed | Self::Picture(Err(NoPicture::Died(_) | NoPicture::Unavailable(_))))
    }

    /// Returns the reason for an unexpected outcome.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Busy => "the job queue is full",
            Self::Failed => "the job failed",
            Self::Resolved(_)
            | Self::Posted(_)
            | Self::Fetched(_)
            | Self::Password(_)
            | Self::Admin(_)
            | Self::Opened(_)
            | Self::Block(_)
            | Self::KeyInfo(_)
            | Self::Appended(_)
            | Self::Synced(_)
            | Self::Recording(_)
            | Self::Archived(_)
            | Self::Dvr(_)
            | Self::Relayed(_)
            | Self::Import(_)
            | Self::Object(_)
            | Self::Node(_)
            | Self::Picture(_)
            | Self::Computed(_) => "the answer to something else",
        }
    }
}

/// Jobs that share threads and a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Resolving of host names. A name server that does not answer blocks a thread until a timeout.
    Resolve,
    /// Hooks that notify receivers.
    Hook,
    /// Admission hooks, for which a peer waits.
    Admission,
    /// Documents fetched from operators' servers, such as sets of public keys.
    Fetch,
    /// Passwords; each takes some tenths of a second.
    Password,
    /// Administrative work, one job at a time.
    Admin,
    /// Reading of served files.
    FileRead,
    /// Appends to files. A busy disk seldom delays them.
    FileWrite,
    /// Waits for data to reach the disk.
    FileSync,
    /// Recordings that are finished or removed, and folders that are imported.
    Recording,
    /// HLS pushed to other servers.
    Relay,
    /// Files uploaded to object storage.
    Object,
    /// Calls of the API that other nodes answer. A node that hangs blocks a thread until a timeout.
    Node,
    /// Pictures of key frames. If the process that makes a picture hangs, it blocks a thread for some seconds.
    Picture,
    /// Computations of sessions and sinks.
    Compute,
}

/// Limits of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of threads. They are started on demand.
    pub threads: usize,
    /// Maximum number of waiting jobs. Further jobs are answered with [`Outcome::Busy`].
    pub queue: usize,
    /// Maximum bytes held by waiting jobs ([`Work::bytes`]). A single waiting job may exceed this.
    pub bytes: usize,
}

impl Limits {
    /// True if another job may wait. `used` jobs wait already; `own` of them belong to the same application (0 for the
    /// server itself). An application may have no more waiting jobs than the queue has free places. This rule does not
    /// apply if the queue is no longer than the number of threads; the submitter then divides the places.
    #[must_use]
    pub const fn has_room(self, used: usize, own: usize) -> bool {
        let free = self.queue.saturating_sub(used);
        free > 0 && (own <= free || self.queue <= self.threads)
    }

    /// True if another job that holds `more` bytes may wait. The waiting jobs hold `used` bytes; `own` of them belong to
    /// the same application (0 for the server itself). The waiting jobs of an application may hold no more bytes than
    /// are free. A single waiting job may exceed the limit; otherwise it would never be accepted.
    #[must_use]
    pub const fn has_bytes(&self, used: usize, own: usize, more: usize) -> bool {
        let free = self.bytes.saturating_sub(used);
        used == 0 || (more <= free && own <= free)
    }
}

impl Class {
    /// All variants.
    pub const ALL: [Self; 15] = [
        Self::Resolve,
        Self::Hook,
        Self::Admission,
        Self::Fetch,
        Self::Password,
        Self::Admin,
        Self::FileRead,
        Self::FileWrite,
        Self::FileSync,
        Self::Recording,
        Self::Relay,
        Self::Object,
        Self::Node,
        Self::Picture,
        Self::Compute,
    ];

    /// Returns the limits.
    #[must_use]
    pub const fn limits(self) -> Limits {
        const MIB: usize = 1 << 20;
        let (threads, queue, bytes) = match self {
            // A host name whose name server does not answer blocks a thread for ten seconds.
            Self::Resolve => (64, 4096, MIB),
            // Control submits only as many notifications as there are threads. It queues all others
            // itself.
            Self::Hook => (16, 16, 16 * MIB),
            Self::Admission => (32, 32, 16 * MIB),
            // A server that does not answer blocks a thread for some seconds.
            Self::Fetch => (8, 1024, MIB),
            Self::Password => (2, 64, MIB),
            Self::Admin => (1, 64, MIB),
            Self::FileRead => (4, 4096, MIB),
            // If the disk hangs, memory would fill up long before the queue of jobs does, so the
            // limit on bytes is the one that takes effect.
            Self::FileWrite | Self::FileSync => (4, 1024, 64 * MIB),
            // Finishing a recording takes long on file systems that can only copy.
            Self::Recording => (2, 4096, MIB),
            // A server that does not answer blocks a thread until the timeout.
            Self::Relay => (16, 1024, 64 * MIB),
            // A job may take hours. Control queues the jobs for which there is no free thread.
            Self::Object => (8, 256, MIB),
            // A node that hangs blocks a thread for some seconds; slow targets share a quarter of the threads.
            Self::Node => (16, 512, 16 * MIB),
            // Each thread has a process. One application gets at most one of them.
            Self::Picture => (2, 256, 64 * MIB),
            Self::Compute => (8, 1024, MIB),
        };
        Limits { threads, queue, bytes }
    }

    /// True if the threads of the class have lower priority than workers: their work takes long, and may be delayed by
    /// some milliseconds.
    #[must_use]
    pub const fn yields(self) -> bool {
        matches!(self, Self::Compute | Self::Picture | Self::Recording)
    }

    /// Returns the name for threads and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Hook => "hook",
            Self::Admission => "admission",
            Self::Fetch => "fetch",
            Self::Password => "password",
            Self::Admin => "admin",
            Self::FileRead => "file-read",
            Self::FileWrite => "file-write",
            Self::FileSync => "file-sync",
            Self::Recording => "recording",
            Self::Relay => "relay",
            Self::Object => "object",
            Self::Node => "node",
            Self::Picture => "picture",
            Self::Compute => "compute",
        }
    }
}
