//! The session of a caller, which is a publisher or a viewer according to its stream id.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::srt::{CloseReason, Config, Connection, Incoming, RejectReason, SocketId};
use crypto::Seed;
use media::Tracks;
use wire::Datagrams;

use super::derivations::Derivations;
use super::pace::Pace;
use super::packer::Packer;
use super::settings::SrtSettings;
use super::statistics::SrtFigures;
use super::stream_id::{BadStreamId, Mode, StreamRequest};
use crate::hub::{Delivery, Parts, Selection};
use crate::mail::{Departure, Grant, NoSubscription, Refusal};
use crate::protocol::ts::{self, Depackager};
use crate::protocol::usable::{Fault, Usable};
use crate::protocol::{
    About, Context, DatagramPeer, Event, Format, Logs, PathEvent, PathId, Paths, PlayAsk, PublicationEvent,
    PublicationNews, PublishAsk, RefusedRequest, Remote, Reply, Session, SubscriptionEvent, SubscriptionNews,
    TailSink, Timers, To, UnitRuns, UnitSink, Verb, asked_selection,
};
use crate::stats::Figures;
use crate::types::{Handle, StreamKey};

#[cfg(test)]
mod tests;

/// Capacity for events that an idle session keeps.
const EVENTS_KEPT: usize = 4;
/// Maximum time from the verdict to a publisher's first data, without the time for which the connection holds received
/// data.
const FIRST_WITHIN: Duration = Duration::from_secs(20);
/// Maximum time without data, for which the connection itself may be kept alive.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The role of the caller.
#[derive(Debug)]
enum Role {
    /// The caller was refused, or no longer publishes or plays.
    None,
    /// Waits for the verdict on a publish.
    AskedPublish,
    /// Publishes.
    Publisher {
        ingest: Box<Depackager>,
        usable: Usable,
        /// Time by which the next data must arrive.
        silent_at: Instant,
    },
    /// Waits for the verdict on a play.
    AskedPlay,
    /// Plays.
    Viewer(Packer, Pace),
}

/// The session of a caller.
#[derive(Debug)]
pub(crate) struct SrtSession {
    connection: Box<Connection>,
    config: Option<Arc<Config>>,
    role: Role,
    events: VecDeque<Event>,
    derivations: Arc<Derivations>,
    known: bool,
    /// The reason this side ended the connection, if it was a fault of the peer's data.
    ended_for: Option<&'static str>,
    /// Time at which the viewer's connection is closed because the stream has ended.
    goodbye_at: Option<Instant>,
    closed: bool,
}

impl SrtSession {
    pub(super) fn new(
        ctx: &Context<'_>,
        incoming: Incoming,
        id: SocketId,
        peer: SocketAddr,
        (seed, derivations): (&Seed, Arc<Derivations>),
    ) -> Self {
        let asked = request_of(ctx, incoming.stream_id(), peer);
        let shown = incoming.stream_id().map(shown).unwrap_or_default();
        let [_, major, minor, patch] = incoming.peer_version().to_be_bytes();
        let user_agent = format!("SRT {major}.{minor}.{patch}");
        let mut session = Self {
            connection: Box::new(Connection::incoming(ctx.now.mono, incoming, id, seed)),
            config: None,
            role: Role::None,
            events: VecDeque::new(),
            derivations,
            known: false,
            ended_for: None,
            goodbye_at: None,
            closed: false,
        };
        let (verb, key) = asked.as_ref().map_or_else(
            |_| (Verb::Connect, shown),
            |asked| {
                let verb = if asked.mode == Mode::Publish { Verb::Publish } else { Verb::Play };
                (verb, StreamKey::new(&asked.app, &asked.id).to_string())
            },
        );
        if let Err(reason) = asked.and_then(|asked| session.ask(ctx, asked, user_agent)) {
            session.events.push_back(RefusedRequest::event(verb, key, super::refusal_words(reason)));
            session.connection.reject(ctx.now.mono, reason);
        }
        session
    }

    /// Asks control to let the caller publish or play, once the caller has proved that it knows the passphrase.
    fn ask(
        &mut self,
        ctx: &Context<'_>,
        asked: StreamRequest,
        user_agent: String,
    ) -> Result<(), RejectReason> {
        let app = ctx.apps.get(asked.app.as_str()).ok_or(RejectReason::NOTFOUND)?;
        let config = super::config_of_app(SrtSettings::of(ctx.server), app);
        self.connection.unlock(&config)?;
        self.config = Some(config);
        let key = StreamKey::new(&asked.app, &asked.id);
        let (params, via) = (asked.params, asked.via);
        match asked.mode {
            Mode::Publish => {
                self.role = Role::AskedPublish;
                let ingest = super::INGEST;
                let ask = PublishAsk {
                    key,
                    ingest,
                    user_agent,
                    params,
                    via,
                    zero_ms: None,
                    of_foreign_page: false,
                };
                self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
            }
            Mode::Request => {
                self.role = Role::AskedPlay;
                let asked = asked_selection(&params).unwrap_or(super::SELECTION);
                let selection = Selection { data: super::SELECTION.data, ..asked };
                let format = Format::new(&super::FORMAT, 0).select(selection);
                let ask = PlayAsk {
                    key,
                    format,
                    params,
                    origin: String::new(),
                    via: Vec::new(),
                    takes_subtracks: false,
                };
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)));
            }
        }
        Ok(())
    }

    fn drain_connection(&mut self, now: Instant) {
        while self.events.is_empty()
            && let Some(event) = self.connection.poll_event()
        {
            match event {
                ::srt::Event::Connected(agreed) => match &mut self.role {
                    Role::Viewer(packer, _) => *packer = Packer::new(agreed.payload_max),
                    // Data that arrives in time is delivered after the latency.
                    Role::Publisher { silent_at, .. } => *silent_at += agreed.receive_latency,
                    Role::None | Role::AskedPublish | Role::AskedPlay => {}
                },
                ::srt::Event::Payload(payload) => self.payload(now, &payload),
                ::srt::Event::Skipped(_) => {
                    if let Role::Publisher { ingest, .. } = &mut self.role {
                        ingest.lost();
                    }
                }
                ::srt::Event::Closed(reason) => self.over(reason),
            }
        }
    }

    fn payload(&mut self, now: Instant, payload: &[u8]) {
        let Role::Publisher { ingest, usable, silent_at } = &mut self.role else { return };
        *silent_at = now + SILENCE_MAX;
        ingest.arrive(now);
        ingest.handle(payload);
        if let Some(reason) = ingest.why_bad()
            && usable.is_first_bad()
        {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason)));
        }
        self.take_units();
        self.watch(now);
    }

    /// Ends a stream that nobody can play, and reports a stream that continues without its video.
    fn watch(&mut self, now: Instant) {
        let Role::Publisher { ingest, usable, .. } = &mut self.role else { return };
        let Some(fault) = usable.check(now, ingest.supply()) else { return };
        let (Fault::Unusable(reason) | Fault::NoVideo(reason)) = fault;
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason)));
        if matches!(fault, Fault::Unusable(_)) {
            log_others(&ingest.stats());
            self.role = Role::None;
            self.events
                .push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Failed)));
            self.ended_for = Some(reason);
            self.connection.close(now, CloseReason::Local);
        }
    }

    fn usable_deadline(&self) -> Option<Instant> {
        let Role::Publisher { ingest, usable, .. } = &self.role else { return None };
        usable.deadline(ingest.supply())
    }

    const fn silent_at(&self) -> Option<Instant> {
        if let Role::Publisher { silent_at, .. } = &self.role { Some(*silent_at) } else { None }
    }

    /// Lets a publisher go that keeps its connection open but sends no data. Its stream waits for its return.
    fn silent(&mut self, now: Instant) {
        self.finish_units();
        self.role = Role::None;
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost)));
        self.ended_for = Some("the publisher sends no data");
        self.connection.close(now, CloseReason::Local);
    }

    /// Emits the units that waited for more of the transport stream.
    fn finish_units(&mut self) {
        let Role::Publisher { ingest, .. } = &mut self.role else { return };
        ingest.finish();
        log_others(&ingest.stats());
        self.take_units();
    }

    fn take_units(&mut self) {
        let Role::Publisher { ingest, .. } = &mut self.role else { return };
        while let Some((unit, tracks)) = ingest.poll_unit() {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        }
        while let Some(news) = ingest.take_clock_news() {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Clock(news)));
        }
        let dropped = ingest.take_dropped();
        if dropped > 0 {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::UnitsDropped(dropped)));
        }
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        let (Role::AskedPublish, Some(config)) = (&self.role, self.config.take()) else { return };
        match verdict {
            Ok(grant) => {
                self.known = true;
                self.role = Role::Publisher {
                    ingest: Box::new(Depackager::new(&grant)),
                    usable: Usable::default(),
                    silent_at: ctx.now.mono + FIRST_WITHIN,
                };
                self.connection.accept(ctx.now.mono, config);
            }
            Err(refusal) => {
                self.role = Role::None;
                self.connection.reject(ctx.now.mono, super::refusal_code(&refusal));
            }
        }
    }

    fn subscribe_verdict(&mut self, ctx: &Context<'_>, verdict: Result<&Tracks, NoSubscription>) {
        let (Role::AskedPlay, Some(config)) = (&self.role, self.config.take()) else { return };
        match verdict {
            Ok(_) => {
                self.known = true;
                self.role = Role::Viewer(Packer::new(config.payload_size), Pace::new());
                // Data from viewers is ignored.
                let config = Config { receives: false, ..Config::clone(&config) };
                self.connection.accept(ctx.now.mono, Arc::new(config));
            }
            Err(why) => {
                self.role = Role::None;
                self.connection.reject(ctx.now.mono, super::no_subscription_code(&why));
            }
        }
    }

    fn end_subscription(&mut self, ctx: &Context<'_>) {
        self.goodbye_at = Some(super::goodbye_at(ctx.now.mono, self.connection.stats()));
    }

    fn end_publish(&mut self, ctx: &Context<'_>) {
        // The worker has already ended the publication.
        self.role = Role::None;
        self.connection.close(ctx.now.mono, CloseReason::Local);
    }

    /// Handles the end of the connection. A publisher that closes it ends its stream; one that falls silent may return.
    fn over(&mut self, reason: CloseReason) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.finish_units();
        match std::mem::replace(&mut self.role, Role::None) {
            Role::AskedPublish | Role::Publisher { .. } => {
                let clean = reason != CloseReason::Idle;
                let departure = if clean { Departure::Clean } else { Departure::Lost };
                self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(departure)));
            }
            Role::AskedPlay | Role::Viewer(..) => {
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe))
            }
            Role::None => {}
        }
        let words = self.ended_for.map_or_else(|| super::words(reason), str::to_owned);
        self.events.push_back(Event::Closed(words));
    }
}

impl DatagramPeer for SrtSession {
    fn handle_datagram(&mut self, ctx: &Context<'_>, _path: PathId, from: Remote, datagram: &mut [u8]) {
        let now = ctx.now.mono;
        if self.connection.derives(now, datagram) && !self.derivations.take(now, from.peer.ip()) {
            return;
        }
        self.connection.handle_datagram(now, datagram);
    }

    fn is_quiet(&self, ctx: &Context<'_>) -> bool {
        matches!(self.role, Role::Viewer(..))
            && self.events.is_empty()
            && self.connection.is_quiet(ctx.now.mono)
    }

    fn has_datagrams(&self, ctx: &Context<'_>) -> bool {
        self.connection.has_transmit(ctx.now.mono)
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, _logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        // Packets that leave a connection with a limited rate make room for units, so such a session is asked again.
        let was_behind = self.connection.is_behind();
        self.connection.poll_transmit(ctx.now.mono, out);
        let last = !was_behind && !self.connection.has_transmit(ctx.now.mono);
        To { last, ..To::PEER }
    }
}

impl TailSink for SrtSession {
    fn handle_tail(&mut self, ctx: &Context<'_>, tail: &Parts) {
        if let Role::Viewer(packer, _) = &mut self.role {
            packer.push(tail, |payload| super::send(&mut self.connection, ctx.now.mono, payload));
        }
    }
}

impl UnitSink for SrtSession {
    fn has_room(&self) -> bool {
        let line = || self.connection.stats().into();
        !matches!(&self.role, Role::Viewer(_, pace) if pace.holds(line)) && super::has_room(&self.connection)
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let Role::Viewer(packer, pace) = &mut self.role else { return };
        let connection = &mut self.connection;
        for parts in unit.parts() {
            packer.push(parts, |payload| super::send(connection, ctx.now.mono, payload));
        }
        pace.sent(ctx.now.mono, unit.entry.received, || connection.stats().into());
    }

    fn tail(&mut self) -> Option<&mut dyn TailSink> {
        Some(self)
    }

    fn paced(&mut self) -> Option<&mut dyn crate::protocol::Paced> {
        if let Role::Viewer(_, pace) = &mut self.role { Some(pace) } else { None }
    }

    fn runs(&mut self) -> Option<&mut dyn UnitRuns> {
        Some(self)
    }
}

impl UnitRuns for SrtSession {
    fn end_units(&mut self, ctx: &Context<'_>) {
        let Role::Viewer(packer, _) = &mut self.role else { return };
        if let Some(payload) = packer.finish() {
            super::send(&mut self.connection, ctx.now.mono, payload);
        }
    }
}

impl Session for SrtSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Publication(_, news) => match news {
                PublicationNews::Verdict(verdict) => self.publish_verdict(ctx, verdict),
                PublicationNews::Ended(_) => self.end_publish(ctx),
                // SRT has no message by which a caller could be asked for anything.
                PublicationNews::KeyFrameNeeded(_)
                | PublicationNews::Wanted(_)
                | PublicationNews::Audience(_) => {}
            },
            Reply::Subscription(_, news) => match news {
                SubscriptionNews::Verdict(verdict) => self.subscribe_verdict(ctx, verdict),
                SubscriptionNews::Ended(_) => self.end_subscription(ctx),
                // A viewer learns of tracks from the tables of its transport stream.
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
            self.drain_connection(ctx.now.mono);
        }
        self.events.pop_front()
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        match self.role {
            Role::AskedPublish | Role::AskedPlay => {
                self.role = Role::None;
                self.connection.reject(ctx.now.mono, RejectReason::DOWN);
            }
            Role::None | Role::Publisher { .. } | Role::Viewer(..) => {
                self.connection.close(ctx.now.mono, CloseReason::Local)
            }
        }
    }

    fn about(&self) -> About {
        About { protocol: "srt", is_media: true, is_authenticated: self.known }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        self.known.then(|| -> Arc<dyn Figures> { Arc::new(SrtFigures(self.connection.stats())) })
    }
}

impl Timers for SrtSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.connection.handle_timeout(ctx.now.mono);
        if let Role::Viewer(_, pace) = &mut self.role {
            pace.handle_timeout(ctx.now.mono);
        }
        if self.goodbye_at.is_some_and(|at| at <= ctx.now.mono) {
            self.goodbye_at = None;
            self.connection.close(ctx.now.mono, CloseReason::Local);
        }
        // Data that has arrived in time counts, even if it was not taken yet.
        self.drain_connection(ctx.now.mono);
        if self.usable_deadline().is_some_and(|due| due <= ctx.now.mono) {
            self.watch(ctx.now.mono);
        }
        if self.silent_at().is_some_and(|due| due <= ctx.now.mono) {
            self.silent(ctx.now.mono);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let paced = if let Role::Viewer(_, pace) = &self.role { pace.poll_timeout() } else { None };
        let of_publisher = [self.usable_deadline(), self.silent_at()];
        let deadlines = [self.connection.poll_timeout(), paced, self.goodbye_at];
        deadlines.into_iter().chain(of_publisher).flatten().min()
    }
}

impl Paths for SrtSession {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed | PathEvent::Broken(_) => {
                self.connection.close(ctx.now.mono, CloseReason::Local);
            }
        }
    }
}

/// Logs one line for a publisher with tracks that are not supported.
fn log_others(stats: &ts::Stats) {
    if !stats.demux.others.is_empty() || stats.bad > 0 {
        let (others, gaps) = (&stats.demux.others, stats.demux.gaps);
        tracing::info!(?others, stats.bad, gaps, "parts of the transport stream not carried");
    }
}

/// Returns the part of a malformed stream id that may be logged: up to the first character that may begin a credential.
fn shown(stream_id: &str) -> String {
    stream_id.chars().take_while(|c| !",?=".contains(*c)).collect()
}

/// Parses the request in a stream id. A caller without a stream id publishes to the application configured for such
/// callers, and its address becomes the id of the stream (docs/srt.md).
fn request_of(
    ctx: &Context<'_>,
    stream_id: Option<&str>,
    peer: SocketAddr,
) -> Result<StreamRequest, RejectReason> {
    match stream_id.filter(|text| !text.is_empty()) {
        Some(text) => StreamRequest::parse(text).map_err(|bad| match bad {
            BadStreamId::Malformed => RejectReason::BAD_REQUEST,
            BadStreamId::Mode => RejectReason::BAD_MODE,
        }),
        None if SrtSettings::of(ctx.server).default_app.is_empty() => Err(RejectReason::BAD_REQUEST),
        None => Ok(StreamRequest {
            app: SrtSettings::of(ctx.server).default_app.clone(),
            id: peer.ip().to_string().replace(['.', ':'], "_"),
            mode: Mode::Publish,
            params: Vec::new(),
            via: Vec::new(),
        }),
    }
}
