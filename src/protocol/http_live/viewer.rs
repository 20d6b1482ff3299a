//! A viewer of HTTP-FLV or WS-FLV, from the verdict on its subscription to the last byte. Units are sent directly
//! from the hub to the socket. This session sends only the bytes before the units, and the end.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use flv::file::Header;
use media::Tracks;

use super::{BOTH, FLV, WS_FLV, file_header, header};
use crate::http::websocket::{self, code};
use crate::http::{BodyLength, Method, Response};
use crate::mail::{NoSubscription, StreamEnd};
use crate::protocol::http::responder::{Link, Next, Responder};
use crate::protocol::http::{Asked, Fields, HttpSession};
use crate::protocol::{
    Context, Event, Format, PlayAsk, Reply, SubscriptionEvent, SubscriptionNews, asked_selection,
};
use crate::types::{Handle, Now, StreamKey};

/// Maximum time to wait for the tracks of a stream. After it, the file header announces both audio and video.
const TRACKS_WAIT: Duration = Duration::from_millis(500);

/// The limits of docs/robustness.md, shared by all connections.
static LIMITS: LazyLock<Arc<websocket::Limits>> = LazyLock::new(Arc::default);

/// Names of the two protocols, for logs and counters.
const OVER_HTTP: &str = "http-flv";
const OVER_WS: &str = "ws-flv";

/// The stage of a viewer.
#[derive(Debug)]
enum Stage {
    /// The worker was asked.
    Asked,
    /// The viewer is subscribed, and its subscription is paused until the tracks are known or `until` has passed.
    Waiting { until: Instant },
    /// Tags are sent as the body of the response.
    Body,
    /// Tags are sent as WebSocket messages.
    Messages,
    /// The stream has ended.
    Over,
}

/// Handler of viewers of a live stream.
pub(super) fn play(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    let key = StreamKey::new(asked.name("app"), asked.name("id"));
    let Asked { request, fields, .. } = asked;
    let mut upgrade = None;
    if websocket::is_upgrade(&request) {
        // Playing does not depend on a browser's credentials, so pages of any origin may connect, as over HTTP.
        match websocket::accept(&request, |_| true) {
            Ok(response) => upgrade = Some(response),
            Err(refusal) => return session.respond(ctx.now, fields, refusal),
        }
    }
    let subscription = session.next_subscription();
    let mut viewer = Viewer::new(subscription, key, upgrade, fields, request.method == Method::Head);
    let origin = request.header("origin").unwrap_or("").to_owned();
    let ask = viewer.ask(request.query, origin);
    session.tell(Event::Subscription(subscription, SubscriptionEvent::Subscribe(ask)));
    session.begin(viewer);
}

/// A viewer of a live stream.
#[derive(Debug)]
struct Viewer {
    stage: Stage,
    subscription: Handle,
    /// The stream being watched.
    key: StreamKey,
    format: Format,
    /// The 101 response to send, for WS-FLV.
    upgrade: Option<Response>,
    /// Header fields of every response.
    fields: Fields,
    head_only: bool,
}

impl Viewer {
    const fn new(
        subscription: Handle,
        key: StreamKey,
        upgrade: Option<Response>,
        fields: Fields,
        head_only: bool,
    ) -> Self {
        let format = Format::new(&FLV, 0);
        Self { stage: Stage::Asked, subscription, key, format, upgrade, fields, head_only }
    }

    fn format(&mut self, params: &[(String, String)]) -> Format {
        let kind = if self.upgrade.is_some() { &WS_FLV } else { &FLV };
        self.format = Format::new(kind, 0).select(asked_selection(params).unwrap_or_default());
        self.format
    }

    /// Makes the request to the worker.
    fn ask(&mut self, params: Vec<(String, String)>, origin: String) -> PlayAsk {
        PlayAsk {
            key: self.key.clone(),
            format: self.format(&params),
            params,
            origin,
            via: Vec::new(),
            takes_subtracks: false,
        }
    }

    /// Handles the worker's verdict. Returns the event for the worker.
    fn verdict(
        &mut self,
        ctx: &Context<'_>,
        link: &mut Link,
        verdict: Result<&Tracks, NoSubscription>,
    ) -> Option<SubscriptionEvent> {
        let tracks = match verdict {
            Ok(tracks) => tracks,
            Err(why) => {
                self.refuse(ctx.now, link, &why);
                return None;
            }
        };
        link.granted = true;
        link.watched = true;
        link.protocol = OVER_HTTP;
        if self.head_only {
            link.connection.begin(ctx.now.mono, ctx.now.wall_ms, &self.head(), BodyLength::UntilClose);
            self.stage = Stage::Over;
            return Some(SubscriptionEvent::Unsubscribe);
        }
        match header(&self.format.choose(tracks)) {
            Some(header) => {
                self.start(ctx.now, link, header);
                None
            }
            None => {
                let until = ctx.now.mono.checked_add(TRACKS_WAIT).unwrap_or(ctx.now.mono);
                self.stage = Stage::Waiting { until };
                Some(SubscriptionEvent::Pause(true))
            }
        }
    }

    /// Ends the viewer, because the stream has ended or the server is shutting down.
    fn end(&mut self, now: Now, link: &mut Link, end: StreamEnd) {
        let (why, goodbye) = match end {
            StreamEnd::Drain => (NoSubscription::Draining, code::AWAY),
            StreamEnd::Unpublished
            | StreamEnd::GraceOver
            | StreamEnd::Stopped
            | StreamEnd::Unaccepted(_)
            | StreamEnd::Deleted
            | StreamEnd::Superseded => (NoSubscription::NotFound, code::NORMAL),
        };
        match self.stage {
            Stage::Asked | Stage::Waiting { .. } => self.refuse(now, link, &why),
            Stage::Body => link.connection.end_body(now.mono),
            Stage::Messages => {
                if let Some(socket) = &mut link.socket {
                    socket.close(now.mono, goodbye, "");
                }
            }
            Stage::Over => {}
        }
    }

    fn end_wait(&mut self, now: Now, link: &mut Link, header: Header) -> Option<SubscriptionEvent> {
        if !matches!(self.stage, Stage::Waiting { .. }) {
            return None;
        }
        self.start(now, link, header);
        Some(SubscriptionEvent::Pause(false))
    }

    fn next(&self) -> Next {
        if matches!(self.stage, Stage::Over) { Next::Over } else { Next::Stay }
    }

    /// Sends the bytes before the first tag.
    fn start(&mut self, now: Now, link: &mut Link, header: Header) {
        let first = file_header(header);
        let Some(upgrade) = self.upgrade.take() else {
            if link.connection.begin(now.mono, now.wall_ms, &self.head(), BodyLength::UntilClose) {
                link.connection.body(now.mono, first);
                self.stage = Stage::Body;
            }
            return;
        };
        let Some(socket) = link.upgrade(now, &upgrade, &LIMITS) else {
            self.stage = Stage::Over;
            return;
        };
        // The queue is new, so it has room for a header.
        let _ = socket.send_binary(now.mono, first);
        link.protocol = OVER_WS;
        self.stage = Stage::Messages;
    }

    fn head(&self) -> Response {
        let mut head = Response::empty(200)
            .header("Content-Type", "video/x-flv")
            .header("Cache-Control", "no-store")
            .close();
        crate::http::cors::add(&self.fields, &mut head.headers);
        head
    }

    fn refuse(&mut self, now: Now, link: &mut Link, why: &NoSubscription) {
        link.respond(now, &self.fields, refusal(why, &self.key.id));
        self.stage = Stage::Over;
    }
}

impl Responder for Viewer {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        let Reply::Subscription(subscription, news) = reply else { return Next::Stay };
        if subscription != self.subscription {
            return Next::Stay;
        }
        let event = match news {
            SubscriptionNews::Verdict(verdict) => self.verdict(ctx, link, verdict),
            SubscriptionNews::TracksKnown(tracks) => {
                header(&self.format.choose(tracks)).and_then(|header| self.end_wait(ctx.now, link, header))
            }
            SubscriptionNews::Ended(end) => {
                self.end(ctx.now, link, end);
                None
            }
            SubscriptionNews::Held
            | SubscriptionNews::Seasoned
            | SubscriptionNews::KindAdded(_)
            | SubscriptionNews::Zero(_)
            | SubscriptionNews::Subtracks(_) => None,
        };
        link.events.extend(event.map(|event| Event::Subscription(self.subscription, event)));
        Next::Stay
    }

    fn advance(&mut self, _ctx: &Context<'_>, link: &mut Link) -> Next {
        let mut ended = None;
        // Frames from the peer are discarded while the socket closes.
        while let Some(event) = link.socket.as_mut().and_then(|socket| socket.poll_event()) {
            if let websocket::Event::Closed(reason) = event {
                ended = Some(reason.to_string());
            }
        }
        if let Some(reason) = ended {
            link.end(reason);
        }
        self.next()
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        if let Stage::Waiting { until } = self.stage
            && until <= ctx.now.mono
        {
            let event = self.end_wait(ctx.now, link, BOTH);
            link.events.extend(event.map(|event| Event::Subscription(self.subscription, event)));
        }
        Next::Stay
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting { until } => Some(until),
            Stage::Asked | Stage::Body | Stage::Messages | Stage::Over => None,
        }
    }

    fn close(&mut self, ctx: &Context<'_>, link: &mut Link) {
        self.end(ctx.now, link, StreamEnd::Drain);
        link.close(ctx.now);
    }
}

/// Returns the response to a refusal (docs/http.md).
fn refusal(why: &NoSubscription, stream: &str) -> Response {
    match why {
        NoSubscription::NotFound | NoSubscription::Disabled => Response::error(404, "No such stream"),
        NoSubscription::Denied(denial) => Response::error(403, &denial.text(stream)),
        NoSubscription::Draining | NoSubscription::Resources => {
            Response::error(503, why.reason()).header("Retry-After", "5")
        }
    }
}
