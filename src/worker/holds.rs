//! Viewers that wait for a stream that is started because they have requested it, e.g. fetched from another server.
//! Such viewers are served once the stream is live, or refused if it does not start in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::conn::{Subscription, SubscriptionState};
use super::conns::Conns;
use super::turn::Turn;
use crate::mail::{NoSubscription, ToControl};
use crate::protocol::{PlayAsk, Reply, SubscriptionNews};
use crate::types::{ConnId, Handle, StreamKey, SubscriptionId};

/// Maximum time that a viewer waits for a stream that it has started.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// The streams that viewers may start, and the viewers that wait for such streams.
#[derive(Debug, Default)]
pub(super) struct Holds {
    auto_start: BTreeSet<StreamKey>,
    waiting: BTreeMap<StreamKey, BTreeSet<SubscriptionId>>,
}

impl Holds {
    /// Updates which streams viewers may start.
    pub(super) fn note_auto_start(&mut self, streams: Vec<(StreamKey, bool)>) {
        for (key, on) in streams {
            if on {
                self.auto_start.insert(key);
            } else {
                self.auto_start.remove(&key);
            }
        }
    }

    /// True if a stream that is not live may be started by a viewer.
    pub(super) fn may_be_started(&self, turn: &Turn, key: &StreamKey) -> bool {
        self.auto_start.contains(key) || (turn.server.fetches_any && turn.apps.contains_key(&key.app))
    }

    /// Number of streams that viewers wait for.
    pub(super) fn streams(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the viewers that wait for a stream.
    pub(super) fn waiting_for(&self, key: &StreamKey) -> Vec<SubscriptionId> {
        self.waiting.get(key).into_iter().flatten().copied().collect()
    }

    /// Makes a viewer wait if viewers may start the stream, or if the viewer requested the view of a room (`is_room`).
    /// Returns true if the viewer waits.
    pub(super) fn begin(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        ask: Box<PlayAsk>,
        is_room: bool,
    ) -> bool {
        if !is_room && !self.may_be_started(turn, &ask.key) {
            return false;
        }
        let Some(until) = turn.now.mono.checked_add(HOLD_MAX) else { return false };
        let (key, via) = (ask.key.clone(), ask.via.clone());
        conns.set_state(id, handle, SubscriptionState::Held { ask, until });
        self.waiting.entry(key.clone()).or_default().insert(SubscriptionId { conn: id, handle });
        turn.tell(ToControl::Wanted { key, via });
        conns.reply(turn, id, Reply::Subscription(handle, SubscriptionNews::Held));
        conns.touch(turn, id);
        true
    }

    /// Ends the wait of a viewer. Returns the viewer's request, or `None` if the viewer did not wait.
    pub(super) fn end(&mut self, conns: &mut Conns, id: ConnId, handle: Handle) -> Option<Box<PlayAsk>> {
        let conn = conns.get_mut(id)?;
        let is_held =
            |one: &Subscription| one.handle == handle && matches!(one.state, SubscriptionState::Held { .. });
        let at = conn.subscriptions.iter().position(is_held)?;
        let SubscriptionState::Held { ask, .. } = conn.subscriptions.remove(at).state else { return None };
        if let Some(waiting) = self.waiting.get_mut(&ask.key) {
            waiting.remove(&SubscriptionId { conn: id, handle });
            if waiting.is_empty() {
                self.waiting.remove(&ask.key);
            }
        }
        Some(ask)
    }

    /// Ends the waits of all viewers of a session, because it has made another request or has left.
    pub(super) fn end_all_of(&mut self, conns: &mut Conns, id: ConnId) {
        let Some(conn) = conns.get(id) else { return };
        for handle in conn.subscriptions.iter().map(|one| one.handle).collect::<Vec<_>>() {
            self.end(conns, id, handle);
        }
    }

    /// Refuses those requests of a session whose streams did not start in time, with the same answer as for a stream
    /// that is not live.
    pub(super) fn end_overdue(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId) {
        let Some(conn) = conns.get(id) else { return };
        let now = turn.now.mono;
        let is_due = |one: &&Subscription| match one.state {
            SubscriptionState::Held { until, .. } => until <= now,
            SubscriptionState::Asked(_) | SubscriptionState::Room { .. } | SubscriptionState::Playing(_) => {
                false
            }
        };
        for handle in conn.subscriptions.iter().filter(is_due).map(|one| one.handle).collect::<Vec<_>>() {
            self.refuse(turn, conns, SubscriptionId { conn: id, handle });
        }
    }

    /// Refuses the viewers that wait for a stream that will not become live.
    pub(super) fn refuse_all_of(&mut self, turn: &mut Turn, conns: &mut Conns, key: &StreamKey) {
        for viewer in self.waiting_for(key) {
            self.refuse(turn, conns, viewer);
        }
    }

    fn refuse(&mut self, turn: &mut Turn, conns: &mut Conns, viewer: SubscriptionId) {
        let SubscriptionId { conn: id, handle } = viewer;
        if let Some(ask) = self.end(conns, id, handle) {
            conns.play_refused(id, &ask.key, &NoSubscription::NotFound);
        }
        let verdict = Err(NoSubscription::NotFound);
        conns.reply(turn, id, Reply::Subscription(handle, SubscriptionNews::Verdict(verdict)));
        conns.touch(turn, id);
    }
}
