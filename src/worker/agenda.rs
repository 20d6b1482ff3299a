//! The work that a worker has left to do in this turn, and the times of later work.

use std::collections::VecDeque;

use super::Output;
use super::deadlines::Deadlines;
use crate::types::{ConnId, StreamId};

/// The work left to do.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    pub(super) deadlines: Deadlines,
    /// Sessions that must be drained of events and output, in the order in which they got something to do: a session
    /// that has to end leaves its stream before a later one asks for it.
    pub(super) dirty: VecDeque<ConnId>,
    /// Streams whose units must be sent.
    pub(super) flushing: Vec<StreamId>,
    /// Sessions with output to write.
    pub(super) writes: WriteQueue,
    /// Actions for the shell, i.e. the code that drives the worker ([`crate::io`]).
    pub(super) outputs: VecDeque<Output>,
}

/// The sessions that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Only sessions that keep up, i.e. whose last write sent all their output.
    KeepUp,
    /// All sessions: first those that keep up, then those that are catching up.
    All,
}

/// Sessions with output to write. Some sessions are catching up: new viewers, which need a GOP or more, and slow
/// viewers with a backlog. They write after the sessions that need only the newest frame, and never delay them.
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
