//! Events of sessions: what a peer wants of the hub or of control, carried there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, Tracks};

use super::conn::{Conn, Link, Publishing};
use super::deadlines::Timer;
use super::{Output, SourceCount, Worker};
use crate::hub::{Entry, Flush};
use crate::mail::{Departure, FileAsk, PublishRequest, PushState, ToControl, ToWorker};
use crate::protocol::{Event, Format, PublishAsk};
use crate::stats::Traffic;
use crate::types::{ConnId, StreamId};

/// Grid of flush deadlines.
pub(super) const FLUSH_GRID: Duration = Duration::from_millis(4);
/// The kernel may hold at least so many unsent bytes of a viewer: a large key frame must not need two wake-ups.
const UNSENT_BYTES_MIN: usize = 128 * 1024;

impl Worker {
    /// Ends a turn: drains every touched session, and has the streams that grew sent.
    pub fn finish_turn(&mut self) {
        while let Some(id) = self.touched.pop() {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.touched = false;
            }
            self.drain_session(id);
        }
        while let Some(id) = self.grown.pop() {
            self.flush_stream(id);
        }
        self.finish_drain();
    }

    /// Events until there are none, then bytes, then the deadline.
    pub(super) fn drain_session(&mut self, id: ConnId) {
        loop {
            match self.call(id, |session, ctx| session.poll_event(ctx)) {
                Some(Some(event)) => self.handle_event(id, event),
                Some(None) => break,
                None => return,
            }
        }
        let drained = self.guard(id, |conn, _| {
            if conn.link == Link::Bytes {
                conn.session.poll_transmit(&mut conn.queue);
            } else {
                // Whether it has some is known when it is asked for them.
                conn.unsent = true;
            }
            conn.is_media = conn.session.is_media();
            (conn.session.protocol(), conn.has_own_bytes())
        });
        let Some((protocol, has_own_bytes)) = drained else { return };
        self.rename(id, protocol);
        if has_own_bytes {
            self.enqueue_write(id);
        }
        self.after_drain(id);
    }

    /// Resumes reading, closes what is said, arms the deadline.
    pub(super) fn after_drain(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_some() && !conn.has_own_bytes() {
            let reason = conn.closing.take().unwrap_or_default();
            self.remove(id, &reason, false);
            return;
        }
        let next = self.guard(id, |conn, _| {
            let resumes = conn.reads_paused && conn.closing.is_none() && conn.session.wants_bytes();
            conn.reads_paused &= !resumes;
            let deadline = conn.deadline().filter(|at| conn.armed.is_none_or(|armed| *at < armed));
            conn.armed = deadline.or(conn.armed);
            (resumes, deadline)
        });
        let Some((resumes, deadline)) = next else { return };
        if resumes {
            self.outputs.push_back(Output::Resume(id));
        }
        if let Some(at) = deadline {
            self.deadlines.arm(at, Timer::Conn(id));
        }
    }

    fn handle_event(&mut self, id: ConnId, event: Event) {
        match event {
            Event::Publish(ask) => self.ask_publish(id, ask),
            Event::Unpublished(departure) => self.unpublish(id, departure),
            Event::Unit { unit, tracks } => self.ingest(id, unit, tracks),
            Event::UnitsDropped(units) => self.count_dropped(id, units),
            Event::Subscribe(ask) => self.subscribe(id, ask),
            Event::SubscribePush { format } => self.subscribe_push(id, format),
            // What follows on the connection, a goodbye or another play, must not fall into a unit begun.
            Event::Unsubscribe => {
                self.end_hold(id);
                self.unsubscribe_keeping_rest(id);
                self.unwatch(id);
            }
            Event::Pause(pause) => self.pause(id, pause),
            Event::Rest { request, secure } => {
                let session = self.session_ref(id);
                let Some(conn) = self.conns.get(id) else { return };
                let peer = conn.peer;
                self.tell(ToControl::Rest { session, peer, secure, request });
            }
            Event::File(ask) => {
                // What the kernel holds of a file for a slow peer is bounded as what it holds of a stream.
                if matches!(ask, FileAsk::Open { .. }) {
                    self.outputs.push_back(Output::UnsentLimit { conn: id, bytes: UNSENT_BYTES_MIN });
                }
                self.outputs.push_back(Output::File { conn: id, ask });
            }
            Event::Watched(watched) => self.renew_lease(id, &watched),
            Event::Push(state) => self.push_news(id, state),
            Event::Pull(state) => self.pull_news(id, state),
            Event::Closed(reason) => {
                self.end_hold(id);
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.closing.get_or_insert(reason);
                    // A viewer that leaves gets the rest of the unit it was in, and no further one.
                    if let Some(subscriber) = &mut conn.subscriber {
                        subscriber.paused = true;
                    }
                }
            }
        }
    }

    // ---- publishing

    fn ask_publish(&mut self, id: ConnId, ask: PublishAsk) {
        let session = self.session_ref(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.publishing = Publishing::Asked;
        let request = PublishRequest {
            session,
            key: ask.key,
            ingest: ask.ingest,
            peer: conn.peer,
            user_agent: ask.user_agent,
            params: ask.params,
            via: ask.via,
            pull: conn.pull.map(|role| (role.pull, role.attempt)),
        };
        self.tell(ToControl::Publish(request));
    }

    /// Tells control that a publisher is gone, whichever way it had come.
    pub(super) fn unpublish(&mut self, id: ConnId, departure: Departure) {
        let session = self.session_ref(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        match std::mem::replace(&mut conn.publishing, Publishing::No) {
            Publishing::No => {}
            Publishing::Asked => self.tell(ToControl::PublishAbandoned(session)),
            Publishing::Granted(stream) => {
                let position = self.sources.remove(&stream).map(|count| count.position).unwrap_or_default();
                let epoch = self.streams.get(&stream).map_or(0, |stream| stream.tracks().epoch);
                self.tell(ToControl::PublisherGone { session, stream, departure, position, epoch });
            }
        }
    }

    fn ingest(&mut self, id: ConnId, unit: AccessUnit, tracks: Arc<Tracks>) {
        let Some(Conn { publishing: Publishing::Granted(stream), .. }) = self.conns.get(id) else { return };
        let stream = *stream;
        let count = self.sources.entry(stream).or_default();
        count.received_bytes = count.received_bytes.saturating_add(unit.payload.len() as u64);
        count.last_unit = Some(self.now.mono);
        let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, tracks);
        count.position.dts_ms = count.position.dts_ms.max(entry.dts_ms);
        if !std::mem::replace(&mut count.position.started, true) {
            self.tell(ToControl::SourceStarted(stream));
        }
        let appended = self.append(stream, entry);
        self.feed_mirrors(stream);
        if appended.is_err() {
            self.remove_panicked(id);
        }
    }

    /// Puts a unit into the local ring, whether it was published or mirrored. A format that panicked at it: the unit is
    /// left out.
    pub(super) fn append(&mut self, id: StreamId, entry: Entry) -> std::thread::Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        self.stats.units = self.stats.units.saturating_add(1);
        let first = stream.tracks().is_empty();
        let now = self.now.mono;
        let pushed =
            catch_unwind(AssertUnwindSafe(|| stream.push(now, entry))).inspect_err(|_| stream.leave_out())?;
        match pushed.flush {
            Flush::Now => {
                if !std::mem::replace(&mut stream.grown, true) {
                    self.grown.push(id);
                }
            }
            Flush::By(_) => self.arm_flush(id),
        }
        if pushed.trim {
            self.trim(id);
        }
        if pushed.rechosen {
            self.settle_demand(id);
        }
        if first {
            self.tell_tracks(id);
        }
        Ok(())
    }

    /// Tells those who subscribed to a stream without tracks that it has some now.
    fn tell_tracks(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (tracks, subscribers) = (Arc::clone(stream.tracks()), stream.subscribers.clone());
        for subscriber in subscribers {
            self.call(subscriber, |session, ctx| session.tracks_known(ctx, &tracks));
            self.touch(subscriber);
        }
    }

    /// Has a stream looked at when its units have waited long enough. One entry of the table serves it: while video
    /// flows the flush moves on with every picture, and the entry finds nothing to do when it fires. Deadlines are
    /// moved forward onto a grid, so that hundreds of streams share a wake-up.
    pub(super) fn arm_flush(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(at) = stream.flush_at() else { return };
        let since = at.saturating_duration_since(self.began).as_nanos();
        let early = u64::try_from(since.checked_rem(FLUSH_GRID.as_nanos()).unwrap_or(0)).unwrap_or(0);
        let on_grid = at - Duration::from_nanos(early);
        let on_grid = on_grid.max(self.now.mono);
        if stream.flush_armed.is_none_or(|armed| on_grid < armed) {
            stream.flush_armed = Some(on_grid);
            self.deadlines.arm(on_grid, Timer::Flush(id));
        }
    }

    fn count_dropped(&mut self, id: ConnId, units: u64) {
        if let Some(Conn { publishing: Publishing::Granted(stream), .. }) = self.conns.get(id) {
            let count: &mut SourceCount = self.sources.entry(*stream).or_default();
            count.dropped = count.dropped.saturating_add(units);
            self.stats.units_dropped = self.stats.units_dropped.saturating_add(units);
        }
    }

    // ---- subscribing

    fn subscribe_push(&mut self, id: ConnId, format: Format) {
        let Some(role) = self.conns.get(id).and_then(|conn| conn.push) else { return };
        if self.attach(id, role.stream, format).is_none() {
            self.remove(id, "nothing to push", false);
        }
        self.enqueue_write(id);
    }

    /// Makes a connection a subscriber, and this worker a mirror when it has to be one.
    pub(super) fn attach(&mut self, id: ConnId, stream_id: StreamId, format: Format) -> Option<()> {
        self.unsubscribe(id);
        let stream = self.streams.get_mut(&stream_id)?;
        let forwarding = self.forwarding.index(stream.ingest, format.key().name);
        let subscribe = || stream.subscribe(id, format.key(), forwarding, || format.package());
        let Ok(subscriber) = catch_unwind(AssertUnwindSafe(subscribe)) else {
            self.remove_panicked(id);
            return None;
        };
        let subscriber = subscriber?;
        let bytes = stream.bytes_per_second().max(UNSENT_BYTES_MIN);
        if self.conns.get(id).is_some_and(|conn| conn.link == Link::Bytes) {
            self.outputs.push_back(Output::UnsentLimit { conn: id, bytes });
        }
        if stream.source != self.id && !stream.mirrored_here {
            stream.mirrored_here = true;
            let (after_ms, wanted) = (stream.head_ms(), stream.wanted());
            let mirror = ToWorker::Mirror { stream: stream_id, to: self.id, wanted, after_ms };
            let source = stream.source;
            self.outputs.push_back(Output::Worker(source, mirror));
        }
        self.conns.get_mut(id)?.subscriber = Some(subscriber);
        Some(())
    }

    /// Takes a subscriber off its stream; what it counted stays. The last one of a mirror ends the mirroring.
    pub(super) fn unsubscribe(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(subscriber) = conn.subscriber.take() else { return };
        conn.jumps = conn.jumps.saturating_add(subscriber.jumps);
        conn.skipped = conn.skipped.saturating_add(subscriber.skipped);
        self.stats.jumps = self.stats.jumps.saturating_add(subscriber.jumps);
        let stream_id = subscriber.stream;
        let Some(stream) = self.streams.get_mut(&stream_id) else { return };
        stream.unsubscribe(id, &subscriber);
        if stream.subscribers.is_empty() && stream.mirrored_here {
            stream.mirrored_here = false;
            stream.clear();
            let source = stream.source;
            self.outputs
                .push_back(Output::Worker(source, ToWorker::Unmirror { stream: stream_id, to: self.id }));
        }
    }

    fn pause(&mut self, id: ConnId, pause: bool) {
        let Some(subscriber) = self.conns.get_mut(id).and_then(|conn| conn.subscriber.as_mut()) else {
            return;
        };
        let Some(stream) = self.streams.get(&subscriber.stream) else { return };
        if pause {
            subscriber.paused = true;
        } else if subscriber.paused {
            stream.resume(subscriber);
            self.enqueue_write(id);
        }
    }

    fn push_news(&mut self, id: ConnId, state: PushState) {
        if let Some(role) = self.conns.get(id).and_then(|conn| conn.push) {
            self.tell(ToControl::Push { push: role.push, attempt: role.attempt, state });
        }
    }

    // ---- the end

    /// A session that panicked, or whose unit or format did, is gone, and nobody else notices.
    pub(super) fn remove_panicked(&mut self, id: ConnId) {
        self.stats.panics = self.stats.panics.saturating_add(1);
        self.remove(id, "internal error", true);
    }

    /// Forgets a connection: its roles end, its socket closes, its end is one line of the log.
    pub(super) fn remove(&mut self, id: ConnId, reason: &str, abort: bool) {
        self.unpublish(id, Departure::Lost);
        self.unwatch(id);
        self.unsubscribe(id);
        let Some(mut conn) = self.conns.remove(id) else { return };
        self.forget_peer(id, conn.link);
        if let Some(held) = conn.held.take() {
            self.leave_waiting(id, &held);
        }
        if let Some(role) = conn.pull {
            self.forget_pull(id, role, reason);
        }
        if let Some(role) = conn.push {
            if self.pushes.get(&role.push) == Some(&id) {
                self.pushes.remove(&role.push);
            }
            // Most have said more already, and control hears only the first word of an attempt's end.
            let state = PushState::Failed(reason.to_owned());
            self.tell(ToControl::Push { push: role.push, attempt: role.attempt, state });
        }
        if let Some(stats) = conn.session.srt_stats() {
            self.srt_ended.add(&stats);
        }
        if let Some(row) = Traffic::row(&mut self.traffic, conn.protocol) {
            row.ended = row.ended.saturating_add(1);
            conn.count_into(row);
        }
        self.outputs.push_back(Output::Close { conn: id, abort });
        log_end(&conn, reason, self.now.mono);
    }
}

/// One line per session: info for media, debug for the API, of which there may be thousands a second.
fn log_end(conn: &Conn, reason: &str, now: Instant) {
    let (protocol, peer) = (conn.protocol, conn.peer);
    let seconds = now.saturating_duration_since(conn.began).as_secs();
    let (bytes_in, bytes_out) = (conn.bytes_in, conn.bytes_out);
    let (jumps, skipped) = (conn.jumps, conn.skipped);
    if conn.is_media {
        tracing::info!(protocol, %peer, reason, seconds, bytes_in, bytes_out, jumps, skipped, "session ended");
    } else {
        tracing::debug!(protocol, %peer, reason, seconds, bytes_in, bytes_out, "session ended");
    }
}
