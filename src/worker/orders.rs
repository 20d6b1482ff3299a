//! Outgoing connections: attempts of pushes and pulls, and sinks that control orders.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::conn::{Conn, Purpose, Subscription};
use super::{Output, Worker};
use crate::mail::{
    Departure, NextAddress, NextServer, Proof, PullOrder, PullState, PushOrder, PushState, RecordingNews,
    RecordingOrder, SinkNews, Target, ToControl, Transport,
};
use crate::protocol::sinks::{self, SinkKind, SinkOrder};
use crate::protocol::{OrderEvent, PathEvent, PathId, Session, outbound};
use crate::types::{ConnId, Handle, PullId, PushId, RecordingId, StreamId};

/// The connections that control has ordered.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) pushes: BTreeMap<PushId, ConnId>,
    /// The same by stream.
    pushes_of: BTreeSet<(StreamId, PushId)>,
    pub(super) pulls: BTreeMap<PullId, ConnId>,
    pub(super) recordings: BTreeMap<RecordingId, ConnId>,
}

impl Orders {
    fn add_push(&mut self, push: PushId, stream: StreamId, conn: ConnId) {
        self.pushes.insert(push, conn);
        self.pushes_of.insert((stream, push));
    }

    /// The connection of a push is gone. A later one of the same push is not forgotten.
    pub(super) fn forget_push(&mut self, push: PushId, stream: StreamId, conn: ConnId) {
        if self.pushes.get(&push) == Some(&conn) {
            self.pushes.remove(&push);
            self.pushes_of.remove(&(stream, push));
        }
    }
}

impl Worker {
    /// A session tells of the task that it was ordered for.
    pub(super) fn order_event(&mut self, id: ConnId, event: OrderEvent) {
        match event {
            OrderEvent::Push(state) => self.push_news(id, state),
            OrderEvent::Pull(state) => self.pull_news(id, state),
            OrderEvent::Recording(news) => self.recording_news(id, news),
            OrderEvent::Blob(blob) => {
                self.publish_blob(self.now, *blob);
            }
            OrderEvent::NextServer(server) => self.ask_next_server(id, server),
            OrderEvent::Disconnect => self.disconnect(id),
        }
    }

    fn push_news(&mut self, id: ConnId, state: PushState) {
        if let Some(Purpose::Push { push, attempt, .. }) = self.conns.get(id).map(|conn| conn.purpose) {
            self.tell(ToControl::Push { push, attempt, state });
        }
    }

    // ---- pushes

    pub(super) fn start_push(&mut self, order: &PushOrder) {
        let seed = self.session_seed();
        let session = outbound::begin_push(self.now, order, seed);
        let purpose = Purpose::Push { push: order.push, attempt: order.attempt, stream: order.stream };
        let Some(id) =
            session.and_then(|session| self.insert_outgoing(order.address, &order.target, session, purpose))
        else {
            let state = PushState::Failed("out of connections".into());
            self.tell(ToControl::Push { push: order.push, attempt: order.attempt, state });
            return;
        };
        self.orders.add_push(order.push, order.stream, id);
        self.connect(id, order.address, &order.target);
        self.touch(id);
    }

    pub(super) fn stop_push(&mut self, push: PushId) {
        let Some(id) = self.orders.pushes.get(&push).copied() else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Purpose::Push { stream, .. } = conn.purpose {
            self.orders.forget_push(push, stream, id);
        }
        // No news of it is wanted any more.
        conn.purpose = Purpose::Ended;
        if conn.is_connecting() {
            self.remove(id, "push removed", true);
            return;
        }
        self.blame(id, "push removed");
        self.call(id, |session, ctx| session.close(ctx, "push removed"));
        self.unsubscribe(id, Handle::ONLY);
        self.touch(id);
    }

    /// Stops the pushes of an ended stream whose targets have not answered yet.
    pub(super) fn stop_waiting_pushes(&mut self, stream: StreamId) {
        let all = (stream, PushId(0))..=(stream, PushId(u64::MAX));
        let is_waiting = |push: &PushId| {
            let conn = self.orders.pushes.get(push).and_then(|id| self.conns.get(*id));
            conn.is_some_and(|conn| conn.subscriptions.is_empty())
        };
        let pushes = self.orders.pushes_of.range(all).map(|(_, push)| *push);
        for push in pushes.filter(is_waiting).collect::<Vec<_>>() {
            self.stop_push(push);
        }
    }

    /// Tells control which tracks the targets of pushes cannot be sent, when that has changed: a stream may have more tracks
    /// than it began with.
    pub(super) fn tell_left_out(&mut self) {
        let mut told = Vec::new();
        for id in self.orders.pushes.values() {
            let Some(conn) = self.conns.get_mut(*id) else { continue };
            let Purpose::Push { push, attempt, stream } = conn.purpose else { continue };
            let playing = conn.subscriptions.iter_mut().find_map(Subscription::playing_mut);
            let (Some(playing), Some(stream)) = (playing, self.live.streams.get(&stream)) else { continue };
            let left_out = playing.format.left_out(stream.tracks());
            if playing.left_out != left_out {
                playing.left_out.clone_from(&left_out);
                told.push(ToControl::Push { push, attempt, state: PushState::LeavesOut(left_out) });
            }
        }
        told.into_iter().for_each(|news| self.tell(news));
    }

    // ---- pulls

    pub(super) fn start_pull(&mut self, order: &PullOrder) {
        let seed = self.session_seed();
        let session = outbound::begin_pull(self.now, order, seed);
        let purpose = Purpose::Pull { pull: order.pull, attempt: order.attempt };
        let Some(id) =
            session.and_then(|session| self.insert_outgoing(order.address, &order.target, session, purpose))
        else {
            let state = PullState::Failed("out of connections".into());
            self.tell(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
            return;
        };
        self.orders.pulls.insert(order.pull, id);
        if order.target.is_file() {
            let open = PathEvent::Open { local: None };
            self.path_event(id, PathId::default(), open);
        } else {
            self.connect(id, order.address, &order.target);
        }
        self.touch(id);
    }

    /// Ends a pull. Control hears where its stream stands before anything that a later order brings.
    pub(super) fn stop_pull(&mut self, pull: PullId) {
        let Some(id) = self.orders.pulls.remove(&pull) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        // No news of it is wanted any more.
        conn.purpose = Purpose::Ended;
        let connecting = conn.is_connecting();
        self.unpublish(id, Handle::ONLY, Departure::Lost);
        if connecting {
            self.remove(id, "pull stopped", true);
            return;
        }
        self.blame(id, "pull stopped");
        self.call(id, |session, ctx| session.close(ctx, "pull stopped"));
        self.touch(id);
    }

    /// A pull goes on at another server: what it was connected to is closed, and control says where that is.
    pub(super) fn ask_next_server(&mut self, id: ConnId, server: NextServer) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Purpose::Pull { pull, attempt } = conn.purpose else { return };
        self.disconnect(id);
        self.tell(ToControl::NextServer { pull, attempt, server });
    }

    /// The byte stream of a pull is closed; the pull goes on.
    pub(super) fn disconnect(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| matches!(conn.purpose, Purpose::Pull { .. }))
        {
            conn.reconnect();
            self.agenda.outputs.push_back(Output::Close { conn: id, abort: true });
        }
    }

    /// Control says where a pull goes on.
    pub(super) fn go_on(&mut self, next: NextAddress) {
        let Some(id) = self.orders.pulls.get(&next.pull).copied() else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let purpose = Purpose::Pull { pull: next.pull, attempt: next.attempt };
        if conn.purpose != purpose || !conn.is_connecting() {
            return;
        }
        match next.address {
            Ok(address) => {
                conn.peer = address;
                let tls = next.server.tls.then(|| Proof::Name(next.server.host.into_boxed_str()));
                self.agenda.outputs.push_back(Output::Connect { conn: id, address, tls });
            }
            Err(reason) => {
                let path = PathId::default();
                self.path_event(id, path, PathEvent::Broken(&reason));
                self.touch(id);
            }
        }
    }

    pub(super) fn pull_news(&mut self, id: ConnId, state: PullState) {
        if let Some(Purpose::Pull { pull, attempt }) = self.conns.get(id).map(|conn| conn.purpose) {
            self.tell(ToControl::Pull { pull, attempt, state });
        }
    }

    /// Removes the rest of a pull whose connection is gone.
    pub(super) fn forget_pull(&mut self, id: ConnId, pull: PullId, attempt: u64, reason: &str) {
        if self.orders.pulls.get(&pull) == Some(&id) {
            self.orders.pulls.remove(&pull);
        }
        // Most have reported a reason already; control takes only the first report of an attempt's end.
        let state = PullState::Failed(reason.to_owned());
        self.tell(ToControl::Pull { pull, attempt, state });
    }

    // ---- both

    fn insert_outgoing(
        &mut self,
        address: SocketAddr,
        target: &Target,
        session: Box<dyn Session>,
        purpose: Purpose,
    ) -> Option<ConnId> {
        let now = self.now.mono;
        let conn = match target.transport {
            Transport::Tcp | Transport::Tls | Transport::NodeTls => Conn::connecting(address, session, now),
            Transport::Udp | Transport::UdpListener => Conn::datagrams(address, session, None, now),
            Transport::File => Conn::bare(address, session, now),
        };
        self.conns.insert(Conn { purpose, ..conn })
    }

    /// Has the socket of an outgoing connection opened.
    fn connect(&mut self, conn: ConnId, address: SocketAddr, target: &Target) {
        let path = PathId::default();
        let output = match target.transport {
            Transport::Tcp | Transport::Tls | Transport::NodeTls => {
                Output::Connect { conn, address, tls: target.proof() }
            }
            Transport::Udp => Output::OpenUdp { conn, path, bind: None, to: Some(address) },
            Transport::UdpListener => Output::OpenUdp { conn, path, bind: Some(address), to: None },
            Transport::File => return,
        };
        self.agenda.outputs.push_back(output);
    }

    // ---- sinks

    /// Creates a sink of a stream, once.
    pub(super) fn start_sink(&mut self, name: &str, stream: StreamId) {
        let Some(kind) = sinks::find(name) else { return };
        if !self.polled.note_sink(stream, kind.name) {
            return;
        }
        let purpose = Purpose::Sink { stream, kind: kind.name };
        if self.insert_sink(kind, stream, None, purpose).is_none() {
            self.sink_over(stream, kind.name);
        }
    }

    /// A sink is no more: the next request for what it made begins another one.
    pub(super) fn sink_over(&mut self, stream: StreamId, kind: &'static str) {
        self.polled.forget_sink(stream, kind);
        self.tell(ToControl::Sink { stream, kind, news: SinkNews::Over });
    }

    fn insert_sink(
        &mut self,
        kind: &SinkKind,
        stream: StreamId,
        recording: Option<RecordingOrder>,
        purpose: Purpose,
    ) -> Option<ConnId> {
        let live = self.live.streams.get(&stream)?;
        let (key, settings) = (live.key.clone(), Arc::clone(&live.settings));
        let details = self.live.details.get(&stream).cloned().unwrap_or_default();
        let order = SinkOrder { stream, key, settings, details, recording };
        let seed = self.session_seed();
        let session = (kind.begin)(self.now, &order, seed);
        self.insert_inner(session, purpose)
    }

    // ---- recordings

    pub(super) fn start_recording(&mut self, order: RecordingOrder) {
        let (recording, stream) = (order.recording, order.stream);
        let purpose = Purpose::Recording { recording, stream };
        let conn =
            sinks::find(order.kind).and_then(|kind| self.insert_sink(kind, stream, Some(order), purpose));
        match conn {
            Some(conn) => drop(self.orders.recordings.insert(recording, conn)),
            None => {
                let news = RecordingNews::Over("the stream is not here".to_owned());
                self.tell(ToControl::Recording { recording, news });
            }
        }
    }

    pub(super) fn stop_recording(&mut self, recording: RecordingId) {
        let Some(id) = self.orders.recordings.get(&recording).copied() else { return };
        if let Some(Purpose::Recording { stream, .. }) = self.conns.get(id).map(|conn| conn.purpose) {
            self.feed_rest(stream);
        }
        self.blame(id, "recording stopped");
        self.call(id, |session, ctx| session.close(ctx, "recording stopped"));
        self.unsubscribe(id, Handle::ONLY);
        self.touch(id);
    }

    pub(super) fn recording_news(&mut self, id: ConnId, news: RecordingNews) {
        if let Some(Purpose::Recording { recording, .. }) = self.conns.get(id).map(|conn| conn.purpose) {
            self.tell(ToControl::Recording { recording, news });
        }
    }

    /// Puts a session without a network path into the worker.
    pub(super) fn insert_inner(&mut self, session: Box<dyn Session>, purpose: Purpose) -> Option<ConnId> {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let conn = Conn { purpose, ..Conn::bare(nobody, session, self.now.mono) };
        let id = self.conns.insert(conn)?;
        self.touch(id);
        Some(id)
    }
}
