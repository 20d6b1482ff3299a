//! The work that a worker still has to do, in this turn and at which time.

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
    pub(super) writes: WriteQueue,
    /// Actions for the shell.
    pub(super) outputs: VecDeque<Output>,
}

/// The sessions whose turn it is to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Sessions that keep up: they have been sent all there was.
    KeepUp,
    /// All: those that keep up, and when none of them is left, those that catch up.
    All,
}

/// Sessions that have something to send. Who has just joined is sent a group of pictures or more, and who was too slow what has come
/// meanwhile: they wait for those that are to be sent one frame, not these for them.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    keep_up: VecDeque<ConnId>,
    catch_up: VecDeque<ConnId>,
}

impl WriteQueue {
    pub(super) fn push(&mut self, id: ConnId, catches_up: bool) {
        if catches_up { &mut self.catch_up } else { &mut self.keep_up }.push_back(id);
    }

    pub(super) fn pop(&mut self, who: Writers) -> Option<ConnId> {
        self.keep_up.pop_front().or_else(|| match who {
            Writers::KeepUp => None,
            Writers::All => self.catch_up.pop_front(),
        })
    }

    pub(super) fn has(&self, who: Writers) -> bool {
        !self.keep_up.is_empty() || (who == Writers::All && !self.catch_up.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.keep_up.len() + self.catch_up.len()
    }
}
