//! Live streams: their publishers, the wait for a lost publisher, and their end.
//!
//! `Reserved -> Live -> Grace -> Ended`: an admission that passes reserves the id ([`Control::reserve`]), and the
//! stream is live. A lost publisher may return within the grace period and continue the same stream.

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use media::{Codec, Position, TrackKind, Tracks};

use super::access::Access;
use super::access::tokens::burn_token;
use super::admission::Request;
use super::context::Context;
use super::live::{Ended, Granted, Live, Registry, Source, State};
use super::{Control, Outbound, wall};
use crate::auth::access::Denial;
use crate::config::AppSettings;
use crate::control::Files;
use crate::control::records::Records;
use crate::mail::{
    Departure, Grant, MainTrack, PublishRequest, Refusal, Seam, SinkNews, SourceFigures, StreamDetails,
    StreamEnd, ToWorker,
};
use crate::types::{Ingest, Now, SessionRef, StreamId, StreamKey, WorkerId};

use super::broadcast::{Broadcast, status};
use super::standby::{Place, Standby};
use super::subtracks::are_renditions;

/// Silence after which a new publisher may replace the current one, in milliseconds.
pub(super) const STALE_MS: u64 = 3000;
/// Maximum size in bytes of each text by which a publisher describes its stream (`streamName`, `metaData`, `role`).
const DESCRIPTION_BYTES_MAX: usize = 8 * 1024;

impl Records {
    /// Marks the record of an ended stream `finished`, or deletes the record if publishing created it.
    fn record_ended(&mut self, now: Now, key: StreamKey) {
        let Some(record) = self.get_mut(&key) else { return };
        if record.zombi {
            let is_stored = self.writes.keeps_all();
            self.remove(&key);
            if is_stored {
                self.writes.mark_dirty(now, key);
            }
            return;
        }
        status::FINISHED.clone_into(&mut record.status);
        record.touch(now);
        record.forget_viewers();
        for endpoint in record.end_point_list.iter_mut().flatten() {
            status::FINISHED.clone_into(&mut endpoint.status);
        }
        self.writes.mark_dirty(now, key);
    }
}

/// A publisher that left, with its worker's last report about the stream.
#[derive(Debug, Clone)]
pub(super) struct Departed {
    pub(super) session: SessionRef,
    pub(super) stream: StreamId,
    pub(super) departure: Departure,
    /// Position of the stream's clock.
    pub(super) position: Position,
    /// The stream's tracks.
    pub(super) tracks: Arc<Tracks>,
}

/// True if the stream has a publisher, or a lost publisher may still return within the grace period. False while a
/// pulled stream is between two attempts.
pub(super) fn is_delivered(live: &Live) -> bool {
    live.source().state != State::Awaited
}

impl Registry {
    /// True if a stream is live.
    pub(super) fn is_live(&self, key: &StreamKey) -> bool {
        self.find(key).is_some()
    }

    /// True if a subtrack of a main track is live. A room's view, a stream that shows the whole room, is not a
    /// subtrack.
    pub(super) fn is_active(&self, main: &StreamKey, id: &Arc<str>) -> bool {
        self.has_own_publisher(&StreamKey { app: main.app.clone(), id: id.clone() })
    }
}

impl Control {
    /// Handles a request to publish.
    pub(super) fn publish(&mut self, now: Now, mut request: PublishRequest) {
        let Some(pull) = request.pull else {
            self.outbound.pushes.own.estrange(now.mono, &self.cx.config.node, &mut request);
            return self.begin_admission(now, Request::Publish(request));
        };
        // Pulls are requested by the operator, so they do not go through admission.
        let session = request.session;
        let verdict = self.pull_media(now, request, pull).map(Box::new);
        self.cx
            .post(session.worker, ToWorker::Verdict { conn: session.conn, handle: session.handle, verdict });
    }

    /// Completes an admission: the token is used up, and the stream begins or its publisher returns.
    pub(super) fn reserve(&mut self, now: Now, request: PublishRequest) -> Result<Grant, Refusal> {
        let settings = self.cx.apps.get(&request.key.app).cloned().ok_or(Refusal::NoApplication)?;
        let is_shared = self.registry.cluster.is_shared();
        if settings.security.publish.token
            && !burn_token(&mut self.records, is_shared, now, &request.key, &request.params)
        {
            return Err(Refusal::Denied(Denial::Token));
        }
        match self.registry.find(&request.key) {
            None => {
                self.outbound.release_copy(&mut self.cx, &mut self.registry, now, &request.key);
                Ok(self.begin_stream(now, request, settings))
            }
            Some(stream) if self.outbound.is_copy(&self.registry, &request.key) => {
                self.outbound.release_copy(&mut self.cx, &mut self.registry, now, &request.key);
                self.take_copy_over(now, stream, request)
            }
            Some(stream) if self.registry.would_stand_by(&self.records, now, &request) => self
                .registry
                .stand_by(&mut self.cx, &mut self.access, now, stream, &request)
                .ok_or(Refusal::InUse),
            Some(stream) => self
                .registry
                .return_publisher(&mut self.cx, &mut self.records, &mut self.access, now, stream, request)
                .ok_or(Refusal::InUse),
        }
    }

    /// Attaches a publisher to a stream that was a copy of another node's stream.
    pub(super) fn take_copy_over(
        &mut self,
        now: Now,
        stream: StreamId,
        request: PublishRequest,
    ) -> Result<Grant, Refusal> {
        let (cx, records, access) = (&mut self.cx, &mut self.records, &mut self.access);
        let returned = self.registry.return_publisher(cx, records, access, now, stream, request.clone());
        let grant = returned.ok_or(Refusal::InUse)?;
        let key = &request.key;
        self.hooks.forget_idle(key);
        self.registry.record_started(&self.cx, &mut self.records, now, &request);
        if let Some(live) = self.registry.get_mut(&stream) {
            live.began = now.mono;
        }
        self.registry.review_viewers(&mut self.cx, &self.records, key);
        self.outgoing(now).reconcile_pushes(key);
        self.recorder(now).reconcile_recording(key);
        // The copy's units have been arriving, so the source counts as started immediately.
        self.hooks.source_started(&mut self.cx, &self.records, &mut self.registry, now, stream);
        Ok(grant)
    }

    pub(super) fn begin_stream(
        &mut self,
        now: Now,
        request: PublishRequest,
        settings: Arc<AppSettings>,
    ) -> Grant {
        let key = request.key.clone();
        tracing::info!(%key, protocol = request.ingest.name, peer = %request.peer, "stream started");
        let live = Live::new(now, &request, settings.clone());
        let (zero_ms, is_copy) = (live.clock.zero_ms, live.is_copy());
        let stream = self.registry.insert(live);
        if !is_copy {
            self.hooks.forget_idle(&key);
            self.registry.record_started(&self.cx, &mut self.records, now, &request);
            self.access.publisher_came(&self.cx, now, &request);
        }
        let details = self.registry.details_of(&self.cx, &self.records, &key);
        if let Some(live) = self.registry.get_mut(&stream) {
            live.told.details = details;
        }
        self.registry.post_stream_up(&mut self.cx, stream);
        self.outgoing(now).reconcile_pushes(&key);
        self.recorder(now).reconcile_recording(&key);
        Grant { stream, position: Position::default(), epoch: 0, zero_ms, settings, standby: false }
    }

    /// Handles the loss of a publisher's connection while its grant is on the way to the worker. No later event would
    /// report the loss.
    pub(super) fn publish_abandoned(&mut self, now: Now, session: SessionRef) {
        if self.access.abandon_admission(&mut self.cx, &mut self.registry.cluster, now, session) {
            return;
        }
        let Some(stream) = self.registry.of_publisher(session) else { return };
        let Some(live) = self.registry.get(&stream) else { return };
        let fresh = !live.clock.position.started;
        let (position, tracks) = (live.clock.position, Arc::default());
        let departure = if fresh { Departure::Clean } else { Departure::Lost };
        self.registry.publisher_gone(
            &mut self.cx,
            &mut self.records,
            now,
            Departed { session, stream, departure, position, tracks },
        );
    }

    /// Runs the follow-up work for publishers that left and streams that ended, in all parts of control.
    pub(super) fn follow_ends(&mut self, now: Now) {
        loop {
            while let Some(session) = self.registry.left.pop_front() {
                self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, session);
            }
            let Some(Ended { stream, live, end }) = self.registry.poll_ended() else { break };
            self.files.forget_refused_recording(&live.key);
            self.outbound.forget_pushes(&live);
            if let State::Live(session) = live.source().state {
                self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, session);
            }
            if let Some(standby) = live.standby() {
                self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, standby.session);
            }
            if end == StreamEnd::Superseded {
                // Another node has taken over the id. The record belongs to that node, which has called the hooks.
                self.claim_changed(now, &live.key);
                continue;
            }
            if live.is_copy() {
                super::room_views::forget_viewers(&mut self.records, now, &live);
                continue;
            }
            self.hooks.stream_ended(&mut self.cx, &self.records, &self.registry, now, (stream, &live), end);
            let main = self.records.main_track_of(&live.key);
            self.records.record_ended(now, live.key);
            if let Some(main) = main {
                self.registry.follow_subtracks(&mut self.records, now, &main);
            }
        }
    }
}

impl Registry {
    /// True if `request` comes from a source of this node, while `stream` is a copy of another node's stream. The
    /// source then takes over the copy.
    pub(super) fn is_taken_over(&self, stream: StreamId, request: &PublishRequest) -> bool {
        !request.ingest.is_copy() && self.get(&stream).is_some_and(Live::is_copy)
    }

    pub(super) fn end_overdue_graces(&mut self, cx: &mut Context, now: Now) {
        while let Some((until, stream)) = self.first_grace() {
            if until > now.mono {
                return;
            }
            self.end(cx, stream, StreamEnd::GraceOver);
        }
    }

    /// Handles a report on the clock and the silence of a publisher.
    pub(super) fn note_source(
        &mut self,
        cx: &mut Context,
        records: &Records,
        files: &mut Files,
        worker: WorkerId,
        figures: &SourceFigures,
    ) {
        let Some(live) = self.get_mut(&figures.stream) else { return };
        // If the stream has moved to another worker since, this report is about a former publisher.
        if live.source().worker != worker || !matches!(live.source().state, State::Live(_)) {
            return;
        }
        // A report that this worker made before the current publisher arrived is about a former publisher, too.
        let is_former =
            |publisher| !matches!(live.source().state, State::Live(present) if present == publisher);
        if figures.publisher.is_some_and(is_former) {
            return;
        }
        live.clock.position = figures.position;
        live.clock.epoch = figures.epoch;
        live.silent_ms = figures.silent_ms;
        let before = live.received.figures.replace(figures.clone());
        if before.is_none_or(|before| before.codecs != figures.codecs) {
            // The codecs may have changed, and recordings depend on them.
            let key = live.key.clone();
            files.recording_may_change(key.clone());
            self.review_viewers(cx, records, &key);
        }
    }

    /// Attaches a publisher to a stream that waits for a publisher, or whose publisher has fallen silent.
    pub(super) fn return_publisher(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        access: &mut Access,
        now: Now,
        stream: StreamId,
        request: PublishRequest,
    ) -> Option<Grant> {
        // If a pull delivers the stream, the log already has a line saying that media arrive.
        if request.pull.is_none() {
            let (key, protocol) = (&request.key, request.ingest.name);
            tracing::info!(%key, protocol, peer = %request.peer, "publisher returned");
        }
        let source = Source::of(&request);
        let before = self.change(stream, |changed| *changed = source)?;
        let old = match before.state {
            State::Live(session) => Some(session),
            State::Grace(_) | State::Awaited => None,
        };
        let moved = (before.worker, before.ingest) != (source.worker, source.ingest);
        let live = self.get_mut(&stream)?;
        live.silent_ms = 0;
        live.granted = Granted { at: now.mono, from: live.clock.position };
        let before = live.received.figures.take().map_or(0, |figures| figures.received_bytes);
        live.received.bytes_before += before;
        live.via.clone_from(&request.via);
        live.params.clone_from(&request.params);
        let grant = Grant {
            stream,
            position: live.clock.position,
            epoch: live.clock.epoch,
            zero_ms: live.clock.zero_ms,
            settings: live.settings.clone(),
            standby: false,
        };
        if !request.ingest.is_copy() {
            if let Some(record) = records.get_mut(&request.key) {
                record.user_agent = agent(&request.user_agent);
                record.remote_ip = remote_ip(&request);
                record.touch(now);
            }
            access.publisher_came(cx, now, &request);
        }
        if let Some(old) = old {
            self.left.push_back(old);
            cx.post(old.worker, ToWorker::Replaced { conn: old.conn, stream });
        }
        if moved {
            self.post_stream_up(cx, stream);
        }
        Some(grant)
    }

    /// Continues a pulled stream when its next attempt delivers the first media. The figures in the record (start time,
    /// duration, bytes) are reset, as at the first attempt.
    pub(super) fn return_pull(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        access: &mut Access,
        now: Now,
        stream: StreamId,
        request: PublishRequest,
    ) -> Option<Grant> {
        let ingest = self.get(&stream)?.source().ingest;
        if ingest.is_copy() {
            return self.return_publisher(cx, records, access, now, stream, request);
        }
        if ingest != Ingest::PULL {
            return None;
        }
        let grant = self.return_publisher(cx, records, access, now, stream, request.clone())?;
        if let Some(live) = self.get_mut(&stream) {
            live.received.bytes_before = 0;
            live.began = now.mono;
        }
        self.record_started(cx, records, now, &request);
        Some(grant)
    }

    /// Handles the loss of a publisher. Its standby takes over. Without one, the stream waits if the publisher may
    /// return.
    pub(super) fn publisher_gone(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        Departed { session, stream, departure, position, tracks }: Departed,
    ) {
        if self.standby_gone(cx, records, stream, session) {
            return;
        }
        let Some(live) = self.get_mut(&stream) else { return };
        if live.source().state != State::Live(session) {
            return;
        }
        // A standby that had not begun yet does not know the stream's clock.
        if position.started {
            live.clock.position = position;
        }
        live.clock.epoch = live.clock.epoch.max(tracks.epoch);
        let (grace, ingest, key) =
            (live.settings.loss.publisher_grace, live.source().ingest, live.key.clone());
        self.left.push_back(session);
        if ingest.is_fetched() {
            self.change(stream, |source| source.state = State::Awaited);
            return;
        }
        let seam = Seam { position, tracks, silent: Duration::ZERO };
        let is_failure = matches!(departure, Departure::Lost | Departure::Failed);
        if is_failure && self.take_over(cx, records, now, stream, seam) {
            return;
        }
        match (departure, now.mono.checked_add(grace)) {
            (Departure::Lost, Some(until)) if !grace.is_zero() => {
                tracing::info!(%key, grace_ms = grace.as_millis(), "publisher lost; its stream waits for it to return");
                self.change(stream, |source| source.state = State::Grace(until));
                // Release the claim: the publisher may return at another node, and this stream then becomes a copy of
                // the stream there.
                self.cluster.release_stream(stream);
            }
            (Departure::Lost, _) => self.end(cx, stream, StreamEnd::GraceOver),
            (Departure::Clean | Departure::Failed, _) => self.end(cx, stream, StreamEnd::Unpublished),
        }
    }

    /// Ends a stream, which frees its id immediately. The other parts of control learn of the end when the current
    /// input has been handled ([`Control::follow_ends`]).
    pub(super) fn end(&mut self, cx: &mut Context, stream: StreamId, end: StreamEnd) {
        let Some(live) = self.remove(stream) else { return };
        if live.is_copy() {
            let reason = if end == StreamEnd::Stopped { "the node copies it no more" } else { end.reason() };
            tracing::info!(key = %live.key, reason, "copy of a stream ended");
        } else {
            tracing::info!(key = %live.key, reason = end.reason(), "stream ended");
        }
        self.cluster.release_stream(stream);
        cx.post_all(&ToWorker::StreamDown { stream, end });
        self.ended.push_back(Ended { stream, live, end });
    }

    fn poll_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Checks that this publisher may use the id: no live stream has the id, or the stream that has it waits for a
    /// publisher, that stream's publisher has fallen silent, or there is room for a standby.
    pub(super) fn check_free(
        &self,
        outbound: &Outbound,
        records: &Records,
        now: Now,
        request: &PublishRequest,
    ) -> Result<(), Refusal> {
        // The id belongs to its source while the source runs, whether or not it delivers media.
        if outbound.sources.is_running(&request.key) && !outbound.is_copy(self, &request.key) {
            return Err(Refusal::InUse);
        }
        let live = self.find(&request.key).and_then(|stream| self.get(&stream));
        let free = live.is_none_or(|live| match live.source().state {
            // A copy of another node's stream: in a cluster, the directory decides who may publish. The view of a room
            // always gives way to a publisher with the room's id.
            State::Live(_) if live.is_copy() => live.is_view() || self.cluster.is_shared(),
            State::Live(session) => self.place_of(records, now, live, session, request) != Place::None,
            State::Grace(_) => true,
            State::Awaited => live.is_copy(),
        });
        if free { Ok(()) } else { Err(Refusal::InUse) }
    }

    /// Announces a stream, first to the source's worker. Other workers ask that worker for a mirror once they receive
    /// the announcement, so that worker must know the stream before them.
    pub(super) fn post_stream_up(&self, cx: &mut Context, stream: StreamId) {
        let Some(live) = self.get(&stream) else { return };
        let (key, settings) = (live.key.clone(), live.settings.clone());
        let Source { worker: source, ingest, .. } = *live.source();
        let details = live.told.details.clone();
        let others = (0..cx.config.workers).map(WorkerId).filter(|worker| *worker != source);
        for worker in std::iter::once(source).chain(others).collect::<Vec<_>>() {
            let (key, settings, details) = (key.clone(), settings.clone(), details.clone());
            let up = ToWorker::StreamUp { stream, key, source, ingest, details, settings };
            cx.post(worker, up);
        }
    }

    /// Marks the record of a new stream live; creates the record if there is none.
    fn record_started(&self, cx: &Context, records: &mut Records, now: Now, request: &PublishRequest) {
        let key = &request.key;
        if records.get(key).is_none() {
            let mut record = Broadcast { zombi: true, ..Broadcast::default() };
            cx.complete(now, key, &mut record);
            records.insert(key.clone(), record);
        }
        self.join_main_track(cx, records, now, request);
        records.take_description(request);
        let Some(record) = records.get_mut(key) else { return };
        status::BROADCASTING.clone_into(&mut record.status);
        record.publish_type = Some(publish_type(request.ingest));
        record.start_time = wall(now);
        record.touch(now);
        record.duration = 0;
        record.received_bytes = 0;
        record.bitrate = 0;
        record.speed = 0.0;
        record.absolute_start_time_ms = 0;
        (record.packets_lost, record.packet_lost_ratio) = (0, 0.0);
        (record.rtt_ms, record.jitter_ms) = (0, 0);
        record.user_agent = agent(&request.user_agent);
        record.remote_ip = remote_ip(request);
        record.forget_viewers();
        if !record.zombi || self.cluster.is_shared() {
            records.writes.mark_dirty(now, key.clone());
        }
        if let Some(main) = records.main_track_of(key) {
            self.follow_subtracks(records, now, &main);
        }
    }

    /// Handles a worker's news about a sink of a stream: the worker wants the sink, has it, or no longer has it. The
    /// first request starts the sink at the publisher's worker. The sink stays there even if the publisher moves.
    pub(super) fn sink_news(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        kind: &'static str,
        news: SinkNews,
    ) {
        let Some(live) = self.get_mut(&stream) else { return };
        match news {
            SinkNews::Wanted => {
                let worker = live.source().worker;
                if let Entry::Vacant(vacant) = live.sinks.entry(kind) {
                    vacant.insert(worker);
                    cx.post(worker, ToWorker::StartSink { kind, stream });
                }
            }
            SinkNews::Begun(worker) => drop(live.sinks.insert(kind, worker)),
            SinkNews::Over => drop(live.sinks.remove(kind)),
        }
    }

    /// Returns the session that publishes a stream; `None` while the publisher is awaited.
    pub(super) fn publisher_of(&self, key: &StreamKey) -> Option<SessionRef> {
        match self.get(&self.find(key)?)?.source().state {
            State::Live(session) => Some(session),
            State::Grace(_) | State::Awaited => None,
        }
    }

    /// Returns the members of a stream's record that workers use.
    pub(super) fn details_of(&self, cx: &Context, records: &Records, key: &StreamKey) -> StreamDetails {
        let live = self.find(key).and_then(|stream| self.get(&stream));
        let writes_nothing = cx.side.is_some() && live.is_some_and(Live::is_copy);
        let Some(record) = records.get(key) else {
            return StreamDetails { writes_nothing, ..StreamDetails::default() };
        };
        let groups = cx.apps.get(&key.app).is_some_and(|app| are_renditions(app));
        let main = records.main_track_of(key).filter(|_| groups);
        let codecs = live.and_then(|live| live.received.figures.as_ref()).map(|figures| &figures.codecs);
        let several = |kind| {
            let is_of = |codec: &&Codec| codec.kind() == kind;
            let count = codecs.map_or(0, |codecs| codecs.iter().filter(is_of).count());
            if count > 1 { count } else { 0 }
        };
        StreamDetails {
            main: main.map(|key| MainTrack { folder: records.polled_folder(cx, &key), key }),
            videos: several(TrackKind::Video),
            sounds: several(TrackKind::Audio),
            writes_nothing,
            zero_ms: live.map_or(0, |live| live.clock.zero_ms),
            tell_viewers: records.hook_url(cx, key).is_some(),
            limits_polled: record.limits_polled(),
            main_track: records.main_track_of(key).map(|main| main.id),
            role: record.role.as_deref().unwrap_or_default().into(),
            folder: records.polled_folder(cx, key),
            has_standby: live.and_then(Live::standby).is_some_and(Standby::sends),
            overrides: record.hls_overrides(),
        }
    }

    /// Sends the workers the details of a stream's record that they use, if these details have changed.
    pub(super) fn review_viewers(&mut self, cx: &mut Context, records: &Records, key: &StreamKey) {
        let details = self.details_of(cx, records, key);
        let Some(stream) = self.find(key) else { return };
        let Some(live) = self.get_mut(&stream) else { return };
        if std::mem::replace(&mut live.told.details, details.clone()) != details {
            self.post_stream_up(cx, stream);
        }
    }
}

impl Records {
    /// Copies a publisher's description of its stream (`streamName`, `metaData`, `role`) to a record made by
    /// publishing. Any other record keeps its own description.
    fn take_description(&mut self, request: &PublishRequest) {
        let Some(record) = self.get_mut(&request.key).filter(|record| record.zombi) else { return };
        for (name, value) in &request.params {
            let member = match name.as_str() {
                "streamName" => &mut record.name,
                "metaData" => &mut record.meta_data,
                "role" => &mut record.role,
                _ => continue,
            };
            if value.len() <= DESCRIPTION_BYTES_MAX {
                *member = Some(value.clone()).filter(|value| !value.is_empty());
            }
        }
    }
}

/// Returns the publisher's address; `None` for a pull, which is a connection made by this server.
pub(super) fn remote_ip(request: &PublishRequest) -> Option<String> {
    request.pull.is_none().then(|| request.peer.ip().to_canonical().to_string())
}

pub(super) fn publish_type(ingest: Ingest) -> String {
    ingest.publish_type.to_owned()
}

/// Returns the encoder's user agent, cleaned for a record.
pub(super) fn agent(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(256).collect();
    if clean.is_empty() { "N/A".to_owned() } else { clean }
}
