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
    /// The call was certainly not done: it was not sent, or the node refused it. The text
    /// is the reason.
    NotSent(String),
    /// The call may or may not have been done. The text is the reason.
    Failed(String),
}
