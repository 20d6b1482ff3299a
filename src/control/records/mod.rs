//! All records: broadcasts by application and id, and the auxiliary ones. A state machine that takes changes, and
//! returns requests to the store and events (`writes`).

pub(super) mod auxiliary;
mod change;
pub(super) mod imported;
pub(super) mod restored;
mod subtracks;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::broadcast::{Broadcast, status};
use crate::types::{Now, StreamKey};
use auxiliary::AuxiliaryRecords;
use subtracks::{SHOWN_MAX, Subtracks};
use writes::Writes;

pub(super) use auxiliary::AuxiliaryWrite;
pub(super) use change::{Answer, Change, Write};
pub(super) use writes::Event;

/// Records of one application.
#[derive(Debug, Default)]
struct App {
    /// The records by id, boxed so that a search touches little memory.
    records: BTreeMap<Arc<str>, Box<Broadcast>>,
    /// Ids in order, indexed by position, so that any page of a list is found immediately.
    places: indexset::BTreeSet<Arc<str>>,
}

/// Added to the update time of a record whose stream is at another node, so that the record does not become stale. It
/// is longer than any server runs.
const HORIZON: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The visible records.
#[derive(Debug, Default)]
pub(super) struct Records {
    apps: BTreeMap<Arc<str>, App>,
    total: usize,
    pub(super) auxiliary: AuxiliaryRecords,
    pub(super) writes: Writes,
    /// Counter that makes ids generated in the same millisecond unique.
    pub(super) generated: u64,
    subtracks: Subtracks,
    /// Main tracks that are virtual only while publishers that joined them are live.
    pub(super) joined: BTreeSet<StreamKey>,
}

/// Returns the main track that a record names.
fn main_track(key: &StreamKey, record: &Broadcast) -> Option<StreamKey> {
    let main = record.main_track_stream_id.as_deref().filter(|main| !main.is_empty())?;
    Some(StreamKey { app: key.app.clone(), id: main.into() })
}

/// Returns the list of subtracks in the record of a main track.
fn shown_in<'a>(apps: &'a mut BTreeMap<Arc<str>, App>, main: &StreamKey) -> Option<&'a mut Vec<String>> {
    let record = apps.get_mut(&main.app)?.records.get_mut(&main.id)?;
    Some(&mut record.sub_track_stream_ids)
}

impl Records {
    pub(super) fn get(&self, key: &StreamKey) -> Option<&Broadcast> {
        self.find(&key.app, &key.id)
    }

    /// Returns a record without building a key.
    pub(super) fn find(&self, app: &str, id: &str) -> Option<&Broadcast> {
        self.apps.get(app)?.records.get(id).map(AsRef::as_ref)
    }

    pub(super) fn get_mut(&mut self, key: &StreamKey) -> Option<&mut Broadcast> {
        self.apps.get_mut(&key.app)?.records.get_mut(&key.id).map(AsMut::as_mut)
    }

    pub(super) fn insert(&mut self, key: StreamKey, mut record: Broadcast) {
        record.sub_track_stream_ids = self.shown_subtracks(&key);
        let main = main_track(&key, &record);
        let app = self.apps.entry(key.app.clone()).or_default();
        let before = app.records.insert(key.id.clone(), Box::new(record));
        if before.is_none() {
            app.places.insert(key.id.clone());
            self.total += 1;
        }
        self.move_subtrack(&key, before.and_then(|before| main_track(&key, &before)), main);
    }

    pub(super) fn remove(&mut self, key: &StreamKey) -> Option<Broadcast> {
        let app = self.apps.get_mut(&key.app)?;
        let record = app.records.remove(&key.id)?;
        app.places.remove(&key.id);
        self.joined.remove(key);
        self.total = self.total.saturating_sub(1);
        self.move_subtrack(key, main_track(key, &record), None);
        Some(*record)
    }

    /// Notes whether another node has the stream of a record. A record becomes stale only while no node has its stream.
    pub(super) fn note_elsewhere(&mut self, now: Now, key: &StreamKey, is_elsewhere: bool) {
        if let Some(record) = self.get_mut(key) {
            let horizon = now.mono.checked_add(HORIZON).filter(|_| is_elsewhere);
            record.updated = Some(horizon.unwrap_or(now.mono));
        }
    }

    /// Handles the loss of the node of a live stream: the stream has ended, and a record made by publishing is removed.
    pub(super) fn terminated(&mut self, now: Now, key: StreamKey) {
        let Some(record) = self.get_mut(&key) else { return };
        if record.zombi {
            self.remove(&key);
        } else if record.status == status::BROADCASTING || record.status == status::PREPARING {
            status::TERMINATED.clone_into(&mut record.status);
            record.touch(now);
            record.forget_viewers();
            for endpoint in record.end_point_list.iter_mut().flatten() {
                status::FINISHED.clone_into(&mut endpoint.status);
            }
        } else {
            return;
        }
        self.writes.mark_dirty(now, key);
    }

    fn move_subtrack(&mut self, key: &StreamKey, from: Option<StreamKey>, to: Option<StreamKey>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.subtracks.remove(&from, &key.id, shown_in(&mut self.apps, &from));
        }
        if let Some(to) = to {
            let shown = shown_in(&mut self.apps, &to);
            self.subtracks.insert(to, &key.id, shown);
        }
    }

    fn shown_subtracks(&self, main: &StreamKey) -> Vec<String> {
        self.subtracks(main).take(SHOWN_MAX).map(|id| id.to_string()).collect()
    }

    /// Returns the ids of a main track's subtracks, in order.
    pub(super) fn subtracks(&self, main: &StreamKey) -> impl Iterator<Item = &Arc<str>> {
        self.subtracks.of(main).into_iter().flatten()
    }

    /// Returns the ids of a main track's subtracks, if it has any.
    pub(super) fn subtrack_ids(&self, main: &StreamKey) -> Option<&BTreeSet<Arc<str>>> {
        self.subtracks.of(main)
    }

    /// Counts the records of all applications.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Counts the records of an application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.apps.get(app).map_or(0, |app| app.records.len())
    }

    /// Returns the records of an application, by id.
    pub(super) fn of(&self, app: &str) -> impl Iterator<Item = &Broadcast> {
        self.apps.get(app).into_iter().flat_map(|app| app.records.values().map(AsRef::as_ref))
    }

    /// Returns the records of an application, by id, from a position in the list.
    pub(super) fn at_place(&self, app: &str, place: usize) -> impl Iterator<Item = &Broadcast> {
        let app = self.apps.get(app).filter(|app| place < app.places.len());
        let first = app.and_then(|app| Some((app, app.places.get_index(place)?)));
        first.into_iter().flat_map(|(app, first)| {
            let from = (Bound::Included(&**first), Bound::Unbounded);
            app.records.range::<str, _>(from).map(|(_, record)| record.as_ref())
        })
    }

    /// Returns the records of an application that follow the given id, sorted by id; all records if no id is given.
    pub(super) fn behind<'a>(
        &'a self,
        app: &str,
        id: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Broadcast)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let app = self.apps.get(app).into_iter();
        app.flat_map(move |app| {
            app.records.range::<str, _>((from, Bound::Unbounded)).map(|(id, r)| (id, r.as_ref()))
        })
    }

    /// Returns all records, by key.
    pub(super) fn all(&self) -> impl Iterator<Item = (StreamKey, &Broadcast)> {
        self.apps.iter().flat_map(|(name, app)| {
            let key = |id: &Arc<str>| StreamKey { app: name.clone(), id: id.clone() };
            app.records.iter().map(move |(id, record)| (key(id), record.as_ref()))
        })
    }
}

#[cfg(test)]
mod tests;
