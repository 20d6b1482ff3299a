//! Ids of workers, sessions, streams and outbound attempts.

/// Index of a worker, dense from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A connection of one worker. The generation tells a reused slot from its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Index into the worker's slab.
    pub slot: u32,
    /// Counts the reuses of the slot.
    pub generation: u32,
}

/// Tells the publications, the subscriptions, the children and the requests of one session apart. The session chooses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u16);

impl Handle {
    /// The handle of a session that has one at a time.
    pub const ONLY: Self = Self(0);
}

/// A subscription of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId {
    /// The session.
    pub conn: ConnId,
    /// The session's name for it.
    pub handle: Handle,
}

/// A session of any worker, and which of its publications, subscriptions or requests is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// The worker of the session.
    pub worker: WorkerId,
    /// The connection.
    pub conn: ConnId,
    /// The publication, subscription or request.
    pub handle: Handle,
}

impl SessionRef {
    /// A session as a whole.
    #[must_use]
    pub const fn new(worker: WorkerId, conn: ConnId) -> Self {
        Self { worker, conn, handle: Handle::ONLY }
    }
}

/// A life of a stream, from its first publisher to its end. A publisher that returns within the grace keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A restreaming endpoint while its broadcast is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId(pub u64);

/// A run of a stream source, from its start to its stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);

/// A recording of a live stream, of one file or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingId(pub u64);
