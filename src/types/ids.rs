//! Ids of workers, sessions, streams and outbound attempts.

/// Index of a worker. Indexes are consecutive, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A connection of one worker. The generation distinguishes a reused slot from its earlier use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Index into the worker's slab.
    pub slot: u32,
    /// Number of reuses of the slot.
    pub generation: u32,
}

/// Identifies a publication, subscription, child connection or request within one session. The session chooses the
/// number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u16);

impl Handle {
    /// Handle used by a session that has only one publication, subscription or request.
    pub const ONLY: Self = Self(0);
}

/// A subscription of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId {
    /// Connection of the session.
    pub conn: ConnId,
    /// Handle within the session.
    pub handle: Handle,
}

/// A session of any worker, with one of its publications, subscriptions or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// Worker of the session.
    pub worker: WorkerId,
    /// Connection of the session.
    pub conn: ConnId,
    /// Handle of the publication, subscription or request.
    pub handle: Handle,
}

impl SessionRef {
    /// Refers to a session as a whole.
    #[must_use]
    pub const fn new(worker: WorkerId, conn: ConnId) -> Self {
        Self { worker, conn, handle: Handle::ONLY }
    }
}

/// A stream, from its first publisher to its end. A publisher that returns within the grace period continues the same
/// stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A restreaming endpoint of a live broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId(pub u64);

/// A run of a stream source, from start to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);

/// A recording of a live stream, of one file or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingId(pub u64);
