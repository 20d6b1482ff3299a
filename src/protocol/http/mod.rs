//! HTTP connections: a router for the API of control, files, and the mounts of other protocols.
//!
//! Requests are answered one at a time. `mounts` has the table of paths. The rules of a path for origins, methods and
//! bodies are enforced before its handler gets the request (docs/http.md). The handler answers the request, or makes a
//! [`Responder`] that answers it later.

mod feed;
mod file_jobs;
mod files;
mod mounts;
mod multiplexed;
mod pages;
mod polled;
mod redirect;
pub(in crate::protocol) mod responder;
pub(in crate::protocol) mod settings;
mod signalling;
mod substream;
mod taken;
mod upload;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::Seed;
use wire::SendQueue;

use super::first_bytes::FirstBytes;
use super::row::{Bind, Listener, Protocol, Security};
use super::{
    About, ByteStream, Context, Event, FamilyNews, PathEvent, PathId, Paths, RefusedRequest, Reply,
    RequestEvent, RequestNews, Session, Timers, UnitSink, Verb,
};
use crate::auth::proxy;
use crate::http::cors::{self, Verdict};
use crate::http::{self, Mounts, Request, Response, StreamRequest};
use crate::mail::UploadNews;
use crate::types::{Handle, Now, StreamKey};
use feed::Feed;
use file_jobs::FileAsk;
use files::{FilePath, Nowhere, Transfer};
pub use mounts::{Asked, Handler};
use multiplexed::HttpsSession;
pub use pages::has_page;
pub use polled::VOD;
use redirect::Redirect;
use responder::{Link, Next, OfControl, Responder};
pub use settings::speaks_http2;
use signalling::Signalling;
pub use signalling::{Action, Conversation};
use substream::{Substream, ToStream};
use taken::Taken;
use upload::Upload;

/// HTTP's entry in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        Listener {
            name: "http",
            security: Security::Plain,
            manages: true,
            publishers: false,
            beside: None,
            first_bytes: FirstBytes::Shared(settings::shares_ports),
            listen: |server| Some(Bind { host: server.http_host, port: server.http_port, key: "http.port" }),
            begin: |now, peer, seed| Box::new(HttpSession::new(now, peer, &seed)),
        },
        Listener {
            name: "https",
            security: Security::TlsHttp,
            manages: true,
            publishers: false,
            beside: None,
            first_bytes: FirstBytes::Shared(settings::shares_ports),
            listen: |server| {
                Some(Bind { host: server.http_host, port: server.https_port?, key: "https.port" })
            },
            begin: |now, peer, seed| Box::new(HttpsSession::new(now, peer, seed)),
        },
    ],
    section: &settings::SECTION,
    ..Protocol::NONE
};

/// The limits, shared by all connections.
static LIMITS: LazyLock<Arc<http::Limits>> = LazyLock::new(Arc::default);

/// HSTS value: a browser that has loaded the server's pages over TLS uses TLS for a year.
const HSTS: &str = "max-age=31536000;includeSubDomains";

/// Fields added to the response of a request.
pub(in crate::protocol) type Fields = Vec<(&'static str, String)>;

/// The session of an HTTP/1.1 connection, or of a stream of HTTP/2.
#[derive(Debug)]
pub struct HttpSession {
    link: Link,
    peer: IpAddr,
    /// True if the connection uses TLS.
    secure: bool,
    mounts: Mounts<Handler>,
    /// The responder that answers the outstanding request.
    responder: Option<Box<dyn Responder>>,
    /// Number of subscriptions begun so far. The next subscription gets it as its handle.
    subscriptions: u16,
    /// The link to the parent connection, if this session is a stream of HTTP/2.
    substream: Option<Box<Substream>>,
}

impl HttpSession {
    /// Makes the session of an accepted connection.
    #[must_use]
    pub(super) fn new(now: Now, peer: SocketAddr, seed: &Seed) -> Self {
        Self::with_mounts(now, peer, seed, &mounts::MOUNTS)
    }

    /// Makes the session of an accepted connection with this table of mounts.
    #[must_use]
    pub fn with_mounts(now: Now, peer: SocketAddr, seed: &Seed, mounts: &'static Mounts<Handler>) -> Self {
        let peer = peer.ip().to_canonical();
        let connection = http::Connection::new(now.mono, Arc::clone(&LIMITS)).with_bodies(mounts);
        Self {
            link: Link::new(connection, peer, seed),
            peer,
            secure: false,
            mounts: *mounts,
            responder: None,
            subscriptions: 0,
            substream: None,
        }
    }

    /// Makes the session of a stream of an HTTP/2 connection over TLS.
    pub(super) fn of_stream(now: Now, peer: SocketAddr, seed: &Seed, request: &StreamRequest) -> Self {
        let connection =
            http::Connection::of_stream(now.mono, Arc::clone(&LIMITS), &*mounts::MOUNTS, request);
        let mut session = Self::over_tls(now, peer, seed);
        session.link.connection = connection;
        session.substream = Some(Box::default());
        session
    }

    /// Makes the session of an accepted connection over TLS.
    #[must_use]
    pub(super) fn over_tls(now: Now, peer: SocketAddr, seed: &Seed) -> Self {
        Self { secure: true, ..Self::new(now, peer, seed) }
    }

    /// Passes a request to the handler of its mount.
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
        if passed.client != self.link.passed.client {
            self.link.tell(Event::Request(RequestEvent::Client(passed.client)));
        }
        self.link.passed = passed;
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
        // This process takes no new clients any more. A client or proxy whose connection is closed after this response
        // sends its next request to the process that does. Viewers of a playlist may stay here.
        let is_watching = || FilePath::of(&request.path, ctx.apps).is_ok_and(|file| file.is_stream());
        if ctx.server.retires && self.substream.is_none() && !is_watching() {
            fields.push(("Connection", "close".to_owned()));
        }
        match mount.refusal(&request) {
            Some(refusal) => self.respond(ctx.now, fields, refusal),
            None => self.handle(ctx, mount.handler, Asked { request, captures, fields }),
        }
    }

    /// Starts the handler of a request, unless another node may have to answer it.
    fn handle(&mut self, ctx: &Context<'_>, handler: Handler, asked: Asked) {
        match redirect::subject(ctx, &asked) {
            Some(sought) => {
                let redirect = Redirect::begin(&mut self.link, sought, handler, asked);
                self.begin(redirect);
            }
            None => handler(self, ctx, asked),
        }
    }

    /// Handler of requests that control answers.
    fn control(&mut self, _ctx: &Context<'_>, asked: Asked) {
        let Asked { request, fields, .. } = asked.of_api();
        let request = Box::new(request);
        let secure = self.is_secure();
        if request.body_waits {
            self.begin(Taken::new(request.clone(), fields, secure));
        } else {
            self.begin(OfControl(fields));
        }
        self.link.tell(Event::Request(RequestEvent::Rest { request, secure }));
    }

    /// Handler of uploads. Control answers the request, or accepts its body, which is a file.
    fn upload(&mut self, ctx: &Context<'_>, asked: Asked) {
        let form = asked.request.header("content-type").and_then(http::Multipart::of);
        let Some(form) = form.filter(|_| self.link.connection.has_incoming_body()) else {
            return self.control(ctx, asked);
        };
        let Asked { mut request, fields, .. } = asked.of_api();
        // The upload itself will read the body.
        request.body_waits = false;
        self.begin(Upload::new(fields, form));
        self.link.tell(Event::Request(RequestEvent::Rest {
            request: Box::new(request),
            secure: self.is_secure(),
        }));
    }

    /// Handler of requests that control answers either once, or repeatedly as a feed of events.
    fn feed(&mut self, ctx: &Context<'_>, asked: Asked) {
        if !feed::is_wanted(&asked.request) {
            return self.control(ctx, asked);
        }
        let Asked { request, fields, .. } = asked.of_api();
        let (feed, question) = Feed::begin(request, fields, self.is_secure());
        self.begin(feed);
        self.link.tell(question);
    }

    /// Handler of files below `webapps` and of built-in pages.
    fn file(&mut self, ctx: &Context<'_>, asked: Asked) {
        let Asked { request, fields, .. } = asked;
        let refusal = match FilePath::of(&request.path, ctx.apps) {
            Ok(file) if file.is_stream() => {
                let next = polled::begin(ctx, &mut self.link, request, file, fields);
                return self.go_on(ctx, next);
            }
            Ok(file) => {
                let (transfer, ask) = Transfer::begin(request, file, fields);
                self.link.tell(Event::Job(ask.into()));
                self.begin(transfer);
                return;
            }
            Err(Nowhere::Hidden) => Response::error(404, "Not Found"),
            Err(Nowhere::Forbidden) => Response::error(403, "Forbidden"),
        };
        self.respond(ctx.now, fields, refusal);
    }

    /// Handler of the picture of a stream, as JPEG.
    fn snapshot(&mut self, ctx: &Context<'_>, asked: Asked) {
        let file = FilePath::of_picture(asked.name("app"), asked.name("id"), ctx.apps);
        let Asked { request, fields, .. } = asked;
        let Some(file) = file else {
            let none =
                Response::json(404, r#"{"success":false,"message":"Not Found","dataId":null,"errorId":0}"#);
            return self.respond(ctx.now, fields, none);
        };
        let next = polled::begin(ctx, &mut self.link, request, file, fields);
        self.go_on(ctx, next);
    }

    /// Handler of ACME challenges. An ACME client on this machine writes the answers to a folder.
    fn challenge(&mut self, ctx: &Context<'_>, asked: Asked) {
        let token = asked.name("token").to_owned();
        let Asked { request, fields, .. } = asked;
        if !files::is_challenge(&token) {
            return self.respond(ctx.now, fields, Response::error(404, "Not Found"));
        }
        let transfer = Transfer::of_challenge(request, token.clone(), fields);
        self.link.tell(Event::Job(FileAsk::Challenge { token }.into()));
        self.begin(transfer);
    }

    /// Reports, for the log, that this session has refused a request for a stream.
    pub(in crate::protocol) fn note_refusal(&mut self, verb: Verb, key: &StreamKey, reason: String) {
        self.link.tell(RefusedRequest::event(verb, key, reason));
    }

    /// Draws a random number that no other session has.
    pub(in crate::protocol) fn draw(&mut self) -> u64 {
        self.link.draw()
    }

    /// True if a request from this machine's address must not be trusted as local: it comes from a page of another
    /// origin, was forwarded by a proxy that is not configured, or names a host that is not this machine.
    pub(in crate::protocol) fn is_foreign(&self, ctx: &Context<'_>, request: &Request) -> bool {
        let is_proxied = self.link.passed.client == self.peer && cors::is_passed_on(request);
        is_proxied
            || !cors::is_own_page(request, &ctx.server.names, &ctx.server.cors_origins)
            || !cors::is_for_this_machine(request, &ctx.server.names)
    }

    /// True if the client uses TLS, to this server or to a trusted proxy.
    fn is_secure(&self) -> bool {
        self.link.passed.secure.unwrap_or(self.secure)
    }

    /// Returns the path prefix that a trusted proxy has removed from the request's path.
    pub(in crate::protocol) fn prefix(&self) -> &str {
        &self.link.passed.prefix
    }

    /// Lets a conversation answer the current request.
    pub fn converse(&mut self, asked: Asked, conversation: Box<dyn Conversation>) {
        self.begin(Signalling::new(conversation, asked.fields));
    }

    /// Answers the current request. `fields` are added to the response.
    pub fn respond(&mut self, now: Now, fields: Fields, response: Response) {
        self.link.respond(now, &fields, response);
    }

    /// Returns the handle of a new subscription.
    pub(in crate::protocol) fn next_subscription(&mut self) -> Handle {
        let subscription = Handle(self.subscriptions);
        self.subscriptions = self.subscriptions.wrapping_add(1);
        subscription
    }

    /// Queues an event for the worker.
    pub(in crate::protocol) fn tell(&mut self, event: Event) {
        self.link.tell(event);
    }

    /// Lets a responder answer the current request.
    pub(in crate::protocol) fn begin(&mut self, responder: impl Responder + 'static) {
        self.responder = Some(Box::new(responder));
    }

    fn go_on(&mut self, ctx: &Context<'_>, next: Next) {
        match next {
            Next::Stay => {}
            Next::Over => self.responder = None,
            Next::Become(responder) => self.responder = Some(responder),
            Next::Route(asked) => {
                let (handler, asked) = *asked;
                self.responder = None;
                handler(self, ctx, asked);
            }
        }
    }
}

impl ByteStream for HttpSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        self.link.handle_bytes(ctx.now, bytes);
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize) {
        self.link.handle_sent(ctx.now, bytes);
    }

    fn wants_bytes(&self) -> bool {
        self.link.wants_bytes()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.link.poll_transmit(out);
    }
}

impl Session for HttpSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let (Some(substream), Reply::Family(news)) = (&mut self.substream, &reply) {
            match news {
                FamilyNews::Message { from, message } => {
                    if let Some(message) = message.content::<ToStream>() {
                        return substream.hear(ctx.now, &mut self.link, *from, message);
                    }
                }
                FamilyNews::Ended(session) if substream.is_parent(*session) => {
                    return substream.leave(&mut self.link, "the connection has ended");
                }
                FamilyNews::Ended(_) | FamilyNews::Spawned { .. } => {}
            }
        }
        let takes_upload = self.responder.as_ref().is_some_and(|responder| responder.takes_upload());
        if !takes_upload && matches!(reply, Reply::Request(RequestNews::Upload(_))) {
            // This request has no body that could be uploaded.
            let failed = UploadNews::Failed("the request has no form");
            return self.link.tell(Event::Request(RequestEvent::Upload(failed)));
        }
        // If the request has ended, no responder waits for the answer.
        let Some(responder) = &mut self.responder else { return };
        let next = responder.handle_reply(ctx, &mut self.link, reply);
        self.go_on(ctx, next);
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        match &mut self.responder {
            Some(responder) => responder.close(ctx, &mut self.link),
            None => self.link.close(ctx.now),
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        let event = self.next_event(ctx);
        match &mut self.substream {
            Some(substream) => substream.poll_event(&mut self.link, event),
            None => event,
        }
    }

    fn about(&self) -> About {
        let Link { protocol, granted, watched, .. } = &self.link;
        About { protocol, is_media: *watched, is_authenticated: *granted }
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

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        self.substream.as_mut().map(|substream| -> &mut dyn UnitSink { substream.as_mut() })
    }
}

impl HttpSession {
    fn next_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        loop {
            if self.link.events.is_empty()
                && let Some(responder) = &mut self.responder
            {
                let next = responder.advance(ctx, &mut self.link);
                self.go_on(ctx, next);
            }
            if let Some(event) = self.link.events.pop_front() {
                return Some(event);
            }
            if self.link.has_ended() {
                return None;
            }
            match self.link.connection.poll_event()? {
                http::Event::Request(request) => self.route(ctx, request),
                http::Event::Closed(reason) => {
                    // Dropping the responder closes its file.
                    self.responder = None;
                    self.link.end(reason.to_string());
                }
            }
        }
    }
}

impl Timers for HttpSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.link.handle_timeout(ctx.now);
        let Some(responder) = &mut self.responder else { return };
        let next = responder.handle_timeout(ctx, &mut self.link);
        self.go_on(ctx, next);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = self.responder.as_ref().and_then(|responder| responder.poll_timeout());
        [self.link.poll_timeout(), own].into_iter().flatten().min()
    }
}

impl Paths for HttpSession {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.link.handle_eof(ctx.now),
            PathEvent::Broken(_) => self.link.break_off(ctx.now),
        }
    }
}

/// True if a status does not report an error.
const fn is_success(status: u16) -> bool {
    status < 400
}

#[cfg(test)]
mod mount_tests;
#[cfg(test)]
mod tests;
