//! The session of an RTMP peer, publisher or player.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::Seed;
use media::{TrackKind, Tracks};
use rtmp::key::{self, KeyError};
use rtmp::{CloseReason, FourCcs, MediaKind, MediaMessage, PlayTracks, Server};
use wire::SendQueue;

use super::refusals::{ended, log_others, no_subscription_status, refusal_status, rejection, verb_of};
use crate::hub::Selection;
use crate::mail::{Departure, Grant, NoSubscription, Refusal, StreamEnd};
use crate::protocol::flv_mapping::{Depackager, Outcome};
use crate::protocol::usable::{Fault, Supply, Usable};
use crate::protocol::{
    About, ByteStream, Context, Event, Format, PathEvent, PathId, Paths, PlayAsk, PublicationEvent,
    PublicationNews, PublishAsk, RefusedRequest, Reply, Session, SubscriptionEvent, SubscriptionNews, Timers,
    Verb, asked_selection,
};
use crate::types::{Handle, Now, StreamKey};

/// The limits of docs/robustness.md, shared by all connections.
static CONFIG: LazyLock<Arc<rtmp::Config>> =
    LazyLock::new(|| Arc::new(rtmp::Config { four_ccs: super::forwarded(), ..rtmp::Config::default() }));

/// Capacity for events that an idle session keeps.
const EVENTS_KEPT: usize = 4;

/// The role of the peer. A connection has one stream; no encoder and no player uses more.
#[derive(Debug)]
enum Role {
    /// The peer has no role yet, or no longer.
    None,
    /// Waits for the verdict on a publish.
    AskedPublish { message_stream: u32 },
    /// Publishes.
    Publisher { message_stream: u32, ingest: Box<Depackager>, usable: Usable },
    /// Waits for the verdict on a play.
    AskedPlay { message_stream: u32 },
    /// Plays.
    Player { message_stream: u32 },
}

/// The session of an accepted connection.
#[derive(Debug)]
pub(crate) struct RtmpSession {
    machine: Box<Server>,
    role: Role,
    peer: SocketAddr,
    /// The stream that the peer last requested; before that, its application.
    key: String,
    events: VecDeque<Event>,
    user_agent: String,
    via: Vec<String>,
    /// The FourCCs that the peer can decode beyond the legacy codecs.
    four_ccs: FourCcs,
    /// True if the peer accepts several tracks of a kind.
    multitrack: bool,
    /// The format in which the peer plays.
    format: Option<Format>,
    known: bool,
    closed: bool,
}

impl RtmpSession {
    pub(crate) fn new(now: Now, peer: SocketAddr, seed: Seed) -> Self {
        Self {
            machine: Box::new(Server::new(now.mono, Arc::clone(&CONFIG), seed)),
            role: Role::None,
            peer,
            key: String::new(),
            events: VecDeque::new(),
            user_agent: String::new(),
            via: Vec::new(),
            four_ccs: FourCcs::NONE,
            multitrack: false,
            format: None,
            known: false,
            closed: false,
        }
    }

    /// Translates the events of the protocol's state machine to events for the worker.
    fn drain_machine(&mut self, ctx: &Context<'_>) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                rtmp::Event::Connect(request) => self.connect(ctx, request),
                rtmp::Event::Publish(request) => self.publish(ctx, &request),
                rtmp::Event::Play(request) => self.play(ctx, &request),
                rtmp::Event::Refused { verb, key, reason } => {
                    self.events.push_back(RefusedRequest::event(verb_of(verb), key, reason));
                }
                rtmp::Event::Media(message) => self.media(ctx, &message),
                rtmp::Event::PublishEnded { clean, .. } => {
                    self.publish_ended(if clean { Departure::Clean } else { Departure::Lost });
                }
                rtmp::Event::PlayEnded { .. } => self.play_ended(),
                rtmp::Event::PlayPaused { paused, .. } => self.pause(paused),
                // A player that wants neither video nor audio is paused. A player that wants only one of them is
                // sent both, because all viewers share the bytes; every player tolerates that.
                rtmp::Event::ReceiveMedia { audio, video, .. } => {
                    self.pause(!audio && !video);
                }
                rtmp::Event::Closed(reason) => self.machine_closed(&reason),
            }
        }
    }

    fn connect(&mut self, ctx: &Context<'_>, request: rtmp::ConnectRequest) {
        let app = match request.app() {
            Ok(app) => app.to_owned(),
            Err(error) => {
                let key = key::without_credentials(&request.path, "");
                self.events.push_back(RefusedRequest::event(Verb::Connect, key, error.reason()));
                let description = "No scope on this server.";
                self.machine.reject_connect(ctx.now.mono, "NetConnection.Connect.InvalidApp", description);
                return;
            }
        };
        self.user_agent = request.flash_ver;
        self.via = request.via;
        self.multitrack = request.multitrack;
        // FourCC sets that differ only in codecs that are never sent share a package.
        self.four_ccs = request.four_ccs.unwrap_or_default().and(CONFIG.four_ccs);
        self.key.clone_from(&app);
        if ctx.draining {
            let description = "The server is going down.";
            self.refused(Verb::Connect, "the server goes down");
            self.machine.reject_connect(ctx.now.mono, "NetConnection.Connect.AppShutdown", description);
        } else if ctx.apps.contains_key(app.as_str()) {
            self.machine.accept_connect(ctx.now.mono);
        } else {
            let description = format!("No scope '{app}' on this server.");
            self.refused(Verb::Connect, "no such application");
            self.machine.reject_connect(ctx.now.mono, "NetConnection.Connect.InvalidApp", &description);
        }
    }

    fn publish(&mut self, ctx: &Context<'_>, request: &rtmp::PublishRequest) {
        let message_stream = request.message_stream;
        let target = match request.target() {
            Ok(target) => target,
            Err(error) => {
                self.refused_name(Verb::Publish, (&request.app, &request.name), &error);
                let rejection = error.rejection("publish", message_stream);
                return self.machine.reject_publish(ctx.now.mono, message_stream, rejection);
            }
        };
        let key = StreamKey::new(&target.app, &target.stream);
        if !matches!(self.role, Role::None) {
            self.events.push_back(RefusedRequest::event(
                Verb::Publish,
                key,
                "the connection has a stream already",
            ));
            let rejection =
                rejection("NetStream.Publish.BadName", "This connection has a stream already.", false);
            self.machine.reject_publish(ctx.now.mono, message_stream, rejection);
            return;
        }
        self.role = Role::AskedPublish { message_stream };
        self.key = key.to_string();
        let ask = PublishAsk {
            key,
            ingest: super::INGEST,
            user_agent: self.user_agent.clone(),
            params: target.params,
            via: self.via.clone(),
            zero_ms: None,
            of_foreign_page: false,
        };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    }

    fn play(&mut self, ctx: &Context<'_>, request: &rtmp::PlayRequest) {
        let message_stream = request.message_stream;
        let target = match request.target() {
            Ok(target) => target,
            Err(error) => {
                self.refused_name(Verb::Play, (&request.app, &request.name), &error);
                let rejection = error.rejection("play", message_stream);
                return self.machine.reject_play(ctx.now.mono, message_stream, rejection);
            }
        };
        let key = StreamKey::new(&target.app, &target.stream);
        if !matches!(self.role, Role::None) {
            self.events.push_back(RefusedRequest::event(
                Verb::Play,
                key,
                "the connection has a stream already",
            ));
            let rejection = rejection("NetStream.Failed", "This connection has a stream already.", false);
            self.machine.reject_play(ctx.now.mono, message_stream, rejection);
            return;
        }
        self.role = Role::AskedPlay { message_stream };
        self.key = key.to_string();
        let params = target.params;
        let announced = if self.multitrack { Selection::ALL } else { Selection::DEFAULT };
        let selection = asked_selection(&params).unwrap_or(announced);
        let format = super::egress::format(message_stream, self.four_ccs).select(selection);
        self.format = Some(format);
        let ask =
            PlayAsk { key, format, params, origin: String::new(), via: Vec::new(), takes_subtracks: false };
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)));
    }

    /// Reports a refused name that is not a stream key. Parts that may be credentials are not logged.
    fn refused_name(&mut self, verb: Verb, (app, name): (&str, &str), error: &KeyError) {
        let key = key::without_credentials(app, name);
        self.events.push_back(RefusedRequest::event(verb, key, error.reason()));
    }

    fn media(&mut self, ctx: &Context<'_>, message: &MediaMessage) {
        let Role::Publisher { ingest, .. } = &mut self.role else { return };
        ingest.arrive(ctx.now.mono);
        let outcome = match message.kind {
            MediaKind::Video => ingest.video(message.timestamp, &message.payload),
            MediaKind::Audio => ingest.audio(message.timestamp, &message.payload),
            MediaKind::Data => ingest.data(message.timestamp, &message.payload),
        };
        let news = ingest.take_clock_news();
        self.outcome(ctx, outcome);
        self.events.extend(news.map(|news| Event::Publication(Handle::ONLY, PublicationEvent::Clock(news))));
        self.watch(ctx);
    }

    /// Reports announced video that never becomes usable, and ends a stream of which nothing can be played.
    fn watch(&mut self, ctx: &Context<'_>) {
        let Role::Publisher { ingest, usable, message_stream } = &mut self.role else { return };
        let (supply, message_stream) = (ingest.supply(), *message_stream);
        let fault = |reason| Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason));
        match (usable.check(ctx.now.mono, supply), ingest.left_out()) {
            (Some(Fault::NoVideo(reason)), _) => self.events.push_back(fault(reason)),
            (Some(Fault::Unusable(_)), Some(why)) if supply == Supply::Nothing => {
                self.refuse_codec(ctx, message_stream, why.to_string());
            }
            (Some(Fault::Unusable(reason)), _) => {
                self.events.push_back(fault(reason));
                self.end_failed(ctx, message_stream, reason.to_owned());
            }
            (None, _) => {}
        }
    }

    fn outcome(&mut self, ctx: &Context<'_>, outcome: Outcome) {
        let Role::Publisher { ingest, message_stream, usable } = &mut self.role else { return };
        match outcome {
            Outcome::Unit(unit) => {
                let tracks = Arc::clone(ingest.tracks());
                self.events
                    .push_back(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
            }
            Outcome::Taken => {}
            Outcome::Dropped => self.dropped(),
            Outcome::Bad => {
                if usable.is_first_bad() {
                    let reason = ingest.why_bad();
                    self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason)));
                }
                self.dropped();
                self.machine.bad_media(ctx.now.mono);
            }
            Outcome::Unsupported(what) => {
                let message_stream = *message_stream;
                self.refuse_codec(ctx, message_stream, what);
            }
            Outcome::LeftOut(reason) => {
                let (key, peer) = (&self.key, self.peer);
                tracing::info!(%key, %peer, reason, "audio of the publisher not carried");
            }
            Outcome::Several(outcomes) => outcomes.into_iter().for_each(|one| self.outcome(ctx, one)),
        }
    }

    /// Ends a publish that was granted before its unsupported codec was known.
    fn refuse_codec(&mut self, ctx: &Context<'_>, message_stream: u32, what: String) {
        self.refused(Verb::Publish, what.clone());
        self.end_failed(ctx, message_stream, what);
    }

    /// Ends a publish of which nothing can be played.
    fn end_failed(&mut self, ctx: &Context<'_>, message_stream: u32, reason: String) {
        let rejection = rejection("NetStream.Failed", reason, true);
        self.machine.end_publish(ctx.now.mono, message_stream, rejection);
        self.publish_ended(Departure::Failed);
    }

    fn refused(&mut self, verb: Verb, reason: impl Into<Cow<'static, str>>) {
        self.events.push_back(RefusedRequest::event(verb, &self.key, reason));
    }

    fn dropped(&mut self) {
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::UnitsDropped(1)));
    }

    fn pause(&mut self, paused: bool) {
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(paused)));
    }

    fn publish_ended(&mut self, departure: Departure) {
        if matches!(self.role, Role::AskedPublish { .. } | Role::Publisher { .. }) {
            if let Role::Publisher { ingest, .. } = std::mem::replace(&mut self.role, Role::None) {
                log_others(ingest.others());
            }
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(departure)));
        }
    }

    fn play_ended(&mut self) {
        if matches!(self.role, Role::AskedPlay { .. } | Role::Player { .. }) {
            self.role = Role::None;
            self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
        }
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        let Role::AskedPublish { message_stream } = self.role else { return };
        match verdict {
            Ok(grant) => {
                self.known = true;
                let ingest = Box::new(Depackager::new(&grant));
                self.role = Role::Publisher { message_stream, ingest, usable: Usable::default() };
                self.machine.accept_publish(ctx.now.mono, message_stream);
            }
            Err(refusal) => {
                self.role = Role::None;
                self.machine.reject_publish(ctx.now.mono, message_stream, refusal_status(&refusal));
            }
        }
    }

    fn subscribe_verdict(&mut self, ctx: &Context<'_>, verdict: Result<&Tracks, NoSubscription>) {
        let Role::AskedPlay { message_stream } = self.role else { return };
        match verdict {
            Ok(tracks) => {
                self.known = true;
                self.role = Role::Player { message_stream };
                // Before the first parameter sets, both audio and video are announced: players wait for a kind that is
                // announced, but are late to play a kind that arrives without having been announced.
                let unknown = tracks.is_empty();
                let chosen = self.format.map(|format| format.choose(tracks)).unwrap_or_default();
                let is_sent = |kind| unknown || chosen.of_kind(kind).next().is_some();
                let tracks =
                    PlayTracks { audio: is_sent(TrackKind::Audio), video: is_sent(TrackKind::Video) };
                self.machine.accept_play(ctx.now.mono, message_stream, tracks);
            }
            Err(why) => {
                self.role = Role::None;
                self.machine.reject_play(ctx.now.mono, message_stream, no_subscription_status(why));
            }
        }
    }

    fn end_subscription(&mut self, ctx: &Context<'_>) {
        if let Role::Player { message_stream } = self.role {
            self.machine.end_play(ctx.now.mono, message_stream);
            self.machine.close(ctx.now.mono, CloseReason::Requested);
        }
    }

    fn end_publish(&mut self, ctx: &Context<'_>, end: StreamEnd) {
        if let Role::Publisher { message_stream, .. } = self.role {
            self.role = Role::None;
            let description = match end {
                StreamEnd::Drain => "The server is going down.",
                StreamEnd::Stopped => "The stream was stopped.",
                StreamEnd::Unaccepted(_) => "The stream is above the limits of the application.",
                StreamEnd::Deleted => "The stream was deleted.",
                StreamEnd::Superseded => "The stream is published at another server.",
                StreamEnd::Unpublished | StreamEnd::GraceOver => "The stream has ended.",
            };
            self.machine.end_publish(ctx.now.mono, message_stream, ended(description));
        }
    }

    fn machine_closed(&mut self, reason: &CloseReason) {
        let broke_protocol = matches!(reason, CloseReason::Failed(_) | CloseReason::Rejected);
        let was_asked_for = matches!(reason, CloseReason::Requested);
        self.publish_ended(Departure::at_close(broke_protocol, was_asked_for));
        self.play_ended();
        if !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed(reason.to_string()));
        }
    }
}

impl ByteStream for RtmpSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Err(error) = self.machine.handle_bytes(ctx.now.mono, bytes) {
            tracing::debug!(%error, "RTMP peer broke the protocol");
        }
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, _bytes: usize) {
        self.machine.media_progress(ctx.now.mono);
    }

    fn wants_bytes(&self) -> bool {
        self.machine.wants_bytes()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.machine.poll_transmit(out);
    }
}

impl Session for RtmpSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Publication(_, news) => match news {
                PublicationNews::Verdict(verdict) => self.publish_verdict(ctx, verdict),
                PublicationNews::Ended(end) => self.end_publish(ctx, end),
                // An encoder cannot be asked for anything over RTMP.
                PublicationNews::KeyFrameNeeded(_)
                | PublicationNews::Wanted(_)
                | PublicationNews::Audience(_) => {}
            },
            Reply::Subscription(_, news) => match news {
                SubscriptionNews::Verdict(verdict) => self.subscribe_verdict(ctx, verdict),
                SubscriptionNews::Ended(_) => self.end_subscription(ctx),
                // A player learns of tracks from their own messages.
                SubscriptionNews::Held
                | SubscriptionNews::Seasoned
                | SubscriptionNews::KindAdded(_)
                | SubscriptionNews::Zero(_)
                | SubscriptionNews::Subtracks(_)
                | SubscriptionNews::TracksKnown(_) => {}
            },
            Reply::Request(_) | Reply::Job(_) | Reply::Family(_) | Reply::Port(_) => {}
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if self.events.is_empty() {
            // Memory for a burst is not kept for the life of the session.
            self.events.shrink_to(EVENTS_KEPT);
            self.drain_machine(ctx);
        }
        self.events.pop_front()
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        match self.role {
            Role::Publisher { message_stream, .. } => {
                let rejection = ended("The server is going down.");
                self.machine.end_publish(ctx.now.mono, message_stream, rejection);
            }
            Role::Player { message_stream } => self.machine.end_play(ctx.now.mono, message_stream),
            Role::None | Role::AskedPublish { .. } | Role::AskedPlay { .. } => {}
        }
        self.machine.close(ctx.now.mono, CloseReason::Shutdown);
    }

    fn about(&self) -> About {
        About { protocol: "rtmp", is_media: true, is_authenticated: self.known }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }
}

impl Timers for RtmpSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.machine.handle_timeout(ctx.now.mono);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

impl Paths for RtmpSession {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed | PathEvent::Broken(_) => {
                self.machine.close(ctx.now.mono, CloseReason::PeerClosed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
