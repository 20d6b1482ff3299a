//! HTTP connections: a router in front of control (the API), the hub (HTTP-FLV, WS-FLV) and files.
//!
//! One request is outstanding at a time. `/rest/...`, `/{app}/rest/...`, `/metrics` and `/openapi.json` go to control;
//! `/{app}/{id}.flv` becomes a viewer; everything else is a file below `webapps` or a built-in page. Cross-origin rules
//! come before all of them (docs/http.md).

mod files;
mod live;
mod pages;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::Seed;
use media::Tracks;
use wire::SendQueue;

use super::registry::{Listener, Protocol, Security};
use super::{Context, Event, Session};
use crate::http::cors::{self, Policy, Verdict};
use crate::http::{self, Method, Request, Response, websocket};
use crate::mail::{FileReply, NoSubscription, StreamEnd};
use crate::types::{Now, StreamKey};
use files::{Nowhere, Place, Transfer};
use live::Viewer;

/// See [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        Listener {
            name: "http",
            security: Security::Plain,
            manages: true,
            listen: |server| Some((server.http_host, server.http_port)),
            begin: |now, peer, seed| Box::new(HttpSession::new(now, peer, seed)),
        },
        Listener {
            name: "https",
            security: Security::TlsHttp,
            manages: true,
            listen: |server| Some((server.http_host, server.https_port?)),
            begin: |now, peer, seed| Box::new(HttpSession::over_tls(now, peer, seed)),
        },
    ],
    ..Protocol::NONE
};

/// The limits, the same for all connections.
static LIMITS: LazyLock<Arc<http::Limits>> = LazyLock::new(Arc::default);

/// Where the API is, below an application and at the root.
const REST: &str = "rest";
/// What else control answers, beside [`REST`].
const CONTROL_PATHS: [&str; 2] = ["/metrics", "/openapi.json"];
/// The ending of a live stream's path.
const FLV: &str = ".flv";
/// Answers of the API are no pages: they load nothing, and nobody frames them.
const API_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// A browser that came to the server's own pages over TLS comes back over TLS, for a year.
const HSTS: &str = "max-age=31536000;includeSubDomains";
/// What files and live streams may be asked with.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What the outstanding request has become.
#[derive(Debug)]
enum Stage {
    /// There is none.
    Idle,
    /// Control answers it; the answer gets these fields.
    Control(Vec<(&'static str, String)>),
    /// A file is sent.
    File(Box<Transfer>),
    /// It watches a stream.
    Live(Box<Viewer>),
}

/// A connection.
#[derive(Debug)]
pub(super) struct HttpSession {
    connection: http::Connection,
    stage: Stage,
    events: VecDeque<Event>,
    /// A request of it was answered with success: it is no stranger.
    served: bool,
    /// It is, or was, a viewer.
    watched: bool,
    /// It is within TLS.
    secure: bool,
    closed: bool,
}

impl HttpSession {
    /// An accepted connection.
    #[must_use]
    pub(super) fn new(now: Now, _peer: SocketAddr, _seed: Seed) -> Self {
        Self {
            connection: http::Connection::new(now.mono, Arc::clone(&LIMITS)),
            stage: Stage::Idle,
            events: VecDeque::new(),
            served: false,
            watched: false,
            secure: false,
            closed: false,
        }
    }

    /// An accepted connection within TLS.
    #[must_use]
    pub(super) fn over_tls(now: Now, peer: SocketAddr, seed: Seed) -> Self {
        Self { secure: true, ..Self::new(now, peer, seed) }
    }

    fn drop_on(&mut self, result: Result<(), http::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "HTTP connection dropped");
            self.connection.close();
        }
    }

    /// Gives a request to whom it is for.
    fn route(&mut self, ctx: &Context<'_>, request: Request) {
        let path = request.path.as_str();
        let mut segments = path.strip_prefix('/').unwrap_or_default().splitn(3, '/');
        let (first, second) = (segments.next().unwrap_or_default(), segments.next());
        let is_management = first == REST || CONTROL_PATHS.contains(&path);
        let policy = if is_management { Policy::Named(&ctx.server.cors_origins) } else { Policy::Anyone };
        let mut fields = match cors::check(&request, policy) {
            Verdict::Fields(fields) => fields,
            Verdict::Answer(response) => return self.respond(ctx.now, Vec::new(), *response),
        };
        let app = ctx.apps.get(first);
        if self.secure && app.is_none() {
            fields.push(("Strict-Transport-Security", HSTS.to_owned()));
        }
        let own_policy = app.and_then(|app| app.security.content_security_policy.as_ref());
        fields.extend(own_policy.map(|policy| (cors::CONTENT_SECURITY_POLICY, policy.clone())));
        if is_management || second == Some(REST) {
            if own_policy.is_none() {
                fields.push((cors::CONTENT_SECURITY_POLICY, API_POLICY.to_owned()));
            }
            fields.push(("X-Frame-Options", "DENY".to_owned()));
            self.stage = Stage::Control(fields);
            self.events.push_back(Event::Rest { request: Box::new(request), secure: self.secure });
            return;
        }
        let live = second.and_then(|name| name.strip_suffix(FLV)).filter(|_| segments.next().is_none());
        let stream = live.filter(|id| !id.is_empty() && ctx.apps.contains_key(first));
        let stream = stream.map(|id| StreamKey::new(first, id));
        match (request.method, stream) {
            (Method::Options, _) => {
                self.respond(ctx.now, fields, Response::empty(200).header("Allow", ALLOW));
            }
            (Method::Get | Method::Head, Some(stream)) => self.watch(ctx, request, stream, fields),
            (Method::Get | Method::Head, None) => self.file(ctx, request, fields),
            (Method::Post | Method::Put | Method::Delete | Method::Patch, _) => {
                let refusal = Response::error(405, "Method Not Allowed").header("Allow", ALLOW);
                self.respond(ctx.now, fields, refusal);
            }
        }
    }

    fn watch(
        &mut self,
        ctx: &Context<'_>,
        request: Request,
        key: StreamKey,
        fields: Vec<(&'static str, String)>,
    ) {
        let mut upgrade = None;
        if websocket::is_upgrade(&request) {
            // Playing needs no credentials of a browser, so every page may ask, as over HTTP.
            match websocket::accept(&request, |_| true) {
                Ok(response) => upgrade = Some(response),
                Err(refusal) => return self.respond(ctx.now, fields, refusal),
            }
        }
        let mut viewer = Viewer::new(key, upgrade, fields, request.method == Method::Head);
        let origin = request.header("origin").unwrap_or("").to_owned();
        self.events.push_back(Event::Subscribe(viewer.ask(request.query, origin)));
        self.stage = Stage::Live(Box::new(viewer));
    }

    fn file(&mut self, ctx: &Context<'_>, request: Request, fields: Vec<(&'static str, String)>) {
        let refusal = match Place::of(&request.path, ctx.apps) {
            Ok(place) if place.is_stream && is_secured(&place, ctx) => {
                // No token can be checked yet: nobody has a valid one.
                Response::error(403, "Not allowed to play the stream due to security")
            }
            Ok(place) => {
                let (transfer, ask) = Transfer::begin(request, place, fields);
                self.events.push_back(Event::File(ask));
                self.stage = Stage::File(Box::new(transfer));
                return;
            }
            Err(Nowhere::Hidden) => Response::error(404, "Not Found"),
            Err(Nowhere::Forbidden) => Response::error(403, "Forbidden"),
        };
        self.respond(ctx.now, fields, refusal);
    }

    fn respond(&mut self, now: Now, fields: Vec<(&'static str, String)>, mut response: Response) {
        self.served |= is_success(response.status);
        cors::add(&fields, &mut response.headers);
        self.connection.respond(now.mono, now.wall_ms, response);
    }

    /// What follows from the state, when there is no event left.
    fn advance(&mut self) {
        match &mut self.stage {
            Stage::File(transfer) => {
                if let Some(ask) = transfer.poll_ask(&self.connection) {
                    self.events.push_back(Event::File(ask));
                }
                if transfer.is_over() {
                    self.stage = Stage::Idle;
                }
            }
            Stage::Live(viewer) => {
                if let Some(reason) = viewer.poll_end()
                    && !self.closed
                {
                    self.closed = true;
                    self.events.push_back(Event::Closed(reason));
                }
                if viewer.is_over() {
                    self.stage = Stage::Idle;
                }
            }
            Stage::Idle | Stage::Control(_) => {}
        }
    }

    fn live(&mut self) -> Option<(&mut Viewer, &mut http::Connection)> {
        match &mut self.stage {
            Stage::Live(viewer) => Some((viewer, &mut self.connection)),
            Stage::Idle | Stage::Control(_) | Stage::File(_) => None,
        }
    }

    fn socket(&mut self) -> Option<&mut websocket::WebSocket> {
        self.live().and_then(|(viewer, _)| viewer.socket())
    }
}

impl Session for HttpSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(socket) = self.socket() {
            socket.handle_bytes(ctx.now.mono, bytes);
            return;
        }
        let result = self.connection.handle_bytes(ctx.now.mono, bytes);
        self.drop_on(result);
    }

    fn handle_hangup(&mut self, ctx: &Context<'_>, error: Option<&str>) {
        if let Some(socket) = self.socket() {
            socket.handle_eof(ctx.now.mono);
            return;
        }
        match error {
            None => self.connection.handle_eof(ctx.now.mono),
            Some(_) => self.connection.close(),
        }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let result = self.connection.handle_timeout(ctx.now.mono);
        self.drop_on(result);
        if let Some((viewer, connection)) = self.live() {
            let event = viewer.timeout(ctx.now, connection);
            self.events.extend(event);
        }
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize) {
        self.connection.handle_sent(ctx.now.mono, bytes);
        if let Some(socket) = self.socket() {
            socket.handle_sent(ctx.now.mono, bytes);
        }
    }

    fn wants_bytes(&self) -> bool {
        match &self.stage {
            Stage::Live(viewer) => viewer.wants_bytes(&self.connection),
            Stage::Idle | Stage::Control(_) | Stage::File(_) => self.connection.wants_bytes(),
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        loop {
            if self.events.is_empty() {
                self.advance();
            }
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.closed {
                return None;
            }
            match self.connection.poll_event()? {
                http::Event::Request(request) => self.route(ctx, request),
                http::Event::Closed(reason) => {
                    self.closed = true;
                    // A file is closed with it.
                    self.stage = Stage::Idle;
                    return Some(Event::Closed(format!("{reason:?}")));
                }
            }
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(out);
        if let Stage::Live(viewer) = &mut self.stage {
            viewer.poll_transmit(out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let live = match &self.stage {
            Stage::Live(viewer) => viewer.poll_timeout(),
            Stage::Idle | Stage::Control(_) | Stage::File(_) => None,
        };
        [self.connection.poll_timeout(), live].into_iter().flatten().min()
    }

    fn subscribe_verdict(&mut self, ctx: &Context<'_>, verdict: Result<&Tracks, NoSubscription>) {
        self.served |= verdict.is_ok();
        self.watched |= verdict.is_ok();
        if let Some((viewer, connection)) = self.live() {
            let event = viewer.verdict(ctx, connection, verdict);
            self.events.extend(event);
        }
    }

    fn tracks_known(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        if let Some((viewer, connection)) = self.live() {
            let event = viewer.tracks(ctx.now, connection, tracks);
            self.events.extend(event);
        }
    }

    fn end_subscription(&mut self, ctx: &Context<'_>, end: StreamEnd) {
        if let Some((viewer, connection)) = self.live() {
            viewer.end(ctx.now, connection, end);
        }
    }

    fn rest_reply(&mut self, ctx: &Context<'_>, response: Response) {
        if let Stage::Control(fields) = std::mem::replace(&mut self.stage, Stage::Idle) {
            self.respond(ctx.now, fields, response);
        }
    }

    fn file_reply(&mut self, ctx: &Context<'_>, reply: FileReply) {
        if let Stage::File(transfer) = &mut self.stage {
            let status = transfer.reply(ctx.now, &mut self.connection, reply);
            self.served |= status.is_some_and(is_success);
        }
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        if let Some((viewer, connection)) = self.live() {
            viewer.end(ctx.now, connection, StreamEnd::Drain);
        }
        if self.socket().is_none() {
            self.connection.close();
        }
    }

    fn is_authenticated(&self) -> bool {
        self.served
    }

    fn protocol(&self) -> &'static str {
        match &self.stage {
            Stage::Live(viewer) if viewer.is_socket() => "ws-flv",
            _ if self.watched => "http-flv",
            Stage::Idle | Stage::Control(_) | Stage::File(_) | Stage::Live(_) => "http",
        }
    }

    fn is_media(&self) -> bool {
        self.watched
    }
}

/// Whether who was answered so may be here.
const fn is_success(status: u16) -> bool {
    status < 400
}

/// Whether the application of a file has a check of viewers switched on.
fn is_secured(place: &Place, ctx: &Context<'_>) -> bool {
    let app = place.segments.first().and_then(|app| ctx.apps.get(app.as_str()));
    app.is_some_and(|app| app.security.play.any())
}

#[cfg(test)]
mod tests;
