//! Removes the records of a deleted application in slices, so that publishers are never kept waiting.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::records::auxiliary::AuxiliaryWrite;
use super::records::{Change, Records, Write};
use crate::control::Walks;
use crate::store::{Key, Kind};
use crate::types::{Now, StreamKey};

/// Number of records removed in one slice.
const SLICE: usize = 1000;
/// Pause between two slices, in which other inputs are handled.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause while the store takes no changes.
const BROKEN_PAUSE: Duration = Duration::from_secs(1);

/// Applications that are being created, changed or removed.
#[derive(Debug, Default)]
pub(super) struct AppChanges {
    /// Applications whose creation or removal is in progress.
    pub(super) changing: BTreeSet<Arc<str>>,
    /// Applications whose settings are being saved. The empty name is that of the server.
    pub(super) editing: BTreeSet<Arc<str>>,
    /// Removed applications whose records are still to be removed.
    pub(super) removed: VecDeque<Arc<str>>,
    /// Time at which the next slice is removed.
    due: Option<Instant>,
}

impl AppChanges {
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Walks {
    /// Begins removing the records of an application.
    pub(super) fn purge(&mut self, now: Now, app: Arc<str>) {
        self.app_changes.removed.push_back(app);
        self.app_changes.due = Some(now.mono);
    }

    /// Removes one slice of records, if due.
    pub(super) fn fire_purges(&mut self, records: &mut Records, now: Now) {
        if self.app_changes.due.is_none_or(|due| due > now.mono) {
            return;
        }
        if records.writes.is_broken() {
            self.app_changes.due = now.mono.checked_add(BROKEN_PAUSE);
            return;
        }
        if let Some(app) = self.app_changes.removed.front().cloned() {
            let key = |id: &str| StreamKey { app: app.clone(), id: id.into() };
            let keys: Vec<StreamKey> =
                records.of(&app).take(SLICE).map(|record| key(&record.stream_id)).collect();
            let auxiliary: Vec<Key> = [Kind::Token, Kind::Subscriber, Kind::Vod]
                .into_iter()
                .flat_map(|kind| records.auxiliary.of(kind, &app, "").map(|(key, _)| key.clone()))
                .take(SLICE)
                .collect();
            if keys.is_empty() && auxiliary.is_empty() {
                self.app_changes.removed.pop_front();
            }
            for key in keys {
                if records.pending(&key).is_some() {
                    records.write(now, Write { key, change: Change::Delete, waiter: None });
                }
            }
            if auxiliary.iter().any(|key| records.auxiliary.pending(key).is_some()) {
                let changes = auxiliary.into_iter().map(|key| (key, None)).collect();
                records.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter: None });
            }
        }
        self.app_changes.due =
            if self.app_changes.removed.is_empty() { None } else { now.mono.checked_add(PAUSE) };
    }
}
