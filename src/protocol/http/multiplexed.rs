//! An HTTP/2 connection (RFC 9113). Each stream has a session of its own, a child of this session. This session puts
//! the output of its children into frames.
//!
//! 1. When a request arrives, its session is created. It is the same [`HttpSession`] as over HTTP/1.1, with the same
//!    table of mounts, responders and limits.
//! 2. Parent and child exchange messages ([`ToStream`], [`FromStream`]). Bodies are passed on as they arrive, answers
//!    as slices that are not copied.
//! 3. A slow stream holds back only its own session, which is notified of the number of bytes sent. The peer's windows
//!    and the transport limit the bytes that are put into frames.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crypto::Seed;
use http2::{Code, Config, Connection, Field, StreamId};
use wire::SendQueue;

use super::substream::{FromStream, ToStream};
use super::{HttpSession, LIMITS};
use crate::http::{End, StreamAnswer, StreamRequest};
use crate::mail::Message;
use crate::protocol::{
    About, ByteStream, Context, Event, FamilyEvent, FamilyNews, PathEvent, PathId, Paths, Reply, Session,
    Timers,
};
use crate::types::{ConnId, Handle, Now, SessionRef};

/// Number of bytes that each field of a list counts in addition to its text (RFC 9113 §6.5.2).
const FIELD_BYTES: usize = 32;

/// The limits of HTTP/1.1, as far as they apply to a connection.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let limits = &**LIMITS;
    Arc::new(Config {
        head_time: limits.head_time,
        idle: limits.idle,
        write_stall: limits.write_stall,
        body_rate_min: limits.body_rate_min,
        header_list_bytes: limits.head_bytes.saturating_add(limits.headers.saturating_mul(FIELD_BYTES)),
        fields: limits.headers,
        ..Config::default()
    })
});

/// The session of an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Http2Session {
    connection: Connection,
    peer: SocketAddr,
    seed: Seed,
    /// Time of the last input.
    now: Instant,
    /// Sessions by stream; `None` while the session is being created.
    streams: BTreeMap<StreamId, Option<SessionRef>>,
    /// Streams by session.
    sessions: BTreeMap<ConnId, StreamId>,
    /// Streams whose sessions are being created, by handle.
    spawning: BTreeMap<Handle, StreamId>,
    /// Handle of the next session.
    next: Handle,
    events: VecDeque<Event>,
    /// True if the peer has been granted anything, and therefore counts as authenticated.
    granted: bool,
}

impl Http2Session {
    /// Makes the session of a connection whose peer speaks HTTP/2.
    pub(super) fn new(now: Now, peer: SocketAddr, seed: Seed) -> Self {
        Self {
            connection: Connection::new(now.mono, Arc::clone(&CONFIG)),
            peer,
            seed,
            now: now.mono,
            streams: BTreeMap::new(),
            sessions: BTreeMap::new(),
            spawning: BTreeMap::new(),
            next: Handle::default(),
            events: VecDeque::new(),
            granted: false,
        }
    }

    fn handle(&mut self, now: Now, event: http2::Event) {
        match event {
            http2::Event::Request { stream, request, has_body } => {
                self.spawn(now, stream, *request, has_body)
            }
            http2::Event::Body { stream, bytes } => self.tell(stream, ToStream::Body(bytes)),
            http2::Event::BodyEnd { stream, .. } => self.tell(stream, ToStream::End),
            http2::Event::Sent { stream, bytes } => self.tell(stream, ToStream::Sent(bytes)),
            http2::Event::Reset { stream, .. } => {
                self.tell(stream, ToStream::Reset);
                self.forget(stream);
            }
            http2::Event::Closed(reason) => {
                let streams: Vec<StreamId> = self.streams.keys().copied().collect();
                for stream in streams {
                    self.tell(stream, ToStream::Reset);
                }
                self.streams.clear();
                self.sessions.clear();
                self.spawning.clear();
                self.events.push_back(Event::Closed(reason.to_string()));
            }
        }
    }

    /// Creates the session of a stream.
    fn spawn(&mut self, now: Now, stream: StreamId, request: http2::Request, has_body: bool) {
        let request = StreamRequest {
            method: request.method,
            authority: request.authority,
            target: request.path,
            protocol: request.protocol,
            fields: request.fields.into_iter().map(|Field { name, value }| (name, value)).collect(),
            has_body,
            length: request.content_length,
        };
        let seed = self.seed.derive("stream", u64::from(stream.0));
        let session = HttpSession::of_stream(now, self.peer, &seed, &request);
        let child = self.next;
        self.next = Handle(child.0.wrapping_add(1));
        self.streams.insert(stream, None);
        self.spawning.insert(child, stream);
        self.events.push_back(Event::Family(FamilyEvent::Spawn { child, session: Box::new(session) }));
    }

    /// Handles the result of creating a session.
    fn spawned(&mut self, child: Handle, session: Option<SessionRef>) {
        let Some(stream) = self.spawning.remove(&child) else {
            // The stream has ended in the meantime.
            self.events.extend(session.map(|to| told(to, ToStream::Reset)));
            return;
        };
        match session {
            Some(session) => {
                self.streams.insert(stream, Some(session));
                self.sessions.insert(session.conn, stream);
                self.tell(stream, ToStream::Begin);
            }
            None => {
                self.streams.remove(&stream);
                self.connection.reset(self.now, stream, Code::REFUSED_STREAM);
            }
        }
    }

    fn tell(&mut self, stream: StreamId, message: ToStream) {
        let session = self.streams.get(&stream).copied().flatten();
        self.events.extend(session.map(|to| told(to, message)));
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(Some(session)) = self.streams.remove(&stream) {
            self.sessions.remove(&session.conn);
        }
        self.spawning.retain(|_, spawning| *spawning != stream);
    }

    /// Handles output of a stream's session.
    fn answered(&mut self, stream: StreamId, news: &FromStream) {
        let now = self.now;
        self.granted |= news.granted;
        if news.released > 0 {
            self.connection.release(now, stream, news.released);
        }
        let StreamAnswer { heads, parts, end } = &news.answer;
        let is_bare = parts.is_empty() && *end == Some(End::Whole);
        for head in heads {
            let field = |(name, value): &(String, String)| Field::new(name.clone(), value.clone());
            let fields: Vec<Field> = head.fields.iter().map(field).collect();
            self.connection.respond(now, stream, head.status, &fields, is_bare);
        }
        for part in parts {
            self.connection.send_body(now, stream, part.clone());
        }
        match end {
            Some(End::Whole) => self.connection.end_body(stream, Vec::new()),
            Some(End::Cut) => self.connection.reset(now, stream, Code::INTERNAL_ERROR),
            None => return,
        }
        self.forget(stream);
    }
}

fn told(to: SessionRef, message: ToStream) -> Event {
    Event::Family(FamilyEvent::Tell { to, message: Message::new(message) })
}

impl Session for Http2Session {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        self.now = ctx.now.mono;
        let Reply::Family(news) = reply else { return };
        match news {
            FamilyNews::Spawned { child, session } => self.spawned(child, session),
            FamilyNews::Message { from, message } => {
                if let Some(stream) = self.sessions.get(&from.conn).copied()
                    && let Some(news) = message.content::<FromStream>()
                {
                    self.answered(stream, news);
                }
            }
            FamilyNews::Ended(session) => {
                if let Some(stream) = self.sessions.get(&session.conn).copied() {
                    // The session has ended before its answer was complete.
                    self.forget(stream);
                    self.connection.reset(self.now, stream, Code::INTERNAL_ERROR);
                }
            }
        }
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        self.connection.close(ctx.now.mono);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.connection.poll_event()?;
            self.handle(ctx.now, event);
        }
    }

    fn about(&self) -> About {
        About { protocol: "http", is_media: false, is_authenticated: self.granted }
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

impl ByteStream for Http2Session {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        self.now = ctx.now.mono;
        if let Err(error) = self.connection.handle_bytes(self.now, bytes) {
            tracing::debug!(%error, "HTTP/2 connection dropped");
        }
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize) {
        self.now = ctx.now.mono;
        self.connection.handle_sent(self.now, bytes);
    }

    fn wants_bytes(&self) -> bool {
        self.connection.wants_bytes()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.connection.poll_transmit(self.now, out);
    }
}

impl Timers for Http2Session {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.now = ctx.now.mono;
        if let Err(error) = self.connection.handle_timeout(self.now) {
            tracing::debug!(%error, "HTTP/2 connection dropped");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }
}

impl Paths for Http2Session {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed | PathEvent::Broken(_) => self.connection.handle_eof(ctx.now.mono),
        }
    }
}

/// A connection of HTTP over TLS. It uses HTTP/1.1 unless the peer negotiates HTTP/2 (RFC 9113 §3.2).
#[derive(Debug)]
pub(super) struct HttpsSession {
    session: Box<dyn Session>,
    /// Parameters for an HTTP/2 session, if the peer negotiates HTTP/2.
    start: Box<(SocketAddr, Seed)>,
}

impl HttpsSession {
    /// Makes the session of an accepted connection.
    pub(super) fn new(now: Now, peer: SocketAddr, seed: Seed) -> Self {
        let session = Box::new(HttpSession::over_tls(now, peer, &seed));
        Self { session, start: Box::new((peer, seed)) }
    }
}

impl Session for HttpsSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        self.session.handle_reply(ctx, reply);
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.session.close(ctx, reason);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.session.poll_event(ctx)
    }

    fn about(&self) -> About {
        self.session.about()
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        self.session.timers()
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        self.session.byte_stream()
    }
}

impl Paths for HttpsSession {
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        if event == PathEvent::Negotiated("h2") {
            let (peer, seed) = &*self.start;
            self.session = Box::new(Http2Session::new(ctx.now, *peer, seed.clone()));
        } else if let Some(paths) = self.session.paths() {
            paths.handle_path(ctx, path, event);
        }
    }
}
