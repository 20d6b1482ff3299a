//! Timed hooks: `idleTimeIsExpired` for streams that were not published again in time, and the
//! periodic status of live streams.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::types::{StreamId, StreamKey};

/// Ended streams that are not published again yet, and live streams whose status is reported.
#[derive(Debug, Default)]
pub(super) struct Idles {
    pub(super) of: BTreeMap<StreamKey, Instant>,
    pub(super) due: BTreeSet<(Instant, StreamKey)>,
    statuses: BTreeSet<(Instant, StreamId)>,
    status_of: BTreeMap<StreamId, Instant>,
}

impl Idles {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let idle = self.due.first().map(|(at, _)| *at);
        let status = self.statuses.first().map(|(at, _)| *at);
        [idle, status].into_iter().flatten().min()
    }

    /// Schedules the next status report of a stream.
    pub(super) fn arm_status(&mut self, at: Instant, stream: StreamId) {
        self.forget_status(stream);
        self.statuses.insert((at, stream));
        self.status_of.insert(stream, at);
    }

    pub(super) fn forget_status(&mut self, stream: StreamId) {
        if let Some(at) = self.status_of.remove(&stream) {
            self.statuses.remove(&(at, stream));
        }
    }

    /// Takes the next stream whose periodic status report is due.
    pub(super) fn next_status(&mut self, now: Instant) -> Option<StreamId> {
        let stream = self.statuses.first().filter(|(at, _)| *at <= now)?.1;
        self.forget_status(stream);
        Some(stream)
    }

    pub(super) fn forget(&mut self, key: &StreamKey) {
        if let Some(at) = self.of.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }
}
