//! Calls of the API that another node of the cluster answers (docs/cluster.md).

use std::time::Instant;

use relay::{Answer, Call};

/// A call to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWork {
    /// The cluster that both are of.
    pub cluster: String,
    /// The host of the node's relay.
    pub host: String,
    /// The port of the node's relay.
    pub port: u16,
    /// The call.
    pub call: Call,
    /// The end of its caller's patience: a call that has not been sent by then is not sent.
    pub until: Instant,
}

/// The outcome of a [`NodeWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeOutcome {
    /// The node's answer.
    Answered(Answer),
    /// The node was not reached, and has not heard of the call; with the reason.
    NotSent(String),
    /// Whether the call was done is not known; with the reason.
    Failed(String),
}
