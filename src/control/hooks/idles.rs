//! Timed hooks: streams that do not come back, and the status of those that are live.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::types::{StreamId, StreamKey};

/// Streams that are over and expected back, and the status of those that are live.
#[derive(Debug, Default)]
pub(super) struct Idles {
    pub(super) of: BTreeMap<StreamKey, Instant>,
    pub(super) due: BTreeSet<(Instant, StreamKey)>,
    pub(super) statuses: BTreeSet<(Instant, StreamId)>,
}

impl Idles {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let idle = self.due.first().map(|(at, _)| *at);
        let status = self.statuses.first().map(|(at, _)| *at);
        [idle, status].into_iter().flatten().min()
    }

    pub(super) fn forget(&mut self, key: &StreamKey) {
        if let Some(at) = self.of.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }
}
