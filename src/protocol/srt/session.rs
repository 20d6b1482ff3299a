//! A caller: publisher or viewer, as its stream id says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ::srt::{CloseReason, Config, Connection, Incoming, RejectReason, SocketId};
use crypto::Seed;
use media::Tracks;
use wire::{Datagrams, SendQueue};

use super::packer::Packer;
use super::settings::SrtSettings;
use super::stream_id::{BadStreamId, Mode, StreamRequest};
use crate::hub::Parts;
use crate::mail::{Departure, Grant, NoSubscription, Refusal, StreamEnd};
use crate::protocol::ts::{self, Ingest};
use crate::protocol::{Context, Event, Format, PlayAsk, PublishAsk, Session, asked_selection};
use crate::types::StreamKey;

/// Room for events that an idle session keeps.
const EVENTS_KEPT: usize = 4;

/// What the caller does.
#[derive(Debug)]
enum Role {
    /// It was refused, or is gone.
    None,
    /// Waits for the verdict on a publish.
    AskedPublish,
    /// Publishes.
    Publisher(Box<Ingest>),
    /// Waits for the verdict on a play.
    AskedPlay,
    /// Plays.
    Viewer(Packer),
}

/// The session of a caller.
#[derive(Debug)]
pub(crate) struct SrtSession {
    connection: Box<Connection>,
    config: Option<Arc<Config>>,
    role: Role,
    events: VecDeque<Event>,
    known: bool,
    closed: bool,
}

impl SrtSession {
    pub(super) fn new(
        ctx: &Context<'_>,
        incoming: Incoming,
        id: SocketId,
        peer: SocketAddr,
        seed: &Seed,
    ) -> Self {
        let asked = request_of(ctx, incoming.stream_id(), peer);
        let [_, major, minor, patch] = incoming.peer_version().to_be_bytes();
        let user_agent = format!("SRT {major}.{minor}.{patch}");
        let mut session = Self {
            connection: Box::new(Connection::incoming(ctx.now.mono, incoming, id, seed)),
            config: None,
            role: Role::None,
            events: VecDeque::new(),
            known: false,
            closed: false,
        };
        if let Err(reason) = asked.and_then(|asked| session.ask(ctx, asked, user_agent)) {
            session.connection.reject(ctx.now.mono, reason);
        }
        session
    }

    /// Asks for what the caller wants, once it has shown that it knows the passphrase.
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
                self.events.push_back(Event::Publish(PublishAsk { key, ingest, user_agent, params, via }));
            }
            Mode::Request => {
                self.role = Role::AskedPlay;
                let selection = asked_selection(&params).unwrap_or_default();
                let format = Format::new(&super::FORMAT, 0).select(selection);
                let ask = PlayAsk { key, format, params, origin: String::new() };
                self.events.push_back(Event::Subscribe(ask));
            }
        }
        Ok(())
    }

    fn drain_connection(&mut self) {
        while self.events.is_empty()
            && let Some(event) = self.connection.poll_event()
        {
            match event {
                ::srt::Event::Connected(agreed) => {
                    if let Role::Viewer(packer) = &mut self.role {
                        *packer = Packer::new(agreed.payload_max);
                    }
                }
                ::srt::Event::Payload(payload) => self.payload(&payload),
                ::srt::Event::Skipped(_) => {
                    if let Role::Publisher(ingest) = &mut self.role {
                        ingest.lost();
                    }
                }
                ::srt::Event::Closed(reason) => self.over(reason),
            }
        }
    }

    fn payload(&mut self, payload: &[u8]) {
        let Role::Publisher(ingest) = &mut self.role else { return };
        ingest.handle(payload);
        self.take_units();
    }

    fn take_units(&mut self) {
        let Role::Publisher(ingest) = &mut self.role else { return };
        while let Some((unit, tracks)) = ingest.poll_unit() {
            self.events.push_back(Event::Unit { unit, tracks });
        }
        let dropped = ingest.take_dropped();
        if dropped > 0 {
            self.events.push_back(Event::UnitsDropped(dropped));
        }
    }

    /// A publisher that says goodbye ends its stream; one that falls silent is waited for.
    fn over(&mut self, reason: CloseReason) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if let Role::Publisher(ingest) = &mut self.role {
            ingest.finish();
            log_others(&ingest.stats());
            self.take_units();
        }
        match std::mem::replace(&mut self.role, Role::None) {
            Role::AskedPublish | Role::Publisher(_) => {
                let clean = reason != CloseReason::Idle;
                self.events.push_back(Event::Unpublished(if clean {
                    Departure::Clean
                } else {
                    Departure::Lost
                }));
            }
            Role::AskedPlay | Role::Viewer(_) => self.events.push_back(Event::Unsubscribe),
            Role::None => {}
        }
        self.events.push_back(Event::Closed(super::words(reason)));
    }
}

impl Session for SrtSession {
    fn handle_bytes(&mut self, _ctx: &Context<'_>, _bytes: &[u8]) {}

    fn handle_datagram(&mut self, ctx: &Context<'_>, _from: SocketAddr, datagram: &[u8]) {
        self.connection.handle_datagram(ctx.now.mono, datagram);
    }

    fn handle_hangup(&mut self, ctx: &Context<'_>, _error: Option<&str>) {
        self.connection.close(ctx.now.mono, CloseReason::Local);
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.connection.handle_timeout(ctx.now.mono);
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn takes_units(&self) -> bool {
        super::has_room(&self.connection)
    }

    fn send_unit(&mut self, ctx: &Context<'_>, parts: &Parts) {
        let Role::Viewer(packer) = &mut self.role else { return };
        let connection = &mut self.connection;
        packer.push(parts, |payload| super::send(connection, ctx.now.mono, payload));
    }

    fn end_units(&mut self, ctx: &Context<'_>) {
        let Role::Viewer(packer) = &mut self.role else { return };
        if let Some(payload) = packer.finish() {
            super::send(&mut self.connection, ctx.now.mono, payload);
        }
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, out: &mut Datagrams) -> Option<SocketAddr> {
        self.connection.poll_transmit(ctx.now.mono, out);
        None
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if self.events.is_empty() {
            // What a burst needed is not kept for the life of the session.
            self.events.shrink_to(EVENTS_KEPT);
            self.drain_connection();
        }
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        let (Role::AskedPublish, Some(config)) = (&self.role, self.config.take()) else { return };
        match verdict {
            Ok(grant) => {
                self.known = true;
                self.role = Role::Publisher(Box::new(Ingest::new(&grant)));
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
                self.role = Role::Viewer(Packer::new(config.payload_size));
                // What a viewer sends is of no use to anybody.
                let config = Config { receives: false, ..Config::clone(&config) };
                self.connection.accept(ctx.now.mono, Arc::new(config));
            }
            Err(why) => {
                self.role = Role::None;
                self.connection.reject(ctx.now.mono, super::no_subscription_code(&why));
            }
        }
    }

    fn end_subscription(&mut self, ctx: &Context<'_>, _end: StreamEnd) {
        self.connection.close(ctx.now.mono, CloseReason::Local);
    }

    fn end_publish(&mut self, ctx: &Context<'_>, _end: StreamEnd) {
        // The worker has ended it already.
        self.role = Role::None;
        self.connection.close(ctx.now.mono, CloseReason::Local);
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        match self.role {
            Role::AskedPublish | Role::AskedPlay => {
                self.role = Role::None;
                self.connection.reject(ctx.now.mono, RejectReason::DOWN);
            }
            Role::None | Role::Publisher(_) | Role::Viewer(_) => {
                self.connection.close(ctx.now.mono, CloseReason::Local)
            }
        }
    }

    fn srt_stats(&self) -> Option<::srt::Stats> {
        self.known.then(|| self.connection.stats())
    }

    fn is_authenticated(&self) -> bool {
        self.known
    }

    fn protocol(&self) -> &'static str {
        "srt"
    }
}

/// One line for a publisher whose further tracks nobody saw.
fn log_others(stats: &ts::Stats) {
    if !stats.demux.others.is_empty() || stats.bad > 0 {
        let (others, gaps) = (&stats.demux.others, stats.demux.gaps);
        tracing::info!(?others, stats.bad, gaps, "what was not carried of the transport stream");
    }
}

/// What the stream id asks for. Without one: a publish to the application that is set for such callers, under the
/// caller's address (docs/srt.md).
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
