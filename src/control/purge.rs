//! Removes the records of a deleted application, some at a time, so that publishers are never kept waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Control;
use super::sides::SideWrite;
use super::writes::{Change, Write};
use crate::store::{Key, Kind};
use crate::types::{Now, StreamKey};

/// Records of one slice.
const SLICE: usize = 1000;
/// Between two slices other inputs have their turn.
const PAUSE: Duration = Duration::from_millis(5);

impl Control {
    /// Begins.
    pub(super) fn purge(&mut self, now: Now, app: Arc<str>) {
        self.purges.push_back(app);
        self.purge_due = Some(now.mono);
    }

    pub(super) fn purge_deadline(&self) -> Option<Instant> {
        self.purge_due
    }

    /// One slice.
    pub(super) fn fire_purges(&mut self, now: Now) {
        if self.purge_due.is_none_or(|due| due > now.mono) {
            return;
        }
        if let Some(app) = self.purges.front().cloned() {
            let key = |id: &str| StreamKey { app: app.clone(), id: id.into() };
            let keys: Vec<StreamKey> =
                self.records.of(&app).take(SLICE).map(|record| key(&record.stream_id)).collect();
            let sides: Vec<Key> = [Kind::Token, Kind::Subscriber]
                .into_iter()
                .flat_map(|kind| self.sides.of(kind, &app, "").map(|(key, _)| key.clone()))
                .take(SLICE)
                .collect();
            if keys.is_empty() && sides.is_empty() {
                self.purges.pop_front();
            }
            for key in keys {
                if self.pending(&key).is_some() {
                    self.write(now, Write { key, change: Change::Delete, waiter: None });
                }
            }
            if sides.iter().any(|key| self.sides.pending(key).is_some()) {
                let changes = sides.into_iter().map(|key| (key, None)).collect();
                self.write_sides(now, SideWrite { changes, waiter: None });
            }
        }
        self.purge_due = if self.purges.is_empty() { None } else { now.mono.checked_add(PAUSE) };
    }
}
