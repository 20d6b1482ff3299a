//! Calls of the API that another node of the cluster answers (docs/cluster.md).

use std::time::Instant;

use relay::{Answer, Call};

/// A call to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWork {
    /// Name of the cluster.
    pub cluster: String,
    /// Host of the node's relay.
    pub host: String,
    /// Port of the node's relay.
    pub port: u16,
    /// Call to answer.
    pub call: Call,
    /// Deadline for sending the call, after which its caller no longer waits.
    pub until: Instant,
}

/// The outcome of a [`NodeWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeOutcome {
    /// The node's answer.
    Answered(Answer),
    /// The node was not reached and does not know the call; with the reason.
    NotSent(String),
    /// Unknown whether the call was done; with the reason.
    Failed(String),
}
