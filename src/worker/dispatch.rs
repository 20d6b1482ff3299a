//! Events of sessions: requests of peers, passed on to the hub or to control.

use std::sync::Arc;
use std::time::Duration;

use super::conn::{DatagramPath, Flow, Purpose};
use super::conns::Conns;
use super::deadlines::Timer;
use super::endings::log_end;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::jobs::{Job, Work};
use crate::mail::{PushState, RecordingNews, ToControl, UploadNews};
use crate::protocol::{Event, OpenPath, PathEvent, PathId, SocketEvent};
use crate::stats::Traffic;
use crate::types::ConnId;

/// Times at which units are flushed are rounded to multiples of this duration.
pub(super) const FLUSH_GRID: Duration = Duration::from_millis(4);
/// Minimum number of unsent bytes of a viewer that the kernel may hold. It is large enough that a large key frame does
/// not need two wake-ups.
pub(super) const UNSENT_BYTES_MIN: usize = 128 * 1024;

impl Worker {
    /// Ends a turn: drains every session that is marked dirty, then sends new units of streams.
    pub fn finish_turn(&mut self) {
        loop {
            while let Some(id) = self.turn.agenda.dirty.pop_front() {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.schedule.dirty = false;
                }
                self.drain_session(id);
            }
            let Some(id) = self.turn.agenda.flushing.pop() else { break };
            self.live.flush_stream(&mut self.turn, &mut self.conns, id);
        }
        self.end_panicked();
        self.finish_drain();
    }

    /// Drains a session: first all its events, then its output, then its deadline.
    pub(super) fn drain_session(&mut self, id: ConnId) {
        loop {
            match self.conns.call(&self.turn, id, |session, ctx| session.poll_event(ctx)) {
                Some(Some(event)) => self.handle_event(id, event),
                Some(None) => break,
                None => return self.end_panicked(),
            }
        }
        let drained = self.conns.guard(&self.turn, id, |conn, ctx| {
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
            // One of the events may have been a negotiation that changes whether the session takes whole units.
            conn.takes_units = conn.session.unit_sink().is_some();
            // A session that takes units may have room again. It is then queued, to be given the next units.
            let goes_on = conn.takes_units && !conn.schedule.sated && !conn.subscriptions.is_empty();
            (about.protocol, goes_on || conn.has_own_bytes())
        });
        let Some((protocol, writes)) = drained else { return };
        self.conns.rename(&mut self.turn, id, protocol);
        if writes {
            self.conns.enqueue_write(&mut self.turn, id);
        }
        self.after_drain(id);
    }

    /// Resumes reading, closes if the session has requested this, and arms the deadline.
    pub(super) fn after_drain(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_some() && !conn.has_own_bytes() {
            let reason = conn.closing.take().unwrap_or_default();
            self.remove(id, &reason, false);
            return;
        }
        let next = self.conns.guard(&self.turn, id, |conn, _| {
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
            self.turn.agenda.outputs.push_back(Output::Resume(id));
        }
        if let Some(at) = deadline {
            self.turn.agenda.deadlines.arm(at, Timer::Conn(id));
        }
    }

    fn handle_event(&mut self, id: ConnId, event: Event) {
        match event {
            Event::Publication(publication, event) => self.live.publication_event(
                &mut self.turn,
                &mut self.conns,
                &mut self.memory,
                id,
                publication,
                event,
            ),
            Event::Subscription(subscription, event) => self.subscription_event(id, subscription, event),
            Event::Request(event) => self.request_event(id, event),
            Event::Job(job) => self.conns.begin_job(&mut self.turn, &self.live, id, job),
            Event::Order(event) => self.order_event(id, event),
            Event::Family(event) => self.family_event(id, event),
            Event::Port(event) => self.ports.port_event(&mut self.turn, &mut self.conns, id, event),
            Event::Socket(SocketEvent::Open(OpenPath { path, bind, to })) => {
                self.turn.agenda.outputs.push_back(Output::OpenUdp { conn: id, path, bind, to });
            }
            Event::Socket(SocketEvent::Close(path)) => self.conns.close_path(&mut self.turn, id, path),
            Event::Closed(reason) => self.conns.close_reported(&mut self.live, id, reason),
        }
    }

    // ---- paths

    /// Handles the outcome of opening an outgoing connection or a socket.
    pub fn handle_path(&mut self, now: crate::types::Now, id: ConnId, path: PathId, event: PathEvent<'_>) {
        self.turn.now = now;
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
        if let (PathEvent::Open { local: Some(local) }, Purpose::Push { push, .. }) = (event, conn.purpose) {
            self.turn.tell(ToControl::PushOpened { push, local });
        }
        self.conns.path_event(&self.turn, id, path, event);
        // Only a failure of the byte stream ends the session. Failures of other sockets are handled by the session
        // itself.
        let has_broken = |conns: &Conns| {
            let conn = conns.get(id);
            conn.is_some_and(|conn| conn.bytes.as_ref().is_some_and(|b| b.flow != Flow::Connecting))
        };
        if let PathEvent::Broken(reason) = event
            && path == PathId::default()
            && has_broken(&self.conns)
        {
            // The queued output is lost with the connection. The session of a pull may now connect again and continue;
            // any other session is removed.
            self.drain_session(id);
            if has_broken(&self.conns) {
                self.remove(id, reason, true);
                return;
            }
        }
        self.conns.touch(&mut self.turn, id);
    }

    // ---- ends of sessions

    /// Removes the sessions that have panicked.
    pub(super) fn end_panicked(&mut self) {
        while let Some(id) = self.conns.poll_panicked() {
            self.remove(id, "internal error", true);
        }
    }

    /// Removes a session: ends its roles, closes its sockets, and logs its end.
    pub(super) fn remove(&mut self, id: ConnId, reason: &str, abort: bool) {
        let has_panicked = self.conns.end_panic(id);
        self.turn.meter.stats.panics = self.turn.meter.stats.panics.saturating_add(u64::from(has_panicked));
        self.live.unpublish_all(&mut self.turn, &mut self.conns, id);
        self.live.leave_all(&mut self.turn, &mut self.conns, id);
        let Some(conn) = self.conns.remove(id) else { return };
        self.ports.forget_peer(&mut self.turn, id, &conn);
        self.live.awaited.end(id);
        self.polled.end_wait(id);
        self.polled.passes.forget(id);
        if conn.uploads {
            self.turn.tell_upload(id, UploadNews::Gone);
        }
        match conn.purpose {
            Purpose::Pull { pull, attempt } => {
                self.orders.forget_pull(&mut self.turn, id, pull, attempt, reason)
            }
            Purpose::Push { push, attempt, stream } => {
                self.orders.forget_push(push, stream, id);
                // Most attempts have reported a reason already; control takes only the first report.
                let state = PushState::Failed(reason.to_owned());
                self.turn.tell(ToControl::Push { push, attempt, state });
            }
            Purpose::Recording { recording, .. } => {
                self.orders.recordings.remove(&recording);
                self.turn
                    .tell(ToControl::Recording { recording, news: RecordingNews::Over(reason.to_owned()) });
            }
            Purpose::Producer { stream, track } => self.live.forget_producer(&self.turn, id, stream, track),
            Purpose::Sink { stream, kind } => self.polled.sink_over(&mut self.turn, stream, kind),
            Purpose::Peer | Purpose::Ended => {}
        }
        self.turn.meter.count_ended(&conn);
        if let Some(row) = Traffic::row(&mut self.turn.meter.traffic, conn.figures.protocol) {
            row.ended = row.ended.saturating_add(1);
            conn.figures.count_into(row);
        }
        self.turn.agenda.outputs.push_back(Output::Close { conn: id, abort });
        log_end(&conn, reason, self.turn.now.mono);
        self.conns.end_family(&mut self.turn, id, conn);
    }
}

impl Conns {
    fn begin_job(&self, turn: &mut Turn, live: &Live, id: ConnId, job: Job) {
        // Limit how many bytes of the file the kernel holds for a slow peer, as for a stream.
        if matches!(job.work, Work::FileOpen { .. }) {
            let conn = self.transport_of(id);
            turn.agenda.outputs.push_back(Output::UnsentLimit { conn, bytes: UNSENT_BYTES_MIN });
        }
        let app = job.app.or_else(|| self.app_of(live, id));
        turn.agenda.outputs.push_back(Output::Job { conn: id, job: Job { app, ..job } });
    }

    fn close_reported(&mut self, live: &mut Live, id: ConnId, reason: String) {
        live.holds.end_all_of(self, id);
        let Some(conn) = self.get_mut(id) else { return };
        conn.closing.get_or_insert(reason);
        // A viewer that leaves gets the rest of the unit that was partly sent, but no further unit.
        for subscription in &mut conn.subscriptions {
            if let Some(playing) = subscription.playing_mut() {
                playing.subscriber.paused = true;
            }
        }
    }

    fn close_path(&mut self, turn: &mut Turn, id: ConnId, path: PathId) {
        let Some(link) = self.get_mut(id).and_then(|conn| conn.datagrams.as_mut()) else { return };
        link.paths.retain(|one| *one != DatagramPath::Socket(path));
        turn.agenda.outputs.push_back(Output::CloseUdp { conn: id, path });
    }

    /// Returns the application of a session's stream.
    fn app_of(&self, live: &Live, id: ConnId) -> Option<Arc<str>> {
        let conn = self.get(id)?;
        let ordered = || Some(&live.streams.get(&conn.purpose.stream()?)?.key);
        conn.figures.key.as_ref().or_else(ordered).map(|key| Arc::clone(&key.app))
    }
}
