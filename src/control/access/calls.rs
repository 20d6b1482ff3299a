//! Calls: the two signalling sockets of each call id, which may be on different workers. Removing a socket costs time
//! proportional to the number of its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::control::Control;
use crate::control::admission::Gate;
use crate::mail::{CallEvent, CallNews, NoSubscription, PlayRequest, ToWorker};
use crate::types::{Now, SessionRef, StreamKey};

/// Maximum number of sockets in a call.
const PEERS_MAX: usize = 2;

/// The sockets of all calls.
#[derive(Debug, Default)]
pub(in crate::control) struct Calls {
    /// Sockets by call, in the order in which they joined.
    peers: BTreeMap<StreamKey, Vec<SessionRef>>,
    joined: BTreeMap<SessionRef, BTreeSet<StreamKey>>,
}

impl Calls {
    /// Number of entries in all tables. Simulations check that it returns to 0.
    pub(in crate::control) fn held(&self) -> usize {
        self.joined.len().saturating_add(self.peers.len())
    }

    /// Adds a socket to a call. Returns the sockets to notify, each with its news.
    fn join(&mut self, key: &StreamKey, session: SessionRef) -> Vec<(SessionRef, CallNews)> {
        let peers = self.peers.entry(key.clone()).or_default();
        if !peers.contains(&session) {
            if peers.len() >= PEERS_MAX {
                return vec![(session, CallNews::Full)];
            }
            peers.push(session);
        }
        let other = peers.iter().copied().find(|peer| *peer != session);
        self.joined.entry(session).or_default().insert(key.clone());
        let mut news = vec![(session, CallNews::Joined)];
        if let Some(other) = other {
            // The first socket makes the offer, once it knows of the second.
            news.push((session, CallNews::Paired { with: other, begins: false }));
            news.push((other, CallNews::Paired { with: session, begins: true }));
        }
        news
    }

    /// Removes a socket from a call. Returns the news for the other socket of the call, if there is one.
    fn leave(&mut self, key: &StreamKey, session: SessionRef) -> Option<(SessionRef, CallNews)> {
        let joined = self.joined.get_mut(&session)?;
        if !joined.remove(key) {
            return None;
        }
        if joined.is_empty() {
            self.joined.remove(&session);
        }
        let peers = self.peers.get_mut(key)?;
        peers.retain(|peer| *peer != session);
        let other = peers.first().copied();
        if other.is_none() {
            self.peers.remove(key);
        }
        Some((other?, CallNews::Alone))
    }

    /// Refuses a socket. If it has joined the call before, it leaves the call. Returns the sockets to notify.
    fn refuse(
        &mut self,
        key: &StreamKey,
        session: SessionRef,
        why: NoSubscription,
    ) -> Vec<(SessionRef, CallNews)> {
        let refused = (session, CallNews::Refused(why));
        std::iter::once(refused).chain(self.leave(key, session)).collect()
    }

    /// Returns the calls of a socket.
    fn of(&self, session: SessionRef) -> Vec<StreamKey> {
        self.joined.get(&session).into_iter().flatten().cloned().collect()
    }
}

impl Control {
    /// Handles a call event from a socket.
    pub(in crate::control) fn call_event(
        &mut self,
        now: Now,
        session: SessionRef,
        peer: SocketAddr,
        event: CallEvent,
    ) {
        let (egress, polled) = ("webrtc", None);
        let (keys, ask) = match event {
            CallEvent::Join { key, params, origin } => {
                (vec![key.clone()], Some(PlayRequest { session, key, egress, peer, params, origin, polled }))
            }
            CallEvent::Leave(key) => (vec![key], None),
            CallEvent::Gone => (self.access.calls.of(session), None),
        };
        let verdict = ask.map(|ask| Gate::of(self, now).check_call(ask));
        for key in keys {
            let news = match &verdict {
                Some(Err(why)) => self.access.calls.refuse(&key, session, why.clone()),
                Some(Ok(())) => self.access.calls.join(&key, session),
                None => self.access.calls.leave(&key, session).into_iter().collect(),
            };
            for (SessionRef { worker, conn, .. }, news) in news {
                self.cx.post(worker, ToWorker::Call { conn, key: key.clone(), news });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ConnId, WorkerId};

    fn socket(slot: u32) -> SessionRef {
        SessionRef::new(WorkerId(0), ConnId { slot, generation: 0 })
    }

    #[test]
    fn two_take_part_and_leave_nothing() {
        let (mut calls, key) = (Calls::default(), StreamKey::new("live", "a"));
        let joined = |slot| (socket(slot), CallNews::Joined);
        let paired = |of, with, begins| (socket(of), CallNews::Paired { with: socket(with), begins });
        assert_eq!(calls.join(&key, socket(1)), [joined(1)]);
        assert_eq!(calls.join(&key, socket(1)), [joined(1)]);
        assert_eq!(calls.join(&key, socket(2)), [joined(2), paired(2, 1, false), paired(1, 2, true)]);
        assert_eq!(calls.join(&key, socket(3)), [(socket(3), CallNews::Full)]);
        assert_eq!(calls.leave(&key, socket(3)), None);
        assert_eq!(calls.leave(&key, socket(1)), Some((socket(2), CallNews::Alone)));
        assert_eq!(calls.join(&key, socket(3)), [joined(3), paired(3, 2, false), paired(2, 3, true)]);
        assert_eq!(calls.of(socket(3)), std::slice::from_ref(&key));
        assert_eq!(calls.leave(&key, socket(2)), Some((socket(3), CallNews::Alone)));
        assert_eq!(calls.leave(&key, socket(3)), None);
        assert_eq!(calls.held(), 0);
    }

    #[test]
    fn a_refused_socket_is_in_no_call() {
        let (mut calls, key) = (Calls::default(), StreamKey::new("live", "a"));
        let refused = |slot| (socket(slot), CallNews::Refused(NoSubscription::NotFound));
        assert_eq!(calls.refuse(&key, socket(1), NoSubscription::NotFound), [refused(1)]);
        calls.join(&key, socket(1));
        calls.join(&key, socket(2));
        // The second `join` of a member is refused, for example because its token has expired.
        let news = calls.refuse(&key, socket(1), NoSubscription::NotFound);
        assert_eq!(news, [refused(1), (socket(2), CallNews::Alone)]);
        assert_eq!(calls.join(&key, socket(3)).first(), Some(&(socket(3), CallNews::Joined)));
        assert!(calls.of(socket(1)).is_empty());
    }
}
