//! What a worker still has to do, in this turn and at which time.

use std::collections::VecDeque;

use super::Output;
use super::deadlines::Deadlines;
use crate::types::{ConnId, StreamId};

/// The work ahead.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    pub(super) deadlines: Deadlines,
    /// Sessions to drain.
    pub(super) dirty: Vec<ConnId>,
    /// Streams to flush.
    pub(super) flushing: Vec<StreamId>,
    /// Sessions that have something to send.
    pub(super) writes: VecDeque<ConnId>,
    /// What the shell is to do.
    pub(super) outputs: VecDeque<Output>,
}
