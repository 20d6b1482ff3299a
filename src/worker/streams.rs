//! Mail: what control and the other workers say about streams, sessions and pushes.

use std::sync::Arc;

use media::TrackSet;

use super::conn::Publishing;
use super::{Output, Worker};
use crate::hub::{MirroredUnit, Stream};
use crate::mail::{Grant, Refusal, StreamEnd, ToControl, ToWorker};
use crate::types::{ConnId, Now, PushId, StreamId, WorkerId};

impl Worker {
    /// A message of the control lane.
    pub fn handle_mail(&mut self, now: Now, mail: ToWorker) {
        self.now = now;
        match mail {
            ToWorker::Server(settings) => self.server = settings,
            ToWorker::File { conn, reply } => {
                self.call(conn, |session, ctx| session.file_reply(ctx, reply));
                self.note_authenticated(conn);
                self.touch(conn);
            }
            ToWorker::App(settings) => {
                self.apps.insert(Arc::clone(&settings.name), settings);
            }
            ToWorker::AppGone(name) => {
                self.apps.remove(&name);
            }
            ToWorker::StreamUp { stream, key, source, ingest, tell_viewers, settings } => {
                if tell_viewers {
                    self.tell_viewers.insert(stream);
                } else {
                    self.tell_viewers.remove(&stream);
                }
                let new = Stream::new(stream, key, source, ingest, settings);
                self.stream_up(new);
            }
            ToWorker::StreamDown { stream, end } => self.stream_down(stream, end),
            ToWorker::Verdict { conn, verdict } => self.verdict(conn, verdict),
            ToWorker::PlayVerdict { conn, verdict } => self.play_verdict(conn, verdict),
            ToWorker::DropViewer { conn, reason } => self.drop_viewer(conn, reason),
            ToWorker::Replaced { conn, stream } => self.replaced(conn, stream),
            ToWorker::RestReply { conn, response } => {
                self.call(conn, |session, ctx| session.rest_reply(ctx, *response));
                self.note_authenticated(conn);
                self.touch(conn);
            }
            ToWorker::StartPush(order) => self.start_push(&order),
            ToWorker::StopPush(push) => self.stop_push(push),
            ToWorker::StartPull(order) => self.start_pull(&order),
            ToWorker::StopPull(pull) => self.stop_pull(pull),
            ToWorker::AutoStart(streams) => self.note_auto_start(streams),
            ToWorker::Measure { per_stream } => self.measure(per_stream),
            ToWorker::Srt(stream) => self.tell_srt(stream),
            ToWorker::Blob(mail) => self.take_blob(&mail),
            ToWorker::Drain => self.drain(),
            ToWorker::Mirror { stream, to, wanted, after_ms } => self.mirror(stream, to, wanted, after_ms),
            ToWorker::MirrorWants { stream, to, wanted } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.mirror_wants(to, wanted);
                }
                self.settle_demand(stream);
            }
            ToWorker::Unmirror { stream, to } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.remove_mirror(to);
                }
                self.settle_demand(stream);
            }
        }
    }

    /// A unit of the media lane.
    pub fn handle_mirrored(&mut self, now: Now, mirrored: MirroredUnit) {
        self.now = now;
        let MirroredUnit { stream, entry, credit } = mirrored;
        let is_wanted = self.streams.get(&stream).is_some_and(|stream| stream.mirrored_here);
        if is_wanted && self.append(stream, entry).is_err() {
            // Its publisher is another worker's.
            self.stats.panics = self.stats.panics.saturating_add(1);
        }
        drop(credit);
    }

    /// A stream that is new, or whose source has moved.
    fn stream_up(&mut self, new: Stream) {
        let (id, source, ingest) = (new.id, new.source, new.ingest);
        let key = new.key.clone();
        self.directory.insert(key.clone(), id);
        let stream = self.streams.entry(id).or_insert(new);
        stream.ingest = ingest;
        if stream.source != source {
            stream.source = source;
            stream.remove_mirrors();
            if source == self.id {
                stream.mirrored_here = false;
            } else {
                stream.mirrored_here = !stream.subscribers.is_empty();
            }
            if source != self.id && !stream.mirrored_here {
                // What is here is old when the next viewer comes.
                stream.clear();
            }
            if stream.mirrored_here {
                let (after_ms, wanted) = (stream.head_ms(), stream.wanted());
                let mail = ToWorker::Mirror { stream: id, to: self.id, wanted, after_ms };
                self.outputs.push_back(Output::Worker(source, mail));
            }
        }
        self.arm_report();
        self.serve_waiting(&key);
    }

    fn stream_down(&mut self, id: StreamId, end: StreamEnd) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if self.directory.get(&stream.key) == Some(&id) {
            self.directory.remove(&stream.key);
        }
        self.sources.remove(&id);
        self.tell_viewers.remove(&id);
        self.forget_polled(id);
        for &conn_id in &stream.subscribers {
            // The rest of a unit begun stays with the cursor and is sent before the goodbye.
            self.call(conn_id, |session, ctx| session.end_subscription(ctx, end));
        }
        self.stop_waiting_pushes(id);
        let publishers: Vec<ConnId> = if stream.source == self.id {
            self.conns.ids().into_iter().filter(|&conn| self.publishes(conn, id)).collect()
        } else {
            Vec::new()
        };
        for conn_id in publishers {
            if let Some(conn) = self.conns.get_mut(conn_id) {
                conn.publishing = Publishing::No;
            }
            self.call(conn_id, |session, ctx| session.end_publish(ctx, end));
            self.touch(conn_id);
        }
        for conn_id in stream.subscribers {
            self.touch(conn_id);
        }
    }

    fn verdict(&mut self, id: ConnId, verdict: Result<Box<Grant>, Refusal>) {
        let session = self.session_ref(id);
        let granted = verdict.as_ref().ok().map(|grant| (grant.stream, grant.position, grant.epoch));
        let asked = self.conns.get_mut(id).filter(|conn| conn.publishing == Publishing::Asked);
        match (asked, granted) {
            (Some(conn), _) => {
                conn.publishing = granted.map_or(Publishing::No, |(stream, ..)| Publishing::Granted(stream));
                if let Some((stream, position, _)) = granted {
                    let count = self.sources.entry(stream).or_default();
                    count.position = position;
                    count.last_unit = Some(self.now.mono);
                }
                self.call(id, |session, ctx| session.publish_verdict(ctx, verdict.map(|grant| *grant)));
            }
            // It went while control decided; control must not wait for its units.
            (None, Some((stream, position, epoch))) => {
                let departure = crate::mail::Departure::Lost;
                self.tell(ToControl::PublisherGone { session, stream, departure, position, epoch });
            }
            (None, None) => {}
        }
        self.note_authenticated(id);
        self.touch(id);
    }

    fn replaced(&mut self, id: ConnId, stream: StreamId) {
        if !self.publishes(id, stream) {
            return;
        }
        if let Some(conn) = self.conns.get_mut(id) {
            conn.publishing = Publishing::No;
        }
        self.sources.remove(&stream);
        self.remove(id, "replaced by a new publisher", false);
    }

    fn mirror(&mut self, id: StreamId, to: WorkerId, wanted: TrackSet, after_ms: Option<i64>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.source != self.id {
            // Asked of a former source: who asks has heard, or will hear, of the new one.
            return;
        }
        stream.add_mirror(to, wanted, after_ms);
        self.feed_mirrors(id);
        self.settle_demand(id);
    }

    /// Pushes of a stream that ended before their target had answered.
    fn stop_waiting_pushes(&mut self, stream: StreamId) {
        let is_waiting = |conn: &super::conn::Conn| {
            conn.subscriber.is_none() && conn.push.is_some_and(|role| role.stream == stream)
        };
        let of_stream =
            |(push, id): (&PushId, &ConnId)| self.conns.get(*id).is_some_and(is_waiting).then_some(*push);
        for push in self.pushes.iter().filter_map(of_stream).collect::<Vec<_>>() {
            self.stop_push(push);
        }
    }

    fn stop_push(&mut self, push: PushId) {
        let Some(id) = self.pushes.remove(&push) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        // No news of it is wanted any more.
        conn.push = None;
        if conn.connecting {
            self.remove(id, "push removed", true);
            return;
        }
        self.call(id, |session, ctx| session.close(ctx, "push removed"));
        self.unsubscribe_keeping_rest(id);
        self.touch(id);
    }

    /// Ends the subscription of a connection that still has a unit begun: the rest goes into its queue, so that
    /// the peer sees whole messages.
    pub(super) fn unsubscribe_keeping_rest(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some(subscriber) = &mut conn.subscriber {
            let mut queue = wire::SendQueue::new();
            subscriber.cursor.take_rest().into_iter().for_each(|part| queue.push(part));
            queue.append(&mut conn.queue);
            conn.queue = queue;
        }
        self.unsubscribe(id);
    }

    fn drain(&mut self) {
        self.draining = true;
        for id in self.conns.ids() {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.publishing = Publishing::No;
                conn.push = None;
                conn.pull = None;
            }
            self.end_hold(id);
            self.call(id, |session, ctx| session.close(ctx, "server goes down"));
            self.unsubscribe_keeping_rest(id);
            self.touch(id);
        }
    }

    /// Tells control when the last connection of a drain is gone.
    pub(super) fn finish_drain(&mut self) {
        if self.draining && !self.drained && self.conns.is_empty() {
            self.drained = true;
            self.tell(ToControl::Drained(self.id));
        }
    }

    /// A stranger has become known: its place among the strangers is free.
    pub(super) fn note_authenticated(&mut self, id: ConnId) {
        if self.call(id, |session, _| session.is_authenticated()) == Some(true) {
            self.outputs.push_back(Output::Authenticated(id));
        }
    }
}
