//! Sources that should run but must wait: for resources, for a stream with their id to end here, or for another node to
//! release their id.
//!
//! Waiting sources are checked once a second. A node that stops a source for good releases the id first and changes the
//! record afterwards. A released id therefore counts as free only after [`FREE_AFTER`].

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::wanted::{TICK, is_wanted};
use crate::control::Outbound;
use crate::control::outgoing::Outgoing;
use crate::types::{Now, StreamKey};

/// Maximum number of sources started in one check.
const BEGUN_AT_ONCE: usize = 16;
/// Time after which an id released by another node counts as free.
const FREE_AFTER: Duration = Duration::from_secs(3);

/// Sources that should run but must wait.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Sources that wait for resources, or whose id is taken here.
    here: BTreeSet<StreamKey>,
    /// Sources whose id another node holds.
    elsewhere: BTreeSet<StreamKey>,
    /// Released ids with the times at which they count as free, in order.
    freed: VecDeque<(Instant, StreamKey)>,
}

impl HeldBack {
    pub(super) fn contains(&self, key: &StreamKey) -> bool {
        self.here.contains(key) || self.elsewhere.contains(key)
    }

    pub(super) fn len(&self) -> usize {
        self.here.len() + self.elsewhere.len()
    }

    /// True if any source may be ready to start. A source whose id another node holds is not checked until the id is
    /// released.
    pub(super) fn is_due(&self) -> bool {
        !self.here.is_empty() || !self.freed.is_empty()
    }

    /// Removes a source. Returns whether it was waiting.
    pub(super) fn remove(&mut self, key: &StreamKey) -> bool {
        let was_here = self.here.remove(key);
        self.elsewhere.remove(key) || was_here
    }

    /// Removes the sources of an application.
    pub(super) fn remove_app(&mut self, app: &str) {
        self.here.retain(|key| *key.app != *app);
        self.elsewhere.retain(|key| *key.app != *app);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Moves the sources whose ids have become free, and were not taken again, to `here`, so that they start as soon as
    /// resources permit.
    fn take_freed(&mut self, now: Instant, is_elsewhere: impl Fn(&StreamKey) -> bool) {
        while let Some((_, key)) = self.freed.pop_front_if(|(at, _)| *at <= now) {
            if !is_elsewhere(&key) && self.elsewhere.remove(&key) {
                self.here.insert(key);
            }
        }
    }
}

impl Outbound {
    /// Holds back a source that should run, until the source can be started.
    pub(super) fn hold_back(&mut self, now: Now, key: &StreamKey, is_elsewhere: bool) {
        let held_back = &mut self.sources.held_back;
        if is_elsewhere {
            held_back.here.remove(key);
            held_back.elsewhere.insert(key.clone());
        } else {
            held_back.here.insert(key.clone());
            self.sources.tick = self.sources.tick.or_else(|| now.mono.checked_add(TICK));
        }
    }

    /// Notes that no other node holds an id any more.
    pub(super) fn id_freed(&mut self, now: Now, key: &StreamKey) {
        if self.sources.held_back.elsewhere.contains(key)
            && let Some(at) = now.mono.checked_add(FREE_AFTER)
        {
            // If the id was released before, the later release counts.
            self.sources.held_back.freed.retain(|(_, other)| other != key);
            self.sources.held_back.freed.push_back((at, key.clone()));
            self.sources.tick = self.sources.tick.or_else(|| now.mono.checked_add(TICK));
        }
    }
}

impl Outgoing<'_> {
    /// Starts a source that should run. If resources are short or the id is taken, holds the source back until it can
    /// be started.
    pub(super) fn begin_or_hold_back(&mut self, key: &StreamKey) {
        let Err(reason) = self.begin_source(key) else { return };
        let is_short = self
            .cx
            .apps
            .get(&key.app)
            .is_some_and(|app| self.outbound.is_short_for_source(self.cx, self.registry, self.now, app));
        let is_elsewhere = self.registry.cluster.elsewhere(key).is_some();
        let retries =
            is_short || is_elsewhere || self.registry.is_live(key) || self.registry.cluster.refuses();
        if retries && !self.outbound.sources.is_running(key) {
            self.outbound.hold_back(self.now, key, is_elsewhere);
        }
        tracing::info!(%key, reason, retries, "source not started");
    }

    /// Starts sources that were held back: a limited number in one call, and none for an application that may not run
    /// another source.
    pub(super) fn begin_held_back(&mut self) {
        self.outbound
            .sources
            .held_back
            .take_freed(self.now.mono, |key| self.registry.cluster.elsewhere(key).is_some());
        if self.outbound.sources.held_back.here.is_empty()
            || self.registry.cluster.refuses()
            || self.cx.lets_in_nothing()
        {
            return;
        }
        let mut due = Vec::new();
        let mut next = self.outbound.sources.held_back.here.first().cloned();
        while let Some(key) = next.filter(|_| due.len() < BEGUN_AT_ONCE) {
            let has_room = |app| !self.outbound.is_short_for_source(self.cx, self.registry, self.now, app);
            let mut from = Bound::Excluded(key.clone());
            if !self.cx.apps.get(&key.app).is_some_and(|app| has_room(app)) {
                from = Bound::Included(StreamKey::new(&format!("{}\0", key.app), ""));
            } else if !(self.registry.is_live(&key) || self.outbound.sources.is_copying(&key))
                || !is_wanted(self.cx, self.records, &key)
            {
                due.push(key);
            }
            next = self.outbound.sources.held_back.here.range((from, Bound::Unbounded)).next().cloned();
        }
        for key in due {
            self.outbound.sources.held_back.here.remove(&key);
            if is_wanted(self.cx, self.records, &key) && !self.outbound.sources.is_running(&key) {
                self.begin_or_hold_back(&key);
            }
        }
    }
}
