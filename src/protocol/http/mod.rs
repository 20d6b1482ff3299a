//! HTTP connections: a router in front of control (the API), the hub (HTTP-FLV, WS-FLV), files and signalling.
//!
//! One request is outstanding at a time. `mounts` has the one table of what is where. What a row says of origins, methods
//! and bodies is enforced before its handler sees the request (docs/http.md); the handler makes it the connection's
//! [`Stage`].

mod feed;
mod file_jobs;
mod files;
mod live;
mod mounts;
mod pages;
mod polled;
pub(in crate::protocol) mod settings;
mod signalling;
mod upload;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::{Random, Seed};
use wire::SendQueue;

use super::row::{Bind, Listener, Protocol, Security};
use super::{About, ByteStream, Context, Event, PathEvent, PathId, RefusedRequest, Reply, Session, Verb};
use crate::auth::proxy::{self, Passed};
use crate::http::cors::{self, Verdict};
use crate::http::{self, Method, Mounts, Request, Response, websocket};
use crate::mail::{StreamEnd, UploadNews};
use crate::types::{Handle, Now, StreamKey};
use feed::Feed;
use file_jobs::FileAsk;
use files::{FilePath, Nowhere, Transfer};
use live::Viewer;
pub use mounts::{Asked, Handler};
pub use pages::has_page;
use polled::Polled;
pub use polled::VOD;
use signalling::Signalling;
pub use signalling::{Action, Conversation};
use upload::Upload;

/// See [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        Listener {
            name: "http",
            security: Security::Plain,
            manages: true,
            publishers: false,
            beside: None,
            listen: |server| Some(Bind { host: server.http_host, port: server.http_port, key: "http.port" }),
            begin: |now, peer, seed| Box::new(HttpSession::new(now, peer, seed)),
        },
        Listener {
            name: "https",
            security: Security::TlsHttp,
            manages: true,
            publishers: false,
            beside: None,
            listen: |server| {
                Some(Bind { host: server.http_host, port: server.https_port?, key: "https.port" })
            },
            begin: |now, peer, seed| Box::new(HttpSession::over_tls(now, peer, seed)),
        },
    ],
    section: &settings::SECTION,
    ..Protocol::NONE
};

/// The limits, the same for all connections.
static LIMITS: LazyLock<Arc<http::Limits>> = LazyLock::new(Arc::default);

/// A browser that came to the server's own pages over TLS comes back over TLS, for a year.
const HSTS: &str = "max-age=31536000;includeSubDomains";

/// Fields that the answer to a request gets.
type Fields = Vec<(&'static str, String)>;

/// Who answers the outstanding request.
#[derive(Debug)]
enum Stage {
    /// No request is outstanding.
    Idle,
    /// Control answers it; the answer gets these fields.
    Control(Vec<(&'static str, String)>),
    /// Control is asked again and again.
    Feed(Box<Feed>),
    /// Whether a viewer may have it is asked.
    Checked(Box<Polled>),
    /// A blob is being made.
    Awaited(Box<Polled>),
    /// A file is sent.
    File(Box<Transfer>),
    /// A file is taken in.
    Upload(Box<Upload>),
    /// A viewer of a stream.
    Live(Box<Viewer>),
    /// A protocol answers it, or continues over a WebSocket.
    Signalling(Box<Signalling>),
}

/// A connection.
#[derive(Debug)]
pub struct HttpSession {
    connection: http::Connection,
    peer: IpAddr,
    /// The request as its client sent it, by the word of proxies. The worker was told of this client.
    passed: Passed,
    mounts: Mounts<Handler>,
    stage: Stage,
    events: VecDeque<Event>,
    /// Subscriptions begun; the name of the next one.
    subscriptions: u16,
    /// It is or was sent a stream, or has published: the peer counts as authenticated.
    granted: bool,
    /// Whether it is or was a viewer.
    watched: bool,
    /// Names sessions that it creates.
    random: Random,
    /// Whether the connection uses TLS.
    secure: bool,
    closed: bool,
}

impl HttpSession {
    /// An accepted connection.
    #[must_use]
    pub(super) fn new(now: Now, peer: SocketAddr, seed: Seed) -> Self {
        Self { random: seed.derive("http", 0).random(), ..Self::with_mounts(now, peer, &mounts::MOUNTS) }
    }

    /// An accepted connection that finds what `mounts` has.
    #[must_use]
    pub fn with_mounts(now: Now, peer: SocketAddr, mounts: &'static Mounts<Handler>) -> Self {
        let peer = peer.ip().to_canonical();
        Self {
            connection: http::Connection::new(now.mono, Arc::clone(&LIMITS)).with_bodies(mounts),
            peer,
            passed: Passed::direct(peer),
            mounts: *mounts,
            stage: Stage::Idle,
            events: VecDeque::new(),
            subscriptions: 0,
            granted: false,
            watched: false,
            random: Seed::from_number(0).random(),
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

    /// Gives a request to the handler of its row.
    fn route(&mut self, ctx: &Context<'_>, mut request: Request) {
        let Some((mount, captures)) = self.mounts.find(&request.path, |name| ctx.apps.contains_key(name))
        else {
            return self.respond(ctx.now, Vec::new(), Response::error(404, "Not Found"));
        };
        let values = |name: &'static str| request.headers.all(name).collect();
        let Some(mut passed) = proxy::read(self.peer, values, &ctx.server.trusted_proxies) else {
            return self.respond(ctx.now, Vec::new(), Response::error(403, "Forbidden"));
        };
        if let Some(host) = passed.host.take() {
            request.headers.set("Host", host);
        }
        if passed.client != self.passed.client {
            self.events.push_back(Event::Client(passed.client));
        }
        self.passed = passed;
        let first = request.path.split('/').nth(1).unwrap_or_default();
        let app = ctx.apps.get(first);
        let needs_token = app.is_some_and(|app| app.security.rest_jwt.is_some());
        let policy = mount.cors.policy(&ctx.server.names, &ctx.server.cors_origins, needs_token);
        let mut fields = match cors::check(&request, policy) {
            Verdict::Fields(fields) => fields,
            Verdict::Answer(response) => return self.respond(ctx.now, Vec::new(), *response),
        };
        if self.secure && app.is_none() {
            fields.push(("Strict-Transport-Security", HSTS.to_owned()));
        }
        let own_policy = app.and_then(|app| app.security.content_security_policy.as_ref());
        fields.extend(own_policy.map(|policy| (cors::CONTENT_SECURITY_POLICY, policy.clone())));
        match mount.refusal(&request) {
            Some(refusal) => self.respond(ctx.now, fields, refusal),
            None => (mount.handler)(self, ctx, Asked { request, captures, fields }),
        }
    }

    /// Handler: control answers.
    fn control(&mut self, _ctx: &Context<'_>, asked: Asked) {
        let Asked { request, fields, .. } = asked.of_api();
        self.stage = Stage::Control(fields);
        self.events.push_back(Event::Rest { request: Box::new(request), secure: self.is_secure() });
    }

    /// Handler: control answers, or lets the body come, which is a file.
    fn upload(&mut self, ctx: &Context<'_>, asked: Asked) {
        let form = asked.request.header("content-type").and_then(http::Multipart::of);
        let Some(form) = form.filter(|_| self.connection.has_incoming_body()) else {
            return self.control(ctx, asked);
        };
        let Asked { request, fields, .. } = asked.of_api();
        self.stage = Stage::Upload(Box::new(Upload::new(fields, form)));
        self.events.push_back(Event::Rest { request: Box::new(request), secure: self.is_secure() });
    }

    /// Handler: control answers, once or for as long as there are events.
    fn feed(&mut self, ctx: &Context<'_>, asked: Asked) {
        if !feed::is_wanted(&asked.request) {
            return self.control(ctx, asked);
        }
        let Asked { request, fields, .. } = asked.of_api();
        let (feed, question) = Feed::begin(request, fields, self.is_secure());
        self.stage = Stage::Feed(Box::new(feed));
        self.events.push_back(question);
    }

    /// Handler: a viewer of a live stream.
    fn live(&mut self, ctx: &Context<'_>, asked: Asked) {
        let key = StreamKey::new(asked.name("app"), asked.name("id"));
        let Asked { request, fields, .. } = asked;
        let mut upgrade = None;
        if websocket::is_upgrade(&request) {
            // Playing needs no credentials of a browser, so every page may ask, as over HTTP.
            match websocket::accept(&request, |_| true) {
                Ok(response) => upgrade = Some(response),
                Err(refusal) => return self.respond(ctx.now, fields, refusal),
            }
        }
        let subscription = Handle(self.subscriptions);
        self.subscriptions = self.subscriptions.wrapping_add(1);
        let mut viewer = Viewer::new(subscription, key, upgrade, fields, request.method == Method::Head);
        let origin = request.header("origin").unwrap_or("").to_owned();
        let ask = viewer.ask(request.query, origin);
        self.events.push_back(Event::Subscribe { subscription, ask });
        self.stage = Stage::Live(Box::new(viewer));
    }

    /// Handler: a file below `webapps`, or a built-in page.
    fn file(&mut self, ctx: &Context<'_>, asked: Asked) {
        let Asked { request, fields, .. } = asked;
        let refusal = match FilePath::of(&request.path, ctx.apps) {
            Ok(file) if file.is_stream => return self.polled(ctx, request, file, fields),
            Ok(file) => {
                let (transfer, ask) = Transfer::begin(request, file, fields);
                self.events.push_back(Event::Job(ask.into()));
                self.stage = Stage::File(Box::new(transfer));
                return;
            }
            Err(Nowhere::Hidden) => Response::error(404, "Not Found"),
            Err(Nowhere::Forbidden) => Response::error(403, "Forbidden"),
        };
        self.respond(ctx.now, fields, refusal);
    }

    /// The answer to a challenge of a certificate authority, which an ACME client on this machine has put into a folder.
    fn challenge(&mut self, ctx: &Context<'_>, asked: Asked) {
        let token = asked.name("token").to_owned();
        let Asked { request, fields, .. } = asked;
        if !files::is_challenge(&token) {
            return self.respond(ctx.now, fields, Response::error(404, "Not Found"));
        }
        let transfer = Transfer::of_challenge(request, token.clone(), fields);
        self.events.push_back(Event::Job(FileAsk::Challenge { token }.into()));
        self.stage = Stage::File(Box::new(transfer));
    }

    /// Has the log tell of a request for a stream that was refused here.
    pub(in crate::protocol) fn note_refusal(&mut self, verb: Verb, key: &StreamKey, reason: String) {
        self.events.push_back(RefusedRequest::event(verb, key, reason));
    }

    /// A number that nobody else has.
    pub(in crate::protocol) fn draw(&mut self) -> u64 {
        self.random.u64()
    }

    /// Whether a page of another asks, or a proxy that nobody has named, or for a name that is not this machine's: then the
    /// address of this machine says nothing of who asks.
    pub(in crate::protocol) fn is_foreign(&self, ctx: &Context<'_>, request: &Request) -> bool {
        let is_proxied = self.passed.client == self.peer && cors::is_passed_on(request);
        is_proxied
            || !cors::is_own_page(request, &ctx.server.names, &ctx.server.cors_origins)
            || !cors::is_for_this_machine(request, &ctx.server.names)
    }

    /// Whether the client came over TLS: to this server, or to a proxy that is trusted.
    fn is_secure(&self) -> bool {
        self.passed.secure.unwrap_or(self.secure)
    }

    /// The folder that a trusted proxy took off the path of the request.
    pub(in crate::protocol) fn prefix(&self) -> &str {
        &self.passed.prefix
    }

    /// Has a conversation answer the request.
    pub fn converse(&mut self, asked: Asked, conversation: Box<dyn Conversation>) {
        self.stage = Stage::Signalling(Box::new(Signalling::new(conversation, asked.fields)));
    }

    /// Answers a request, with the fields that came with it.
    pub fn respond(&mut self, now: Now, fields: Vec<(&'static str, String)>, mut response: Response) {
        cors::add(&fields, &mut response.headers);
        self.connection.respond(now.mono, now.wall_ms, response);
    }

    /// Advances the state, when there is no event left.
    fn advance(&mut self, ctx: &Context<'_>) {
        match &mut self.stage {
            Stage::File(transfer) => {
                transfer.pump(ctx.now, &mut self.connection);
                if let Some(ask) = transfer.poll_ask(&self.connection) {
                    self.events.push_back(Event::Job(ask.into()));
                }
                if transfer.is_over() {
                    self.stage = Stage::Idle;
                }
            }
            Stage::Upload(upload) => {
                self.events.extend(upload.pump(ctx.now, &mut self.connection));
                if upload.is_over() {
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
            Stage::Signalling(signalling) => {
                let ended = signalling.drive(ctx, &mut self.connection);
                self.events.extend(signalling.poll_event(ctx));
                let is_over = signalling.is_over();
                if let Some(reason) = ended.filter(|_| !self.closed) {
                    self.closed = true;
                    self.events.push_back(Event::Closed(reason));
                }
                if is_over {
                    self.stage = Stage::Idle;
                }
            }
            Stage::Feed(feed) => {
                if feed.is_over() {
                    self.stage = Stage::Idle;
                }
            }
            Stage::Idle | Stage::Control(_) | Stage::Checked(_) | Stage::Awaited(_) => {}
        }
    }

    /// A reply to the viewer that the connection is.
    fn viewer_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        let Stage::Live(viewer) = &mut self.stage else { return };
        let connection = &mut self.connection;
        let event = match reply {
            Reply::Subscribe { verdict, .. } => {
                self.granted |= verdict.is_ok();
                self.watched |= verdict.is_ok();
                viewer.verdict(ctx, connection, verdict)
            }
            Reply::TracksKnown { tracks, .. } => viewer.tracks(ctx.now, connection, tracks),
            Reply::SubscriptionEnded { end, .. } => {
                viewer.end(ctx.now, connection, end);
                None
            }
            Reply::Publish { .. }
            | Reply::PublicationEnded { .. }
            | Reply::KeyFrameNeeded { .. }
            | Reply::Wanted { .. }
            | Reply::StreamBegun(_)
            | Reply::Rest(_)
            | Reply::Upload(_)
            | Reply::Job(_)
            | Reply::Spawned { .. }
            | Reply::Message { .. }
            | Reply::SessionEnded(_)
            | Reply::Held(_)
            | Reply::Blob
            | Reply::Pass(_)
            | Reply::Carries
            | Reply::Uncarried => None,
        };
        self.events.extend(event);
    }

    fn socket(&mut self) -> Option<&mut websocket::WebSocket> {
        match &mut self.stage {
            Stage::Live(viewer) => viewer.socket(),
            Stage::Signalling(signalling) => signalling.socket(),
            Stage::Idle
            | Stage::Control(_)
            | Stage::Checked(_)
            | Stage::Awaited(_)
            | Stage::Feed(_)
            | Stage::File(_)
            | Stage::Upload(_) => None,
        }
    }
}

impl ByteStream for HttpSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(socket) = self.socket() {
            socket.handle_bytes(ctx.now.mono, bytes);
            return;
        }
        let result = self.connection.handle_bytes(ctx.now.mono, bytes);
        self.drop_on(result);
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
            Stage::Signalling(signalling) => signalling.wants_bytes(&self.connection),
            Stage::Idle
            | Stage::Control(_)
            | Stage::Checked(_)
            | Stage::Awaited(_)
            | Stage::Feed(_)
            | Stage::File(_)
            | Stage::Upload(_) => self.connection.wants_bytes(),
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(out);
        match &mut self.stage {
            Stage::Live(viewer) => viewer.poll_transmit(out),
            Stage::Signalling(signalling) => signalling.poll_transmit(out),
            Stage::Idle
            | Stage::Control(_)
            | Stage::Checked(_)
            | Stage::Awaited(_)
            | Stage::Feed(_)
            | Stage::File(_)
            | Stage::Upload(_) => {}
        }
    }
}

impl Session for HttpSession {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match (event, self.socket()) {
            (PathEvent::Open { .. }, _) => {}
            (PathEvent::PeerClosed | PathEvent::Broken(_), Some(socket)) => socket.handle_eof(ctx.now.mono),
            (PathEvent::PeerClosed, None) => self.connection.handle_eof(ctx.now.mono),
            (PathEvent::Broken(_), None) => self.connection.close(),
        }
    }

    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match (&mut self.stage, reply) {
            (Stage::Control(fields), Reply::Rest(response)) => {
                let fields = std::mem::take(fields);
                self.stage = Stage::Idle;
                self.respond(ctx.now, fields, response);
            }
            (Stage::Feed(feed), Reply::Rest(response)) => {
                feed.answer(ctx.now, &mut self.connection, response);
            }
            (Stage::Checked(_), Reply::Pass(verdict)) => {
                if let Stage::Checked(polled) = std::mem::replace(&mut self.stage, Stage::Idle) {
                    self.passed(ctx, *polled, verdict);
                }
            }
            (Stage::Awaited(_), Reply::Blob) => {
                if let Stage::Awaited(polled) = std::mem::replace(&mut self.stage, Stage::Idle) {
                    self.give(ctx, *polled);
                }
            }
            (Stage::Upload(upload), Reply::Rest(response)) => {
                upload.answer(ctx.now, &mut self.connection, response);
            }
            (Stage::Upload(upload), Reply::Upload(grant)) => {
                // Control counts uploads.
                self.granted = true;
                upload.granted(ctx.now, &mut self.connection, grant);
            }
            (Stage::Upload(upload), Reply::Job(done)) => {
                self.events.extend(upload.job_done(ctx.now, done));
            }
            // No body of this request can come.
            (_, Reply::Upload(_)) => {
                self.events.push_back(Event::Upload(UploadNews::Failed("the request has no form")));
            }
            (Stage::File(transfer), Reply::Job(done)) => {
                let event = transfer.reply(ctx.now, &mut self.connection, done.into());
                self.events.extend(event);
            }
            (Stage::File(_), Reply::Pass(verdict)) => {
                if let Stage::File(transfer) = std::mem::replace(&mut self.stage, Stage::Idle) {
                    self.found(ctx, *transfer, verdict);
                }
            }
            (Stage::Signalling(signalling), reply) => {
                self.granted |= matches!(
                    reply,
                    Reply::Publish { verdict: Ok(_), .. } | Reply::Subscribe { verdict: Ok(_), .. }
                );
                signalling.handle_reply(ctx, reply);
                self.granted |= signalling.is_granted();
            }
            // The answer to a request that is over is nobody's.
            (Stage::Live(viewer), reply) if reply.handle() == Some(viewer.subscription()) => {
                self.viewer_reply(ctx, reply);
            }
            (
                Stage::Idle
                | Stage::Control(_)
                | Stage::Checked(_)
                | Stage::Awaited(_)
                | Stage::Feed(_)
                | Stage::File(_)
                | Stage::Upload(_)
                | Stage::Live(_),
                _,
            ) => {}
        }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let result = self.connection.handle_timeout(ctx.now.mono);
        self.drop_on(result);
        match &mut self.stage {
            Stage::Live(viewer) => {
                let event = viewer.timeout(ctx.now, &mut self.connection);
                self.events.extend(event);
            }
            Stage::Signalling(signalling) => signalling.handle_timeout(ctx),
            Stage::Feed(feed) => {
                let event = feed.timeout(ctx.now, &self.connection);
                self.events.extend(event);
            }
            Stage::Upload(upload) => upload.timeout(ctx.now),
            Stage::Idle | Stage::Control(_) | Stage::Checked(_) | Stage::Awaited(_) | Stage::File(_) => {}
        }
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        if let Stage::Live(viewer) = &mut self.stage {
            viewer.end(ctx.now, &mut self.connection, StreamEnd::Drain);
        }
        if let Stage::Signalling(signalling) = &mut self.stage {
            signalling.say_farewell(ctx.now);
        }
        match self.socket() {
            Some(socket) => socket.close(ctx.now.mono, websocket::code::AWAY, ""),
            None => self.connection.close(),
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        loop {
            if self.events.is_empty() {
                self.advance(ctx);
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
                    return Some(Event::Closed(reason.to_string()));
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.stage {
            Stage::Live(viewer) => viewer.poll_timeout(),
            Stage::Signalling(signalling) => signalling.poll_timeout(),
            Stage::Feed(feed) => feed.poll_timeout(),
            Stage::Upload(upload) => upload.poll_timeout(),
            Stage::Idle | Stage::Control(_) | Stage::Checked(_) | Stage::Awaited(_) | Stage::File(_) => None,
        };
        [self.connection.poll_timeout(), own].into_iter().flatten().min()
    }

    fn about(&self) -> About {
        let protocol = match &self.stage {
            Stage::Live(viewer) if viewer.is_socket() => "ws-flv",
            _ if self.watched => "http-flv",
            Stage::Idle
            | Stage::Control(_)
            | Stage::Checked(_)
            | Stage::Awaited(_)
            | Stage::Feed(_)
            | Stage::File(_)
            | Stage::Upload(_)
            | Stage::Live(_)
            | Stage::Signalling(_) => "http",
        };
        About { protocol, is_media: self.watched, is_authenticated: self.granted }
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }
}

/// Whether a request was answered so that who asked has something.
const fn is_success(status: u16) -> bool {
    status < 400
}

#[cfg(test)]
mod mount_tests;
#[cfg(test)]
mod tests;
