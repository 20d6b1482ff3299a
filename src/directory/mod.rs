//! The directory that the nodes of a cluster share: the records, and which node publishes which id (docs/cluster.md).
//!
//! The words between control and the threads that talk to the directory stand here:
//! 1. Control asks ([`Request`]) to claim ids and to give them back.
//! 2. The directory reports changes of other nodes, claims, and the nodes that are alive ([`News`]), in its own order.
//!
//! A node has a lease, which it renews. Its claims hold as long as the lease does, and are not renewed themselves.

mod link;
mod scripts;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::store::Op;
use crate::types::{NodeId, StreamKey};

pub use link::{Address, Census, Link, Process};
pub use shared::Shared;

/// A node as the directory knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The node's name.
    pub id: NodeId,
    /// A number of the present process; larger than those of earlier ones of the same name.
    pub incarnation: u64,
    /// Whether its lease has not run out.
    pub is_alive: bool,
    /// The facts that it tells about itself.
    pub profile: Profile,
    /// Milliseconds since its last sign of life, by the directory's clock.
    pub silent_ms: u64,
}

impl Node {
    /// The beginning of URLs by which clients reach the node; empty when it has none.
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

/// The facts that a node tells about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// `host:port` of its relay; empty without one.
    pub relay: Arc<str>,
    /// `host:port` of its HTTP listener.
    pub http: Arc<str>,
    /// `cluster.region`.
    pub region: Arc<str>,
    /// `cluster.public_address`; may be empty.
    pub public: Arc<str>,
    /// Busy share of its workers, in percent.
    pub cpu_percent: u8,
    /// Used memory of its machine, in percent.
    pub memory_percent: u8,
}

/// The node that has an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The fencing token: of two claims of an id, the one with the larger token is in force.
    pub token: u64,
    /// The incarnation of the node.
    pub incarnation: u64,
    /// The node.
    pub node: NodeId,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The id is this node's, under this token.
    Granted(u64),
    /// Another node that is alive has the id.
    Taken(NodeId),
    /// The directory cannot be asked.
    Away,
}

/// A request of control to the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Claim an id; [`News::Answer`] follows.
    Claim {
        /// Comes back in the answer.
        ticket: u64,
        /// The id.
        key: StreamKey,
    },
    /// Assert a claim after the directory was away: a token of 0 asks for a new one, which is the largest.
    /// [`News::Claim`] has the outcome.
    Keep {
        /// The id.
        key: StreamKey,
        /// The token under which it is held.
        token: u64,
    },
    /// Give an id back, unless another claim is in force by now.
    Release {
        /// The id.
        key: StreamKey,
        /// The token under which it was held.
        token: u64,
    },
    /// End the claim of a node that is gone, unless the directory knows better. [`News::Claim`] tells.
    Bury {
        /// The id.
        key: StreamKey,
        /// The token of the claim.
        token: u64,
    },
    /// Remove a record that must be there; [`News::Burnt`] follows.
    Burn {
        /// Comes back in the answer.
        ticket: u64,
        /// The record.
        key: crate::store::Key,
    },
    /// Put the records back that a directory has lost; those that it has stay as they are.
    Refill(Vec<(crate::store::Key, bytes::Bytes)>),
    /// The load of this node, in percent.
    Load {
        /// Of its workers.
        cpu: u8,
        /// Of its memory.
        memory: u8,
    },
    /// Forget a node that is not alive.
    Forget(NodeId),
}

/// News of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Changes of records that another node has committed. An own change under way comes later in the directory's order.
    Foreign(Vec<Op>),
    /// The claim of an id that is in force now.
    Claim {
        /// The id.
        key: StreamKey,
        /// `None`: the id is free.
        holder: Option<Holder>,
    },
    /// All claims: what is not among them is free.
    Claims(Vec<(StreamKey, Holder)>),
    /// All nodes that the directory knows.
    Nodes(Vec<Node>),
    /// The answer to a claim.
    Answer {
        /// The ticket of the claim.
        ticket: u64,
        /// The id.
        key: StreamKey,
        /// The answer.
        answer: ClaimAnswer,
    },
    /// The answer to a removal of a record that must be there.
    Burnt {
        /// The ticket of the request.
        ticket: u64,
        /// Whether this request has removed it.
        is_burnt: bool,
    },
    /// Whether the directory can be reached.
    Contact(bool),
    /// The directory has lost what this node has seen in it.
    Lost,
}
