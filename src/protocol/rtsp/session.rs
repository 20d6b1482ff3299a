//! The session of an RTSP peer, publisher or viewer.
//!
//! Permission is requested when a publisher sends ANNOUNCE or a viewer sends DESCRIBE, so that both are refused early.
//! A viewer's subscription is paused until the viewer plays.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use ::rtsp::{
    AnnounceRequest, Channels, CloseReason, Event as Asked, Frame, Lower, RtpInfo, Server, SetupRequest,
    Status, StreamRequest, Transport,
};
use crypto::Seed;
use media::Tracks;
use wire::{Datagrams, SendQueue};

use super::awaited::Awaited;
use super::package::{self, channel_of};
use super::pairs::{Opened, Pairs, path_of, track_of};
use super::publisher::Publisher;
use super::request::{key_of, no_subscription_status, params_of, refusal_status};
use super::viewer::Viewer;
use crate::hub::Delivery;
use crate::mail::{Departure, Grant, NoSubscription, Refusal};
use crate::protocol::row::Security;
use crate::protocol::rtp_mapping::Source;
use crate::protocol::{
    About, ByteStream, Context, DatagramPeer, Event, Format, Logs, PathEvent, PathId, Paths, PlayAsk,
    PublicationEvent, PublicationNews, PublishAsk, RefusedRequest, Remote, Reply, Session, SubscriptionEvent,
    SubscriptionNews, Timers, To, UnitSink, Verb, asked_selection,
};
use crate::types::{Handle, Now, StreamKey};

/// The limits of docs/robustness.md, shared by all connections.
static CONFIG: LazyLock<Arc<::rtsp::Config>> = LazyLock::new(|| Arc::new(::rtsp::Config::default()));

/// Reason for refusing a path that cannot be a stream's.
const NO_STREAM: &str = "the path is not that of a stream, /APPLICATION/ID";

/// The role of the peer.
#[derive(Debug)]
enum Role {
    /// The peer has no role yet, or no longer.
    None,
    /// Waits for the verdict on a publish, with the sources that it described.
    AskedPublish(Vec<Option<Source>>),
    /// Publishes.
    Publisher(Box<Publisher>),
    /// Waits for the verdict on a play.
    AskedPlay,
    /// Waits for the tracks of its stream.
    AwaitsTracks(Awaited),
    /// Plays, or is about to.
    Viewer(Box<Viewer>),
}

/// The session of an accepted connection.
#[derive(Debug)]
pub(crate) struct RtspSession {
    /// Security of the connection; datagrams have none.
    security: Security,
    machine: Box<Server>,
    role: Role,
    pairs: Pairs,
    /// The transport whose sockets are being opened.
    setting_up: Option<Transport>,
    events: std::collections::VecDeque<Event>,
    format: Format,
    /// The stream that the peer has asked to play.
    plays: Option<StreamKey>,
    /// True if the stream has been live for so long that further kinds of media are not expected.
    is_seasoned: bool,
    known: bool,
    closed: bool,
}

impl RtspSession {
    pub(crate) fn new(now: Now, peer: SocketAddr, security: Security, seed: Seed) -> Self {
        Self {
            security,
            machine: Box::new(Server::new(now.mono, Arc::clone(&CONFIG), seed)),
            role: Role::None,
            pairs: Pairs::new(peer.ip()),
            setting_up: None,
            events: std::collections::VecDeque::new(),
            format: Format::new(&package::FORMAT, 0),
            plays: None,
            is_seasoned: false,
            known: false,
            closed: false,
        }
    }

    /// Translates the events of the protocol's state machine to events for the worker.
    fn drain_machine(&mut self, ctx: &Context<'_>) {
        while self.events.is_empty()
            && let Some(event) = self.machine.poll_event()
        {
            match event {
                Asked::Describe(request) => self.describe(ctx, &request),
                Asked::Announce(request) => self.announce(ctx, &request),
                Asked::Setup(request) => self.setup(ctx, request),
                Asked::Play => self.play(ctx),
                Asked::Record => self.machine.accept_record(ctx.now.mono),
                Asked::Pause => self.pause(),
                Asked::Teardown => self.leave(Departure::Clean),
                Asked::Interleaved(frame) => self.frame(ctx, &frame),
                Asked::Closed(reason) => self.machine_closed(&reason),
            }
        }
    }

    fn announce(&mut self, ctx: &Context<'_>, request: &AnnounceRequest) {
        let StreamRequest { target, user_agent, .. } = &request.stream;
        let Some(key) = key_of(target) else {
            self.refused(Verb::Publish, &target.path, NO_STREAM);
            return self.machine.reject(ctx.now.mono, Status::BAD_REQUEST);
        };
        if !matches!(self.role, Role::None) {
            return self.machine.reject(ctx.now.mono, Status::NOT_VALID_IN_STATE);
        }
        let sections = &request.description.media;
        let sources: Vec<_> =
            sections.iter().map(|section| Source::of(&section.rtp_formats().next()?)).collect();
        if sources.iter().all(Option::is_none) {
            self.refused(Verb::Publish, &key, "none of its codecs is carried");
            return self.machine.reject(ctx.now.mono, Status::UNSUPPORTED_MEDIA_TYPE);
        }
        self.role = Role::AskedPublish(sources);
        let ask = PublishAsk {
            key,
            ingest: super::INGEST,
            user_agent: user_agent.clone(),
            params: params_of(target),
            via: request.via.clone(),
            zero_ms: None,
            of_foreign_page: false,
        };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    }

    fn refused(&mut self, verb: Verb, key: impl ToString, reason: &'static str) {
        self.events.push_back(RefusedRequest::event(verb, key, reason));
    }

    fn describe(&mut self, ctx: &Context<'_>, request: &StreamRequest) {
        let Some(key) = key_of(&request.target) else {
            self.refused(Verb::Play, &request.target.path, NO_STREAM);
            return self.machine.reject(ctx.now.mono, Status::NOT_FOUND);
        };
        if let Role::Viewer(viewer) = &mut self.role {
            // Some players send DESCRIBE a second time.
            return self.machine.accept_describe(ctx.now.mono, &viewer.description().write());
        }
        if !matches!(self.role, Role::None) {
            return self.machine.reject(ctx.now.mono, Status::NOT_VALID_IN_STATE);
        }
        self.role = Role::AskedPlay;
        (self.plays, self.is_seasoned) = (Some(key.clone()), false);
        let params = params_of(&request.target);
        let format = Format::new(&package::FORMAT, 0);
        self.format = asked_selection(&params).map_or(format, |selection| format.select(selection));
        let ask = PlayAsk {
            key,
            format: self.format,
            params,
            origin: String::new(),
            via: Vec::new(),
            takes_subtracks: false,
        };
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)));
    }

    /// Chooses the transport of a track: the channels that all viewers share, a publisher's own channels, or a pair of
    /// sockets.
    fn setup(&mut self, ctx: &Context<'_>, request: SetupRequest) {
        let now = ctx.now.mono;
        // A peer that uses TLS does not want media to bypass it.
        let is_plain = self.security == Security::Plain;
        let transports = request.transports.into_iter();
        let mut transports = transports.filter(|transport| is_plain || transport.lower == Lower::Tcp);
        let index = request.track;
        let found = match &mut self.role {
            Role::Publisher(_) => transports.next(),
            Role::Viewer(viewer) => {
                viewer.note_request(now);
                viewer.note_answer(now);
                let chosen = transports.find(|transport| viewer.may_use(transport.lower));
                chosen.zip(viewer.track(index)).map(|(transport, track)| match transport.lower {
                    Lower::Tcp => {
                        viewer.set_up(index, Lower::Tcp);
                        Transport { channels: Channels::from_rtp(channel_of(track)), ..transport }
                    }
                    // The answer to a SETUP for datagrams waits until the sockets are open.
                    Lower::Udp => transport,
                })
            }
            Role::None | Role::AskedPublish(_) | Role::AskedPlay | Role::AwaitsTracks(_) => {
                return self.machine.reject(now, Status::NOT_VALID_IN_STATE);
            }
        };
        let Some(transport) = found else {
            return self.machine.reject(now, Status::UNSUPPORTED_TRANSPORT);
        };
        match transport.lower {
            Lower::Tcp => self.machine.accept_setup(now, transport),
            Lower::Udp
                if transport.client_ports.is_some() && self.pairs.open(index, transport.client_ports) =>
            {
                self.setting_up = Some(transport);
                self.events.extend(self.pairs.take_asks());
            }
            Lower::Udp => self.machine.reject(now, Status::UNSUPPORTED_TRANSPORT),
        }
    }

    fn play(&mut self, ctx: &Context<'_>) {
        let Role::Viewer(viewer) = &mut self.role else {
            return self.machine.reject(ctx.now.mono, Status::NOT_VALID_IN_STATE);
        };
        viewer.note_request(ctx.now.mono);
        viewer.play();
        if let Some(selection) = viewer.narrowed(self.format.key().selection) {
            self.format = self.format.select(selection);
            self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(selection)));
        }
        let infos: Vec<RtpInfo> =
            viewer.set_up_tracks().map(|track| RtpInfo { track, ..RtpInfo::default() }).collect();
        self.machine.accept_play(ctx.now.mono, &infos);
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(false)));
    }

    fn pause(&mut self) {
        if let Role::Viewer(_) = self.role {
            self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(true)));
        }
    }

    fn frame(&mut self, ctx: &Context<'_>, frame: &Frame) {
        // A viewer's reports of its reception are not used.
        let Role::Publisher(publisher) = &mut self.role else { return };
        publisher.packet(ctx.now.mono, frame.track, frame.is_rtcp, &frame.payload);
        self.take_units(ctx);
    }

    /// Passes on the units made of a publisher's packets.
    fn take_units(&mut self, ctx: &Context<'_>) {
        let Role::Publisher(publisher) = &mut self.role else { return };
        if let Some(end) = publisher.poll(ctx.now.mono, &mut self.events) {
            tracing::debug!(reason = end.reason, "RTSP publisher ended");
            self.leave(end.departure);
            self.machine.close(ctx.now.mono, CloseReason::Requested);
        }
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        let Role::AskedPublish(sources) = &mut self.role else { return };
        match verdict {
            Ok(grant) => {
                self.known = true;
                let sources = std::mem::take(sources);
                self.role = Role::Publisher(Box::new(Publisher::new(ctx.now.mono, &grant, sources)));
                self.machine.accept_announce(ctx.now.mono);
            }
            Err(refusal) => {
                self.role = Role::None;
                self.machine.reject(ctx.now.mono, refusal_status(&refusal));
            }
        }
    }

    fn subscribe_verdict(&mut self, ctx: &Context<'_>, verdict: Result<&Tracks, NoSubscription>) {
        if !matches!(self.role, Role::AskedPlay) {
            return;
        }
        match verdict {
            Ok(tracks) => {
                self.known = true;
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(true)));
                let mut awaited = Awaited::new(ctx.now.mono);
                if self.is_seasoned {
                    awaited.season();
                }
                self.role = Role::AwaitsTracks(awaited);
                self.tracks_known(ctx, tracks);
            }
            Err(why) => {
                self.role = Role::None;
                self.machine.reject(ctx.now.mono, no_subscription_status(&why));
            }
        }
    }

    fn tracks_known(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        let selection = self.format.key().selection;
        match &mut self.role {
            Role::AwaitsTracks(awaited) => {
                if awaited.take(ctx.now.mono, tracks, selection) {
                    self.describe_tracks(ctx, tracks);
                }
            }
            // The description is not sent again: the viewer does not get the new kind of media until it reconnects.
            Role::Viewer(viewer) => {
                if viewer.notices_lack(tracks)
                    && let Some(key) = &self.plays
                {
                    let reason = "sound or video has begun that its description had not";
                    tracing::info!(%key, reason, "viewer receives only part of the stream");
                }
            }
            Role::None | Role::AskedPublish(_) | Role::Publisher(_) | Role::AskedPlay => {}
        }
    }

    fn describe_tracks(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        let viewer = Viewer::new(ctx.now.mono, &self.format.choose(tracks));
        if viewer.is_empty() {
            return self.give_up(ctx, Status::UNSUPPORTED_MEDIA_TYPE);
        }
        self.machine.accept_describe(ctx.now.mono, &viewer.description().write());
        self.role = Role::Viewer(Box::new(viewer));
    }

    /// Ends a subscription that failed, and rejects its request.
    fn give_up(&mut self, ctx: &Context<'_>, status: Status) {
        self.leave(Departure::Clean);
        self.machine.reject(ctx.now.mono, status);
    }

    /// Ends the session's role; the connection may continue.
    fn leave(&mut self, departure: Departure) {
        match std::mem::replace(&mut self.role, Role::None) {
            Role::AskedPublish(_) | Role::Publisher(_) => {
                self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(departure)));
            }
            Role::AskedPlay | Role::AwaitsTracks(_) | Role::Viewer(_) => {
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
            }
            Role::None => {}
        }
        self.pairs.close();
        self.events.extend(self.pairs.take_asks());
    }

    fn machine_closed(&mut self, reason: &CloseReason) {
        let broke_protocol = matches!(reason, CloseReason::Failed(_) | CloseReason::Rejected);
        let was_asked_for = matches!(reason, CloseReason::Requested);
        self.leave(Departure::at_close(broke_protocol, was_asked_for));
        if !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed(reason.to_string()));
        }
    }

    /// Handles the outcome of opening one of the session's sockets.
    fn opened(&mut self, ctx: &Context<'_>, path: PathId, local: Option<SocketAddr>) {
        let port = local.map(|local| local.port());
        let opened = self.pairs.opened(path, port);
        self.events.extend(self.pairs.take_asks());
        match (opened, &self.setting_up) {
            (Opened::Pair(track, ports), Some(transport)) => {
                if let Role::Viewer(viewer) = &mut self.role {
                    viewer.set_up(track, Lower::Udp);
                    viewer.note_answer(ctx.now.mono);
                }
                let transport = Transport { server_ports: Some(ports), ..transport.clone() };
                self.machine.accept_setup(ctx.now.mono, transport);
            }
            (Opened::Failed, _) => self.machine.reject(ctx.now.mono, Status::UNAVAILABLE),
            (Opened::NotYet | Opened::Pair(..), _) => {}
        }
    }
}

impl ByteStream for RtspSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Err(error) = self.machine.handle_bytes(ctx.now.mono, bytes) {
            tracing::debug!(%error, "RTSP peer broke the protocol");
        }
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, _bytes: usize) {
        // For a viewer of datagrams, sent bytes are no sign that the viewer is alive.
        if let Role::Viewer(viewer) = &self.role
            && !viewer.takes_datagrams()
        {
            self.machine.keep_alive(ctx.now.mono);
        }
    }

    fn wants_bytes(&self) -> bool {
        self.machine.wants_bytes()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Role::Publisher(publisher) = &mut self.role {
            publisher.take_reports(|track, report| self.machine.send_frame(track, true, report));
        }
        self.machine.poll_transmit(out);
    }
}

impl DatagramPeer for RtspSession {
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, _from: Remote, datagram: &mut [u8]) {
        // The socket is connected to the peer, so nobody else's datagrams arrive.
        let Some((track, is_rtcp)) = track_of(path) else { return };
        match &mut self.role {
            Role::Publisher(publisher) => {
                if publisher.packet(ctx.now.mono, track, is_rtcp, datagram) {
                    self.machine.keep_alive(ctx.now.mono);
                }
                self.take_units(ctx);
            }
            Role::Viewer(viewer) if is_rtcp => {
                self.machine.keep_alive(ctx.now.mono);
                if let Some(bits) = viewer.handle_rtcp(ctx.now.mono, datagram)
                    && let Some(key) = &self.plays
                {
                    let reason = "its path carries less than the stream";
                    tracing::info!(%key, peer = %self.pairs.peer(), bits, reason, "viewer receives fewer frames");
                    // The choice of pictures begins at a key frame, so one is requested.
                    self.events.extend(viewer.video_tracks().map(|track| {
                        Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameNeeded(Some(track)))
                    }));
                }
            }
            Role::None
            | Role::AskedPublish(_)
            | Role::AskedPlay
            | Role::AwaitsTracks(_)
            | Role::Viewer(_) => {}
        }
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, _logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        match &mut self.role {
            Role::Viewer(viewer) => viewer.poll_datagrams(ctx.now.mono, out),
            Role::Publisher(publisher) => {
                // Each report has its own path, so they are sent separately.
                let report = publisher.poll_report(|track| self.machine.channels(track).is_none());
                let Some((track, report)) = report else { return To::PEER };
                out.push(&[], &report);
                To { path: path_of(track, true), ..To::PEER }
            }
            Role::None | Role::AskedPublish(_) | Role::AskedPlay | Role::AwaitsTracks(_) => To::PEER,
        }
    }
}

impl UnitSink for RtspSession {
    fn has_room(&self) -> bool {
        matches!(&self.role, Role::Viewer(viewer) if viewer.has_room())
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        if let Role::Viewer(viewer) = &mut self.role
            && let Some(track) = viewer.send(ctx.now.mono, unit)
        {
            let wanted = SubscriptionEvent::KeyFrameNeeded(Some(track));
            self.events.push_back(Event::Subscription(Handle::ONLY, wanted));
        }
    }
}

impl Session for RtspSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Publication(_, news) => match news {
                PublicationNews::Verdict(verdict) => self.publish_verdict(ctx, verdict),
                PublicationNews::Ended(_) => {
                    // The worker has already ended the publication.
                    self.role = Role::None;
                    self.machine.close(ctx.now.mono, CloseReason::Requested);
                }
                // An encoder is not asked for anything over RTSP.
                PublicationNews::KeyFrameNeeded(_)
                | PublicationNews::Wanted(_)
                | PublicationNews::Audience(_) => {}
            },
            Reply::Subscription(_, news) => match news {
                SubscriptionNews::Verdict(verdict) => self.subscribe_verdict(ctx, verdict),
                SubscriptionNews::TracksKnown(tracks) | SubscriptionNews::KindAdded(tracks) => {
                    self.tracks_known(ctx, tracks);
                }
                SubscriptionNews::Seasoned => self.is_seasoned = true,
                SubscriptionNews::Ended(_) => self.machine.close(ctx.now.mono, CloseReason::Requested),
                SubscriptionNews::Held | SubscriptionNews::Zero(_) | SubscriptionNews::Subtracks(_) => {}
            },
            Reply::Request(_) | Reply::Job(_) | Reply::Family(_) | Reply::Port(_) => {}
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if self.events.is_empty() {
            // Memory for a burst is not kept for the life of the session.
            self.events.shrink_to(4);
            self.drain_machine(ctx);
        }
        self.events.pop_front()
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        self.machine.close(ctx.now.mono, CloseReason::Shutdown);
    }

    fn about(&self) -> About {
        About { protocol: "rtsp", is_media: true, is_authenticated: self.known }
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

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        match &self.role {
            Role::Viewer(viewer) if viewer.takes_datagrams() => Some(self),
            Role::Viewer(_)
            | Role::None
            | Role::AskedPublish(_)
            | Role::Publisher(_)
            | Role::AskedPlay
            | Role::AwaitsTracks(_) => None,
        }
    }
}

impl Timers for RtspSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let now = ctx.now.mono;
        self.machine.handle_timeout(now);
        if let Role::AwaitsTracks(awaited) = &mut self.role
            && awaited.until() <= now
        {
            match awaited.tracks() {
                Some(tracks) => self.describe_tracks(ctx, &tracks),
                None => self.give_up(ctx, Status::NOT_FOUND),
            }
        }
        if let Role::Publisher(publisher) = &mut self.role {
            publisher.handle_timeout(now);
            self.take_units(ctx);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.role {
            Role::Publisher(publisher) => publisher.poll_timeout(),
            Role::Viewer(viewer) => viewer.poll_timeout(),
            Role::AwaitsTracks(awaited) => Some(awaited.until()),
            Role::None | Role::AskedPublish(_) | Role::AskedPlay => None,
        };
        [self.machine.poll_timeout(), own].into_iter().flatten().min()
    }
}

impl Paths for RtspSession {
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { local } if path != PathId::default() => self.opened(ctx, path, local),
            PathEvent::Broken(_) if path != PathId::default() => self.opened(ctx, path, None),
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed | PathEvent::Broken(_) => {
                self.machine.close(ctx.now.mono, CloseReason::PeerClosed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
