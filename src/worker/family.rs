//! Sessions that create other sessions, and messages between sessions.

use super::conn::{CHILDREN_MAX, Conn, Purpose};
use super::conns::Conns;
use super::datagrams::Ports;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::mail::{CallEvent, Message, ToControl, ToWorker};
use crate::protocol::{FamilyEvent, FamilyNews, Reply, Session};
use crate::types::{ConnId, Handle, SessionRef, StreamKey};

impl Conns {
    /// Returns the session whose network path a session uses: the session itself, or its parent if it has no path of
    /// its own, as for a stream of a multiplexed connection.
    pub(super) fn transport_of(&self, id: ConnId) -> ConnId {
        let Some(conn) = self.get(id) else { return id };
        let parent = conn.family.as_ref().and_then(|family| family.parent);
        parent.filter(|_| conn.bytes.is_none() && conn.datagrams.is_none()).unwrap_or(id)
    }
}

impl Worker {
    /// Handles a session's request to create another session or to send a message.
    pub(super) fn family_event(&mut self, id: ConnId, event: FamilyEvent) {
        match event {
            FamilyEvent::Spawn { child, session } => self.conns.spawn(&mut self.turn, id, child, session),
            FamilyEvent::SpawnAt { child, port, what, outlives } => {
                self.ports.spawn_at(&mut self.turn, &mut self.conns, id, child, (port, what), outlives);
            }
            FamilyEvent::Tell { to, message } => {
                let from = self.turn.session_ref(id, Handle::ONLY);
                self.ports.tell_session(&mut self.turn, &mut self.conns, from, to, message);
            }
            // A standby's messages are not those of the stream.
            FamilyEvent::TellStream { .. } if self.live.standbys.waits(id, Handle::ONLY) => {}
            FamilyEvent::TellStream { stream, message } => {
                let (key, told) = (stream.clone(), message.clone());
                self.live.tell_stream(&mut self.turn, &mut self.conns, id, stream, message);
                self.put_message(&key, &told);
            }
        }
    }
}

impl Conns {
    /// Creates a child session on behalf of a session.
    pub(super) fn spawn(
        &mut self,
        turn: &mut Turn,
        parent: ConnId,
        child: Handle,
        session: Box<dyn Session>,
    ) {
        let Some(conn) = self.get(parent) else { return };
        let inner = Conn::bare(conn.peer, session, turn.now.mono);
        self.adopt(turn, parent, child, inner, false);
    }

    /// True if a session exists and may have another child.
    pub(super) fn takes_child(&self, parent: ConnId) -> bool {
        let children = |conn: &Conn| conn.family.as_ref().map_or(0, |family| family.children.len());
        self.get(parent).is_some_and(|conn| children(conn) < CHILDREN_MAX)
    }

    /// Inserts a child session and replies to `parent`. The child ends with its parent unless `outlives` is set.
    pub(super) fn adopt(
        &mut self,
        turn: &mut Turn,
        parent: ConnId,
        child: Handle,
        inner: Conn,
        outlives: bool,
    ) {
        let id = if self.takes_child(parent) { self.insert(inner) } else { None };
        if let Some(id) = id {
            if !outlives {
                self.relate(parent, id);
            }
            self.touch(turn, id);
        }
        let session = id.map(|id| turn.session_ref(id, Handle::ONLY));
        self.reply(turn, parent, Reply::Family(FamilyNews::Spawned { child, session }));
        self.touch(turn, parent);
    }

    pub(super) fn relate(&mut self, parent: ConnId, child: ConnId) {
        if let Some(conn) = self.get_mut(parent) {
            conn.family.get_or_insert_default().children.push(child);
        }
        if let Some(conn) = self.get_mut(child) {
            conn.family.get_or_insert_default().parent = Some(parent);
        }
    }

    /// Reports to session `teller` that `gone`, to which it has sent a message, does not exist.
    pub(super) fn tell_session_ended(&mut self, turn: &mut Turn, teller: SessionRef, gone: SessionRef) {
        if teller.worker != turn.id {
            let mail = ToWorker::SessionEnded { teller, gone };
            turn.agenda.outputs.push_back(Output::Worker(teller.worker, mail));
            return;
        }
        self.reply(turn, teller.conn, Reply::Family(FamilyNews::Ended(gone)));
        self.touch(turn, teller.conn);
    }

    /// Ends the children of an ended session and notifies its parent.
    pub(super) fn end_family(&mut self, turn: &mut Turn, id: ConnId, conn: Conn) {
        let Some(family) = conn.family else { return };
        if family.calls {
            let (session, peer) = (turn.session_ref(id, Handle::ONLY), conn.peer);
            turn.tell(ToControl::Call { session, peer, event: CallEvent::Gone });
        }
        for child in family.children {
            if let Some(conn) = self.get_mut(child) {
                conn.purpose = Purpose::Ended;
                if let Some(family) = &mut conn.family {
                    family.parent = None;
                }
            }
            self.call(turn, child, |session, ctx| session.close(ctx, "its session has ended"));
            self.touch(turn, child);
        }
        let Some(parent) = family.parent else { return };
        let gone = turn.session_ref(id, Handle::ONLY);
        if let Some(family) = self.get_mut(parent).and_then(|conn| conn.family.as_mut()) {
            family.children.retain(|child| *child != id);
        }
        self.reply(turn, parent, Reply::Family(FamilyNews::Ended(gone)));
        self.touch(turn, parent);
    }
}

impl Ports {
    /// Delivers a message to another session, on this or another worker.
    pub(super) fn tell_session(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        from: SessionRef,
        to: SessionRef,
        message: Message,
    ) {
        if to.worker != turn.id {
            turn.agenda.outputs.push_back(Output::Worker(to.worker, ToWorker::Tell { from, to, message }));
            return;
        }
        if conns.get(to.conn).is_some() {
            conns.reply(turn, to.conn, Reply::Family(FamilyNews::Message { from, message }));
            conns.touch(turn, to.conn);
        } else if let Some(answer) = self.answer_for_past(turn, to.conn, &message) {
            self.tell_session(turn, conns, to, from, answer);
        } else {
            conns.tell_session_ended(turn, from, to);
        }
    }
}

impl Live {
    /// Delivers a message of a session to all sessions of a stream or a room, on this worker and on all others.
    fn tell_stream(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        stream: StreamKey,
        message: Message,
    ) {
        if !self.directory.contains_key(&stream) && !self.is_room(&stream) {
            return;
        }
        if !self.chats.takes(turn.now.mono, id, &stream, &message) {
            return;
        }
        let from = turn.session_ref(id, Handle::ONLY);
        self.hear_in_stream(turn, conns, from, &stream, &message);
        turn.agenda.outputs.push_back(Output::Others(ToWorker::TellStream { from, stream, message }));
    }

    /// Delivers a message to the sessions of a stream on this worker, and to the sessions that watch its room. Each of
    /// these sessions gets the message once, except the sender. For a main track, the message goes to the publishers of
    /// all its streams and to the sessions that watch the main track.
    pub(super) fn hear_in_stream(
        &self,
        turn: &mut Turn,
        conns: &mut Conns,
        from: SessionRef,
        key: &StreamKey,
        message: &Message,
    ) {
        let mut sessions = self.watchers_of(key);
        for member in self.rooms.members(key) {
            sessions.extend(self.publisher(member).map(|publisher| publisher.conn));
        }
        if let Some(stream) = self.directory.get(key) {
            let viewers = self.streams.get(stream).into_iter().flat_map(|live| &live.subscribers);
            sessions.extend(viewers.map(|viewer| viewer.conn));
            sessions.extend(self.publisher(*stream).map(|publisher| publisher.conn));
            let room = self.room_of(*stream).filter(|room| room != key);
            sessions.extend(room.into_iter().flat_map(|room| self.watchers_of(&room)));
        }
        if from.worker == turn.id {
            sessions.remove(&from.conn);
        }
        for session in sessions {
            conns.reply(turn, session, Reply::Family(FamilyNews::Message { from, message: message.clone() }));
            conns.touch(turn, session);
        }
    }
}
