//! Subscriptions, from the request to the end. This worker admits a viewer by itself if nothing must be checked;
//! otherwise control decides. Control is notified of a viewer only if control has checked the viewer or a hook reports
//! viewers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use media::{Origin, TrackId, TrackKind};

use super::audience;
use super::conn::{Conn, Playing, Purpose, ROLES_MAX, Subscription, SubscriptionState};
use super::conns::Conns;
use super::dispatch::UNSENT_BYTES_MIN;
use super::rooms::{first_seen, has_view_for, is_view};
use super::streams::{Live, mirror_request};
use super::turn::Turn;
use super::{Output, Worker};
use crate::auth::access::{Credentials, Denial};
use crate::auth::network;
use crate::hub::{FormatLimit, Pick, Selection};
use crate::mail::{NoSubscription, PlayRequest, ToControl, ToWorker};
use crate::protocol::{Format, PlayAsk, Reply, SubscriptionEvent, SubscriptionNews, derived};
use crate::types::{ConnId, Handle, StreamId, StreamKey, SubscriptionId};

/// Age from which a key frame counts as old: a viewer that begins with it has much to catch up on.
const KEY_FRAME_OLD: Duration = Duration::from_secs(2);

impl Worker {
    /// Handles an event of a session about a subscription.
    pub(super) fn subscription_event(&mut self, id: ConnId, subscription: Handle, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Subscribe(ask) => {
                self.live.subscribe(&mut self.turn, &mut self.conns, id, subscription, ask)
            }
            SubscriptionEvent::Attach(format) => self.attach_ordered(id, subscription, format),
            SubscriptionEvent::Select(selection) => {
                self.live.select(&mut self.turn, &mut self.conns, id, subscription, selection)
            }
            SubscriptionEvent::KeyFrameNeeded(track) => {
                self.live.key_frame_needed(&mut self.turn, &mut self.conns, id, subscription, track)
            }
            SubscriptionEvent::KeyFrameSoon(track) => {
                self.live.key_frame_soon(&mut self.turn, &mut self.conns, id, subscription, track)
            }
            SubscriptionEvent::Pause(paused) => {
                self.live.pause(&mut self.turn, &mut self.conns, id, subscription, paused)
            }
            SubscriptionEvent::Audience(viewers) => {
                audience::note(&mut self.conns, id, subscription, viewers)
            }
            // The rest of a partly sent unit is still sent. It must precede any later bytes on the connection, e.g. a
            // close message or the answer to another play request.
            SubscriptionEvent::Unsubscribe => {
                self.live.unsubscribe(&mut self.turn, &mut self.conns, id, subscription)
            }
        }
    }

    /// Attaches a push or a sink to the stream that control has assigned to it.
    pub(super) fn attach_ordered(&mut self, id: ConnId, subscription: Handle, format: Format) {
        let Some(stream) = self.conns.get(id).and_then(|conn| conn.purpose.stream()) else { return };
        match self.live.attach(&mut self.turn, &mut self.conns, id, subscription, stream, format) {
            Ok(()) => self.conns.answer(&mut self.turn, &self.live, id, subscription, Ok(stream)),
            Err(NoSubscription::NotFound) => self.remove(id, "the stream is gone", false),
            Err(_) => self.remove(id, "the stream cannot be packaged", false),
        }
    }

    /// True if the peer gives up a pending request by closing its side of the connection. This holds for
    /// every publisher whose request is pending, and for viewers over protocols without half-closed
    /// connections (RTMP). An HTTP client may close its side and still read. The server of a pull has made
    /// no request, and may close after it has sent a short file.
    pub fn waits_for_verdict(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(|conn| {
            let gives_up = |one: &Subscription| match &one.state {
                SubscriptionState::Asked(ask) => ask.format.kind().is_given_up_by_close,
                SubscriptionState::Held { .. }
                | SubscriptionState::Room { .. }
                | SubscriptionState::Playing(_) => false,
            };
            let publishes = conn.purpose == Purpose::Peer;
            (publishes && conn.publications.iter().any(|one| one.stream.is_none()))
                || conn.subscriptions.iter().any(gives_up)
        })
    }
}

impl Live {
    // ---- requests to play

    /// Handles a session's request to play.
    pub(super) fn subscribe(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        subscription: Handle,
        ask: PlayAsk,
    ) {
        self.holds.end(conns, id, subscription);
        let checked = match conns.must_ask(turn, self, id, &ask) {
            Ok(checked) => checked,
            Err(why) => return conns.refuse(turn, self, id, subscription, &ask.key, why),
        };
        let session = turn.session_ref(id, subscription);
        let Some(conn) = conns.get_mut(id) else { return };
        let (peer, is_viewer) = (conn.client(), conn.purpose == Purpose::Peer);
        let request = |ask: &PlayAsk| {
            let (egress, params) = (ask.format.key().name, ask.params.clone());
            let (key, origin) = (ask.key.clone(), ask.origin.clone());
            Box::new(PlayRequest { session, key, egress, peer, params, origin, polled: None })
        };
        if checked {
            let request = request(&ask);
            conns.set_state(id, subscription, SubscriptionState::Asked(Box::new(ask)));
            turn.tell(ToControl::Play(request));
            return;
        }
        if self.enter_room(turn, conns, id, subscription, &ask) {
            return;
        }
        let stream = self.serve(turn, conns, id, subscription, &ask);
        if is_viewer && stream.as_ref().is_ok_and(|stream| self.details.tells_viewers(*stream)) {
            conns.mark_told(id, subscription);
            turn.tell(ToControl::PlayStarted { session, request: Some(request(&ask)) });
        }
        conns.answer_or_hold(turn, self, id, subscription, Box::new(ask), stream);
    }

    fn serve(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        ask: &PlayAsk,
    ) -> Result<StreamId, NoSubscription> {
        let own = self.directory.get(&ask.key).copied();
        let stream = match first_seen(self, turn, ask) {
            Some(first) if is_view(self, own) || own.is_none() => Some(first),
            Some(_) => own,
            None => own.filter(|_| !is_view(self, own) || has_view_for(self, ask)),
        };
        let stream = stream.ok_or(NoSubscription::NotFound)?;
        let settings = self.streams.get(&stream).map(|stream| Arc::clone(&stream.settings));
        let format = settings.map_or(ask.format, |settings| derived::for_viewers(ask.format, &settings));
        self.attach(turn, conns, id, handle, stream, format)?;
        if ask.takes_subtracks && own == Some(stream) {
            self.rooms.wait(ask.key.clone(), role_of(ask), SubscriptionId { conn: id, handle });
        }
        Ok(stream)
    }

    /// Makes a viewer that accepts subtracks watch a main track that has subtracks, unless the viewer's session watches
    /// this main track already. Returns true if the viewer has begun to watch the main track.
    fn enter_room(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        ask: &PlayAsk,
    ) -> bool {
        // Renditions of one programme are not a room.
        let is_room = self.is_room(&ask.key) && !self.details.has_renditions(&ask.key);
        let enters = ask.takes_subtracks && is_room && !self.is_in_room_of(id, &ask.key);
        if enters {
            self.watch_room(turn, conns, id, handle, &ask.key, role_of(ask));
        }
        enters
    }

    /// Handles control's verdict on a viewer.
    pub(super) fn play_verdict(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        verdict: Result<(), NoSubscription>,
    ) {
        let session = turn.session_ref(id, handle);
        let Some(conn) = conns.get_mut(id) else { return };
        let is_asked =
            |one: &Subscription| one.handle == handle && matches!(one.state, SubscriptionState::Asked(_));
        // If the session has left in the meantime, control was notified at that time.
        let Some(at) = conn.subscriptions.iter().position(is_asked) else { return };
        let SubscriptionState::Asked(ask) = conn.subscriptions.remove(at).state else { return };
        let granted = verdict.is_ok();
        if granted && !turn.draining && self.enter_room(turn, conns, id, handle, &ask) {
            return conns.tell_room_viewer(turn, id, handle);
        }
        let stream = verdict.and_then(|()| {
            if turn.draining {
                Err(NoSubscription::Draining)
            } else {
                self.serve(turn, conns, id, handle, &ask)
            }
        });
        if stream.is_ok() {
            conns.mark_told(id, handle);
            turn.tell(ToControl::PlayStarted { session, request: None });
        } else if granted {
            turn.tell(ToControl::PlayEnded(session));
        }
        conns.answer_or_hold(turn, self, id, handle, ask, stream);
        conns.touch(turn, id);
    }

    /// Makes a session a subscriber of a stream. If the stream is published on another worker, this worker begins to
    /// mirror it.
    pub(super) fn attach(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        stream_id: StreamId,
        format: Format,
    ) -> Result<(), NoSubscription> {
        self.detach(turn, conns, id, handle);
        let stream = self.streams.get_mut(&stream_id).ok_or(NoSubscription::NotFound)?;
        let key = (format.key(), conns.get(id).map_or(FormatLimit::Plain, |conn| format_limit(conn, format)));
        let forwarding = turn.meter.forwarding.index(stream.ingest, format.key().name);
        let subscription = SubscriptionId { conn: id, handle };
        let subscribe = || stream.subscribe(subscription, key, forwarding, || format.package());
        let Ok(subscriber) = catch_unwind(AssertUnwindSafe(subscribe)) else {
            conns.note_panic(id);
            return Err(NoSubscription::Resources);
        };
        let mut subscriber = subscriber.ok_or(NoSubscription::Resources)?;
        // A subscriber may begin with units that the ring still holds. Producers begin with them too, so that such a
        // subscriber gets its derived tracks from its first unit on.
        if conns.get(id).is_some_and(|conn| matches!(conn.purpose, Purpose::Producer { .. })) {
            stream.begin_with_backlog(&mut subscriber);
        }
        let bytes = stream.bytes_per_second().max(UNSENT_BYTES_MIN);
        let needed = stream.keys_needed(&subscriber);
        if let Some(conn) = conns.get_mut(id).filter(|conn| conn.bytes.is_some()) {
            conn.schedule.catches_up = !conn.takes_units;
            let conn = conns.transport_of(id);
            turn.agenda.outputs.push_back(Output::UnsentLimit { conn, bytes });
        }
        conns.set_state(
            id,
            handle,
            SubscriptionState::Playing(Playing {
                subscriber,
                format,
                told: false,
                left_out: Vec::new(),
                audience: None,
            }),
        );
        conns.note_playing(self, id, stream_id);
        conns.log_lacking(self, id, handle);
        self.mirror_here(turn, stream_id);
        self.settle_demand(turn, conns, stream_id);
        needed.iter().for_each(|track| self.need_key_frame(turn, conns, stream_id, track));
        Ok(())
    }

    /// Requests a stream from the worker that has its publisher, unless that is this worker or the stream is already
    /// mirrored here.
    fn mirror_here(&mut self, turn: &mut Turn, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.source != turn.id && !stream.is_mirrored_here() {
            let mirror = mirror_request(stream, turn.id);
            turn.agenda.outputs.push_back(Output::Worker(stream.source, mirror));
        }
    }

    // ---- while it plays

    pub(super) fn select(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        selection: Selection,
    ) {
        let Some(conn) = conns.get(id) else { return };
        let Some(playing) = conn.subscription(handle).and_then(Subscription::playing) else { return };
        let format = playing.format.select(selection);
        let key = (format.key(), format_limit(conn, format));
        let Some(conn) = conns.get_mut(id) else { return };
        let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) else { return };
        let stream_id = playing.subscriber.stream;
        let Some(stream) = self.streams.get_mut(&stream_id) else { return };
        let switch = || stream.select(&mut playing.subscriber, key, || format.package());
        match catch_unwind(AssertUnwindSafe(switch)) {
            Ok(true) => playing.format = format,
            // The stream or the viewer's network has too many formats, so the viewer keeps its present selection.
            Ok(false) => return,
            Err(_) => return conns.note_panic(id),
        }
        let needed = stream.keys_needed(&playing.subscriber);
        self.settle_demand(turn, conns, stream_id);
        needed.iter().for_each(|track| self.need_key_frame(turn, conns, stream_id, track));
        conns.enqueue_write(turn, id);
    }

    /// Handles a viewer's request for a key frame.
    pub(super) fn key_frame_needed(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        track: Option<TrackId>,
    ) {
        if let Some((stream, track)) = self.video_of(conns, id, handle, track) {
            self.need_key_frame(turn, conns, stream, track);
        }
    }

    /// Returns the subscription's stream together with `track`. If `track` is `None`, returns the stream's video track
    /// at whose key frames the subscription can start.
    fn video_of(
        &self,
        conns: &Conns,
        id: ConnId,
        handle: Handle,
        track: Option<TrackId>,
    ) -> Option<(StreamId, TrackId)> {
        let playing = conns.get(id)?.subscription(handle)?.playing()?;
        let stream_id = playing.subscriber.stream;
        let lead = || self.streams.get(&stream_id)?.chosen(playing.subscriber.format)?.lead();
        Some((stream_id, track.or_else(lead)?))
    }

    /// Requests a key frame for a viewer that is about to begin, if the newest key frame is old. Otherwise the viewer
    /// would have to catch up on a long GOP.
    pub(super) fn key_frame_soon(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        track: Option<TrackId>,
    ) {
        let Some((stream_id, track)) = self.video_of(conns, id, handle, track) else { return };
        let newest = self.streams.get(&stream_id).and_then(|stream| stream.newest_key(track));
        let age = newest.map(|at| turn.now.mono.saturating_duration_since(at));
        if age.is_none_or(|age| age >= KEY_FRAME_OLD) {
            self.need_key_frame(turn, conns, stream_id, track);
        }
    }

    pub(super) fn pause(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        paused: bool,
    ) {
        let Some(conn) = conns.get_mut(id) else { return };
        let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) else { return };
        let subscriber = &mut playing.subscriber;
        let Some(stream) = self.streams.get(&subscriber.stream) else { return };
        if paused {
            subscriber.paused = true;
        } else if subscriber.paused {
            stream.resume(subscriber);
            let (stream, needed) = (subscriber.stream, stream.keys_needed(subscriber));
            needed.iter().for_each(|track| self.need_key_frame(turn, conns, stream, track));
            conns.enqueue_write(turn, id);
        }
    }

    // ---- ends

    /// Ends a subscription or a request to play. The rest of a partly sent unit is still sent.
    pub(super) fn unsubscribe(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId, handle: Handle) {
        self.holds.end(conns, id, handle);
        conns.keep_rest(id, handle);
        self.leave(turn, conns, id, handle);
    }

    /// Ends a subscription because the server is shutting down; a partly sent unit is completed.
    pub(super) fn drain_subscription(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
    ) {
        conns.keep_rest(id, handle);
        self.detach(turn, conns, id, handle);
    }

    /// Ends a subscription in any state, and notifies control if control knows of the subscription.
    pub(super) fn leave(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId, handle: Handle) {
        self.holds.end(conns, id, handle);
        let session = turn.session_ref(id, handle);
        let Some(conn) = conns.get(id) else { return };
        let is_known = match conn.subscription(handle).map(|one| &one.state) {
            Some(SubscriptionState::Asked(_)) => true,
            Some(SubscriptionState::Playing(playing)) => playing.told,
            Some(SubscriptionState::Room { told }) => *told,
            Some(SubscriptionState::Held { .. }) | None => false,
        };
        self.detach(turn, conns, id, handle);
        if is_known {
            turn.tell(ToControl::PlayEnded(session));
        }
    }

    /// Ends all subscriptions of a session that has ended.
    pub(super) fn leave_all(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId) {
        while let Some(handle) = conns.get(id).and_then(|conn| Some(conn.subscriptions.last()?.handle)) {
            self.leave(turn, conns, id, handle);
        }
    }

    /// Detaches a subscription from its stream and keeps its counters. If it was the stream's last subscription on a
    /// worker that mirrors the stream, the mirroring ends.
    pub(super) fn detach(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId, handle: Handle) {
        self.rooms.unwatch(SubscriptionId { conn: id, handle });
        let Some(conn) = conns.get_mut(id) else { return };
        let Some(at) = conn.subscriptions.iter().position(|one| one.handle == handle) else { return };
        let SubscriptionState::Playing(playing) = conn.subscriptions.remove(at).state else { return };
        let subscriber = playing.subscriber;
        conn.figures.jumps = conn.figures.jumps.saturating_add(subscriber.jumps);
        conn.figures.skipped = conn.figures.skipped.saturating_add(subscriber.skipped);
        turn.meter.stats.jumps = turn.meter.stats.jumps.saturating_add(subscriber.jumps);
        let stream_id = subscriber.stream;
        let Some(stream) = self.streams.get_mut(&stream_id) else { return };
        stream.unsubscribe(SubscriptionId { conn: id, handle }, &subscriber);
        if stream.subscribers.is_empty() && stream.is_mirrored_here() {
            stream.leave_source();
            stream.clear();
            let source = stream.source;
            let unmirror = ToWorker::Unmirror { stream: stream_id, to: turn.id };
            turn.agenda.outputs.push_back(Output::Worker(source, unmirror));
        }
        self.settle_demand(turn, conns, stream_id);
    }

    /// Ends a viewer that may no longer play. The rest of a partly sent unit is still sent; then the session is closed
    /// as its protocol requires.
    pub(super) fn drop_viewer(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        reason: &'static str,
    ) {
        let Some(conn) = conns.get(id) else { return };
        match conn.subscription(handle).map(|one| &one.state) {
            Some(SubscriptionState::Asked(ask)) => {
                let key = ask.key.clone();
                self.leave(turn, conns, id, handle);
                conns.refuse(turn, self, id, handle, &key, NoSubscription::Denied(Denial::Withdrawn));
            }
            Some(SubscriptionState::Playing(playing)) if playing.told => {
                self.end_playing(turn, conns, id, handle, reason);
            }
            Some(SubscriptionState::Room { told: true }) => self.end_playing(turn, conns, id, handle, reason),
            Some(
                SubscriptionState::Playing(_)
                | SubscriptionState::Held { .. }
                | SubscriptionState::Room { told: false },
            )
            | None => return,
        }
        conns.touch(turn, id);
    }

    /// Ends a viewer's subscription to this stream, whether control or this worker has admitted the viewer.
    pub(super) fn end_viewer(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        stream: StreamId,
        SubscriptionId { conn: id, handle }: SubscriptionId,
        reason: &'static str,
    ) {
        let conn = conns.get(id).filter(|conn| conn.purpose == Purpose::Peer);
        let playing = conn.and_then(|conn| conn.subscription(handle)?.playing());
        if playing.is_some_and(|playing| playing.subscriber.stream == stream) {
            self.end_playing(turn, conns, id, handle, reason);
            conns.touch(turn, id);
        }
    }

    fn end_playing(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        reason: &'static str,
    ) {
        conns.blame(id, reason);
        conns.call(turn, id, |session, ctx| session.close(ctx, reason));
        conns.keep_rest(id, handle);
        self.leave(turn, conns, id, handle);
    }

    /// Serves the viewers that wait for a stream that is now live.
    pub(super) fn serve_waiting(&mut self, turn: &mut Turn, conns: &mut Conns, key: &StreamKey) {
        for viewer in self.holds.waiting_for(key) {
            if let Some(ask) = self.holds.end(conns, viewer.conn, viewer.handle) {
                self.subscribe(turn, conns, viewer.conn, viewer.handle, *ask);
                conns.touch(turn, viewer.conn);
            }
        }
    }
}

impl Conns {
    /// Answers a viewer's play request. If the stream is not live but the request may start it, the answer is delayed
    /// until it is known whether the stream starts.
    fn answer_or_hold(
        &mut self,
        turn: &mut Turn,
        live: &mut Live,
        id: ConnId,
        subscription: Handle,
        ask: Box<PlayAsk>,
        stream: Result<StreamId, NoSubscription>,
    ) {
        let key = ask.key.clone();
        let is_room = has_view_for(live, &ask);
        if stream == Err(NoSubscription::NotFound)
            && live.holds.begin(turn, self, id, subscription, ask, is_room)
        {
            return;
        }
        match stream {
            Ok(stream) => self.answer(turn, live, id, subscription, Ok(stream)),
            Err(why) => self.refuse(turn, live, id, subscription, &key, why),
        }
    }

    fn refuse(
        &mut self,
        turn: &mut Turn,
        live: &Live,
        id: ConnId,
        subscription: Handle,
        key: &StreamKey,
        why: NoSubscription,
    ) {
        self.play_refused(id, key, &why);
        self.answer(turn, live, id, subscription, Err(why));
    }

    /// Returns true if control must decide, false if the viewer is admitted without control.
    fn must_ask(&self, turn: &Turn, live: &Live, id: ConnId, ask: &PlayAsk) -> Result<bool, NoSubscription> {
        if turn.draining {
            return Err(NoSubscription::Draining);
        }
        if self.get(id).is_some_and(|conn| conn.subscriptions.len() >= ROLES_MAX) {
            return Err(NoSubscription::Resources);
        }
        // Only new peers are refused: existing sessions continue, and other nodes need the streams published here.
        let is_new = |conn: &Conn| {
            conn.purpose == Purpose::Peer && conn.subscriptions.is_empty() && conn.publications.is_empty()
        };
        if turn.leaving && !ask.format.kind().is_for_nodes && self.get(id).is_some_and(is_new) {
            return Err(NoSubscription::Draining);
        }
        let app = turn.apps.get(&ask.key.app).ok_or(NoSubscription::NotFound)?;
        if !(ask.format.kind().is_enabled)(app) {
            return Err(NoSubscription::Disabled);
        }
        // Control must decide about requests with a subscriber id, because the subscriber may be blocked or have too
        // many connections. It must also decide about formats that are counted separately, because they have limits of
        // their own.
        if live.is_in_room_of(id, &ask.key) {
            return Ok(false);
        }
        if ask.format.kind().is_for_nodes || self.get(id).is_some_and(|conn| conn.purpose != Purpose::Peer) {
            return Ok(false);
        }
        let is_limited = ask.format.kind().counted_as.is_some();
        Ok(is_limited || app.security.play.any() || Credentials::of(&ask.params).subscriber.is_some())
    }

    fn answer(
        &mut self,
        turn: &mut Turn,
        live: &Live,
        id: ConnId,
        subscription: Handle,
        verdict: Result<StreamId, NoSubscription>,
    ) {
        let zero_ms =
            verdict.as_ref().ok().and_then(|stream| self.zero_for_node(live, id, subscription, *stream));
        let is_seasoned = verdict.as_ref().is_ok_and(|stream| live.is_seasoned(*stream, turn.now.mono));
        let tracks = verdict.map(|stream| {
            live.streams.get(&stream).map(|stream| Arc::clone(stream.tracks())).unwrap_or_default()
        });
        let verdict = tracks.as_ref().map(Arc::as_ref).map_err(Clone::clone);
        if let Some(zero_ms) = zero_ms {
            self.reply(turn, id, Reply::Subscription(subscription, SubscriptionNews::Zero(zero_ms)));
        }
        if is_seasoned {
            self.reply(turn, id, Reply::Subscription(subscription, SubscriptionNews::Seasoned));
        }
        self.reply(turn, id, Reply::Subscription(subscription, SubscriptionNews::Verdict(verdict)));
        self.note_authenticated(turn, id);
        self.enqueue_write(turn, id);
    }

    /// Returns the wall-clock time at which a stream's clock was zero, if the subscriber is a node.
    fn zero_for_node(&self, live: &Live, id: ConnId, subscription: Handle, stream: StreamId) -> Option<i64> {
        let playing = self.get(id)?.subscription(subscription)?.playing()?;
        let details = live.details.get(stream).filter(|_| playing.format.kind().is_for_nodes)?;
        Some(details.zero_ms)
    }

    /// Logs that a stream begins to be sent to a viewer or a push.
    fn note_playing(&mut self, live: &Live, id: ConnId, stream: StreamId) {
        let Some(conn) = self.get_mut(id) else { return };
        let Some(stream) = live.streams.get(&stream) else { return };
        let (key, peer, protocol) = (&stream.key, conn.client(), conn.session.about().protocol);
        (conn.figures.key, conn.figures.cause) = (Some(key.clone()), None);
        match conn.purpose {
            Purpose::Peer => tracing::info!(%key, protocol, %peer, "viewer started"),
            Purpose::Push { .. } => tracing::info!(%key, protocol, %peer, "push started"),
            Purpose::Pull { .. }
            | Purpose::Sink { .. }
            | Purpose::Recording { .. }
            | Purpose::Producer { .. }
            | Purpose::Ended => {}
        }
    }

    /// Logs that a viewer gets no track of a kind (video or audio) that it requested and that the stream has.
    fn log_lacking(&self, live: &Live, id: ConnId, handle: Handle) {
        let Some(conn) = self.get(id).filter(|conn| conn.purpose == Purpose::Peer) else { return };
        let Some(playing) = conn.subscription(handle).and_then(Subscription::playing) else { return };
        let Some(stream) = live.streams.get(&playing.subscriber.stream) else { return };
        let Some(chosen) = stream.chosen(playing.subscriber.format) else { return };
        let Selection { video, audio, .. } = playing.format.key().selection;
        for (kind, pick, name) in [(TrackKind::Video, video, "video"), (TrackKind::Audio, audio, "sound")] {
            let is_there = stream.tracks().of_kind(kind).any(|track| track.origin == Origin::Published)
                && pick != Pick::None;
            if !is_there || chosen.of_kind(kind).next().is_some() {
                continue;
            }
            let is_full = kind == TrackKind::Audio && !stream.left_out().is_empty();
            let reason = match (is_full, stream.is_mirrored_here()) {
                (true, _) => {
                    "its track is not transcoded now: too many are (audio.max_transcoders), or it has failed"
                }
                (false, false) => "no track is of a codec that it takes",
                // The worker that has the publisher transcodes, and logs the tracks that it does not make.
                (false, true) => "no track is of a codec that it takes, or none is transcoded to one",
            };
            let (key, peer, protocol) = (&stream.key, conn.client(), conn.session.about().protocol);
            tracing::info!(%key, protocol, %peer, lacks = name, reason, "viewer receives only part of the stream");
        }
    }

    /// Moves the rest of a partly sent unit into the session's queue, so that the peer gets only whole messages.
    pub(super) fn keep_rest(&mut self, id: ConnId, handle: Handle) {
        let Some(conn) = self.get_mut(id) else { return };
        let Some(link) = &mut conn.bytes else { return };
        let subscription = conn.subscriptions.iter_mut().find(|one| one.handle == handle);
        if let Some(playing) = subscription.and_then(Subscription::playing_mut) {
            let mut queue = wire::SendQueue::new();
            playing.subscriber.cursor.take_rest().into_iter().for_each(|part| queue.push(part));
            queue.append(&mut link.queue);
            link.queue = queue;
        }
    }

    fn mark_told(&mut self, id: ConnId, handle: Handle) {
        let Some(conn) = self.get_mut(id) else { return };
        if let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) {
            playing.told = true;
        }
    }

    pub(super) fn set_state(&mut self, id: ConnId, handle: Handle, state: SubscriptionState) {
        let Some(conn) = self.get_mut(id) else { return };
        match conn.subscription_mut(handle) {
            Some(subscription) => subscription.state = state,
            None => conn.subscriptions.push(Subscription { handle, state }),
        }
    }
}

/// Returns the limit on a stream's formats that applies to a session. Only viewers are limited: an order, another node
/// or a producer must not fail because of the choices of viewers.
fn format_limit(conn: &Conn, format: Format) -> FormatLimit {
    if conn.purpose != Purpose::Peer || format.kind().is_for_nodes {
        FormatLimit::None
    } else if format.is_plain() {
        FormatLimit::Plain
    } else {
        FormatLimit::Network(network(conn.client().ip()))
    }
}

/// Returns the role in which a viewer plays a room; empty if it has none.
pub(super) fn role_of(ask: &PlayAsk) -> &str {
    ask.params.iter().find(|(name, _)| name == "role").map_or("", |(_, role)| role)
}
