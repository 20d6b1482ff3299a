//! Events of sessions: requests of peers, carried to the hub or to control.

use std::sync::Arc;
use std::time::Duration;

use super::conn::{DatagramPath, Flow, Purpose};
use super::deadlines::Timer;
use super::endings::log_end;
use super::{Output, Worker};
use crate::jobs::{Job, Work};
use crate::mail::{PushState, RecordingNews, ToControl, UploadGrant, UploadNews};
use crate::protocol::{Event, PathEvent, PathId, Reply};
use crate::stats::Traffic;
use crate::types::{ConnId, Handle};

/// Grid of flush deadlines.
pub(super) const FLUSH_GRID: Duration = Duration::from_millis(4);
/// The kernel may hold at least so many unsent bytes of a viewer: a large key frame must not need two wake-ups.
pub(super) const UNSENT_BYTES_MIN: usize = 128 * 1024;

impl Worker {
    /// Ends a turn: drains every dirty session, and has the streams that grew sent.
    pub fn finish_turn(&mut self) {
        loop {
            while let Some(id) = self.agenda.dirty.pop() {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.schedule.dirty = false;
                }
                self.drain_session(id);
            }
            let Some(id) = self.agenda.flushing.pop() else { break };
            self.flush_stream(id);
        }
        self.finish_drain();
    }

    /// Drains events until there are none, then bytes, then the deadline.
    pub(super) fn drain_session(&mut self, id: ConnId) {
        loop {
            match self.call(id, |session, ctx| session.poll_event(ctx)) {
                Some(Some(event)) => self.handle_event(id, event),
                Some(None) => break,
                None => return,
            }
        }
        let drained = self.guard(id, |conn, ctx| {
            if let Some(link) = &mut conn.bytes
                && let Some(stream) = conn.session.byte_stream()
            {
                stream.poll_transmit(&mut link.queue);
            }
            if let Some(link) = &mut conn.datagrams {
                link.unsent = conn.session.datagrams().is_none_or(|peer| peer.has_datagrams(ctx));
            }
            let about = conn.session.about();
            conn.figures.is_media = about.is_media;
            // A peer of a byte stream may agree on datagrams later on.
            conn.takes_units = conn.session.unit_sink().is_some();
            // A sink that may have room again goes on with what lies behind its cursors.
            let goes_on = conn.takes_units && !conn.schedule.sated && !conn.subscriptions.is_empty();
            (about.protocol, goes_on || conn.has_own_bytes())
        });
        let Some((protocol, writes)) = drained else { return };
        self.rename(id, protocol);
        if writes {
            self.enqueue_write(id);
        }
        self.after_drain(id);
    }

    /// Resumes reading, closes if the session asked for it, arms the deadline.
    pub(super) fn after_drain(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_some() && !conn.has_own_bytes() {
            let reason = conn.closing.take().unwrap_or_default();
            self.remove(id, &reason, false);
            return;
        }
        let next = self.guard(id, |conn, _| {
            let mut resumes = false;
            if let Some(link) = &mut conn.bytes
                && link.reads_paused
                && conn.closing.is_none()
            {
                resumes = conn.session.byte_stream().is_some_and(|stream| stream.wants_bytes());
                link.reads_paused = !resumes;
            }
            let armed = conn.schedule.armed;
            let deadline = conn.deadline().filter(|at| armed.is_none_or(|armed| *at < armed));
            conn.schedule.armed = deadline.or(armed);
            (resumes, deadline)
        });
        let Some((resumes, deadline)) = next else { return };
        if resumes {
            self.agenda.outputs.push_back(Output::Resume(id));
        }
        if let Some(at) = deadline {
            self.agenda.deadlines.arm(at, Timer::Conn(id));
        }
    }

    fn handle_event(&mut self, id: ConnId, event: Event) {
        match event {
            Event::Publish { publication, ask } => self.ask_publish(id, publication, ask),
            Event::Unpublished { publication, departure } => self.unpublish(id, publication, departure),
            Event::Unit { publication, unit, tracks } => self.ingest(id, publication, unit, tracks),
            Event::UnitsDropped { publication, units } => self.count_dropped(id, publication, units),
            Event::ClockNews { publication, news } => self.note_clock_news(id, publication, news),
            Event::Fault { publication, reason } => self.log_fault(id, publication, reason),
            Event::Subscribe { subscription, ask } => self.subscribe(id, subscription, ask),
            Event::Attach { subscription, format } => self.attach_ordered(id, subscription, format),
            Event::Select { subscription, selection } => self.select(id, subscription, selection),
            Event::KeyFrameNeeded { subscription, track } => self.key_frame_needed(id, subscription, track),
            Event::KeyFrameSoon { subscription, track } => self.key_frame_soon(id, subscription, track),
            Event::Pause { subscription, paused } => self.pause(id, subscription, paused),
            // Whatever follows on the connection, a close or another play, must not fall into a partly sent unit.
            Event::Unsubscribe(subscription) => self.unsubscribe(id, subscription),
            Event::Client(client) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.behind = Some(client);
                }
            }
            Event::Rest { request, secure } => {
                let session = self.session_ref(id, Handle::ONLY);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.tell(ToControl::Rest { session, peer, secure, request });
            }
            Event::Upload(news) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.uploads = false;
                }
                self.tell_upload(id, news);
            }
            Event::Record { key, let_in } => {
                let session = self.session_ref(id, Handle::ONLY);
                self.tell(ToControl::Record { session, key, let_in });
            }
            Event::Await(key) => self.await_stream(id, key),
            Event::Job(job) => {
                // What the kernel holds of a file for a slow peer is bounded as what it holds of a stream.
                if matches!(job.work, Work::FileOpen { .. }) {
                    self.agenda.outputs.push_back(Output::UnsentLimit { conn: id, bytes: UNSENT_BYTES_MIN });
                }
                let app = job.app.or_else(|| self.app_of(id));
                self.agenda.outputs.push_back(Output::Job { conn: id, job: Job { app, ..job } });
            }
            Event::Blob(blob) => {
                self.publish_blob(self.now, *blob);
            }
            Event::AwaitBlob(wanted) => self.await_blob(id, &wanted),
            Event::Watched(watched) => {
                self.renew_lease(id, watched);
                self.note_authenticated(id);
            }
            Event::Push(state) => self.push_news(id, state),
            Event::Pull(state) => self.pull_news(id, state),
            Event::Pass(ask) => self.ask_pass(id, *ask),
            Event::Recording(news) => self.recording_news(id, news),
            Event::Spawn { child, session } => self.spawn(id, child, session),
            Event::SpawnAt { child, port, what, outlives } => {
                self.spawn_at(id, child, (port, what), outlives)
            }
            Event::Claim(claim) => self.claim(id, &claim),
            Event::Carried { port, mut datagram } => self.take_carried(id, port, &mut datagram),
            Event::Tell { to, message } => self.tell_session(self.session_ref(id, Handle::ONLY), to, message),
            Event::OpenPath(wanted) => {
                let (path, bind, to) = (wanted.path, wanted.bind, wanted.to);
                self.agenda.outputs.push_back(Output::OpenUdp { conn: id, path, bind, to });
            }
            Event::ClosePath(path) => self.close_path(id, path),
            Event::Refused(request) => self.request_refused(id, *request),
            Event::NextServer(server) => self.ask_next_server(id, server),
            Event::Disconnect => self.disconnect(id),
            Event::Closed(reason) => self.close_reported(id, reason),
        }
    }

    fn close_reported(&mut self, id: ConnId, reason: String) {
        self.end_holds(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.closing.get_or_insert(reason);
        // A viewer that leaves gets the rest of the unit it was in, and no further one.
        for subscription in &mut conn.subscriptions {
            if let Some(playing) = subscription.playing_mut() {
                playing.subscriber.paused = true;
            }
        }
    }

    // ---- paths

    /// An outgoing connection is there, or a socket is open; or they cannot be.
    pub fn handle_path(&mut self, now: crate::types::Now, id: ConnId, path: PathId, event: PathEvent<'_>) {
        self.now = now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let PathEvent::Open { .. } = event {
            match (&mut conn.bytes, &mut conn.datagrams) {
                (Some(link), _) if link.flow == Flow::Connecting => link.flow = Flow::Open,
                (_, datagrams) => {
                    let link = datagrams.get_or_insert_with(super::conn::DatagramLink::default);
                    link.paths.push(DatagramPath::Socket(path));
                }
            }
        }
        self.call(id, |session, ctx| session.handle_path(ctx, path, event));
        // A socket beside the stream is the session's to do without.
        let has_broken = |worker: &Self| {
            let conn = worker.conns.get(id);
            conn.is_some_and(|conn| conn.bytes.as_ref().is_some_and(|b| b.flow != Flow::Connecting))
        };
        if let PathEvent::Broken(reason) = event
            && path == PathId::default()
            && has_broken(self)
        {
            // Queued output can no longer be sent. A pull may go on in another connection.
            self.drain_session(id);
            if has_broken(self) {
                self.remove(id, reason, true);
                return;
            }
        }
        self.touch(id);
    }

    fn close_path(&mut self, id: ConnId, path: PathId) {
        let Some(link) = self.conns.get_mut(id).and_then(|conn| conn.datagrams.as_mut()) else { return };
        link.paths.retain(|one| *one != DatagramPath::Socket(path));
        self.agenda.outputs.push_back(Output::CloseUdp { conn: id, path });
    }

    fn push_news(&mut self, id: ConnId, state: PushState) {
        if let Some(Purpose::Push { push, attempt, .. }) = self.conns.get(id).map(|conn| conn.purpose) {
            self.tell(ToControl::Push { push, attempt, state });
        }
    }

    /// The application that a session works for: that of its stream.
    fn app_of(&self, id: ConnId) -> Option<Arc<str>> {
        let conn = self.conns.get(id)?;
        let ordered = || Some(&self.live.streams.get(&conn.purpose.stream()?)?.key);
        conn.figures.key.as_ref().or_else(ordered).map(|key| Arc::clone(&key.app))
    }

    // ---- uploads

    /// Control lets a session take in the body of its request.
    pub(super) fn begin_upload(&mut self, id: ConnId, grant: UploadGrant) {
        match self.conns.get_mut(id) {
            Some(conn) => conn.uploads = true,
            None => return self.tell_upload(id, UploadNews::Gone),
        }
        self.answer_session(id, Reply::Upload(grant));
    }

    fn tell_upload(&mut self, id: ConnId, news: UploadNews) {
        let session = self.session_ref(id, Handle::ONLY);
        self.tell(ToControl::Upload { session, news });
    }

    // ---- the end

    /// A session that panicked, or whose unit or format did, is gone, and nobody else notices.
    pub(super) fn remove_panicked(&mut self, id: ConnId) {
        self.meter.stats.panics = self.meter.stats.panics.saturating_add(1);
        self.remove(id, "internal error", true);
    }

    /// Forgets a session: its roles end, its sockets close, its end is one line of the log.
    pub(super) fn remove(&mut self, id: ConnId, reason: &str, abort: bool) {
        self.unpublish_all(id);
        self.leave_all(id);
        let Some(conn) = self.conns.remove(id) else { return };
        self.forget_peer(id, &conn);
        self.live.awaited.end(id);
        self.polled.end_wait(id);
        self.polled.passes.forget(id);
        if conn.uploads {
            self.tell_upload(id, UploadNews::Gone);
        }
        match conn.purpose {
            Purpose::Pull { pull, attempt } => self.forget_pull(id, pull, attempt, reason),
            Purpose::Push { push, attempt, stream } => {
                self.orders.forget_push(push, stream, id);
                // Most have reported a reason already; control takes only the first report of an attempt's end.
                let state = PushState::Failed(reason.to_owned());
                self.tell(ToControl::Push { push, attempt, state });
            }
            Purpose::Recording { recording, .. } => {
                self.orders.recordings.remove(&recording);
                self.tell(ToControl::Recording { recording, news: RecordingNews::Over(reason.to_owned()) });
            }
            Purpose::Producer { stream, track } => self.forget_producer(id, stream, track),
            Purpose::Sink { stream, kind } => self.sink_over(stream, kind),
            Purpose::Peer | Purpose::Ended => {}
        }
        self.count_ended(&conn);
        if let Some(row) = Traffic::row(&mut self.meter.traffic, conn.figures.protocol) {
            row.ended = row.ended.saturating_add(1);
            conn.figures.count_into(row);
        }
        self.agenda.outputs.push_back(Output::Close { conn: id, abort });
        log_end(&conn, reason, self.now.mono);
        self.end_family(id, conn);
    }
}
