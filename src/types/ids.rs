//! What workers, sessions, streams and outbound attempts are told apart by.

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

/// A session of any worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// Where it lives.
    pub worker: WorkerId,
    /// Which one.
    pub conn: ConnId,
}

/// One life of a stream, from its first publisher to its end. A publisher that returns within the grace keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// One restreaming endpoint while its broadcast is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId(pub u64);

/// One run of a stream source, from its start to its stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);
