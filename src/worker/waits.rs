//! Requests that wait for blobs, found by blob, by stream and by deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::mail::Progress;
use crate::types::{ConnId, StreamKey};

/// Application and name of a blob.
pub(super) type BlobName = (Arc<str>, Arc<str>);

/// A request that waits.
#[derive(Debug)]
pub(super) struct Wait {
    /// Deadline of the request.
    pub(super) until: Instant,
    /// Blob that the request waits for.
    pub(super) name: BlobName,
    /// Progress that the blob must reach.
    pub(super) progress: Progress,
    /// Key of the blob's stream, or of the main track of its ladder.
    pub(super) key: StreamKey,
}

/// All waiting requests of a worker, at most one for each session.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waits: BTreeMap<ConnId, Wait>,
    names: BTreeMap<BlobName, BTreeSet<(Progress, ConnId)>>,
    keys: BTreeMap<StreamKey, BTreeSet<ConnId>>,
    due: BTreeSet<(Instant, ConnId)>,
}

impl Waits {
    /// Number of entries in all tables. Simulations check that it returns to 0.
    pub(super) fn entries(&self) -> usize {
        self.names.len() + self.keys.len() + self.waits.len() + self.due.len()
    }

    /// Number of blobs that requests wait for.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Begins the wait of a session. If the session already waits, the earlier wait ends.
    pub(super) fn begin(&mut self, conn: ConnId, wait: Wait) {
        self.end(conn);
        self.due.insert((wait.until, conn));
        self.names.entry(wait.name.clone()).or_default().insert((wait.progress, conn));
        self.keys.entry(wait.key.clone()).or_default().insert(conn);
        self.waits.insert(conn, wait);
    }

    /// Ends the wait of a session. Returns false if the session did not wait.
    pub(super) fn end(&mut self, conn: ConnId) -> bool {
        let Some(Wait { until, name, progress, key }) = self.waits.remove(&conn) else { return false };
        self.due.remove(&(until, conn));
        remove(&mut self.names, &name, &(progress, conn));
        remove(&mut self.keys, &key, &conn);
        true
    }

    /// Returns true if a request waits for this blob.
    pub(super) fn has(&self, name: &BlobName) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the sessions whose wait for a blob ends when the blob has reached `progress`.
    pub(super) fn reached(&self, name: &BlobName, progress: Progress) -> Vec<ConnId> {
        let waiting = self.names.get(name).into_iter().flatten();
        waiting.take_while(|(wanted, _)| *wanted <= progress).map(|(_, conn)| *conn).collect()
    }

    /// Returns the sessions that wait for blobs of a stream.
    pub(super) fn of(&self, key: &StreamKey) -> Vec<ConnId> {
        self.keys.get(key).into_iter().flatten().copied().collect()
    }

    /// Shortens the waits for blobs of a stream to `until`, except for blobs that exist according to `is_there`.
    pub(super) fn hasten(&mut self, key: &StreamKey, until: Instant, is_there: impl Fn(&BlobName) -> bool) {
        for conn in self.of(key) {
            let Some(wait) = self.waits.get_mut(&conn) else { continue };
            if wait.until > until && !is_there(&wait.name) {
                self.due.remove(&(wait.until, conn));
                self.due.insert((until, conn));
                wait.until = until;
            }
        }
    }

    /// Returns the first deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Ends a wait whose deadline has passed, and returns its session.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<ConnId> {
        let (_, conn) = *self.due.first().filter(|(until, _)| *until <= now)?;
        self.end(conn);
        Some(conn)
    }
}

fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}
