//! Messages from control and from other workers about streams, sessions and pushes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{TrackId, TrackSet};

use super::awaited::Awaited;
use super::behind::Behind;
use super::chats::Chats;
use super::conn::Purpose;
use super::conns::Conns;
use super::demand::Producer;
use super::holds::Holds;
use super::messages::MessageLimits;
use super::rooms::{Rooms, is_view};
use super::sinks::begun_with;
use super::speakers::Speakers;
use super::standbys::{self, Standbys};
use super::transcoders::TranscoderBudget;
use super::turn::Turn;
use super::{Output, Worker};
use crate::hub::{MirroredUnit, Pauses, Stream};
use crate::mail::{StreamDetails, StreamEnd, ToControl, ToWorker};
use crate::protocol::{PublicationNews, Reply, RequestNews, SubscriptionNews, sinks};
use crate::types::{ConnId, Handle, Ingest, Now, SessionRef, StreamId, StreamKey, WorkerId};

/// Time after which a publisher's video counts as stopped if no picture arrives.
const VIDEO_SILENCE: Duration = Duration::from_secs(10);
/// If a stream is this old and no video has arrived, its publisher is assumed to send no video.
const SEASONED_AFTER: Duration = Duration::from_secs(15);
/// Minimum time between two log lines about stopped video.
const VIDEO_TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// The streams of this worker, and the worker's state for each of them.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) directory: BTreeMap<StreamKey, StreamId>,
    /// Streams published on this worker.
    pub(super) sources: BTreeMap<StreamId, SourceCount>,
    /// The time at which each stream came up.
    pub(super) up_since: BTreeMap<StreamId, Instant>,
    /// For each stream, the fields of its record that workers use.
    pub(super) details: Details,
    /// Viewers that wait for a stream that is started because they have requested it.
    pub(super) holds: Holds,
    /// Sessions to notify when a stream begins.
    pub(super) awaited: Awaited,
    /// Main tracks and their watchers.
    pub(super) rooms: Rooms,
    /// The speakers of main tracks.
    pub(super) speakers: Speakers,
    /// Limits on messages of viewers.
    pub(super) chats: Chats,
    /// Limits on messages that become units.
    pub(super) message_limits: MessageLimits,
    /// Derived tracks being made on this worker.
    pub(super) producers: BTreeMap<(StreamId, TrackId), Producer>,
    /// The budget of transcoded tracks, shared by all workers.
    pub(super) transcoders: Arc<TranscoderBudget>,
    /// Publishers that wait to take over a stream, and those that have.
    pub(super) standbys: Standbys,
}

impl Live {
    /// True if a stream is so old that its publisher is assumed to send no video, provided that no video has arrived
    /// yet.
    pub(super) fn is_seasoned(&self, stream: StreamId, now: Instant) -> bool {
        let since = |at: &Instant| now.saturating_duration_since(*at);
        self.up_since.get(&stream).is_some_and(|at| since(at) >= SEASONED_AFTER)
    }

    /// Returns the key of a stream's ladder: the key of the stream's main track, or the stream's own key if there is no
    /// main track.
    pub(super) fn ladder_key(&self, stream: StreamId) -> Option<StreamKey> {
        let main = self.details.get(stream).and_then(|details| details.main.as_ref());
        main.map(|main| main.key.clone()).or_else(|| self.streams.get(&stream).map(|live| live.key.clone()))
    }

    /// Returns the streams of a ladder: the main track, if live, and its renditions.
    pub(super) fn ladder(&self, main: &StreamKey) -> impl Iterator<Item = StreamId> {
        let own = self.directory.get(main).copied();
        own.into_iter().chain(self.details.renditions(main))
    }

    /// True if a ladder has more than one video rendition or more than one audio rendition.
    pub(super) fn is_ladder(&self, main: &StreamKey) -> bool {
        let has_sounds = |stream| self.details.get(stream).is_some_and(|details| details.sounds > 1);
        self.ladder(main).map(|stream| self.details.videos(stream)).sum::<usize>() > 1
            || self.ladder(main).any(has_sounds)
    }

    /// Bytes that the rings of all streams and the standbys retain.
    pub(super) fn retained_bytes(&self) -> usize {
        let rings: usize = self.streams.values().map(Stream::retained_bytes).sum();
        rings.saturating_add(self.standbys.retained_bytes())
    }
}

/// For each live stream, the fields of its record that workers use.
#[derive(Debug, Default)]
pub(super) struct Details {
    of: BTreeMap<StreamId, StreamDetails>,
    /// Streams by the main track that they are renditions of.
    ladders: BTreeMap<StreamKey, BTreeSet<StreamId>>,
}

impl Details {
    /// Sets the details of a stream, which replace its former details.
    fn set(&mut self, stream: StreamId, details: StreamDetails) {
        self.remove(stream);
        if let Some(main) = &details.main {
            self.ladders.entry(main.key.clone()).or_default().insert(stream);
        }
        self.of.insert(stream, details);
    }

    fn remove(&mut self, stream: StreamId) {
        let Some(main) = self.of.remove(&stream).and_then(|details| details.main) else { return };
        if let Some(rungs) = self.ladders.get_mut(&main.key) {
            rungs.remove(&stream);
            if rungs.is_empty() {
                self.ladders.remove(&main.key);
            }
        }
    }

    /// The details of a stream.
    pub(super) fn get(&self, stream: StreamId) -> Option<&StreamDetails> {
        self.of.get(&stream)
    }

    /// Number of video tracks of a stream, at least 1.
    pub(super) fn videos(&self, stream: StreamId) -> usize {
        self.get(stream).map_or(1, |details| details.videos.max(1))
    }

    /// The number of streams with known details.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// The number of main tracks that have renditions.
    pub(super) fn ladders(&self) -> usize {
        self.ladders.len()
    }

    /// Returns the live renditions of a main track.
    fn renditions(&self, main: &StreamKey) -> impl Iterator<Item = StreamId> {
        self.ladders.get(main).into_iter().flatten().copied()
    }

    /// True if a main track has live renditions.
    pub(super) fn has_renditions(&self, main: &StreamKey) -> bool {
        self.ladders.contains_key(main)
    }

    /// True if control must be notified of each viewer of a stream.
    pub(super) fn tells_viewers(&self, stream: StreamId) -> bool {
        self.get(stream).is_some_and(|details| details.tell_viewers)
    }
}

/// Detects that a publisher's video stops while its audio continues. The stream stays live for its listeners, and
/// a log line warns the operator.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct VideoWatch {
    last: Option<Instant>,
    told: Option<Instant>,
}

impl VideoWatch {
    /// Registers the arrival of a unit. Returns true if the unit is audio and the operator should be warned that
    /// no picture has arrived for [`VIDEO_SILENCE`].
    pub(super) fn note(&mut self, now: Instant, is_video: bool) -> bool {
        if is_video {
            self.last = Some(now);
            return false;
        }
        let since = |at: Instant| now.saturating_duration_since(at);
        let is_silent = self.last.is_some_and(|at| since(at) >= VIDEO_SILENCE);
        let is_told =
            self.told.is_some_and(|told| since(told) < VIDEO_TOLD_INTERVAL || self.last < Some(told));
        if is_silent && !is_told {
            self.told = Some(now);
        }
        is_silent && !is_told
    }
}

/// Counters of a publisher on this worker.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SourceCount {
    pub(super) received_bytes: u64,
    /// Units of video received.
    pub(super) pictures: u64,
    pub(super) dropped: u64,
    pub(super) clock_faults: media::FaultCounts,
    /// Milliseconds by which the stream has advanced beyond the publisher's timestamps ([`media::ClockNews::MadeUp`]).
    pub(super) made_up_ms: i64,
    /// Time of the last log line about each kind of clock fault.
    pub(super) clock_told: [Option<Instant>; media::ClockFault::ALL.len()],
    /// Time of the last log line about a derived track that is left out.
    pub(super) left_out_told: Option<Instant>,
    /// Time of the last unit of audio or video, or of the publisher's beginning.
    pub(super) last_unit: Option<Instant>,
    /// The pauses between the publisher's units.
    pub(super) pauses: Pauses,
    pub(super) video: VideoWatch,
    pub(super) position: media::Position,
    pub(super) behind: Behind,
    pub(super) publisher: Option<SessionRef>,
}

impl SourceCount {
    /// Notes that a unit of the publisher has arrived.
    pub(super) fn hear(&mut self, now: Instant) {
        self.last_unit = Some(now);
        self.pauses.note(now);
    }
}

/// Makes the request with which a worker asks for a stream from the worker that has its publisher.
pub(super) fn mirror_request(stream: &mut Stream, to: WorkerId) -> ToWorker {
    let ((request, after), wanted) = (stream.ask_source(), stream.wanted_of_source());
    ToWorker::Mirror { stream: stream.id, to, request, wanted, after }
}

impl Worker {
    /// Handles a message from control or from another worker. Media units that another worker sends are passed to
    /// [`Worker::handle_mirrored`] instead.
    pub fn handle_mail(&mut self, now: Now, mail: ToWorker) {
        self.turn.now = now;
        match mail {
            ToWorker::Server(settings) => self.turn.server = settings,
            ToWorker::Watched(mail) => self.polled.take_watched(&mut self.turn, &self.live, *mail),
            ToWorker::WatchedNoMore { stream, protocol, viewer, news } => {
                self.polled.watched_no_more(&mut self.turn, (stream, protocol, &viewer), news);
            }
            ToWorker::App(settings) => {
                let name = Arc::clone(&settings.name);
                if let Some(former) = self.turn.apps.insert(Arc::clone(&name), Arc::clone(&settings)) {
                    let (saw, sees) = (&former.security.visibility, &settings.security.visibility);
                    if saw != sees {
                        let saw = |viewer: &str, stream: &str| saw.sees(viewer, stream);
                        self.live.review_visibility(&mut self.turn, &mut self.conns, &name, saw);
                    }
                    self.renew_sinks(&name, &sinks::outdated(&former, &settings));
                }
            }
            ToWorker::AppGone(name) => {
                self.turn.apps.remove(&name);
                self.live.message_limits.forget_app(&name);
            }
            ToWorker::StreamUp { stream, key, source, ingest, details, settings } => {
                self.live.details.set(stream, details);
                let new = Stream::new(stream, key, source, ingest, settings);
                self.stream_up(new);
            }
            ToWorker::StreamDown { stream, end } => self.stream_down(stream, end),
            ToWorker::Verdict { conn, handle, verdict } => {
                self.live.publish_verdict(&mut self.turn, &mut self.conns, conn, handle, verdict)
            }
            ToWorker::PlayVerdict { conn, handle, verdict } => {
                self.live.play_verdict(&mut self.turn, &mut self.conns, conn, handle, verdict)
            }
            ToWorker::Pass { conn, verdict } => {
                self.polled.pass_verdict(&mut self.turn, &mut self.conns, conn, verdict)
            }
            ToWorker::EndPolled { stream, protocol, viewer, reason } => {
                self.polled.end_viewer(&mut self.turn, &self.live, (stream, protocol, &viewer), reason)
            }
            ToWorker::PassesEnded { app, subscriber } => self.polled.passes.end_subscriber(&app, &subscriber),
            ToWorker::DropViewer { conn, handle, reason } => {
                self.live.drop_viewer(&mut self.turn, &mut self.conns, conn, handle, reason)
            }
            ToWorker::EndViewer { stream, viewer, reason } => {
                self.live.end_viewer(&mut self.turn, &mut self.conns, stream, viewer, reason)
            }
            ToWorker::Replaced { conn, stream } => self.replaced(conn, stream),
            ToWorker::Yield { session, stream } => {
                standbys::yield_stream(&mut self.live, &mut self.turn, &self.conns, session, stream)
            }
            ToWorker::TakeOver { session, stream, seam } => {
                let seam = (stream, *seam);
                let Self { live, turn, conns, memory, .. } = self;
                standbys::take_over(live, turn, conns, memory, session, seam)
            }
            ToWorker::Authenticated(conn) => self.conns.authenticated(&mut self.turn, conn),
            ToWorker::Upload { conn, grant } => self.conns.begin_upload(&mut self.turn, conn, *grant),
            ToWorker::RestReply { conn, response } => self.conns.answer_session(
                &mut self.turn,
                conn,
                Reply::Request(RequestNews::Response(*response)),
            ),
            ToWorker::TakeBody(conn) => {
                self.conns.answer_session(&mut self.turn, conn, Reply::Request(RequestNews::TakeBody))
            }
            ToWorker::Call { conn, key, news } => {
                self.conns.answer_session(&mut self.turn, conn, Reply::Request(RequestNews::Call(key, news)));
            }
            ToWorker::Job { conn, done } => self.conns.answer_session(&mut self.turn, conn, Reply::Job(done)),
            ToWorker::Tell { from, to, message } => {
                self.ports.tell_session(&mut self.turn, &mut self.conns, from, to, message)
            }
            ToWorker::TellStream { from, stream, message } => {
                self.live.hear_in_stream(&mut self.turn, &mut self.conns, from, &stream, &message);
                self.put_message(&stream, &message);
            }
            ToWorker::SessionEnded { teller, gone } => {
                self.conns.tell_session_ended(&mut self.turn, teller, gone)
            }
            ToWorker::StartPush(order) => self.orders.start_push(&mut self.turn, &mut self.conns, &order),
            ToWorker::StopPush(push) => self.stop_push(push),
            ToWorker::StartRecording(order) => {
                self.orders.start_recording(&mut self.turn, &mut self.conns, &self.live, *order)
            }
            ToWorker::StopRecording(recording) => {
                self.orders.stop_recording(&mut self.turn, &mut self.conns, &mut self.live, recording)
            }
            ToWorker::StartPull(order) => self.orders.start_pull(&mut self.turn, &mut self.conns, &order),
            ToWorker::Audience { pull, viewers } => {
                if let Some(id) = self.orders.pulls.get(&pull).copied() {
                    let news = PublicationNews::Audience(viewers);
                    self.conns.answer_session(&mut self.turn, id, Reply::Publication(Handle::ONLY, news));
                }
            }
            ToWorker::StopPull(pull) => self.stop_pull(pull),
            ToWorker::GoOn(next) => self.orders.go_on(&mut self.turn, &mut self.conns, *next),
            ToWorker::StartSink { kind, stream } => {
                self.polled.start_sink(&mut self.turn, &mut self.conns, &self.live, kind, stream)
            }
            ToWorker::LiveElsewhere(key) => self.live.tell_awaiting(&mut self.turn, &mut self.conns, &key),
            ToWorker::NotComing(key) => self.not_coming(&key),
            ToWorker::AutoStart(streams) => self.live.holds.note_auto_start(streams),
            ToWorker::Measure { per_stream } => self.turn.measure(&self.conns, &self.live, per_stream),
            ToWorker::Connections(stream) => {
                self.turn.tell_connections(&self.conns, &self.live, &self.polled.leases, stream);
            }
            ToWorker::TimedData { stream, track, data, ahead_ms } => {
                self.put_timed_data(stream, track, data, ahead_ms);
            }
            ToWorker::Withdrawn { stream, makers } => self.turn.blobs.withdraw(stream, &makers),
            ToWorker::Blob(mail) => self.polled.take_blob(&mut self.turn, &mut self.conns, &self.live, &mail),
            ToWorker::Leaving(is_leaving) => self.leave(is_leaving),
            ToWorker::Incumbents { drain, worker, viewers } => {
                self.polled.incumbents.add(drain, worker, &viewers);
            }
            ToWorker::Drain => self.drain(),
            ToWorker::Mirror { stream, to, request, wanted, after } => {
                self.live.mirror(&mut self.turn, &mut self.conns, stream, (to, request), wanted, after);
            }
            ToWorker::MirrorWants { stream, to, wanted } => {
                if let Some(stream) = self.live.streams.get_mut(&stream) {
                    stream.mirror_wants(to, wanted);
                }
                // The mirror is first sent the contents of the ring, because the next unit may not arrive for
                // seconds.
                self.live.feed_mirrors(&mut self.turn, stream);
                self.live.settle_demand(&mut self.turn, &mut self.conns, stream);
            }
            ToWorker::Unmirror { stream, to } => {
                if let Some(stream) = self.live.streams.get_mut(&stream) {
                    stream.remove_mirror(to);
                }
                self.live.settle_demand(&mut self.turn, &mut self.conns, stream);
            }
            ToWorker::Loudness { stream, level } => {
                self.live.hear_loudness(&mut self.turn, &mut self.conns, stream, level)
            }
            ToWorker::KeyFrameNeeded { stream, track } => {
                self.live.need_key_frame(&mut self.turn, &mut self.conns, stream, track)
            }
        }
        // Remove panicked sessions now, so that the next message is not delivered to them.
        self.end_panicked();
    }

    /// Handles a media unit that another worker, the one with the publisher, has sent to this one.
    pub fn handle_mirrored(&mut self, now: Now, mirrored: MirroredUnit) {
        self.turn.now = now;
        let MirroredUnit { stream, request, entry, credit } = mirrored;
        let of = self.live.streams.get(&stream);
        let is_wanted = of.is_some_and(|stream| stream.takes_mirrored(request, entry.unit.track));
        if is_wanted
            && self.live.append(&mut self.turn, &mut self.conns, &mut self.memory, stream, entry).is_err()
        {
            // No session of this worker has published the unit, so none is removed: the panic is only counted.
            self.turn.meter.stats.panics = self.turn.meter.stats.panics.saturating_add(1);
        }
        drop(credit);
    }

    /// Handles a stream that has become live or whose publisher has moved to another worker.
    fn stream_up(&mut self, new: Stream) {
        let (id, source, ingest) = (new.id, new.source, new.ingest);
        let key = new.key.clone();
        self.live.directory.insert(key.clone(), id);
        self.live.up_since.entry(id).or_insert(self.turn.now.mono);
        let is_new = !self.live.streams.contains_key(&id);
        let was_view = is_view(&self.live, Some(id));
        let stream = self.live.streams.entry(id).or_insert(new);
        stream.ingest = ingest;
        let moves = stream.source != source;
        if moves {
            stream.source = source;
            stream.remove_mirrors();
            stream.forget_demand();
            if source == self.turn.id {
                stream.leave_source();
            } else if stream.subscribers.is_empty() {
                stream.leave_source();
                // The retained units would be too old for the next viewer.
                stream.clear();
            } else {
                let mail = mirror_request(stream, self.turn.id);
                self.turn.agenda.outputs.push_back(Output::Worker(source, mail));
            }
        }
        if moves && source == self.turn.id {
            self.live.settle_demand(&mut self.turn, &mut self.conns, id);
        } else if moves {
            self.end_producers(id);
        }
        self.turn.arm_report();
        self.live.serve_waiting(&mut self.turn, &mut self.conns, &key);
        self.polled.begin_awaited_sinks(&mut self.turn, &self.live, &key, id);
        if is_new {
            let kinds = begun_with(&self.turn, &self.live, id);
            self.polled.begin_sinks(&mut self.turn, &mut self.conns, &self.live, id, kinds);
        }
        self.live.tell_awaiting(&mut self.turn, &mut self.conns, &key);
        let is_own = is_new || (was_view && !is_view(&self.live, Some(id)));
        self.live.place_in_room(&mut self.turn, &mut self.conns, id, is_own);
        standbys::watch_silence(&mut self.live, &mut self.turn, id);
    }

    /// Refuses the requests and viewers that wait for a stream that will not become live.
    fn not_coming(&mut self, key: &StreamKey) {
        self.live.holds.refuse_all_of(&mut self.turn, &mut self.conns, key);
        self.polled.end_blob_waits(&mut self.turn, &mut self.conns, key);
    }

    fn stream_down(&mut self, id: StreamId, end: StreamEnd) {
        self.end_producers(id);
        self.live.feed_rest(&mut self.turn, &mut self.conns, id);
        let Some(stream) = self.live.streams.remove(&id) else { return };
        if self.live.directory.get(&stream.key) == Some(&id) {
            self.live.directory.remove(&stream.key);
        }
        let publisher = self.live.publisher(id);
        self.live.sources.remove(&id);
        self.live.details.remove(id);
        self.live.chats.forget(&stream.key);
        self.live.message_limits.forget(&stream.key);
        self.live.up_since.remove(&id);
        self.polled.forget_polled(&mut self.turn, id, &stream.key);
        if stream.ingest != Ingest::ROOM_VIEW {
            self.live.remove_from_room(&mut self.turn, &mut self.conns, id, &stream.key, end);
        }
        for subscriber in &stream.subscribers {
            // The rest of a partly sent unit stays with the cursor and is sent before the session's last message.
            let subscription = subscriber.handle;
            self.conns.blame(subscriber.conn, end.reason());
            self.conns.reply(
                &self.turn,
                subscriber.conn,
                Reply::Subscription(subscription, SubscriptionNews::Ended(end)),
            );
        }
        self.stop_waiting_pushes(id);
        if let Some(SessionRef { conn, handle: publication, .. }) = publisher {
            self.conns.forget_publication(conn, id);
            self.conns.blame(conn, end.reason());
            self.conns.reply(&self.turn, conn, Reply::Publication(publication, PublicationNews::Ended(end)));
            self.conns.touch(&mut self.turn, conn);
        }
        self.live.standbys.end_all(&mut self.turn, &mut self.conns, id, end);
        for subscriber in stream.subscribers {
            self.conns.touch(&mut self.turn, subscriber.conn);
        }
    }

    /// Stops admitting viewers, or admits them again. A worker that stops sends the other workers a list of those of
    /// its viewers that watch by separate requests.
    fn leave(&mut self, is_leaving: bool) {
        self.turn.leaving = is_leaving;
        if !is_leaving {
            return self.polled.incumbents.end();
        }
        let viewers = self.polled.leases.digests();
        let (drain, worker) = (self.polled.incumbents.begin(), self.turn.id);
        self.polled.incumbents.add(drain, worker, &viewers);
        let mail = ToWorker::Incumbents { drain, worker, viewers };
        self.turn.agenda.outputs.push_back(Output::Others(mail));
    }

    fn drain(&mut self) {
        self.turn.draining = true;
        self.live.standbys.clear();
        for stream in self.live.streams.keys().copied().collect::<Vec<_>>() {
            self.live.feed_rest(&mut self.turn, &mut self.conns, stream);
        }
        for id in self.conns.ids() {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.publications.clear();
                conn.purpose = Purpose::Ended;
            }
            self.live.holds.end_all_of(&mut self.conns, id);
            self.conns.blame(id, StreamEnd::Drain.reason());
            self.conns.call(&self.turn, id, |session, ctx| session.close(ctx, "server goes down"));
            let Some(conn) = self.conns.get(id) else { continue };
            for handle in conn.subscriptions.iter().map(|one| one.handle).collect::<Vec<_>>() {
                self.live.drain_subscription(&mut self.turn, &mut self.conns, id, handle);
            }
            self.conns.touch(&mut self.turn, id);
        }
    }

    /// Reports the end of a drain to control when the last connection is gone.
    pub(super) fn finish_drain(&mut self) {
        if self.turn.draining && !self.turn.drained && self.conns.is_empty() {
            self.turn.drained = true;
            self.turn.tell(ToControl::Drained(self.turn.id));
        }
    }
}

impl Conns {
    /// Delivers an answer to a session that made a request.
    pub(super) fn answer_session(&mut self, turn: &mut Turn, id: ConnId, reply: Reply<'_>) {
        self.reply(turn, id, reply);
        self.note_authenticated(turn, id);
        self.touch(turn, id);
    }

    /// Stops counting the peer as unauthenticated, if its session says that the peer is authenticated.
    pub(super) fn note_authenticated(&mut self, turn: &mut Turn, id: ConnId) {
        if self.call(turn, id, |session, _| session.about().is_authenticated) == Some(true) {
            self.authenticated(turn, id);
        }
    }

    /// Notes that a peer is authenticated.
    fn authenticated(&self, turn: &mut Turn, id: ConnId) {
        let Some(conn) = self.get(id) else { return };
        let publishes = conn.publications.iter().any(|publication| publication.stream.is_some());
        let conn = self.transport_of(id);
        turn.agenda.outputs.push_back(Output::Authenticated { conn, publishes });
    }
}

impl Live {
    /// Notifies the sessions that await a stream that it is live.
    fn tell_awaiting(&mut self, turn: &mut Turn, conns: &mut Conns, key: &StreamKey) {
        for conn in self.awaited.take(key) {
            conns.reply(turn, conn, Reply::Request(RequestNews::StreamBegun(key)));
            conns.touch(turn, conn);
        }
    }

    /// Makes a session await a stream, unless the stream is live.
    pub(super) fn await_stream(&mut self, conns: &Conns, id: ConnId, key: StreamKey) {
        let is_there = self.directory.contains_key(&key) || self.is_room(&key);
        if conns.get(id).is_some() && !is_there {
            self.awaited.add(id, key);
        }
    }

    fn mirror(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: StreamId,
        asker: (WorkerId, u64),
        wanted: TrackSet,
        after: Vec<(TrackId, i64)>,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.source != turn.id {
            // This worker no longer has the publisher. The requesting worker asks the new source as soon as it is
            // notified of it.
            return;
        }
        stream.add_mirror(asker, wanted, after);
        self.feed_mirrors(turn, id);
        self.settle_demand(turn, conns, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_that_stops_is_told_once_until_it_is_back_and_a_minute_has_passed() {
        let (start, mut watch) = (Instant::now(), VideoWatch::default());
        let mut told = Vec::new();
        for second in 0..200 {
            let now = start + Duration::from_secs(second);
            // The track pauses for nine seconds, then for fifteen, again for fifteen, and then for good.
            let is_there = second < 1
                || (10..20).contains(&second)
                || (35..40).contains(&second)
                || (55..100).contains(&second);
            if is_there {
                assert!(!watch.note(now, true), "{second}");
            }
            if watch.note(now, false) {
                told.push(second);
            }
        }
        assert_eq!(told, [29, 109]);
        let mut sound_alone = VideoWatch::default();
        assert!((0..99).all(|second| !sound_alone.note(start + Duration::from_secs(second), false)));
    }
}
