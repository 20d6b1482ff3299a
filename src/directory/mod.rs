//! The directory that the nodes of a cluster share. It has the records, and says which node publishes which id
//! (docs/cluster.md).
//!
//! The messages between control and the threads that use the directory:
//! 1. Control sends a [`Request`] to claim ids and to release them.
//! 2. The directory reports changes made by other nodes, claims, and the live nodes ([`News`]), in the order that the
//!    directory gives them.
//!
//! A node has a lease, which it renews. Its claims are valid as long as the lease, and are not renewed separately.

mod desk;
mod link;
mod scripts;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::store::Op;
use crate::types::{NodeId, StreamKey};

pub use desk::{Desk, Side};
pub use link::{Address, Census, ClockWatch, Link, Process};
pub use shared::Shared;

/// A node in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Id of the node.
    pub id: NodeId,
    /// Number of the node's current process. It is larger than the numbers of the node's earlier processes.
    pub incarnation: u64,
    /// True if the node's lease is valid.
    pub is_alive: bool,
    /// Facts that the node publishes about itself.
    pub profile: Profile,
    /// Milliseconds since the node's last renewal, by the directory's clock.
    pub silent_ms: u64,
}

impl Node {
    /// Returns the prefix of URLs at which clients reach the node; empty if the node has no address.
    #[must_use]
    pub fn address(&self) -> String {
        let Profile { public, http, .. } = &self.profile;
        match (public.is_empty(), http.is_empty()) {
            (false, _) => public.to_string(),
            (true, false) => format!("http://{http}"),
            (true, true) => String::new(),
        }
    }
}

/// Facts that a node publishes about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// `host:port` of the node's relay; empty if it has none.
    pub relay: Arc<str>,
    /// `host:port` of the node's HTTP listener.
    pub http: Arc<str>,
    /// `cluster.region`.
    pub region: Arc<str>,
    /// True if the other nodes of its region fetch the streams of other regions through it (`cluster.tier=relay`).
    pub is_regional_relay: bool,
    /// `cluster.public_address`; may be empty.
    pub public: Arc<str>,
    /// Busy share of the node's workers, in percent.
    pub cpu_percent: u8,
    /// Used memory of the node's machine, in percent.
    pub memory_percent: u8,
    /// True if the node is draining: it takes no new sessions.
    pub is_draining: bool,
}

/// The node that holds an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Fencing token: if there are two claims of an id, the one with the larger token is valid.
    pub token: u64,
    /// Incarnation of the node.
    pub incarnation: u64,
    /// Id of the node.
    pub node: NodeId,
}

/// The number of connections that a subscriber has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// The stream.
    pub key: StreamKey,
    /// Id of the subscriber.
    pub subscriber: String,
    /// Number of connections.
    pub count: u32,
}

/// The number of connections that a subscriber has at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The node.
    pub node: NodeId,
    /// Number of the node's process that reported them.
    pub incarnation: u64,
    /// The subscriber and the number of its connections; zero if it has none any more.
    pub subscribed: Subscribed,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The id now belongs to this node, under this token.
    Granted(u64),
    /// Another live node has the id.
    Taken(NodeId),
    /// The directory is unreachable.
    Away,
}

/// A request from control to the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Claim an id; answered with [`News::Answer`].
    Claim {
        /// Number of the request, returned with the answer.
        ticket: u64,
        /// Id to claim.
        key: StreamKey,
    },
    /// Assert a claim after the directory was away. Token 0 requests a new token, which is larger than all others. The
    /// outcome is reported as [`News::Claim`].
    Keep {
        /// Id of the claim.
        key: StreamKey,
        /// Token of the claim.
        token: u64,
    },
    /// Release an id. Has no effect if another claim of the id is valid in the meantime.
    Release {
        /// Id to release.
        key: StreamKey,
        /// Token of the claim.
        token: u64,
    },
    /// Give an id to another live node, which then holds it. The outcome, if there is one, is reported as
    /// [`News::Claim`].
    HandOver {
        /// Id to give away.
        key: StreamKey,
        /// Token of the claim. If it is no longer valid, nothing happens.
        token: u64,
        /// The node that gets the id, and the number of its process.
        to: (NodeId, u64),
    },
    /// End the claim of a node that is gone, unless the claim is no longer valid. The outcome is reported as
    /// [`News::Claim`].
    Bury {
        /// Id of the claim.
        key: StreamKey,
        /// Token of the claim.
        token: u64,
    },
    /// Remove a record. It must exist; the answer is [`News::Burnt`].
    Burn {
        /// Number of the request, returned with the answer.
        ticket: u64,
        /// Record to remove.
        key: crate::store::Key,
    },
    /// Restore records that the directory has lost. Records that exist are not changed.
    Refill(Vec<(crate::store::Key, bytes::Bytes)>),
    /// Publish the load of this node, in percent.
    Load {
        /// Load of the workers.
        cpu: u8,
        /// Used memory.
        memory: u8,
    },
    /// Inform the other nodes immediately whether this node is draining.
    Draining(bool),
    /// Tell the other nodes how many connections a subscriber has at this node.
    Present(Subscribed),
    /// Forget a node that is not alive.
    Forget(NodeId),
    /// The answer to [`News::Pair`]: the ids that this process has.
    Paired(Vec<(StreamKey, Holder)>),
}

/// News from the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Changes of records that another node has committed. Changes of this node that are not answered yet come later in
    /// the directory's order.
    Foreign(Vec<Op>),
    /// The valid claim of an id.
    Claim {
        /// Id of the claim.
        key: StreamKey,
        /// Node that holds the id; `None` if free.
        holder: Option<Holder>,
    },
    /// All valid claims. An id without a claim is free.
    Claims(Vec<(StreamKey, Holder)>),
    /// Number of connections of a subscriber at a node.
    Present(Presence),
    /// Numbers of connections of all subscribers at all nodes.
    Presences(Vec<Presence>),
    /// All known nodes.
    Nodes(Vec<Node>),
    /// The answer to a claim.
    Answer {
        /// Number of the request.
        ticket: u64,
        /// Id that was claimed.
        key: StreamKey,
        /// Result of the claim.
        answer: ClaimAnswer,
    },
    /// The answer to [`Request::Burn`].
    Burnt {
        /// Number of the request.
        ticket: u64,
        /// True if this request removed the record.
        is_burnt: bool,
    },
    /// True if the directory is reachable.
    Contact(bool),
    /// The directory has lost data that this node has seen.
    Lost,
    /// The directory's clock was set. The next list of nodes may show live nodes as gone.
    ClockSet,
    /// Another process is about to take over from this one. The two are nodes to each other, and this one gets the
    /// given name. Answered with [`Request::Paired`].
    Pair(Process),
}
