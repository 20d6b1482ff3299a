//! Sessions that create sessions and send each other messages.

use super::conn::{CHILDREN_MAX, Conn, Purpose};
use super::slab::Slab;
use super::{Output, Worker};
use crate::mail::{CallEvent, Message, ToControl, ToWorker};
use crate::protocol::{FamilyEvent, FamilyNews, Reply, Session};
use crate::types::{ConnId, Handle, SessionRef, StreamKey};

impl Slab<Conn> {
    /// The session that has the connection of a session: its parent where it has no network path of its own, as a stream of
    /// a connection that has many.
    pub(super) fn transport_of(&self, id: ConnId) -> ConnId {
        let Some(conn) = self.get(id) else { return id };
        let parent = conn.family.as_ref().and_then(|family| family.parent);
        parent.filter(|_| conn.bytes.is_none() && conn.datagrams.is_none()).unwrap_or(id)
    }
}

impl Worker {
    /// A session creates another one, or sends it a message.
    pub(super) fn family_event(&mut self, id: ConnId, event: FamilyEvent) {
        match event {
            FamilyEvent::Spawn { child, session } => self.spawn(id, child, session),
            FamilyEvent::SpawnAt { child, port, what, outlives } => {
                self.spawn_at(id, child, (port, what), outlives);
            }
            FamilyEvent::Tell { to, message } => {
                self.tell_session(self.session_ref(id, Handle::ONLY), to, message);
            }
            FamilyEvent::TellStream { stream, message } => self.tell_stream(id, stream, message),
        }
    }

    /// A session wants one of its own beside it.
    pub(super) fn spawn(&mut self, parent: ConnId, child: Handle, session: Box<dyn Session>) {
        let Some(conn) = self.conns.get(parent) else { return };
        let inner = Conn::bare(conn.peer, session, self.now.mono);
        self.adopt(parent, child, inner, false);
    }

    /// Takes a session in that `parent` wants, and answers. What does not outlive its parent ends with it.
    pub(super) fn adopt(&mut self, parent: ConnId, child: Handle, inner: Conn, outlives: bool) {
        let Some(conn) = self.conns.get(parent) else { return };
        let children = conn.family.as_ref().map_or(0, |family| family.children.len());
        let id = if children < CHILDREN_MAX { self.conns.insert(inner) } else { None };
        if let Some(id) = id {
            if !outlives {
                self.relate(parent, id);
            }
            self.touch(id);
        }
        let session = id.map(|id| self.session_ref(id, Handle::ONLY));
        self.reply(parent, Reply::Family(FamilyNews::Spawned { child, session }));
        self.touch(parent);
    }

    pub(super) fn relate(&mut self, parent: ConnId, child: ConnId) {
        if let Some(conn) = self.conns.get_mut(parent) {
            conn.family.get_or_insert_default().children.push(child);
        }
        if let Some(conn) = self.conns.get_mut(child) {
            conn.family.get_or_insert_default().parent = Some(parent);
        }
    }

    /// Delivers a message of a session to another one, here or on another worker.
    pub(super) fn tell_session(&mut self, from: SessionRef, to: SessionRef, message: Message) {
        if to.worker != self.id {
            self.agenda.outputs.push_back(Output::Worker(to.worker, ToWorker::Tell { from, to, message }));
            return;
        }
        if self.conns.get(to.conn).is_some() {
            self.reply(to.conn, Reply::Family(FamilyNews::Message { from, message }));
            self.touch(to.conn);
        } else if let Some(answer) = self.answer_for_past(to.conn, &message) {
            self.tell_session(to, from, answer);
        } else {
            self.tell_session_ended(from, to);
        }
    }

    /// Delivers a message of a session to all sessions of a stream or of a room, here and on every other worker.
    fn tell_stream(&mut self, id: ConnId, stream: StreamKey, message: Message) {
        if !self.live.directory.contains_key(&stream) && !self.live.is_room(&stream) {
            return;
        }
        if !self.live.chats.takes(self.now.mono, &stream, &message) {
            return;
        }
        let from = self.session_ref(id, Handle::ONLY);
        self.hear_in_stream(from, &stream, &message);
        self.agenda.outputs.push_back(Output::Others(ToWorker::TellStream { from, stream, message }));
    }

    /// Delivers a message to the sessions of a stream on this worker, and to those who watch its room, once to each and not to its sender.
    /// Of a main track these are the publishers of all its streams, and who watches it.
    pub(super) fn hear_in_stream(&mut self, from: SessionRef, key: &StreamKey, message: &Message) {
        let mut sessions = self.live.watchers_of(key);
        for member in self.live.rooms.members(key) {
            sessions.extend(self.live.publisher(member).map(|publisher| publisher.conn));
        }
        if let Some(stream) = self.live.directory.get(key) {
            let viewers = self.live.streams.get(stream).into_iter().flat_map(|live| &live.subscribers);
            sessions.extend(viewers.map(|viewer| viewer.conn));
            sessions.extend(self.live.publisher(*stream).map(|publisher| publisher.conn));
            let room = self.live.room_of(*stream).filter(|room| room != key);
            sessions.extend(room.into_iter().flat_map(|room| self.live.watchers_of(&room)));
        }
        if from.worker == self.id {
            sessions.remove(&from.conn);
        }
        for session in sessions {
            self.reply(session, Reply::Family(FamilyNews::Message { from, message: message.clone() }));
            self.touch(session);
        }
    }

    /// A session that was spoken to is not there.
    pub(super) fn tell_session_ended(&mut self, teller: SessionRef, gone: SessionRef) {
        if teller.worker != self.id {
            let mail = ToWorker::SessionEnded { teller, gone };
            self.agenda.outputs.push_back(Output::Worker(teller.worker, mail));
            return;
        }
        self.reply(teller.conn, Reply::Family(FamilyNews::Ended(gone)));
        self.touch(teller.conn);
    }

    /// A session has ended: its children end with it, its parent hears of it.
    pub(super) fn end_family(&mut self, id: ConnId, conn: Conn) {
        let Some(family) = conn.family else { return };
        if family.calls {
            let (session, peer) = (self.session_ref(id, Handle::ONLY), conn.peer);
            self.tell(ToControl::Call { session, peer, event: CallEvent::Gone });
        }
        for child in family.children {
            if let Some(conn) = self.conns.get_mut(child) {
                conn.purpose = Purpose::Ended;
                if let Some(family) = &mut conn.family {
                    family.parent = None;
                }
            }
            self.call(child, |session, ctx| session.close(ctx, "its session has ended"));
            self.touch(child);
        }
        let Some(parent) = family.parent else { return };
        let gone = self.session_ref(id, Handle::ONLY);
        if let Some(family) = self.conns.get_mut(parent).and_then(|conn| conn.family.as_mut()) {
            family.children.retain(|child| *child != id);
        }
        self.reply(parent, Reply::Family(FamilyNews::Ended(gone)));
        self.touch(parent);
    }
}
