//! Streams that come from elsewhere: attempts of pulls, and viewers who wait for the pull that they have started.

use std::time::{Duration, Instant};

use super::Worker;
use super::conn::{Conn, PullRole};
use crate::mail::{Departure, NoSubscription, PullOrder, PullState, ToControl};
use crate::protocol::{PlayAsk, outbound};
use crate::types::{ConnId, PullId, StreamKey};

/// How long a viewer waits for the stream that it has started.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// A viewer who waits.
#[derive(Debug)]
pub(super) struct Held {
    ask: Box<PlayAsk>,
    pub(super) until: Instant,
}

impl Worker {
    pub(super) fn start_pull(&mut self, order: &PullOrder) {
        let seed = self.session_seed();
        let conn = outbound::begin_pull(self.now, order, seed).and_then(|session| {
            let mut conn = Conn::new(order.address, session, self.now.mono);
            conn.pull = Some(PullRole { pull: order.pull, attempt: order.attempt });
            conn.connecting = true;
            self.conns.insert(conn)
        });
        let Some(id) = conn else {
            let state = PullState::Failed("out of connections".into());
            self.tell(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
            return;
        };
        self.pulls.insert(order.pull, id);
        self.connect(id, order.address, &order.target);
        self.touch(id);
    }

    /// Ends a pull. Control hears where its stream stands before anything that a later order brings.
    pub(super) fn stop_pull(&mut self, pull: PullId) {
        let Some(id) = self.pulls.remove(&pull) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        // No news of it is wanted any more.
        conn.pull = None;
        let connecting = conn.connecting;
        self.unpublish(id, Departure::Lost);
        if connecting {
            self.remove(id, "pull stopped", true);
            return;
        }
        self.call(id, |session, ctx| session.close(ctx, "pull stopped"));
        self.touch(id);
    }

    pub(super) fn pull_news(&mut self, id: ConnId, state: PullState) {
        if let Some(role) = self.conns.get(id).and_then(|conn| conn.pull) {
            self.tell(ToControl::Pull { pull: role.pull, attempt: role.attempt, state });
        }
    }

    /// What is left of a pull whose connection is gone.
    pub(super) fn forget_pull(&mut self, id: ConnId, role: PullRole, reason: &str) {
        if self.pulls.get(&role.pull) == Some(&id) {
            self.pulls.remove(&role.pull);
        }
        // Most have said more already, and control hears only the first word of an attempt's end.
        let state = PullState::Failed(reason.to_owned());
        self.tell(ToControl::Pull { pull: role.pull, attempt: role.attempt, state });
    }

    // ---- viewers who wait

    pub(super) fn note_auto_start(&mut self, streams: Vec<(StreamKey, bool)>) {
        for (key, on) in streams {
            if on {
                self.auto_start.insert(key);
            } else {
                self.auto_start.remove(&key);
            }
        }
    }

    /// Has a viewer wait when the stream is one that viewers start. Its session hears nothing meanwhile.
    pub(super) fn hold(&mut self, id: ConnId, ask: Box<PlayAsk>) -> bool {
        if !self.auto_start.contains(&ask.key) {
            return false;
        }
        let Some(until) = self.now.mono.checked_add(HOLD_MAX) else { return false };
        let Some(conn) = self.conns.get_mut(id) else { return false };
        let key = ask.key.clone();
        conn.held = Some(Held { ask, until });
        let waiting = self.waiting.entry(key.clone()).or_default();
        if !waiting.contains(&id) {
            waiting.push(id);
        }
        self.tell(ToControl::Wanted(key));
        self.touch(id);
        true
    }

    /// Takes a viewer out of the wait.
    fn unhold(&mut self, id: ConnId) -> Option<Held> {
        let held = self.conns.get_mut(id)?.held.take()?;
        self.leave_waiting(id, &held);
        Some(held)
    }

    pub(super) fn leave_waiting(&mut self, id: ConnId, held: &Held) {
        if let Some(waiting) = self.waiting.get_mut(&held.ask.key) {
            waiting.retain(|other| *other != id);
            if waiting.is_empty() {
                self.waiting.remove(&held.ask.key);
            }
        }
    }

    /// The stream is there: those who wait for it are served.
    pub(super) fn serve_waiting(&mut self, key: &StreamKey) {
        for id in self.waiting.remove(key).unwrap_or_default() {
            if let Some(held) = self.conns.get_mut(id).and_then(|conn| conn.held.take()) {
                self.subscribe(id, *held.ask);
                self.touch(id);
            }
        }
    }

    /// The stream did not come in time: it is offline.
    pub(super) fn end_overdue_hold(&mut self, id: ConnId) {
        let due = self.conns.get(id).and_then(|conn| conn.held.as_ref()).map(|held| held.until);
        if due.is_some_and(|due| due <= self.now.mono) {
            self.unhold(id);
            self.call(id, |session, ctx| session.subscribe_verdict(ctx, Err(NoSubscription::NotFound)));
        }
    }

    /// It asked for something else, or leaves.
    pub(super) fn end_hold(&mut self, id: ConnId) {
        self.unhold(id);
    }
}
