//! The sessions of a worker, and calls to them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::conn::Conn;
use super::slab::Slab;
use super::turn::Turn;
use crate::protocol::{Context, PathEvent, PathId, Reply, Session};
use crate::types::ConnId;

/// The sessions of a worker, by their ids.
#[derive(Debug, Default)]
pub(super) struct Conns {
    slab: Slab<Conn>,
    /// Sessions that have panicked and can no longer be found by their ids. They are removed later, because that needs
    /// all parts of [`super::Worker`], which may be in use when a session panics. The worker removes them before its
    /// next output at the latest.
    panicked: Vec<ConnId>,
}

impl Conns {
    /// Adds a session. Returns `None` after 2^32 sessions.
    pub(super) fn insert(&mut self, conn: Conn) -> Option<ConnId> {
        self.slab.insert(conn)
    }

    /// The id that the next session will have.
    pub(super) fn next_id(&self) -> Option<ConnId> {
        self.slab.next_id()
    }

    /// Removes and returns a session. Its id is no longer valid after this.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        self.slab.remove(id)
    }

    /// Returns a session that exists and has not panicked.
    pub(super) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slab.get(id).filter(|conn| !conn.has_panicked)
    }

    /// Like [`Self::get`], mutably.
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slab.get_mut(id).filter(|conn| !conn.has_panicked)
    }

    /// The ids of all sessions.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.slab.ids()
    }

    /// The sessions, in the order of their slots.
    pub(super) fn values(&self) -> impl Iterator<Item = &Conn> {
        self.slab.values()
    }

    /// The number of sessions.
    pub(super) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// True if there is no session.
    pub(super) const fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Calls a session. A panic ends only this session: the session is marked for removal, and the result is `None`, as
    /// for an unknown id.
    pub(super) fn call<R>(
        &mut self,
        turn: &Turn,
        id: ConnId,
        verb: impl FnOnce(&mut dyn Session, &Context<'_>) -> R,
    ) -> Option<R> {
        self.guard(turn, id, |conn, ctx| verb(conn.session.as_mut(), ctx))
    }

    /// Like [`Self::call`], but passes the whole [`Conn`] to `act`, not only the session in it.
    pub(super) fn guard<R>(
        &mut self,
        turn: &Turn,
        id: ConnId,
        act: impl FnOnce(&mut Conn, &Context<'_>) -> R,
    ) -> Option<R> {
        let conn = self.get_mut(id)?;
        let answer = catch_unwind(AssertUnwindSafe(|| act(conn, &turn.context()))).ok();
        if answer.is_none() {
            self.note_panic(id);
        }
        answer
    }

    /// Schedules the session to be drained at the end of the turn.
    pub(super) fn touch(&mut self, turn: &mut Turn, id: ConnId) {
        if let Some(conn) = self.get_mut(id)
            && !conn.schedule.dirty
        {
            conn.schedule.dirty = true;
            turn.agenda.dirty.push_back(id);
        }
    }

    /// Delivers a reply to a session; its effects appear at the next drain.
    pub(super) fn reply(&mut self, turn: &Turn, id: ConnId, reply: Reply<'_>) {
        self.call(turn, id, |session, ctx| session.handle_reply(ctx, reply));
    }

    /// Delivers an event to a session. The event concerns one of the session's network paths.
    pub(super) fn path_event(&mut self, turn: &Turn, id: ConnId, path: PathId, event: PathEvent<'_>) {
        self.call(turn, id, |session, ctx| {
            if let Some(paths) = session.paths() {
                paths.handle_path(ctx, path, event);
            }
        });
    }

    /// Marks a session for removal after a panic: of the session itself, of the format in which it plays a
    /// stream, or of a format that was packaging a unit published by the session.
    pub(super) fn note_panic(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.has_panicked = true;
            self.panicked.push(id);
        }
    }

    /// Returns the next session to remove because it has panicked.
    pub(super) fn poll_panicked(&mut self) -> Option<ConnId> {
        while let Some(id) = self.panicked.pop() {
            if self.slab.get(id).is_some_and(|conn| conn.has_panicked) {
                return Some(id);
            }
        }
        None
    }

    /// Makes a session that has panicked reachable by its id again, so that its publications and subscriptions can be
    /// ended when it is removed. Returns true if the session had panicked.
    pub(super) fn end_panic(&mut self, id: ConnId) -> bool {
        self.slab.get_mut(id).is_some_and(|conn| std::mem::take(&mut conn.has_panicked))
    }
}
