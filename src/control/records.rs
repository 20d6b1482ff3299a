//! All broadcast records, by application and id.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::broadcast::Broadcast;
use crate::mail::StreamKey;

/// Records of one application; boxed, so that skipping over many touches little memory.
type App = BTreeMap<Arc<str>, Box<Broadcast>>;

/// The records that everybody sees.
#[derive(Debug, Default)]
pub(super) struct Records {
    apps: BTreeMap<Arc<str>, App>,
    total: usize,
}

impl Records {
    pub(super) fn get(&self, key: &StreamKey) -> Option<&Broadcast> {
        self.apps.get(&key.app)?.get(&key.id).map(AsRef::as_ref)
    }

    /// By name, without making a key.
    pub(super) fn find(&self, app: &str, id: &str) -> Option<&Broadcast> {
        self.apps.get(app)?.get(id).map(AsRef::as_ref)
    }

    pub(super) fn get_mut(&mut self, key: &StreamKey) -> Option<&mut Broadcast> {
        self.apps.get_mut(&key.app)?.get_mut(&key.id).map(AsMut::as_mut)
    }

    pub(super) fn insert(&mut self, key: StreamKey, record: Broadcast) {
        let app = self.apps.entry(key.app).or_default();
        if app.insert(key.id, Box::new(record)).is_none() {
            self.total += 1;
        }
    }

    pub(super) fn remove(&mut self, key: &StreamKey) -> Option<Broadcast> {
        let record = self.apps.get_mut(&key.app)?.remove(&key.id)?;
        self.total = self.total.saturating_sub(1);
        Some(*record)
    }

    /// Records of all applications.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Records of one application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.apps.get(app).map_or(0, BTreeMap::len)
    }

    /// Those of one application, in order of their ids.
    pub(super) fn of(&self, app: &str) -> impl Iterator<Item = &Broadcast> {
        self.apps.get(app).into_iter().flat_map(|app| app.values().map(AsRef::as_ref))
    }

    /// Those of one application behind an id (from the first when there is none), in order of their ids.
    pub(super) fn behind<'a>(
        &'a self,
        app: &str,
        id: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Broadcast)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let app = self.apps.get(app).into_iter();
        app.flat_map(move |app| app.range::<str, _>((from, Bound::Unbounded)).map(|(id, r)| (id, r.as_ref())))
    }

    /// All, in order of their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (StreamKey, &Broadcast)> {
        self.apps.iter().flat_map(|(app, records)| {
            let key = |id: &Arc<str>| StreamKey { app: app.clone(), id: id.clone() };
            records.iter().map(move |(id, record)| (key(id), record.as_ref()))
        })
    }
}
