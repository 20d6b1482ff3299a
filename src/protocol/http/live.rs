//! A viewer of HTTP-FLV or WS-FLV: from the verdict on its subscription to the last byte. The units themselves go from
//! the hub to the socket; what passes here is the head before them and the goodbye behind.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use flv::file::Header;
use media::Tracks;
use wire::SendQueue;

use crate::http::websocket::{self, WebSocket, code};
use crate::http::{BodyLength, Connection, Response};
use crate::mail::{NoSubscription, StreamEnd};
use crate::protocol::{Context, Event, Format, PlayAsk, SubscriptionEvent, asked_selection, http_live};
use crate::types::{Handle, Now, StreamKey};

/// How long the tracks of a stream are waited for before the header announces both.
const TRACKS_WAIT: Duration = Duration::from_millis(500);

/// The limits of docs/robustness.md, the same for all connections.
static LIMITS: LazyLock<Arc<websocket::Limits>> = LazyLock::new(Arc::default);

/// The state of the viewer.
#[derive(Debug)]
enum Stage {
    /// The worker was asked.
    Asked,
    /// Subscribed, and paused until the tracks are known.
    Waiting { until: Instant },
    /// Tags flow as a body.
    Body,
    /// Tags flow as messages.
    Messages(Box<WebSocket>),
    /// The stream has ended.
    Over,
}

/// A viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    stage: Stage,
    subscription: Handle,
    /// The stream that it watches.
    key: StreamKey,
    format: Format,
    /// The 101 to send, for WS-FLV.
    upgrade: Option<Response>,
    /// Fields that every answer gets.
    fields: Vec<(&'static str, String)>,
    head_only: bool,
}

impl Viewer {
    pub(super) const fn new(
        subscription: Handle,
        key: StreamKey,
        upgrade: Option<Response>,
        fields: Vec<(&'static str, String)>,
        head_only: bool,
    ) -> Self {
        let format = Format::new(&http_live::FLV, 0);
        Self { stage: Stage::Asked, subscription, key, format, upgrade, fields, head_only }
    }

    fn format(&mut self, params: &[(String, String)]) -> Format {
        let kind = if self.upgrade.is_some() { &http_live::WS_FLV } else { &http_live::FLV };
        self.format = Format::new(kind, 0).select(asked_selection(params).unwrap_or_default());
        self.format
    }

    /// The request to the worker.
    pub(super) fn ask(&mut self, params: Vec<(String, String)>, origin: String) -> PlayAsk {
        PlayAsk { key: self.key.clone(), format: self.format(&params), params, origin }
    }

    /// The handle of its subscription.
    pub(super) const fn subscription(&self) -> Handle {
        self.subscription
    }

    /// The worker's verdict. Returns what the worker must do.
    pub(super) fn verdict(
        &mut self,
        ctx: &Context<'_>,
        connection: &mut Connection,
        verdict: Result<&Tracks, NoSubscription>,
    ) -> Option<Event> {
        let tracks = match verdict {
            Ok(tracks) => tracks,
            Err(why) => {
                self.refuse(ctx.now, connection, why);
                return None;
            }
        };
        if self.head_only {
            let head = self.head();
            connection.begin(ctx.now.mono, ctx.now.wall_ms, &head, BodyLength::UntilClose);
            self.stage = Stage::Over;
            return Some(Event::Subscription(self.subscription, SubscriptionEvent::Unsubscribe));
        }
        match http_live::header(&self.format.choose(tracks)) {
            Some(header) => {
                self.start(ctx.now, connection, header);
                None
            }
            None => {
                let until = ctx.now.mono.checked_add(TRACKS_WAIT).unwrap_or(ctx.now.mono);
                self.stage = Stage::Waiting { until };
                Some(Event::Subscription(self.subscription, SubscriptionEvent::Pause(true)))
            }
        }
    }

    /// The tracks are known now. Returns what the worker must do.
    pub(super) fn tracks(&mut self, now: Now, connection: &mut Connection, tracks: &Tracks) -> Option<Event> {
        let header = http_live::header(&self.format.choose(tracks))?;
        self.end_wait(now, connection, header)
    }

    /// A deadline may have passed.
    pub(super) fn timeout(&mut self, now: Now, connection: &mut Connection) -> Option<Event> {
        match &mut self.stage {
            Stage::Waiting { until } if *until <= now.mono => self.end_wait(now, connection, http_live::BOTH),
            Stage::Messages(socket) => {
                if let Err(error) = socket.handle_timeout(now.mono) {
                    tracing::debug!(%error, "WebSocket dropped");
                }
                None
            }
            Stage::Asked | Stage::Waiting { .. } | Stage::Body | Stage::Over => None,
        }
    }

    /// The stream has ended, or the server is shutting down.
    pub(super) fn end(&mut self, now: Now, connection: &mut Connection, end: StreamEnd) {
        let (why, goodbye) = match end {
            StreamEnd::Drain => (NoSubscription::Unavailable, code::AWAY),
            StreamEnd::Unpublished
            | StreamEnd::GraceOver
            | StreamEnd::Stopped
            | StreamEnd::Unaccepted(_)
            | StreamEnd::Deleted => (NoSubscription::NotFound, code::NORMAL),
        };
        match &mut self.stage {
            Stage::Asked | Stage::Waiting { .. } => self.refuse(now, connection, why),
            Stage::Body => connection.end_body(now.mono),
            Stage::Messages(socket) => socket.close(now.mono, goodbye, ""),
            Stage::Over => {}
        }
    }

    /// The WebSocket, once it is one.
    pub(super) fn socket(&mut self) -> Option<&mut WebSocket> {
        match &mut self.stage {
            Stage::Messages(socket) => Some(socket),
            Stage::Asked | Stage::Waiting { .. } | Stage::Body | Stage::Over => None,
        }
    }

    pub(super) fn wants_bytes(&self, connection: &Connection) -> bool {
        match &self.stage {
            Stage::Messages(socket) => socket.wants_bytes(),
            Stage::Asked | Stage::Waiting { .. } | Stage::Body | Stage::Over => connection.wants_bytes(),
        }
    }

    /// Why the WebSocket has ended, reported once. What the peer sends meanwhile is thrown away.
    pub(super) fn poll_end(&mut self) -> Option<String> {
        let socket = self.socket()?;
        while let Some(event) = socket.poll_event() {
            match event {
                websocket::Event::Text(_) | websocket::Event::Binary(_) => {}
                websocket::Event::Closed(reason) => return Some(reason.to_string()),
            }
        }
        None
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(socket) = self.socket() {
            socket.poll_transmit(out);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Waiting { until } => Some(*until),
            Stage::Messages(socket) => socket.poll_timeout(),
            Stage::Asked | Stage::Body | Stage::Over => None,
        }
    }

    fn end_wait(&mut self, now: Now, connection: &mut Connection, header: Header) -> Option<Event> {
        if !matches!(self.stage, Stage::Waiting { .. }) {
            return None;
        }
        self.start(now, connection, header);
        Some(Event::Subscription(self.subscription, SubscriptionEvent::Pause(false)))
    }

    /// Sends the bytes in front of the first tag.
    fn start(&mut self, now: Now, connection: &mut Connection, header: Header) {
        let first = http_live::file_header(header);
        let Some(upgrade) = self.upgrade.take() else {
            let head = self.head();
            if connection.begin(now.mono, now.wall_ms, &head, BodyLength::UntilClose) {
                connection.body(now.mono, first);
                self.stage = Stage::Body;
            }
            return;
        };
        let Some(held) = connection.upgrade(now.mono, now.wall_ms, &upgrade) else {
            self.stage = Stage::Over;
            return;
        };
        let mut socket = WebSocket::server(now.mono, Arc::clone(&LIMITS), &held);
        // A new queue has room for a header.
        let _ = socket.send_binary(now.mono, first);
        self.stage = Stage::Messages(Box::new(socket));
    }

    fn head(&self) -> Response {
        let mut head = Response::empty(200)
            .header("Content-Type", "video/x-flv")
            .header("Cache-Control", "no-store")
            .close();
        crate::http::cors::add(&self.fields, &mut head.headers);
        head
    }

    fn refuse(&mut self, now: Now, connection: &mut Connection, why: NoSubscription) {
        let mut response = refusal(&why, &self.key.id);
        crate::http::cors::add(&self.fields, &mut response.headers);
        connection.respond(now.mono, now.wall_ms, response);
        self.stage = Stage::Over;
    }

    /// Whether it is a WebSocket by now.
    pub(super) const fn is_socket(&self) -> bool {
        matches!(self.stage, Stage::Messages(_))
    }

    /// Whether it has ended.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

/// Status and text of a refusal (docs/http.md).
fn refusal(why: &NoSubscription, stream: &str) -> Response {
    match why {
        NoSubscription::NotFound | NoSubscription::Disabled => Response::error(404, "No such stream"),
        NoSubscription::Denied(denial) => Response::error(403, &denial.text(stream)),
        NoSubscription::Unavailable => {
            Response::error(503, "The server is going down or short of resources").header("Retry-After", "5")
        }
    }
}
