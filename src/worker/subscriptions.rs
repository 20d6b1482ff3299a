//! Subscriptions, in and out: admitted from the replica where nothing is checked, else by control. Control hears of viewers
//! only where it checks them or a hook tells of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use media::TrackId;

use super::audience;
use super::conn::{Playing, Purpose, ROLES_MAX, Subscription, SubscriptionState};
use super::dispatch::UNSENT_BYTES_MIN;
use super::streams::{Live, mirror_request};
use super::{Output, Worker};
use crate::auth::access::{Credentials, Denial};
use crate::hub::Selection;
use crate::mail::{NoSubscription, PlayRequest, ToControl, ToWorker};
use crate::protocol::{Format, PlayAsk, Reply, SubscriptionEvent, SubscriptionNews, derived};
use crate::types::{ConnId, Handle, StreamId, StreamKey, SubscriptionId};

/// The longest time that a viewer waits for a stream that it has started.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// A key frame of so long ago is old: a viewer that begins with it has much to catch up with.
const KEY_FRAME_OLD: Duration = Duration::from_secs(2);

impl Live {
    pub(super) fn note_auto_start(&mut self, streams: Vec<(StreamKey, bool)>) {
        for (key, on) in streams {
            if on {
                self.auto_start.insert(key);
            } else {
                self.auto_start.remove(&key);
            }
        }
    }
}

impl Worker {
    /// A session says something of a stream that it plays.
    pub(super) fn subscription_event(&mut self, id: ConnId, subscription: Handle, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Subscribe(ask) => self.subscribe(id, subscription, ask),
            SubscriptionEvent::Attach(format) => self.attach_ordered(id, subscription, format),
            SubscriptionEvent::Select(selection) => self.select(id, subscription, selection),
            SubscriptionEvent::KeyFrameNeeded(track) => self.key_frame_needed(id, subscription, track),
            SubscriptionEvent::KeyFrameSoon(track) => self.key_frame_soon(id, subscription, track),
            SubscriptionEvent::Pause(paused) => self.pause(id, subscription, paused),
            SubscriptionEvent::Audience(viewers) => {
                audience::note(&mut self.conns, id, subscription, viewers)
            }
            // Whatever follows on the connection, a close or another play, must not fall into a partly sent unit.
            SubscriptionEvent::Unsubscribe => self.unsubscribe(id, subscription),
        }
    }

    // ---- in

    /// A session asks to play.
    pub(super) fn subscribe(&mut self, id: ConnId, subscription: Handle, ask: PlayAsk) {
        self.end_hold(id, subscription);
        let checked = match self.must_ask(id, &ask) {
            Ok(checked) => checked,
            Err(why) => return self.refuse(id, subscription, &ask.key, why),
        };
        let session = self.session_ref(id, subscription);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let peer = conn.client();
        let request = |ask: &PlayAsk| {
            let (egress, params) = (ask.format.key().name, ask.params.clone());
            let (key, origin) = (ask.key.clone(), ask.origin.clone());
            Box::new(PlayRequest { session, key, egress, peer, params, origin, polled: None })
        };
        if checked {
            let request = request(&ask);
            self.set_state(id, subscription, SubscriptionState::Asked(Box::new(ask)));
            self.tell(ToControl::Play(request));
            return;
        }
        if self.enter_room(id, subscription, &ask) {
            return;
        }
        let stream = self.serve(id, subscription, &ask);
        if stream.as_ref().is_ok_and(|stream| self.live.tells_viewers(*stream)) {
            self.mark_told(id, subscription);
            self.tell(ToControl::PlayStarted { session, request: Some(request(&ask)) });
        }
        self.answer_or_hold(id, subscription, Box::new(ask), stream);
    }

    /// Answers a viewer, or holds it: one who may play a missing stream may have started it.
    fn answer_or_hold(
        &mut self,
        id: ConnId,
        subscription: Handle,
        ask: Box<PlayAsk>,
        stream: Result<StreamId, NoSubscription>,
    ) {
        let key = ask.key.clone();
        if stream == Err(NoSubscription::NotFound) && self.hold(id, subscription, ask) {
            return;
        }
        match stream {
            Ok(stream) => self.answer(id, subscription, Ok(stream)),
            Err(why) => self.refuse(id, subscription, &key, why),
        }
    }

    fn refuse(&mut self, id: ConnId, subscription: Handle, key: &StreamKey, why: NoSubscription) {
        self.play_refused(id, key, &why);
        self.answer(id, subscription, Err(why));
    }

    /// Whether control has to be asked.
    fn must_ask(&self, id: ConnId, ask: &PlayAsk) -> Result<bool, NoSubscription> {
        if self.draining || self.conns.get(id).is_some_and(|conn| conn.subscriptions.len() >= ROLES_MAX) {
            return Err(NoSubscription::Unavailable);
        }
        let app = self.apps.get(&ask.key.app).ok_or(NoSubscription::NotFound)?;
        if !(ask.format.kind().is_enabled)(app) {
            return Err(NoSubscription::Disabled);
        }
        // A subscriber may be blocked, or there often enough, whatever else is checked; and what is counted apart has
        // limits.
        if self.live.is_in_room_of(id, &ask.key) {
            return Ok(false);
        }
        if ask.format.kind().is_for_nodes {
            return Ok(false);
        }
        let is_limited = ask.format.kind().counted_as.is_some();
        Ok(is_limited || app.security.play.any() || Credentials::of(&ask.params).subscriber.is_some())
    }

    fn serve(&mut self, id: ConnId, handle: Handle, ask: &PlayAsk) -> Result<StreamId, NoSubscription> {
        let own = self.live.directory.get(&ask.key).copied();
        let role = role_of(ask);
        // A node has the streams of a room each by its own name.
        let is_node = ask.format.kind().is_for_nodes;
        let is_seen = |stream: &StreamId| !is_node && self.sees(&ask.key.app, role, *stream);
        let first = || self.live.rooms.members(&ask.key).find(is_seen);
        let stream = own.or_else(first).ok_or(NoSubscription::NotFound)?;
        let settings = self.live.streams.get(&stream).map(|stream| Arc::clone(&stream.settings));
        let format = settings.map_or(ask.format, |settings| derived::for_viewers(ask.format, &settings));
        self.attach(id, handle, stream, format).ok_or(NoSubscription::Unavailable)?;
        Ok(stream)
    }

    /// Has a viewer that takes subtracks watch a main track that has some. A session that watches it already plays its streams.
    fn enter_room(&mut self, id: ConnId, handle: Handle, ask: &PlayAsk) -> bool {
        // Renditions of one programme are no room.
        let is_room = self.live.is_room(&ask.key) && !self.live.ladders.contains_key(&ask.key);
        let enters = ask.takes_subtracks && is_room && !self.live.is_in_room_of(id, &ask.key);
        if enters {
            self.watch_room(id, handle, &ask.key, role_of(ask));
        }
        enters
    }

    fn answer(&mut self, id: ConnId, subscription: Handle, verdict: Result<StreamId, NoSubscription>) {
        let zero_ms = verdict.as_ref().ok().and_then(|stream| self.zero_for_node(id, subscription, *stream));
        let is_seasoned = verdict.as_ref().is_ok_and(|stream| self.live.is_seasoned(*stream, self.now.mono));
        let tracks = verdict.map(|stream| {
            self.live.streams.get(&stream).map(|stream| Arc::clone(stream.tracks())).unwrap_or_default()
        });
        let verdict = tracks.as_ref().map(Arc::as_ref).map_err(Clone::clone);
        if let Some(zero_ms) = zero_ms {
            self.reply(id, Reply::Subscription(subscription, SubscriptionNews::Zero(zero_ms)));
        }
        if is_seasoned {
            self.reply(id, Reply::Subscription(subscription, SubscriptionNews::Seasoned));
        }
        self.reply(id, Reply::Subscription(subscription, SubscriptionNews::Verdict(verdict)));
        self.note_authenticated(id);
        self.enqueue_write(id);
    }

    /// The time at which the clock of a stream was zero, if a node has subscribed to it.
    fn zero_for_node(&self, id: ConnId, subscription: Handle, stream: StreamId) -> Option<i64> {
        let playing = self.conns.get(id)?.subscription(subscription)?.playing()?;
        let details = self.live.details.get(&stream).filter(|_| playing.format.kind().is_for_nodes)?;
        Some(details.zero_ms)
    }

    /// Control has decided.
    pub(super) fn play_verdict(&mut self, id: ConnId, handle: Handle, verdict: Result<(), NoSubscription>) {
        let session = self.session_ref(id, handle);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let is_asked =
            |one: &Subscription| one.handle == handle && matches!(one.state, SubscriptionState::Asked(_));
        // Who left meanwhile has reported it.
        let Some(at) = conn.subscriptions.iter().position(is_asked) else { return };
        let SubscriptionState::Asked(ask) = conn.subscriptions.remove(at).state else { return };
        let granted = verdict.is_ok();
        if granted && !self.draining && self.enter_room(id, handle, &ask) {
            return self.tell_room_viewer(id, handle);
        }
        let stream = verdict.and_then(|()| {
            if self.draining { Err(NoSubscription::Unavailable) } else { self.serve(id, handle, &ask) }
        });
        if stream.is_ok() {
            self.mark_told(id, handle);
            self.tell(ToControl::PlayStarted { session, request: None });
        } else if granted {
            self.tell(ToControl::PlayEnded(session));
        }
        self.answer_or_hold(id, handle, ask, stream);
        self.touch(id);
    }

    /// A push or a sink is ready for the stream that it was ordered for.
    pub(super) fn attach_ordered(&mut self, id: ConnId, subscription: Handle, format: Format) {
        let Some(stream) = self.conns.get(id).and_then(|conn| conn.purpose.stream()) else { return };
        if self.attach(id, subscription, stream, format).is_none() {
            return self.remove(id, "the stream is gone", false);
        }
        self.answer(id, subscription, Ok(stream));
    }

    /// Makes a session a subscriber, and this worker a mirror when it has to be one.
    pub(super) fn attach(
        &mut self,
        id: ConnId,
        handle: Handle,
        stream_id: StreamId,
        format: Format,
    ) -> Option<()> {
        self.detach(id, handle);
        let stream = self.live.streams.get_mut(&stream_id)?;
        let forwarding = self.meter.forwarding.index(stream.ingest, format.key().name);
        let subscription = SubscriptionId { conn: id, handle };
        let subscribe = || stream.subscribe(subscription, format.key(), forwarding, || format.package());
        let Ok(subscriber) = catch_unwind(AssertUnwindSafe(subscribe)) else {
            self.remove_panicked(id);
            return None;
        };
        let mut subscriber = subscriber?;
        // Who begins with the backlog is to be sent its derived tracks, too.
        if self.conns.get(id).is_some_and(|conn| matches!(conn.purpose, Purpose::Producer { .. })) {
            stream.begin_with_backlog(&mut subscriber);
        }
        let bytes = stream.bytes_per_second().max(UNSENT_BYTES_MIN);
        let needed = stream.key_needed(&subscriber);
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.bytes.is_some()) {
            conn.schedule.catches_up = !conn.takes_units;
            let conn = self.conns.transport_of(id);
            self.agenda.outputs.push_back(Output::UnsentLimit { conn, bytes });
        }
        self.set_state(
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
        self.note_playing(id, stream_id);
        self.mirror_here(stream_id);
        self.settle_demand(stream_id);
        if let Some(track) = needed {
            self.need_key_frame(stream_id, track);
        }
        Some(())
    }

    /// Logs that a viewer or a push begins to be sent a stream.
    fn note_playing(&mut self, id: ConnId, stream: StreamId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(stream) = self.live.streams.get(&stream) else { return };
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

    /// Asks the source for a stream that it has and somebody here wants.
    fn mirror_here(&mut self, id: StreamId) {
        let Some(stream) = self.live.streams.get_mut(&id) else { return };
        if stream.source != self.id && !stream.is_mirrored_here() {
            let mirror = mirror_request(stream, self.id);
            self.agenda.outputs.push_back(Output::Worker(stream.source, mirror));
        }
    }

    // ---- while it plays

    pub(super) fn select(&mut self, id: ConnId, handle: Handle, selection: Selection) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) else { return };
        let stream_id = playing.subscriber.stream;
        let Some(stream) = self.live.streams.get_mut(&stream_id) else { return };
        let format = playing.format.select(selection);
        let switch = || stream.select(&mut playing.subscriber, format.key(), || format.package());
        match catch_unwind(AssertUnwindSafe(switch)) {
            Ok(true) => playing.format = format,
            // The stream has too many formats: the viewer keeps what it has.
            Ok(false) => return,
            Err(_) => return self.remove_panicked(id),
        }
        let needed = stream.key_needed(&playing.subscriber);
        self.settle_demand(stream_id);
        if let Some(track) = needed {
            self.need_key_frame(stream_id, track);
        }
        self.enqueue_write(id);
    }

    /// A viewer's peer asks for a key frame.
    pub(super) fn key_frame_needed(&mut self, id: ConnId, handle: Handle, track: Option<TrackId>) {
        if let Some((stream, track)) = self.video_of(id, handle, track) {
            self.need_key_frame(stream, track);
        }
    }

    /// The stream of a subscription, and this track or the one that it starts at.
    fn video_of(&self, id: ConnId, handle: Handle, track: Option<TrackId>) -> Option<(StreamId, TrackId)> {
        let playing = self.conns.get(id)?.subscription(handle)?.playing()?;
        let stream_id = playing.subscriber.stream;
        let lead = || self.live.streams.get(&stream_id)?.chosen(playing.subscriber.format)?.lead();
        Some((stream_id, track.or_else(lead)?))
    }

    /// A viewer is about to begin. What lies behind an old key frame is long: a publisher that can make one is asked for
    /// another, which is there by the time that the viewer is.
    pub(super) fn key_frame_soon(&mut self, id: ConnId, handle: Handle, track: Option<TrackId>) {
        let Some((stream_id, track)) = self.video_of(id, handle, track) else { return };
        let newest = self.live.streams.get(&stream_id).and_then(|stream| stream.newest_key(track));
        let age = newest.map(|at| self.now.mono.saturating_duration_since(at));
        if age.is_none_or(|age| age >= KEY_FRAME_OLD) {
            self.need_key_frame(stream_id, track);
        }
    }

    pub(super) fn pause(&mut self, id: ConnId, handle: Handle, paused: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) else { return };
        let subscriber = &mut playing.subscriber;
        let Some(stream) = self.live.streams.get(&subscriber.stream) else { return };
        if paused {
            subscriber.paused = true;
        } else if subscriber.paused {
            stream.resume(subscriber);
            let (stream, needed) = (subscriber.stream, stream.key_needed(subscriber));
            if let Some(track) = needed {
                self.need_key_frame(stream, track);
            }
            self.enqueue_write(id);
        }
    }

    // ---- out

    /// A session plays no more, or gave up asking. The rest of a unit begun is sent.
    pub(super) fn unsubscribe(&mut self, id: ConnId, handle: Handle) {
        self.end_hold(id, handle);
        self.keep_rest(id, handle);
        self.leave(id, handle);
    }

    /// The server is shutting down: a unit that was begun is sent whole.
    pub(super) fn drain_subscription(&mut self, id: ConnId, handle: Handle) {
        self.keep_rest(id, handle);
        self.detach(id, handle);
    }

    /// Moves the rest of a unit begun into the session's queue, so that the peer sees whole messages.
    pub(super) fn keep_rest(&mut self, id: ConnId, handle: Handle) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(link) = &mut conn.bytes else { return };
        let subscription = conn.subscriptions.iter_mut().find(|one| one.handle == handle);
        if let Some(playing) = subscription.and_then(Subscription::playing_mut) {
            let mut queue = wire::SendQueue::new();
            playing.subscriber.cursor.take_rest().into_iter().for_each(|part| queue.push(part));
            queue.append(&mut link.queue);
            link.queue = queue;
        }
    }

    /// Ends a subscription in whatever state it is, and tells control if that knows of it.
    pub(super) fn leave(&mut self, id: ConnId, handle: Handle) {
        self.end_hold(id, handle);
        let session = self.session_ref(id, handle);
        let Some(conn) = self.conns.get(id) else { return };
        let is_known = match conn.subscription(handle).map(|one| &one.state) {
            Some(SubscriptionState::Asked(_)) => true,
            Some(SubscriptionState::Playing(playing)) => playing.told,
            Some(SubscriptionState::Room { told }) => *told,
            Some(SubscriptionState::Held { .. }) | None => false,
        };
        self.detach(id, handle);
        if is_known {
            self.tell(ToControl::PlayEnded(session));
        }
    }

    /// The session is gone, and with it all that it played.
    pub(super) fn leave_all(&mut self, id: ConnId) {
        while let Some(handle) = self.conns.get(id).and_then(|conn| Some(conn.subscriptions.last()?.handle)) {
            self.leave(id, handle);
        }
    }

    /// Takes a subscription off its stream; what it counted stays. The last one of a mirror ends the mirroring.
    fn detach(&mut self, id: ConnId, handle: Handle) {
        self.live.rooms.unwatch(SubscriptionId { conn: id, handle });
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(at) = conn.subscriptions.iter().position(|one| one.handle == handle) else { return };
        let SubscriptionState::Playing(playing) = conn.subscriptions.remove(at).state else { return };
        let subscriber = playing.subscriber;
        conn.figures.jumps = conn.figures.jumps.saturating_add(subscriber.jumps);
        conn.figures.skipped = conn.figures.skipped.saturating_add(subscriber.skipped);
        self.meter.stats.jumps = self.meter.stats.jumps.saturating_add(subscriber.jumps);
        let stream_id = subscriber.stream;
        let Some(stream) = self.live.streams.get_mut(&stream_id) else { return };
        stream.unsubscribe(SubscriptionId { conn: id, handle }, &subscriber);
        if stream.subscribers.is_empty() && stream.is_mirrored_here() {
            stream.leave_source();
            stream.clear();
            let source = stream.source;
            let unmirror = ToWorker::Unmirror { stream: stream_id, to: self.id };
            self.agenda.outputs.push_back(Output::Worker(source, unmirror));
        }
        self.settle_demand(stream_id);
    }

    /// Ends a viewer that may play no longer. The unit begun is finished, then the session says goodbye.
    pub(super) fn drop_viewer(&mut self, id: ConnId, handle: Handle, reason: &'static str) {
        let Some(conn) = self.conns.get(id) else { return };
        match conn.subscription(handle).map(|one| &one.state) {
            Some(SubscriptionState::Asked(ask)) => {
                let key = ask.key.clone();
                self.leave(id, handle);
                self.refuse(id, handle, &key, NoSubscription::Denied(Denial::Unsupported));
            }
            Some(SubscriptionState::Playing(playing)) if playing.told => {
                self.end_playing(id, handle, reason);
            }
            Some(SubscriptionState::Room { told: true }) => self.end_playing(id, handle, reason),
            Some(
                SubscriptionState::Playing(_)
                | SubscriptionState::Held { .. }
                | SubscriptionState::Room { told: false },
            )
            | None => return,
        }
        self.touch(id);
    }

    /// Ends what a viewer is sent of this stream, whoever let it in.
    pub(super) fn end_viewer(
        &mut self,
        stream: StreamId,
        SubscriptionId { conn: id, handle }: SubscriptionId,
        reason: &'static str,
    ) {
        let conn = self.conns.get(id).filter(|conn| conn.purpose == Purpose::Peer);
        let playing = conn.and_then(|conn| conn.subscription(handle)?.playing());
        if playing.is_some_and(|playing| playing.subscriber.stream == stream) {
            self.end_playing(id, handle, reason);
            self.touch(id);
        }
    }

    fn end_playing(&mut self, id: ConnId, handle: Handle, reason: &'static str) {
        self.blame(id, reason);
        self.call(id, |session, ctx| session.close(ctx, reason));
        self.keep_rest(id, handle);
        self.leave(id, handle);
    }

    /// Whether a peer that closes its side now has no use for what it asked: RTMP has no half-closed connections, and
    /// a sender of an HTTP request may close its side and read on. A server that we pull from has asked for nothing; a short
    /// file is whole when it closes.
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

    fn mark_told(&mut self, id: ConnId, handle: Handle) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some(playing) = conn.subscription_mut(handle).and_then(Subscription::playing_mut) {
            playing.told = true;
        }
    }

    pub(super) fn set_state(&mut self, id: ConnId, handle: Handle, state: SubscriptionState) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.subscription_mut(handle) {
            Some(subscription) => subscription.state = state,
            None => conn.subscriptions.push(Subscription { handle, state }),
        }
    }

    // ---- viewers who wait for a stream that they have started

    /// Has a viewer wait when the stream is one that viewers start.
    fn hold(&mut self, id: ConnId, handle: Handle, ask: Box<PlayAsk>) -> bool {
        if !self.may_be_started(&ask.key) {
            return false;
        }
        let Some(until) = self.now.mono.checked_add(HOLD_MAX) else { return false };
        let (key, via) = (ask.key.clone(), ask.via.clone());
        self.set_state(id, handle, SubscriptionState::Held { ask, until });
        self.live.waiting.entry(key.clone()).or_default().insert(SubscriptionId { conn: id, handle });
        self.tell(ToControl::Wanted { key, via });
        self.reply(id, Reply::Subscription(handle, SubscriptionNews::Held));
        self.touch(id);
        true
    }

    /// Whether a stream that is not here may come when somebody wants it.
    pub(super) fn may_be_started(&self, key: &StreamKey) -> bool {
        self.live.auto_start.contains(key) || (self.server.fetches_any && self.apps.contains_key(&key.app))
    }

    /// A stream that was wanted does not come.
    pub(super) fn end_waits_for(&mut self, key: &StreamKey) {
        for SubscriptionId { conn, handle } in self.live.waiting.get(key).cloned().unwrap_or_default() {
            self.refuse_held(conn, handle);
            self.touch(conn);
        }
        self.end_blob_waits(key);
    }

    /// Takes a viewer out of the wait, in vain.
    fn refuse_held(&mut self, id: ConnId, subscription: Handle) {
        if let Some(ask) = self.end_hold(id, subscription) {
            self.play_refused(id, &ask.key, &NoSubscription::NotFound);
        }
        let verdict = Err(NoSubscription::NotFound);
        self.reply(id, Reply::Subscription(subscription, SubscriptionNews::Verdict(verdict)));
    }

    /// Takes a viewer out of the wait.
    fn end_hold(&mut self, id: ConnId, handle: Handle) -> Option<Box<PlayAsk>> {
        let conn = self.conns.get_mut(id)?;
        let is_held =
            |one: &Subscription| one.handle == handle && matches!(one.state, SubscriptionState::Held { .. });
        let at = conn.subscriptions.iter().position(is_held)?;
        let SubscriptionState::Held { ask, .. } = conn.subscriptions.remove(at).state else { return None };
        if let Some(waiting) = self.live.waiting.get_mut(&ask.key) {
            waiting.remove(&SubscriptionId { conn: id, handle });
            if waiting.is_empty() {
                self.live.waiting.remove(&ask.key);
            }
        }
        Some(ask)
    }

    /// The session asked for something else, or leaves.
    pub(super) fn end_holds(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        for handle in conn.subscriptions.iter().map(|one| one.handle).collect::<Vec<_>>() {
            self.end_hold(id, handle);
        }
    }

    /// The stream is there: those who wait for it are served.
    pub(super) fn serve_waiting(&mut self, key: &StreamKey) {
        for viewer in self.live.waiting.get(key).cloned().unwrap_or_default() {
            if let Some(ask) = self.end_hold(viewer.conn, viewer.handle) {
                self.subscribe(viewer.conn, viewer.handle, *ask);
                self.touch(viewer.conn);
            }
        }
    }

    /// Streams that did not start in time count as offline.
    pub(super) fn end_overdue_holds(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        let now = self.now.mono;
        let is_due = |one: &&Subscription| match one.state {
            SubscriptionState::Held { until, .. } => until <= now,
            SubscriptionState::Asked(_) | SubscriptionState::Room { .. } | SubscriptionState::Playing(_) => {
                false
            }
        };
        for subscription in conn.subscriptions.iter().filter(is_due).map(|one| one.handle).collect::<Vec<_>>()
        {
            self.refuse_held(id, subscription);
        }
    }
}

/// The role that a viewer of a room plays it in; empty: none.
fn role_of(ask: &PlayAsk) -> &str {
    ask.params.iter().find(|(name, _)| name == "role").map_or("", |(_, role)| role)
}
