//! Tasks that control gives to this worker: attempts of pushes and pulls, recordings, and other sinks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::conn::{Conn, Purpose, Subscription};
use super::conns::Conns;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::mail::{
    Departure, NextAddress, NextServer, Proof, PullOrder, PullState, PushOrder, PushState, RecordingNews,
    RecordingOrder, Target, ToControl, Transport,
};
use crate::protocol::sinks;
use crate::protocol::{OrderEvent, PathEvent, PathId, Session, outbound};
use crate::types::{ConnId, Handle, PullId, PushId, RecordingId, StreamId};

/// The sessions that perform tasks which control has given to this worker.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) pushes: BTreeMap<PushId, ConnId>,
    /// The pushes by stream.
    pushes_of: BTreeSet<(StreamId, PushId)>,
    pub(super) pulls: BTreeMap<PullId, ConnId>,
    pub(super) recordings: BTreeMap<RecordingId, ConnId>,
}

impl Orders {
    fn add_push(&mut self, push: PushId, stream: StreamId, conn: ConnId) {
        self.pushes.insert(push, conn);
        self.pushes_of.insert((stream, push));
    }

    /// Forgets the connection of a push, unless the push already has a newer connection.
    pub(super) fn forget_push(&mut self, push: PushId, stream: StreamId, conn: ConnId) {
        if self.pushes.get(&push) == Some(&conn) {
            self.pushes.remove(&push);
            self.pushes_of.remove(&(stream, push));
        }
    }
}

impl Worker {
    /// Handles news of a session about the task that it performs for control.
    pub(super) fn order_event(&mut self, id: ConnId, event: OrderEvent) {
        match event {
            OrderEvent::Push(state) => self.conns.push_news(&mut self.turn, id, state),
            OrderEvent::Pull(state) => self.conns.pull_news(&mut self.turn, id, state),
            OrderEvent::Recording(news) => self.conns.recording_news(&mut self.turn, id, news),
            OrderEvent::Blob(blob) => {
                self.publish_blob(self.turn.now, *blob);
            }
            OrderEvent::NextServer(server) => self.conns.ask_next_server(&mut self.turn, id, server),
            OrderEvent::Disconnect => self.conns.disconnect(&mut self.turn, id),
        }
    }

    pub(super) fn stop_push(&mut self, push: PushId) {
        let Some(id) = self.orders.pushes.get(&push).copied() else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Purpose::Push { stream, .. } = conn.purpose {
            self.orders.forget_push(push, stream, id);
        }
        // Control no longer wants reports about this task.
        conn.purpose = Purpose::Ended;
        if conn.is_connecting() {
            self.remove(id, "push removed", true);
            return;
        }
        self.conns.blame(id, "push removed");
        self.conns.call(&self.turn, id, |session, ctx| session.close(ctx, "push removed"));
        self.live.unsubscribe(&mut self.turn, &mut self.conns, id, Handle::ONLY);
        self.conns.touch(&mut self.turn, id);
    }

    /// Stops the pushes of an ended stream that still wait for an answer of their target.
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

    /// Ends a pull. First reports the end of its publication to control, with the stream's final position, so that
    /// control knows the position before it gets any message that a later order causes.
    pub(super) fn stop_pull(&mut self, pull: PullId) {
        let Some(id) = self.orders.pulls.remove(&pull) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        // Control no longer wants reports about this task.
        conn.purpose = Purpose::Ended;
        let connecting = conn.is_connecting();
        self.live.unpublish(&mut self.turn, &mut self.conns, id, Handle::ONLY, Departure::Lost);
        if connecting {
            self.remove(id, "pull stopped", true);
            return;
        }
        self.conns.blame(id, "pull stopped");
        self.conns.call(&self.turn, id, |session, ctx| session.close(ctx, "pull stopped"));
        self.conns.touch(&mut self.turn, id);
    }
}

impl Conns {
    fn push_news(&self, turn: &mut Turn, id: ConnId, state: PushState) {
        if let Some(Purpose::Push { push, attempt, .. }) = self.get(id).map(|conn| conn.purpose) {
            turn.tell(ToControl::Push { push, attempt, state });
        }
    }

    /// Closes the connection of a pull that will continue at another server, and asks control for the address of
    /// that server.
    pub(super) fn ask_next_server(&mut self, turn: &mut Turn, id: ConnId, server: NextServer) {
        let Some(conn) = self.get_mut(id) else { return };
        let Purpose::Pull { pull, attempt } = conn.purpose else { return };
        self.disconnect(turn, id);
        turn.tell(ToControl::NextServer { pull, attempt, server });
    }

    /// Closes the byte stream of a pull. The pull itself continues over a new connection.
    pub(super) fn disconnect(&mut self, turn: &mut Turn, id: ConnId) {
        if let Some(conn) = self.get_mut(id).filter(|conn| matches!(conn.purpose, Purpose::Pull { .. })) {
            conn.reconnect();
            turn.agenda.outputs.push_back(Output::Close { conn: id, abort: true });
        }
    }

    pub(super) fn pull_news(&self, turn: &mut Turn, id: ConnId, state: PullState) {
        if let Some(Purpose::Pull { pull, attempt }) = self.get(id).map(|conn| conn.purpose) {
            turn.tell(ToControl::Pull { pull, attempt, state });
        }
    }

    fn insert_outgoing(
        &mut self,
        turn: &Turn,
        address: SocketAddr,
        target: &Target,
        session: Box<dyn Session>,
        purpose: Purpose,
    ) -> Option<ConnId> {
        let now = turn.now.mono;
        let conn = match target.transport {
            Transport::Tcp | Transport::Tls | Transport::NodeTls => Conn::connecting(address, session, now),
            Transport::Udp | Transport::UdpListener => Conn::datagrams(address, session, None, now),
            Transport::File => Conn::bare(address, session, now),
        };
        self.insert(Conn { purpose, ..conn })
    }

    pub(super) fn recording_news(&self, turn: &mut Turn, id: ConnId, news: RecordingNews) {
        if let Some(Purpose::Recording { recording, .. }) = self.get(id).map(|conn| conn.purpose) {
            turn.tell(ToControl::Recording { recording, news });
        }
    }

    /// Inserts a session without a network path.
    pub(super) fn insert_inner(
        &mut self,
        turn: &mut Turn,
        session: Box<dyn Session>,
        purpose: Purpose,
    ) -> Option<ConnId> {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let conn = Conn { purpose, ..Conn::bare(nobody, session, turn.now.mono) };
        let id = self.insert(conn)?;
        self.touch(turn, id);
        Some(id)
    }
}

impl Orders {
    pub(super) fn start_push(&mut self, turn: &mut Turn, conns: &mut Conns, order: &PushOrder) {
        let seed = turn.session_seed();
        let session = outbound::begin_push(turn.now, order, seed);
        let purpose = Purpose::Push { push: order.push, attempt: order.attempt, stream: order.stream };
        let Some(id) = session
            .and_then(|session| conns.insert_outgoing(turn, order.address, &order.target, session, purpose))
        else {
            let state = PushState::Failed("out of connections".into());
            turn.tell(ToControl::Push { push: order.push, attempt: order.attempt, state });
            return;
        };
        self.add_push(order.push, order.stream, id);
        turn.connect(id, order.address, &order.target);
        conns.touch(turn, id);
    }

    /// Reports to control which tracks a push cannot send to its target, if they have changed since the last report,
    /// e.g. because the stream has gained a track.
    pub(super) fn tell_left_out(&self, turn: &mut Turn, conns: &mut Conns, live: &Live) {
        let mut told = Vec::new();
        for id in self.pushes.values() {
            let Some(conn) = conns.get_mut(*id) else { continue };
            let Purpose::Push { push, attempt, stream } = conn.purpose else { continue };
            let playing = conn.subscriptions.iter_mut().find_map(Subscription::playing_mut);
            let (Some(playing), Some(stream)) = (playing, live.streams.get(&stream)) else { continue };
            let left_out = playing.format.left_out(stream.tracks());
            if playing.left_out != left_out {
                playing.left_out.clone_from(&left_out);
                told.push(ToControl::Push { push, attempt, state: PushState::LeavesOut(left_out) });
            }
        }
        told.into_iter().for_each(|news| turn.tell(news));
    }

    pub(super) fn start_pull(&mut self, turn: &mut Turn, conns: &mut Conns, order: &PullOrder) {
        let seed = turn.session_seed();
        let session = outbound::begin_pull(turn.now, order, seed);
        let purpose = Purpose::Pull { pull: order.pull, attempt: order.attempt };
        let Some(id) = session
            .and_then(|session| conns.insert_outgoing(turn, order.address, &order.target, session, purpose))
        else {
            let state = PullState::Failed("out of connections".into());
            turn.tell(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
            return;
        };
        self.pulls.insert(order.pull, id);
        if order.target.is_file() {
            let open = PathEvent::Open { local: None };
            conns.path_event(turn, id, PathId::default(), open);
        } else {
            turn.connect(id, order.address, &order.target);
        }
        conns.touch(turn, id);
    }

    /// Connects a pull to the next server, whose address control has resolved.
    pub(super) fn go_on(&self, turn: &mut Turn, conns: &mut Conns, next: NextAddress) {
        let Some(id) = self.pulls.get(&next.pull).copied() else { return };
        let Some(conn) = conns.get_mut(id) else { return };
        let purpose = Purpose::Pull { pull: next.pull, attempt: next.attempt };
        if conn.purpose != purpose || !conn.is_connecting() {
            return;
        }
        match next.address {
            Ok(address) => {
                conn.peer = address;
                let tls = next.server.tls.then(|| Proof::Name(next.server.host.into_boxed_str()));
                turn.agenda.outputs.push_back(Output::Connect { conn: id, address, tls });
            }
            Err(reason) => {
                let path = PathId::default();
                conns.path_event(turn, id, path, PathEvent::Broken(&reason));
                conns.touch(turn, id);
            }
        }
    }

    /// Forgets a pull whose connection has ended, and reports it as failed.
    pub(super) fn forget_pull(
        &mut self,
        turn: &mut Turn,
        id: ConnId,
        pull: PullId,
        attempt: u64,
        reason: &str,
    ) {
        if self.pulls.get(&pull) == Some(&id) {
            self.pulls.remove(&pull);
        }
        // Most attempts have reported a reason already; control takes only the first report.
        let state = PullState::Failed(reason.to_owned());
        turn.tell(ToControl::Pull { pull, attempt, state });
    }

    pub(super) fn start_recording(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &Live,
        order: RecordingOrder,
    ) {
        let (recording, stream) = (order.recording, order.stream);
        let purpose = Purpose::Recording { recording, stream };
        let conn = sinks::find(order.kind)
            .and_then(|kind| live.insert_sink(turn, conns, kind, stream, Some(order), purpose));
        match conn {
            Some(conn) => drop(self.recordings.insert(recording, conn)),
            None => {
                let news = RecordingNews::Over("the stream is not here".to_owned());
                turn.tell(ToControl::Recording { recording, news });
            }
        }
    }

    pub(super) fn stop_recording(
        &self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &mut Live,
        recording: RecordingId,
    ) {
        let Some(id) = self.recordings.get(&recording).copied() else { return };
        if let Some(Purpose::Recording { stream, .. }) = conns.get(id).map(|conn| conn.purpose) {
            live.feed_rest(turn, conns, stream);
        }
        conns.blame(id, "recording stopped");
        conns.call(turn, id, |session, ctx| session.close(ctx, "recording stopped"));
        live.unsubscribe(turn, conns, id, Handle::ONLY);
        conns.touch(turn, id);
    }
}

impl Turn {
    /// Requests the socket of an outgoing connection from the shell.
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
}
