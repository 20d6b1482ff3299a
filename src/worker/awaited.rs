//! Streams that are not live, and the sessions to notify when they begin.
//!
//! Any client with a signalling socket may ask for streams that do not exist, so the table is bounded, both per
//! session and in total. When it is full, a new entry displaces an entry of the session that awaits the most streams,
//! if that session awaits at least two streams more than the session of the new entry. The displaced session is not
//! notified of the stream, but its player asks again by itself. Removing a session takes time in proportion to its
//! own entries only.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::{ConnId, StreamKey};

/// Maximum number of streams that one session may await.
pub(super) const AWAITED_MAX: usize = 1024;
/// Maximum number of entries of all sessions of a worker. They take some 30 MB.
const ENTRIES_MAX: usize = 100_000;

/// Sessions by the streams that they await.
#[derive(Debug)]
pub(super) struct Awaited {
    max: usize,
    sessions: BTreeMap<StreamKey, BTreeSet<ConnId>>,
    streams: BTreeMap<ConnId, BTreeSet<StreamKey>>,
    /// Sessions by the number of streams that they await.
    sizes: BTreeSet<(usize, ConnId)>,
    entries: usize,
}

impl Default for Awaited {
    fn default() -> Self {
        Self::with_room(ENTRIES_MAX)
    }
}

impl Awaited {
    const fn with_room(max: usize) -> Self {
        Self { max, sessions: BTreeMap::new(), streams: BTreeMap::new(), sizes: BTreeSet::new(), entries: 0 }
    }

    /// Makes a session await a stream. Does nothing if the session awaits [`AWAITED_MAX`] streams already, or if the
    /// table is full and no entry of another session may be displaced.
    pub(super) fn add(&mut self, conn: ConnId, key: StreamKey) {
        let own = self.streams.get(&conn);
        let count = own.map_or(0, BTreeSet::len);
        if count >= AWAITED_MAX || own.is_some_and(|own| own.contains(&key)) {
            return;
        }
        if self.entries >= self.max && !self.give_way(count) {
            return;
        }
        self.sessions.entry(key.clone()).or_default().insert(conn);
        self.streams.entry(conn).or_default().insert(key);
        self.resize(conn, count, count + 1);
        self.entries += 1;
    }

    /// Removes and returns the sessions that await a stream.
    pub(super) fn take(&mut self, key: &StreamKey) -> BTreeSet<ConnId> {
        let sessions = self.sessions.remove(key).unwrap_or_default();
        for conn in &sessions {
            self.forget(*conn, key);
        }
        sessions
    }

    /// Removes a session that has ended.
    pub(super) fn end(&mut self, conn: ConnId) {
        let Some(streams) = self.streams.remove(&conn) else { return };
        self.sizes.remove(&(streams.len(), conn));
        self.entries = self.entries.saturating_sub(streams.len());
        for key in streams {
            if let Some(sessions) = self.sessions.get_mut(&key) {
                sessions.remove(&conn);
                if sessions.is_empty() {
                    self.sessions.remove(&key);
                }
            }
        }
    }

    /// Number of entries.
    pub(super) const fn len(&self) -> usize {
        self.entries
    }

    /// Removes one entry of the session that awaits the most streams. Returns false if no session awaits at least two
    /// streams more than `newcomer`, the number that the requesting session awaits.
    fn give_way(&mut self, newcomer: usize) -> bool {
        let Some(&(most, conn)) = self.sizes.last().filter(|(most, _)| *most > newcomer + 1) else {
            return false;
        };
        let Some(key) = self.streams.get(&conn).and_then(BTreeSet::last).cloned() else { return false };
        debug_assert!(most > 0, "a session without entries is not listed");
        if let Some(sessions) = self.sessions.get_mut(&key) {
            sessions.remove(&conn);
            if sessions.is_empty() {
                self.sessions.remove(&key);
            }
        }
        self.forget(conn, &key);
        true
    }

    /// Removes `key` from the streams that session `conn` awaits.
    fn forget(&mut self, conn: ConnId, key: &StreamKey) {
        let Some(streams) = self.streams.get_mut(&conn) else { return };
        let before = streams.len();
        if !streams.remove(key) {
            return;
        }
        if streams.is_empty() {
            self.streams.remove(&conn);
        }
        self.resize(conn, before, before - 1);
        self.entries = self.entries.saturating_sub(1);
    }

    fn resize(&mut self, conn: ConnId, before: usize, after: usize) {
        self.sizes.remove(&(before, conn));
        if after > 0 {
            self.sizes.insert((after, conn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    fn key(n: usize) -> StreamKey {
        StreamKey::new("live", &n.to_string())
    }

    fn is_empty(awaited: &Awaited) -> bool {
        awaited.len() == 0
            && awaited.sessions.is_empty()
            && awaited.streams.is_empty()
            && awaited.sizes.is_empty()
    }

    #[test]
    fn who_waits_for_a_stream_is_told_once_and_leaves_nothing() {
        let mut awaited = Awaited::default();
        awaited.add(conn(1), key(1));
        awaited.add(conn(1), key(1));
        awaited.add(conn(1), key(2));
        awaited.add(conn(2), key(1));
        assert_eq!(awaited.len(), 3);
        assert_eq!(awaited.take(&key(1)), [conn(1), conn(2)].into());
        assert!(awaited.take(&key(1)).is_empty());
        assert_eq!(awaited.len(), 1);
        awaited.end(conn(2));
        awaited.end(conn(1));
        assert!(is_empty(&awaited), "{awaited:?}");
    }

    #[test]
    fn a_session_that_was_told_of_some_may_wait_for_others() {
        let mut awaited = Awaited::default();
        for n in 0..AWAITED_MAX * 3 {
            awaited.add(conn(1), key(n));
            awaited.take(&key(n));
        }
        assert!(is_empty(&awaited), "{awaited:?}");
        (0..AWAITED_MAX * 3).for_each(|n| awaited.add(conn(1), key(n)));
        assert_eq!(awaited.len(), AWAITED_MAX);
    }

    #[test]
    fn a_full_table_has_the_same_room_for_everybody() {
        let mut awaited = Awaited::with_room(100);
        (0..200).for_each(|n| awaited.add(conn(1), key(n)));
        assert_eq!(awaited.len(), 100);
        for other in 2..=5 {
            (0..200).for_each(|n| awaited.add(conn(other), key(n)));
        }
        assert_eq!(awaited.len(), 100);
        for one in 1..=5 {
            let share = awaited.streams[&conn(one)].len();
            assert!((19..=21).contains(&share), "session {one} has {share}");
        }
        (1..=5).for_each(|one| awaited.end(conn(one)));
        assert!(is_empty(&awaited), "{awaited:?}");
    }
}
